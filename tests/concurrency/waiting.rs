//! Calls that wait: for a key, for a change, for the end of a long call.
//!
//! Belongs here: no wake-up is lost or duplicated, no client overtakes another, and there is no deadlock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use redlatch_core::keyspace::{Keyspace, Serve, ShardSet, View, Waiter};
use redlatch_core::state::clients::Client;
use redlatch_core::state::registries::Registries;
use redlatch_core::state::settings::Events;
use redlatch_core::state::transaction::Watching;
use redlatch_core::state::wait::{Claim, Place, Wait, WaitEnd, WaitFor};
use redlatch_core::types::list::End;
use redlatch_core::types::{List, Shape};
use redlatch_proto::clock::LockTime;
use shuttle::thread;

use crate::{at, keyspace, under_every_schedule};

/// The elements that blocked calls received, in order.
#[derive(Debug, Default)]
struct Given(Mutex<VecDeque<(&'static str, Vec<u8>)>>);

impl Given {
    fn note(&self, name: &'static str, element: &[u8]) {
        self.0.lock().expect("one thread at a time").push_back((name, element.to_vec()));
    }

    fn all(&self) -> Vec<(&'static str, Vec<u8>)> {
        self.0.lock().expect("one thread at a time").iter().cloned().collect()
    }
}

/// Takes the first element of a list; moves it to another list, if one is given.
#[derive(Debug)]
struct Take {
    name: &'static str,
    to: Option<&'static [u8]>,
    given: Arc<Given>,
}

impl Serve for Take {
    fn is_ready(&self, view: &mut View<'_>, key: &[u8]) -> bool {
        matches!(view.find::<List>(key), Ok(Some(_)))
    }

    fn serve(&self, view: &mut View<'_>, key: &[u8]) {
        let element = pop(view, key).expect("asked only when there is something");
        if let Some(to) = self.to {
            view.open::<List>(to).expect("a list").push(End::Tail, &element);
        }
        self.given.note(self.name, &element);
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

fn pop(view: &mut View<'_>, key: &[u8]) -> Option<Vec<u8>> {
    let mut list = view.find::<List>(key).expect("a list")?;
    list.pop(End::Head).map(|element| element.to_vec())
}

fn view<'k>(keyspace: &'k Keyspace, keys: &[&[u8]]) -> View<'k> {
    View::lock(keyspace, ShardSet::Keys(keys), 0, at(1), Events::default())
}

fn push(keyspace: &Keyspace, key: &[u8], element: &[u8]) {
    let mut view = view(keyspace, &[key]);
    view.open::<List>(key).expect("a list").push(End::Tail, element);
    view.finish(&Registries::default());
}

/// A blocking pop: takes an element or parks, under one lock. The claim says whether it waits.
fn pop_or_wait(keyspace: &Keyspace, take: Take, keys: &[&'static [u8]]) -> Arc<Wait> {
    let also: Vec<&[u8]> = take.to.into_iter().collect();
    let owned = |keys: &[&'static [u8]]| keys.iter().map(|key| Bytes::from_static(key)).collect();
    let wait = Wait {
        place: Place::default(),
        kind: WaitFor::Values,
        until: None,
        answer: Vec::new(),
        is_muted: false,
        database: 0,
        keys: owned(keys),
        claim: Claim::default(),
        left: Default::default(),
        unblocked: Default::default(),
    };
    let mut view = view(keyspace, &[keys, &also].concat());
    let wait = Arc::new(Wait { place: view.queues().next_place(0), ..wait });
    for key in keys {
        if take.is_ready(&mut view, key) {
            wait.claim.take();
            take.serve(&mut view, key);
            view.finish(&Registries::default());
            return wait;
        }
    }
    let also = take.to.iter().map(|key| Bytes::from_static(key)).collect();
    let waiter = Waiter::new(keyspace.ledger(), Arc::clone(&wait), also, Box::new(take));
    view.queues().park(&Arc::new(waiter));
    view.finish(&Registries::default());
    wait
}

fn rest(keyspace: &Keyspace, key: &[u8]) -> usize {
    view(keyspace, &[key]).read_as::<List>(key).expect("a list").map_or(0, Shape::len)
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("a thread that ends"));
}

#[test]
fn no_wake_up_is_lost_and_none_comes_twice() {
    under_every_schedule(|| {
        let keyspace = keyspace(None, || {});
        let given = Arc::new(Given::default());
        let take = Take { name: "waiter", to: None, given: Arc::clone(&given) };
        let waiter = {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || {
                pop_or_wait(&keyspace, take, &[b"one", b"three"]);
            })
        };
        // Two keys of different shards are written at the same time: the claim lets only one of them serve the call.
        let pushers = [b"one".as_slice(), b"three"].map(|key| {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || push(&keyspace, key, key))
        });
        join(pushers.into_iter().chain([waiter]));
        assert_eq!(given.all().len(), 1, "one call is given one element: {:?}", given.all());
        assert_eq!(rest(&keyspace, b"one") + rest(&keyspace, b"three"), 1, "and the other stays");
        keyspace.assert_laws();
    });
}

#[test]
fn a_wait_that_gives_up_is_not_served_and_one_that_is_served_does_not_give_up() {
    under_every_schedule(|| {
        let keyspace = keyspace(None, || {});
        let given = Arc::new(Given::default());
        let take = Take { name: "waiter", to: None, given: Arc::clone(&given) };
        let wait = pop_or_wait(&keyspace, take, &[b"one"]);
        let gave_up = Arc::new(AtomicBool::new(false));
        let (clock, pusher) = {
            let (keyspace, wait, gave_up) = (Arc::clone(&keyspace), Arc::clone(&wait), Arc::clone(&gave_up));
            let clock = thread::spawn({
                let keyspace = Arc::clone(&keyspace);
                move || {
                    if wait.claim.take() {
                        gave_up.store(true, SeqCst);
                        keyspace.unpark(
                            (&wait, WaitEnd::TimedOut),
                            at(1),
                            Events::default(),
                            &Registries::default(),
                        );
                    }
                }
            });
            (clock, thread::spawn(move || push(&keyspace, b"one", b"v")))
        };
        join([clock, pusher]);
        let is_served = !given.all().is_empty();
        assert_ne!(is_served, gave_up.load(SeqCst), "served, or given up: one of the two");
        assert_eq!(rest(&keyspace, b"one"), usize::from(!is_served), "no element is lost");
        assert_eq!(keyspace.parked(), 0, "nothing is left in the queue");
    });
}

// Shows P-first-come.
#[test]
fn no_client_steals_from_the_head_of_the_queue() {
    under_every_schedule(|| {
        let keyspace = keyspace(None, || {});
        let given = Arc::new(Given::default());
        let take = |name| Take { name, to: None, given: Arc::clone(&given) };
        pop_or_wait(&keyspace, take("first"), &[b"one"]);
        pop_or_wait(&keyspace, take("second"), &[b"one"]);
        let third = {
            let (keyspace, take) = (Arc::clone(&keyspace), take("third"));
            thread::spawn(move || {
                pop_or_wait(&keyspace, take, &[b"one"]);
            })
        };
        let pushers = [b"a", b"b", b"c"].map(|element| {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || push(&keyspace, b"one", element))
        });
        join(pushers.into_iter().chain([third]));
        let names: Vec<_> = given.all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["first", "second", "third"]);
    });
}

