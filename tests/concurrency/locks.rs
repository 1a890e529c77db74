//! One lock, taken, held, lost and released by several clients while leases end.
//!
//! Belongs here: no client is granted a lock that another still owns, and fencing numbers rise. Each law must also catch
//!              clients that break one rule.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use redlatch_core::keyspace::{Keyspace, Lease, ShardSet, View};
use redlatch_core::state::registries::Registries;
use redlatch_core::state::settings::Events;
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::thread;

use crate::{SCHEDULES, at, keyspace, under_every_schedule};

/// The lock, and the number of its latest grant: keys of different shards.
const LOCK: &[u8] = b"one";
const FENCE: &[u8] = b"three";
const LEASE_MS: u8 = 2;

/// The protocol of a client.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    /// Takes a free lock and its number in one call; releases and extends only its own lock.
    Lawful,
    /// Draws the number in a separate call.
    NumbersLater,
    /// Releases without comparing the token.
    ReleasesBlindly,
    /// Reads in one call, and takes in the next.
    TakesLater,
}

/// An event that a client was told of. Times are those of the telling call.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Granted, through the millisecond `until_ms`.
    Granted { fence: u64, now_ms: u64, until_ms: u64 },
    /// Extended.
    Extended { fence: u64, now_ms: u64, until_ms: u64 },
    /// Released.
    Released { fence: u64, now_ms: u64 },
    /// Lost.
    Lost { fence: u64, now_ms: u64 },
}

/// The events of all clients in order: each is noted while its call holds the lock's shard.
#[derive(Debug, Default)]
struct Witness(Mutex<Vec<Event>>);

impl Witness {
    fn note(&self, event: Event) {
        self.0.lock().expect("one thread at a time").push(event);
    }

    /// # Errors
    /// If two clients owned the lock at one instant, one lost it too early, or a number did not rise.
    fn check(&self) -> Result<(), String> {
        let events = self.0.lock().expect("one thread at a time");
        // The number of the latest grant, and its last millisecond.
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
    protocol: Protocol,
}

impl Client {
    /// Locks both keys at once, at the time of the last clock read.
    fn view(&self) -> View<'_> {
        let now = at(self.clock.load(SeqCst));
        View::lock(&self.keyspace, ShardSet::Keys(&[LOCK, FENCE]), 0, now, Events::default())
    }

    /// Ends a call and begins another, so that other threads may run in between.
    fn later<'v>(&'v self, mut view: View<'v>) -> View<'v> {
        view.finish(&Registries::default());
        (0..10).for_each(|_| thread::yield_now());
        self.view()
    }

    /// Takes the lock if it is free; returns the number of the grant.
    fn take(&self) -> Option<u64> {
        let mut view = self.view();
        if view.entry(LOCK).string().expect("a string").is_some() {
            view.finish(&Registries::default());
            return None;
        }
        if matches!(self.protocol, Protocol::TakesLater) {
            view = self.later(view);
        }
        let now = view.now();
        view.entry(LOCK).put(self.name, Lease::Until(now.deadline_in(LEASE_MS.into())));
        if matches!(self.protocol, Protocol::NumbersLater) {
            view = self.later(view);
        }
        let fence = count(&mut view);
        let now_ms = now.lock.as_millis();
        self.witness.note(Event::Granted { fence, now_ms, until_ms: now_ms + u64::from(LEASE_MS) });
        view.finish(&Registries::default());
        Some(fence)
    }

    /// Extends or releases the lease if the client still holds it.
    fn extend_or_release(&self, fence: u64, is_released: bool) {
        let mut view = self.view();
        let now = view.now();
        let now_ms = now.lock.as_millis();
        let is_own = view.entry(LOCK).string().expect("a string") == Some(self.name);
        if is_released && (is_own || matches!(self.protocol, Protocol::ReleasesBlindly)) {
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

/// Runs three clients, the first with the given protocol, while time passes and expired keys are removed.
fn contend(protocol: Protocol) -> Result<(), String> {
    let (keyspace, witness) = (keyspace(None, || {}), Arc::new(Witness::default()));
    let clock = Arc::new(AtomicU64::new(1));
    let clients = [b"a", b"b", b"c"].map(|name| {
        let (keyspace, clock) = (Arc::clone(&keyspace), Arc::clone(&clock));
        // One client breaks a rule among others that keep it.
        let protocol = if name == b"a" { protocol } else { Protocol::Lawful };
        let client = Client { keyspace, clock, witness: Arc::clone(&witness), name, protocol };
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
    under_every_schedule(|| contend(Protocol::Lawful).expect("the law"));
}

#[test]
fn clients_that_break_a_rule_are_caught() {
    for protocol in [Protocol::NumbersLater, Protocol::ReleasesBlindly, Protocol::TakesLater] {
        let caught = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&caught);
        under_every_schedule(move || {
            count.fetch_add(usize::from(contend(protocol).is_err()), SeqCst);
        });
        let caught = caught.load(SeqCst);
        println!("{protocol:?}: caught by {caught} of {SCHEDULES} schedules");
        assert!(caught > 0, "{protocol:?} is never caught");
    }
}
