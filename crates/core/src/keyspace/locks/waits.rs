//! The register of waiting lock requests, and the search for circles of them.
//!
//! Owns    every waiting request, by its number and by its owner.
//! Rule    the shards of a circle are locked request by request, after the last one has entered its queues. Of two requests
//!         that close a circle at the same time at least one sees it, and both name the same youngest request.
//! Locks   one mutex, under which nothing else is locked. It may be locked under the shards of a request.
//! Rule    a request with ANY that waits for fewer locks than it names is part of no circle.
//! Bounds  a search looks at [`LOOKS_MAX`] keys, holders and requests, and those of one client at [`LOOKS_PER_SECOND_MAX`]
//!         in a second. A circle that takes more is not found.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::lock::PRIORITY_MAX;
use smallvec::SmallVec;

use crate::keyspace::{Keyspace, ShardSet, View, Waiter};
use crate::state::registries::Registries;
use crate::state::settings::Events;
use crate::state::wait::Place;
use crate::sync::Mutex;
use crate::types::heap;
use crate::types::lock::LockKind;

/// Every lock request that waits.
#[derive(Debug, Default)]
pub struct LockWaits(Mutex<Register>);

#[derive(Debug, Default)]
struct Register {
    by_number: BTreeMap<u64, Arc<Waiter>>,
    by_owner: BTreeMap<Bytes, BTreeSet<u64>>,
    /// How many requests of each priority there are.
    by_priority: [u64; PRIORITIES],
    /// Requests of lower numbers are not returned by [`LockWaits::overdue`] any more.
    overdue_from: u64,
}

/// Requests that have waited for long.
#[derive(Debug)]
pub(crate) struct Overdue {
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

const PRIORITIES: usize = PRIORITY_MAX as usize + 1;
/// Keys, holders and waiting requests that one search looks at: a few milliseconds. docs/waiting.md names it. In a
/// circle whose owners wait for one lock each, an owner takes three.
const LOOKS_MAX: usize = 10_000;
/// Those that the searches of one client look at in a second: a few hundredths of a processor. docs/waiting.md names it.
const LOOKS_PER_SECOND_MAX: usize = 50_000;

impl LockWaits {
    /// Bytes that a waiting request takes in the register.
    pub(crate) const BYTES_PER_WAIT: usize = heap::in_tree::<(u64, Arc<Waiter>)>()
        + heap::in_tree::<(Bytes, BTreeSet<u64>)>()
        + heap::tree::<u64>(1);

    /// A request begins to wait.
    pub fn enter(&self, waiter: &Arc<Waiter>) {
        let Some(asker) = waiter.serve.asker() else { return };
        let mut register = self.0.lock();
        register.by_priority[usize::from(asker.request.priority.level)] += 1;
        register.by_number.insert(waiter.wait.place.number, Arc::clone(waiter));
        register.by_owner.entry(asker.owner.clone()).or_default().insert(waiter.wait.place.number);
    }

