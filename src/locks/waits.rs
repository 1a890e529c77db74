//! The register of waiting lock requests, and the search for circles of them.
//!
//! Owns    every waiting request, by its number and by its owner.
//! Rule    the shards of a circle are locked one after the other, after the request has entered its queues. Of two requests
//!         that close a circle at the same time at least one sees it, and both name the same youngest request.
//! Locks   one mutex, under which nothing else is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::clock::{LockTime, Now};
use crate::keyspace::{Keyspace, ShardSet, View, Waiter};
use crate::state::settings::Events;
use crate::types::lock::LockKind;

/// Every lock request that waits.
#[derive(Debug, Default)]
pub struct LockWaits(Mutex<Register>);

#[derive(Debug, Default)]
struct Register {
    by_number: BTreeMap<u64, Arc<Waiter>>,
    by_owner: BTreeMap<Bytes, BTreeSet<u64>>,
    /// Requests of lower numbers are not returned by [`LockWaits::overdue`] any more.
    overdue_from: u64,
}

/// Requests that have waited for long.
#[derive(Debug)]
pub struct Overdue {
    /// They, first come first.
    pub waiters: Vec<Arc<Waiter>>,
    /// Since when the next request waits, if one does.
    pub next_since: Option<LockTime>,
}

/// Owners that wait for each other's locks.
#[derive(Clone, Debug)]
pub struct Circle {
    /// Each key that is waited for, and the owner that it is waited for.
    pub links: Vec<(Bytes, Awaited)>,
    /// The request that began to wait last.
    pub youngest: Arc<Waiter>,
}

/// An owner that a request waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Awaited {
    /// Its name.
    pub owner: Bytes,
    /// True if it holds the lock; false if it is ahead in the queue, with a request for several locks.
    pub is_holder: bool,
}

/// Requests that one search looks at.
const REQUESTS_MAX: usize = 1_000;
/// Requests at the head of one queue that a search looks at.
const AHEAD_MAX: usize = 16;
/// Holders of one lock that a search looks at.
const HOLDERS_MAX: usize = 100;

impl LockWaits {
    /// A request begins to wait.
    pub fn enter(&self, waiter: &Arc<Waiter>) {
        let Some(asker) = waiter.serve.asker() else { return };
        let mut register = self.0.lock();
        register.by_number.insert(waiter.wait.number, Arc::clone(waiter));
        register.by_owner.entry(asker.owner.clone()).or_default().insert(waiter.wait.number);
    }

    /// The wait of that number is over. Returns the request, if it was there.
    pub fn leave(&self, number: u64) -> Option<Arc<Waiter>> {
        let mut register = self.0.lock();
        let waiter = register.by_number.remove(&number)?;
        if let Some(asker) = waiter.serve.asker()
            && let Some(numbers) = register.by_owner.get_mut(asker.owner)
        {
            numbers.remove(&number);
            if numbers.is_empty() {
                register.by_owner.remove(asker.owner);
            }
        }
        drop(register);
        Some(waiter)
    }

    /// Requests that wait since `since` or longer, `most` at most. None is returned twice.
    pub fn overdue(&self, since: LockTime, most: usize) -> Overdue {
        let mut register = self.0.lock();
        let (mut waiters, mut next_since, mut from) = (Vec::new(), None, register.overdue_from);
        // Numbers rise in the order in which waits begin, but for those that go on at an earlier place.
        for (number, waiter) in register.by_number.range(from..) {
            let Some(asker) = waiter.serve.asker() else { continue };
            if asker.since > since || waiters.len() == most {
                next_since = Some(asker.since);
                break;
            }
            waiters.push(Arc::clone(waiter));
            from = number + 1;
        }
        register.overdue_from = from;
        Overdue { waiters, next_since }
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.0.lock().by_number.len()
    }