/// A keyspace with two calls that wait to move an element: serving the first, from one to three, provides the element for the
/// second, from three to two.
fn with_moves() -> Arc<Keyspace> {
    let keyspace = keyspace(None, || {});
    let given = Arc::new(Given::default());
    for (from, to) in [(b"one".as_slice(), b"three".as_slice()), (b"three", b"two")] {
        let take = Take { name: "move", to: Some(to), given: Arc::clone(&given) };
        pop_or_wait(&keyspace, take, &[from]);
    }
    keyspace
}

/// Panics unless the element of [`with_moves`] has arrived, and nothing waits.
fn assert_moved(keyspace: &Keyspace) {
    assert_eq!(rest(keyspace, b"two"), 1, "it has arrived");
    assert_eq!(keyspace.parked(), 0);
    keyspace.assert_laws();
}

#[test]
fn a_call_that_reaches_further_is_served_in_one_hold_and_in_no_circle() {
    under_every_schedule(|| {
        let keyspace = with_moves();
        let pusher = {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || push(&keyspace, b"one", b"v"))
        };
        let looker = {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || {
                let mut view = view(&keyspace, &[b"three", b"two", b"one"]);
                let mut len =
                    |key: &'static [u8]| view.read_as::<List>(key).expect("a list").map_or(0, Shape::len);
                assert_eq!(len(b"one") + len(b"three"), 0, "nobody sees the element on its way");
            })
        };
        join([pusher, looker]);
        assert_moved(&keyspace);
    });
}