    /// The wait of that number is over. Returns the request, if it was there.
    pub fn leave(&self, number: u64) -> Option<Arc<Waiter>> {
        let mut register = self.0.lock();
        let waiter = register.by_number.remove(&number)?;
        if let Some(asker) = waiter.serve.asker() {
            register.by_priority[usize::from(asker.request.priority.level)] -= 1;
            if let Some(numbers) = register.by_owner.get_mut(asker.owner) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    register.by_owner.remove(asker.owner);
                }
            }
        }
        drop(register);
        Some(waiter)
    }

    /// Requests that wait since `since` or longer, `most` at most. None is returned twice.
    pub(crate) fn overdue(&self, since: LockTime, most: usize) -> Overdue {
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

    /// How many requests of each priority wait.
    pub(crate) fn by_priority(&self) -> [u64; PRIORITIES] {
        self.0.lock().by_priority
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

    /// The connections of all that wait are about to end: none of them is granted a lock any more.
    pub fn abandon(&self) {
        for waiter in self.0.lock().by_number.values() {
            waiter.wait.claim.take();
        }
    }

    /// The first requests of an owner that wait, `most` at most.
    fn of_owner(&self, owner: &[u8], most: usize) -> Vec<Arc<Waiter>> {
        let register = self.0.lock();
        let numbers = register.by_owner.get(owner).into_iter().flatten();
        let waiters = numbers.filter_map(|number| register.by_number.get(number));
        waiters.filter(|waiter| !waiter.wait.claim.is_taken()).take(most).cloned().collect()
    }

    /// Whether a holder of these locks waits for a lock, too, or a request ahead may wait for several. If not, a request that
    /// has just entered closes no circle.
    pub(crate) fn may_close_circle(&self, view: &mut View<'_>, waiter: &Waiter) -> bool {
        let register = self.0.lock();
        let Some(asker) =
            waiter.serve.asker().filter(|_| register.by_number.len() > 1 && !waiter.has_choice())
        else {
            return false;
        };
        let most = asker.client.searches.left(LOOKS_PER_SECOND_MAX, view.now().lock).min(LOOKS_MAX);
        if most == 0 {
            return false;
        }
        let (mut may, mut left) = (false, most);
        for key in &waiter.wait.keys {
            view.locks().each_holder(key, left, |owner, _, _| {
                left -= 1;
                may |= register.by_owner.contains_key(owner);
            });
            if may || left == 0 {
                break;
            }
        }
        drop(register);
        asker.client.searches.spend(most - left);
        if may || left == 0 {
            return true;
        }
        let own = usize::from(waiter.wait.keys.len() > 1);
        waiter.wait.keys.iter().any(|key| view.queues().lock_waits_for_several(key) > own)
    }

    /// A circle that this request is part of. The search ends without one if it meets a shard that a long call holds, or has
    /// looked at `LOOKS_MAX` things, or the searches of its client at `LOOKS_PER_SECOND_MAX` in a second.
    pub fn circle(
        &self,
        keyspace: &Keyspace,
        registries: &Registries,
        start: &Arc<Waiter>,
        (now, events): (Now, Events),
    ) -> Option<Circle> {
        let client = start.serve.asker()?.client;
        let most = client.searches.left(LOOKS_PER_SECOND_MAX, now.lock).min(LOOKS_MAX);
        let reached = vec![Reached { waiter: Arc::clone(start), by: None }];
        let (owners, followed, looks) = Default::default();
        let mut search =
            Search { waits: self, keyspace, registries, now, events, reached, owners, followed, looks };
        search.looks = most;
        // Holders first: they are few, and a queue may be long.
        let (mut by_holders, mut by_queues) = (0, 0);
        loop {
            let step = if by_holders < search.reached.len() {
                by_holders += 1;
                search.follow(by_holders - 1, Edge::Holder)
            } else if by_queues < search.reached.len() {
                by_queues += 1;
                search.follow(by_queues - 1, Edge::Ahead)
            } else {
                Break(None)
            };
            if let Break(last) = step {
                client.searches.spend(most - search.looks);
                return last.map(|last| closed(&search.reached, last));
            }
        }
    }
}

/// Whom a request waits for at a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Edge {
    /// Those that hold the lock.
    Holder,
    /// The requests before it in the queue that wait for other keys, too. Those that wait for this key alone wait for its
    /// holders.
    Ahead,
}

/// A search for a circle, which goes from a request to all that it waits for.
#[derive(Debug)]
struct Search<'s> {
    waits: &'s LockWaits,
    keyspace: &'s Keyspace,
    registries: &'s Registries,
    now: Now,
    events: Events,
    reached: Vec<Reached>,
    /// The owners whose requests have been reached.
    owners: BTreeSet<Bytes>,
    /// The keys that were looked at for an edge, by database, and the place of the last request for which they were. Another
    /// request that is before it in the queue finds nothing new there.
    followed: [BTreeMap<u16, BTreeMap<Bytes, Place>>; 2],
    /// How many things it may still look at.
    looks: usize,
}

