//! The keyspace's rules of concurrency, under a scheduler that tries interleavings.
//!
//! Belongs here: laws that hold for every interleaving of threads. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test --no-default-features --test concurrency`; a failure prints its schedule.

#![cfg(shuttle)]

mod lock_queues;
mod locks;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use redlatch_core::journal::{Journal, Mutation, Record};
use redlatch_core::keyspace::{Due, Keyspace, Layout, Lease, ShardSet, View};
use redlatch_core::state::registries::Registries;
use redlatch_core::state::settings::Events;
use redlatch_proto::clock::{LockTime, Now};
use shuttle::thread;

/// Schedules tried of each law.
const SCHEDULES: usize = 2_000;

/// Every record, in the order of arrival.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<Vec<Mutation>>>);

impl Journal for Log {
    fn append(&self, record: &Record<'_>) {
        self.0.lock().expect("one thread at a time").push(record.mutations.to_vec());
    }
}

fn keyspace(journal: Option<Arc<dyn Journal>>, ring: impl Fn() + Send + Sync + 'static) -> Arc<Keyspace> {
    Arc::new(Keyspace::new(Layout { shards: 4, databases: 1, seed: 11, journal }, ring))
}

fn at(millis: u64) -> Now {
    Now { lock: LockTime::from_millis(millis), wall_offset_ms: 0 }
}

/// Puts `value` under all keys in one call.
fn put_all(keyspace: &Keyspace, keys: &[&[u8]], value: &[u8], now: Now, lease: Lease) {
    let mut view = View::lock(keyspace, ShardSet::Keys(keys), 0, now, Events::default());
    for key in keys {
        view.entry(key).put(value, lease);
    }
    view.finish(&Registries::default());
}

/// The values of the keys, read by one call.
fn read_all(keyspace: &Keyspace, keys: &[&[u8]], now: Now) -> Vec<Option<Vec<u8>>> {
    let mut view = View::lock(keyspace, ShardSet::Keys(keys), 0, now, Events::default());
    keys.iter().map(|key| view.entry(key).string().expect("a string").map(<[u8]>::to_vec)).collect()
}

const KEYS: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];

/// Checks `law` under many schedules.
fn under_every_schedule(law: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(law, SCHEDULES);
}

#[test]
fn calls_over_several_shards_are_atomic_and_never_wait_for_each_other_in_a_circle() {
    under_every_schedule(|| {
        let keyspace = keyspace(None, || {});
        let writers = [("a", [0, 1, 2, 3]), ("b", [3, 2, 1, 0])].map(|(value, order)| {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || {
                let keys = order.map(|index| KEYS[index]);
                put_all(&keyspace, &keys, value.as_bytes(), at(1), Lease::Never);
            })
        });
        let seen = read_all(&keyspace, &KEYS, at(1));
        assert!(seen.iter().all(|value| *value == seen[0]), "a call was seen half done: {seen:?}");
        for writer in writers {
            writer.join().expect("a writer that ends");
        }
    });
}

#[test]
fn time_never_runs_backwards_for_a_shard() {
    under_every_schedule(|| {
        let keyspace = keyspace(None, || {});
        let latest = Arc::new(AtomicU64::new(0));
        let callers = [30, 10, 20].map(|millis| {
            let (keyspace, latest) = (Arc::clone(&keyspace), Arc::clone(&latest));
            thread::spawn(move || {
                let view = View::lock(&keyspace, ShardSet::One(b"key"), 0, at(millis), Events::default());
                // The shard is still locked, so no other thread runs between the two reads.
                let instant = view.now().lock.as_millis();
                assert!(
                    latest.swap(instant, SeqCst) <= instant,
                    "the shard saw a later moment before {instant}"
                );
                drop(view);
            })
        });
        for caller in callers {
            caller.join().expect("a caller that ends");
        }
    });
}

#[test]
fn no_deadline_slips_past_the_ticker() {
    under_every_schedule(|| {
        let rung = Arc::new(AtomicBool::new(false));
        let rung_by_keyspace = Arc::clone(&rung);
        let keyspace = keyspace(None, move || rung_by_keyspace.store(true, SeqCst));
        // The ticker has slept until an earlier deadline, which has passed.
        put_all(&keyspace, &KEYS[1..], b"v", at(1), Lease::Until(at(1).deadline_in(4)));
        keyspace.tick(at(1), Events::default(), &Registries::default());
        rung.store(false, SeqCst);
        let setter = {
            let keyspace = Arc::clone(&keyspace);
            thread::spawn(move || {
                put_all(&keyspace, &KEYS[..1], b"v", at(10), Lease::Until(at(10).deadline_in(41)));
            })
        };
        let mut due = Due::More;
        while due == Due::More {
            due = keyspace.tick(at(10), Events::default(), &Registries::default());
        }
        setter.join().expect("a setter that ends");
        let knows = matches!(due, Due::Next(Some(next)) if next.as_millis() <= 52);
        assert!(knows || rung.load(SeqCst), "the ticker sleeps past a deadline: {due:?}");
    });
}

#[test]
fn records_in_the_order_of_their_arrival_give_the_same_state() {
    under_every_schedule(|| {
        let log = Arc::new(Log::default());
        let original = keyspace(Some(Arc::clone(&log) as Arc<dyn Journal>), || {});
        let writers = [("a", 0..2), ("b", 1..3), ("c", 0..4)].map(|(value, range)| {
            let keyspace = Arc::clone(&original);
            thread::spawn(move || put_all(&keyspace, &KEYS[range], value.as_bytes(), at(1), Lease::Never))
        });
        for writer in writers {
            writer.join().expect("a writer that ends");
        }
        let records = log.0.lock().expect("one thread at a time").clone();
        let copy = keyspace(None, || {});
        records.iter().flatten().for_each(|mutation| copy.apply(mutation, at(1)));
        assert_eq!(read_all(&copy, &KEYS, at(1)), read_all(&original, &KEYS, at(1)));
    });
}