/// Adds one to the number under a key by WATCH, GET, MULTI, SET, EXEC, and repeats until EXEC succeeds.
fn add_one(keyspace: &Keyspace) {
    let key = Bytes::from_static(b"one");
    loop {
        let mut watching = Watching::new(keyspace.ledger());
        let mut first = view(keyspace, &[&key]);
        first.watch(&key, &watching.watch);
        assert!(watching.insert(0, &key));
        first.finish(&Registries::default());

        let mut look = view(keyspace, &[&key]);
        let count = look.read(&key).map_or(0, |found| found.string().expect("a string").len());
        look.finish(&Registries::default());

        let mut exec = view(keyspace, &[&key]);
        let is_broken = exec.end_watch(&watching);
        if !is_broken {
            exec.entry(&key).put(&vec![b'x'; count + 1], redlatch_core::keyspace::Lease::Never);
        }
        exec.finish(&Registries::default());
        if !is_broken {
            return;
        }
    }
}

#[test]
fn a_transaction_whose_key_has_changed_does_nothing() {
    under_every_schedule(|| {
        let keyspace = keyspace(None, || {});
        let adders = [(); 3].map(|()| {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || add_one(&keyspace))
        });
        join(adders);
        let mut view = view(&keyspace, &[b"one"]);
        let count = view.read(b"one").map_or(0, |found| found.string().expect("a string").len());
        assert_eq!(count, 3, "no addition is lost");
    });
}

#[test]
fn a_client_that_meets_a_long_call_is_woken_when_it_is_over() {
    under_every_schedule(|| {
        let keyspace = keyspace(None, || {});
        let long = {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || {
                let mut view = View::lock(&keyspace, ShardSet::One(b"two"), 0, at(1), Events::default());
                view.lock_all_for_long();
                thread::yield_now();
                view.finish(&Registries::default());
            })
        };
        let calls = Arc::new(AtomicUsize::new(0));
        let client = Client::new(1, String::new(), String::new(), false, LockTime::from_millis(1));
        client.set_notifier({
            let calls = Arc::clone(&calls);
            move || {
                calls.fetch_add(1, SeqCst);
            }
        });
        let caller = {
            let (keyspace, client) = (Arc::clone(&keyspace), Arc::new(client));
            thread::spawn(move || {
                // The thread never blocks: it gets the shard, or the client is woken to retry.
                while View::try_lock(&keyspace, ShardSet::One(b"one"), 0, at(1), Events::default()).is_none()
                {
                    if keyspace.long_call.wait(&client) {
                        while calls.swap(0, SeqCst) == 0 {
                            thread::yield_now();
                        }
                    }
                }
            })
        };
        join([long, caller]);
    });
}

/// Puts `value` under all keys, on a thread that never waits for a long call: it tries again when it is woken.
fn put_later(keyspace: &Keyspace, id: u64, keys: &[&[u8]], value: &[u8]) {
    let client = Arc::new(Client::new(id, String::new(), String::new(), false, LockTime::from_millis(1)));
    let is_woken = Arc::new(AtomicBool::new(false));
    client.set_notifier({
        let is_woken = Arc::clone(&is_woken);
        move || is_woken.store(true, SeqCst)
    });
    loop {
        let set = ShardSet::Keys(keys);
        if let Some(mut view) = View::try_lock(keyspace, set, 0, at(1), Events::default()) {
            for key in keys {
                view.entry(key).put(value, redlatch_core::keyspace::Lease::Never);
            }
            view.finish(&Registries::default());
            return;
        }
        if keyspace.long_call.wait(&client) {
            while !is_woken.swap(false, SeqCst) {
                thread::yield_now();
            }
        }
    }
}