impl Search<'_> {
    /// Reaches the requests of all owners that a request waits for. Breaks with the link that closes the circle, or without
    /// one if the search must end.
    fn follow(&mut self, from: usize, edge: Edge) -> ControlFlow<Option<Link>> {
        let waiter = Arc::clone(&self.reached[from].waiter);
        // Any of several owners may give it what it waits for.
        if waiter.has_choice() {
            return Continue(());
        }
        self.look(waiter.wait.keys.len())?;
        let new = waiter.wait.keys.iter().filter(|key| !self.is_followed(edge, &waiter, key));
        let new: SmallVec<[&Bytes; 4]> = new.collect();
        let keys: SmallVec<[&[u8]; 4]> = new.iter().map(|key| &key[..]).collect();
        let (set, database) = (ShardSet::Keys(&keys), waiter.wait.database);
        let view = View::try_lock(self.keyspace, set, database, self.now, self.events);
        let Some(mut view) = view else { return Break(None) };
        let followed = new.into_iter().try_for_each(|key| {
            let owners = self.awaited(edge, &mut view, &waiter, key)?;
            owners.into_iter().try_for_each(|owner| {
                let awaited = Awaited { owner, is_holder: edge == Edge::Holder };
                self.reach(Link { from, key: key.clone(), awaited })
            })
        });
        // The look at a key may have removed it, because its lease had ended.
        view.finish(self.registries);
        followed
    }

    fn is_followed(&self, edge: Edge, waiter: &Waiter, key: &Bytes) -> bool {
        let last = self.followed[edge as usize].get(&waiter.wait.database).and_then(|keys| keys.get(key));
        last.is_some_and(|last| edge == Edge::Holder || waiter.wait.place <= *last)
    }

    /// The other owners that a request waits for at a key, without those that have been reached.
    fn awaited(
        &mut self,
        edge: Edge,
        view: &mut View<'_>,
        waiter: &Waiter,
        key: &Bytes,
    ) -> ControlFlow<Option<Link>, Vec<Bytes>> {
        let Some(asker) = waiter.serve.asker() else { return Continue(Vec::new()) };
        let (mut found, mut has_own, mut looks) = (Vec::new(), false, 0);
        let mut see = |owner: &[u8]| {
            has_own |= asker.owner == owner;
            if asker.owner != owner && !self.owners.contains(owner) {
                found.push(Bytes::copy_from_slice(owner));
            }
        };
        match edge {
            Edge::Holder => {
                let is_counted = matches!(view.locks().kind(key), LockKind::Permits(_));
                let most = if is_counted { 2 } else { self.looks };
                view.locks().each_holder(key, most, |owner, _, _| {
                    looks += 1;
                    see(owner);
                });
                if is_counted && looks > 1 {
                    // Any of the holders of a semaphore may give a permit back.
                    found.clear();
                }
            }
            Edge::Ahead if view.queues().lock_waits_for_several(key) > 0 => {
                let ahead =
                    view.queues().lock_waiters(key).take_while(|other| other.wait.place < waiter.wait.place);
                for other in ahead.take(self.looks) {
                    looks += 1;
                    let waits_for_several = other.wait.keys.len() > 1 && !other.has_choice();
                    let asker = other.serve.asker().filter(|_| waits_for_several);
                    asker.iter().for_each(|asker| see(asker.owner));
                }
            }
            Edge::Ahead => {}
        }
        self.look(looks)?;
        // For another owner, the owner of this request may close the circle.
        if !has_own {
            let keys = self.followed[edge as usize].entry(waiter.wait.database).or_default();
            keys.insert(key.clone(), waiter.wait.place);
        }
        Continue(found)
    }

    /// Reaches the requests of an owner. Breaks if it is the owner for which the search began.
    fn reach(&mut self, link: Link) -> ControlFlow<Option<Link>> {
        let goal = self.reached[0].waiter.serve.asker().map(|asker| asker.owner);
        if goal == Some(&link.awaited.owner) {
            return Break(Some(link));
        }
        if !self.owners.insert(link.awaited.owner.clone()) {
            return Continue(());
        }
        let next = self.waits.of_owner(&link.awaited.owner, self.looks);
        self.look(next.len())?;
        self.reached.extend(next.into_iter().map(|waiter| Reached { waiter, by: Some(link.clone()) }));
        Continue(())
    }

    /// Counts things that are looked at. Breaks if they are too many.
    fn look(&mut self, count: usize) -> ControlFlow<Option<Link>> {
        self.looks = self.looks.saturating_sub(count);
        if self.looks > 0 { Continue(()) } else { Break(None) }
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

/// The circle that `last` closes.
fn closed(reached: &[Reached], last: Link) -> Circle {
    let mut youngest = &reached[last.from].waiter;
    let (mut links, mut next) = (Vec::new(), Some(last));
    while let Some(link) = next {
        let from = &reached[link.from];
        if from.waiter.wait.place.number > youngest.wait.place.number {
            youngest = &from.waiter;
        }
        links.push((link.key, link.awaited));
        next = from.by.clone();
    }
    links.reverse();
    Circle { links, youngest: Arc::clone(youngest) }
}