    /// The request of that number, if it waits, or its connection has not read its answer.
    pub fn get(&self, number: u64) -> Option<Arc<Waiter>> {
        self.0.lock().by_number.get(&number).cloned()
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All requests that wait, first come first.
    pub fn all(&self) -> Vec<Arc<Waiter>> {
        self.0.lock().by_number.values().cloned().collect()
    }

    /// The requests of an owner that wait.
    fn of_owner(&self, owner: &[u8]) -> Vec<Arc<Waiter>> {
        let register = self.0.lock();
        let numbers = register.by_owner.get(owner).into_iter().flatten();
        let mut waiters: Vec<_> =
            numbers.filter_map(|number| register.by_number.get(number).cloned()).collect();
        drop(register);
        waiters.retain(|waiter| !waiter.wait.claim.is_taken());
        waiters
    }

    /// Whether a holder of these locks waits for a lock, too, or a request ahead waits for several. If not, a request that
    /// has just entered closes no circle.
    pub fn may_close_circle(&self, view: &mut View<'_>, waiter: &Waiter) -> bool {
        let (register, mut may) = (self.0.lock(), false);
        for key in &waiter.wait.keys {
            view.each_holder(key, HOLDERS_MAX, |owner, _, _| may |= register.by_owner.contains_key(owner));
        }
        drop(register);
        may || waiter.wait.keys.iter().any(|key| ahead(view, waiter, key).next().is_some())
    }

    /// A circle that this request is part of. The search ends without one if it meets a shard that a long call holds.
    pub fn circle(&self, keyspace: &Keyspace, start: &Arc<Waiter>, now: Now) -> Option<Circle> {
        let goal = start.serve.asker()?.owner;
        let mut reached = vec![Reached { waiter: Arc::clone(start), by: None }];
        let mut seen = BTreeSet::from([start.wait.number]);
        let mut at = 0;
        while let Some(Reached { waiter, .. }) = reached.get(at) {
            let waiter = Arc::clone(waiter);
            for key in &waiter.wait.keys {
                for awaited in awaited(keyspace, &waiter, key, now)? {
                    if awaited.owner == *goal {
                        return Some(closed(&reached, Link { from: at, key: key.clone(), awaited }));
                    }
                    for next in self.of_owner(&awaited.owner) {
                        if seen.len() < REQUESTS_MAX && seen.insert(next.wait.number) {
                            let by = Some(Link { from: at, key: key.clone(), awaited: awaited.clone() });
                            reached.push(Reached { waiter: next, by });
                        }
                    }
                }
            }
            at += 1;
        }
        None
    }
}

/// A request that a search has reached.
#[derive(Debug)]
struct Reached {
    waiter: Arc<Waiter>,
    /// How; `None`: the search began here.
    by: Option<Link>,
}

/// The step from a request to the owner of a lock that it waits for.
#[derive(Clone, Debug)]
struct Link {
    /// The index of the request.
    from: usize,
    key: Bytes,
    awaited: Awaited,
}

/// The other owners for all of which a request waits at a key. A semaphore with several holders has none: any of them may
/// give a permit back. A request ahead in the queue counts if it waits for other keys, too: those that wait for this one
/// alone wait for its holders. `None` if a long call holds the shard.
fn awaited(keyspace: &Keyspace, waiter: &Waiter, key: &[u8], now: Now) -> Option<Vec<Awaited>> {
    let own = waiter.serve.asker()?.owner;
    let set = ShardSet::One(key);
    let mut view = View::try_lock(keyspace, set, waiter.wait.database, now, Events::default())?;
    let is_counted = matches!(view.lock_kind(key), LockKind::Permits(_));
    let mut holders = Vec::new();
    view.each_holder(key, HOLDERS_MAX, |owner, _, _| {
        holders.push(Awaited { owner: Bytes::copy_from_slice(owner), is_holder: true });
    });
    if is_counted && holders.len() > 1 {
        holders.clear();
    }
    let ahead = ahead(&mut view, waiter, key)
        .filter_map(|other| other.serve.asker())
        .map(|asker| asker.owner.clone());
    let ahead = ahead.map(|owner| Awaited { owner, is_holder: false });
    Some(holders.into_iter().chain(ahead).filter(|awaited| awaited.owner != own).collect())
}

/// The requests before this one in the queue of a key that wait for other keys, too.
fn ahead<'v>(
    view: &'v mut View<'_>,
    waiter: &Waiter,
    key: &'v [u8],
) -> impl Iterator<Item = &'v Arc<Waiter>> {
    let number = waiter.wait.number;
    let ahead = view.lock_waiters(key).take_while(move |other| other.wait.number < number);
    ahead.take(AHEAD_MAX).filter(|other| other.wait.keys.len() > 1)
}

/// The circle that `last` closes.
fn closed(reached: &[Reached], last: Link) -> Circle {
    let mut youngest = &reached[last.from].waiter;
    let (mut links, mut next) = (Vec::new(), Some(last));
    while let Some(link) = next {
        let from = &reached[link.from];
        if from.waiter.wait.number > youngest.wait.number {
            youngest = &from.waiter;
        }
        links.push((link.key, link.awaited));
        next = from.by.clone();
    }
    links.reverse();
    Circle { links, youngest: Arc::clone(youngest) }
}
