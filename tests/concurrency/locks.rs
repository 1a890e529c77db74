//! One lock, taken, kept, lost and given back by several clients while leases end.
//!
//! Belongs here: nobody is given what another still owns, and the numbers of grants rise. Each law is also shown clients
//!              that keep only half of the rules, and has to catch them.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use redlatch::internals::keyspace::{Keyspace, Lease, ShardSet, View};
use redlatch::internals::state::registries::Registries;
use redlatch::internals::state::settings::Events;
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

use crate::{SCHEDULES, at, keyspace, under_every_schedule};

/// The lock, and the number of its latest grant: keys of different shards.
const LOCK: &[u8] = b"one";
const FENCE: &[u8] = b"three";
const LEASE_MS: u8 = 2;

/// How a client goes about it.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Takes only what is free, in one call with the number; gives back and extends only what is its own.
    Lawful,
    /// Takes the number in a call of its own.
    NumbersLater,
    /// Gives back whatever is there.
    ReleasesBlindly,
    /// Looks in one call, and takes in the next.
    TakesLater,
}

/// What a client was told. Moments are those of the call that told it.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The lock is its own, through the millisecond `until_ms`.
    Granted { fence: u64, now_ms: u64, until_ms: u64 },
    /// It is so still, and longer.
    Extended { fence: u64, now_ms: u64, until_ms: u64 },
    /// It was so until now.
    Released { fence: u64, now_ms: u64 },
    /// It is so no more.
    Lost { fence: u64, now_ms: u64 },
}

/// What all clients were told, in the order in which it happened: each notes it while its call holds the lock's shard.
#[derive(Debug, Default)]
struct Witness(Mutex<Vec<Event>>);

impl Witness {
    fn note(&self, event: Event) {
        self.0.lock().expect("one thread at a time").push(event);
    }

    /// # Errors
    /// Where two owned the lock at one instant, one lost it before its time, or a number did not rise.
    fn check(&self) -> Result<(), String> {
        let events = self.0.lock().expect("one thread at a time");
        // Of the latest grant: its number, and the last millisecond in which the lock is owned.
        let (mut latest, mut owned_until) = (0, None);
        let mut ends = vec![0];
        for event in events.iter() {
            let is_right = match *event {
                Event::Granted { fence, now_ms, until_ms } => {
                    let is_free = owned_until.is_none_or(|until_ms| now_ms > until_ms);
                    let rises = fence == latest + 1;
                    (latest, owned_until) = (fence, Some(until_ms));
                    ends.push(until_ms);
                    is_free && rises
                }
                Event::Extended { fence, now_ms, until_ms } => {
                    let is_own = fence == latest && owned_until.is_some_and(|until_ms| now_ms <= until_ms);
                    owned_until = Some(until_ms);
                    *ends.last_mut().expect("more than none") = until_ms;
                    is_own
                }
                Event::Released { fence, now_ms } => {
                    let owned_until = owned_until.take();
                    fence == latest && owned_until.is_some_and(|until_ms| now_ms <= until_ms)
                }
                Event::Lost { fence, now_ms } => {
                    usize::try_from(fence).is_ok_and(|fence| ends.get(fence).is_some_and(|end| now_ms > *end))
                }
            };
            if !is_right {
                return Err(format!("{event:?} of {events:?}"));
            }
        }
        Ok(())
    }
}

/// One client of the lock.
struct Client {
    keyspace: Arc<Keyspace>,
    clock: Arc<AtomicU64>,
    witness: Arc<Witness>,
    name: &'static [u8],
    manner: Manner,
}