/// What a script does: it begins with the shard of its key and writes, and takes the shards of further keys as it goes on.
fn put_further(keyspace: &Keyspace, keys: &[&[u8]], value: &[u8]) {
    let mut view = View::lock(keyspace, ShardSet::One(keys[0]), 0, at(1), Events::default());
    view.announce_long_call();
    for key in keys {
        if !view.covers(ShardSet::One(key)) {
            view.lock_further(ShardSet::One(key));
        }
        view.entry(key).put(value, redlatch_core::keyspace::Lease::Never);
        thread::yield_now();
    }
    view.finish(&Registries::default());
}

#[test]
fn a_script_that_asks_for_further_shards_waits_for_no_call_that_waits_for_it() {
    // With the shards in several orders, and other calls that need the shards which the script takes later.
    for order in [[0, 1, 2, 3], [0, 2, 1, 3], [3, 1, 0, 2], [3, 0, 1, 2]] {
        let keys: [&'static [u8]; 4] = order.map(|index| APART[index]);
        under_every_schedule(move || script_among_others(keys));
    }
}

/// Four keys in four shards.
const APART: [&[u8]; 4] = [b"one", b"two", b"five", b"eight"];

/// Panics unless each key is in a shard of its own.
fn assert_apart(keyspace: &Keyspace, keys: &[&[u8]]) {
    for key in keys {
        let mut long = View::lock(keyspace, ShardSet::One(key), 0, at(1), Events::default());
        long.announce_long_call();
        let is_held = |key: &&&[u8]| {
            View::try_lock(keyspace, ShardSet::One(key), 0, at(1), Events::default()).is_none()
        };
        assert_eq!(keys.iter().filter(is_held).count(), 1, "{}", key.escape_ascii());
        long.finish(&Registries::default());
    }
}

fn script_among_others(keys: [&'static [u8]; 4]) {
    let keyspace = keyspace(None, || {});
    assert_apart(&keyspace, &keys);
    let spawn = |act: Box<dyn FnOnce(&Keyspace) + Send>| {
        let keyspace = Arc::clone(&keyspace);
        thread::spawn(move || act(&keyspace))
    };
    let threads = [
        spawn(Box::new(move |keyspace| put_further(keyspace, &keys, b"script"))),
        spawn(Box::new(move |keyspace| put_later(keyspace, 1, &keys[1..3], b"worker"))),
        // A thread that waits as long as it takes.
        spawn(Box::new(move |keyspace| {
            let mut view = view(keyspace, &[keys[0], keys[2], keys[3]]);
            let mut value = |key: &[u8]| view.entry(key).string().expect("a string").map(<[u8]>::to_vec);
            assert_eq!(value(keys[0]), value(keys[3]), "all of the script is seen, or nothing");
            view.finish(&Registries::default());
        })),
        spawn(Box::new(|keyspace| {
            keyspace.tick(at(1), Events::default(), &Registries::default());
            keyspace.counts();
        })),
    ];
    join(threads);
    let last = view(&keyspace, &keys).entry(keys[3]).string().expect("a string").map(<[u8]>::to_vec);
    assert_eq!(last.as_deref(), Some(&b"script"[..]));
    keyspace.assert_laws();
}

#[test]
fn a_script_that_asks_for_further_shards_serves_who_waits_there_and_further_on() {
    under_every_schedule(|| {
        let keyspace = with_moves();
        let script = {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || {
                let mut view = View::lock(&keyspace, ShardSet::One(b"four"), 0, at(1), Events::default());
                view.announce_long_call();
                view.entry(b"four").put(b"v", redlatch_core::keyspace::Lease::Never);
                view.lock_further(ShardSet::One(b"one"));
                view.open::<List>(b"one").expect("a list").push(End::Tail, b"v");
                view.finish(&Registries::default());
            })
        };
        let pusher = {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || put_later(&keyspace, 1, &[b"four", b"five"], b"w"))
        };
        join([script, pusher]);
        assert_moved(&keyspace);
    });
}