impl Client {
    /// Both keys at once, at the moment that the clock showed when somebody last looked.
    fn view(&self) -> View<'_> {
        let now = at(self.clock.load(SeqCst));
        View::lock(&self.keyspace, ShardSet::Keys(&[LOCK, FENCE]), 0, now, Events::default())
    }

    /// Ends a call and makes another, with room for others between.
    fn later<'v>(&'v self, mut view: View<'v>) -> View<'v> {
        view.finish(&Registries::default());
        (0..10).for_each(|_| thread::yield_now());
        self.view()
    }

    /// Takes the lock if it is free; the number of the grant.
    fn take(&self) -> Option<u64> {
        let mut view = self.view();
        if view.entry(LOCK).string().expect("a string").is_some() {
            view.finish(&Registries::default());
            return None;
        }
        if matches!(self.manner, Manner::TakesLater) {
            view = self.later(view);
        }
        let now = view.now();
        view.entry(LOCK).put(self.name, Lease::Until(now.deadline_in(LEASE_MS.into())));
        if matches!(self.manner, Manner::NumbersLater) {
            view = self.later(view);
        }
        let fence = count(&mut view);
        let now_ms = now.lock.as_millis();
        self.witness.note(Event::Granted { fence, now_ms, until_ms: now_ms + u64::from(LEASE_MS) });
        view.finish(&Registries::default());
        Some(fence)
    }

    /// Extends the lease, or ends it, where the lock is still this client's.
    fn extend_or_release(&self, fence: u64, is_released: bool) {
        let mut view = self.view();
        let now = view.now();
        let now_ms = now.lock.as_millis();
        let is_own = view.entry(LOCK).string().expect("a string") == Some(self.name);
        if is_released && (is_own || matches!(self.manner, Manner::ReleasesBlindly)) {
            view.remove(LOCK);
        }
        self.witness.note(match is_own {
            true if is_released => Event::Released { fence, now_ms },
            true => {
                view.entry(LOCK).put(self.name, Lease::Until(now.deadline_in(LEASE_MS.into())));
                Event::Extended { fence, now_ms, until_ms: now_ms + u64::from(LEASE_MS) }
            }
            false => Event::Lost { fence, now_ms },
        });
        view.finish(&Registries::default());
    }
}

/// Adds one to the number of the latest grant.
fn count(view: &mut View<'_>) -> u64 {
    let last = view.entry(FENCE).string().expect("a string").map_or(0, <[u8]>::len);
    view.entry(FENCE).put(&b"i".repeat(last + 1), Lease::Never);
    last as u64 + 1
}

/// Three clients, the first of that manner, who want the lock three times each, while time passes and what has ended is
/// cleared away.
///
/// # Errors
/// As [`Witness::check`].
fn contend(manner: Manner) -> Result<(), String> {
    let (keyspace, witness) = (keyspace(None, || {}), Arc::new(Witness::default()));
    let clock = Arc::new(AtomicU64::new(1));
    let clients = [b"a", b"b", b"c"].map(|name| {
        let (keyspace, clock) = (Arc::clone(&keyspace), Arc::clone(&clock));
        // One that breaks a rule among others that do not.
        let manner = if name == b"a" { manner } else { Manner::Lawful };
        let client = Client { keyspace, clock, witness: Arc::clone(&witness), name, manner };
        thread::spawn(move || {
            for round in 0..3 {
                let Some(fence) = client.take() else { continue };
                if round == 1 {
                    client.extend_or_release(fence, false);
                }
                client.extend_or_release(fence, true);
            }
        })
    });
    for step_ms in [1, 2, 3, 1, 2] {
        let now = at(clock.fetch_add(step_ms, SeqCst) + step_ms);
        keyspace.tick(now, Events::default(), &Registries::default());
        thread::yield_now();
    }
    clients.into_iter().for_each(|client| client.join().expect("a client that ends"));
    keyspace.assert_laws();
    witness.check()
}

#[test]
fn a_lock_has_one_owner_at_every_instant_and_the_numbers_of_its_grants_rise() {
    under_every_schedule(|| contend(Manner::Lawful).expect("the law"));
}

#[test]
fn clients_that_break_a_rule_are_caught() {
    for manner in [Manner::NumbersLater, Manner::ReleasesBlindly, Manner::TakesLater] {
        let caught = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&caught);
        under_every_schedule(move || {
            count.fetch_add(usize::from(contend(manner).is_err()), SeqCst);
        });
        let caught = caught.load(SeqCst);
        println!("{manner:?}: caught by {caught} of {SCHEDULES} schedules");
        assert!(caught > 0, "{manner:?} is never caught");
    }
}
