//! The queues of a view's shards: commands that wait for keys, and what serves them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use smallvec::SmallVec;

use super::View;
use crate::journal::Mutation;
use crate::keyspace::Waiter;
use crate::state::wait::{Place, Wait, WaitFor};

/// The queues of a view's shards.
#[derive(Debug)]
pub struct ViewQueues<'v, 'k> {
    pub(super) view: &'v mut View<'k>,
}

impl<'v> ViewQueues<'v, '_> {
    /// Puts a command that waits into the queues of its keys, at its place. All its keys must be in shards that are locked.
    pub fn park(&mut self, waiter: &Arc<Waiter>) {
        for key in &waiter.wait.keys {
            let index = self.view.keyspace.shard_of(self.view.keyspace.hash(key));
            let is_last = self.view.locked.held(index).queues.of(waiter.wait.kind).enter(key, waiter);
            if !is_last {
                // One of those behind it may keep others waiting, and this one need not wait.
                self.view.changes.ready(waiter.wait.database, key.clone());
            }
        }
        self.link(waiter, true);
        self.record_place(waiter, Some(waiter.wait.place));
    }

    /// Links the shards that a command uses when it is served, as long as it is in queues. They are locked.
    fn link(&mut self, waiter: &Waiter, begins: bool) {
        let keyspace = self.view.keyspace;
        let shards = waiter.linked_keys().map(|key| keyspace.shard_of(keyspace.hash(key)));
        let mut shards: SmallVec<[usize; 2]> = shards.collect();
        shards.sort_unstable();
        shards.dedup();
        if shards.len() > 1 {
            for index in shards {
                let is_linked = self.view.locked.held(index).queues.link(begins);
                keyspace.linked[index].store(is_linked, Ordering::Relaxed);
            }
        }
    }

    /// Tells the journal of a cluster at which place a call waits for a lock; `None`: it waits no longer. A call that waits
    /// for several locks has no place that is kept.
    pub(in crate::keyspace) fn record_place(&mut self, waiter: &Waiter, place: Option<Place>) {
        if !self.view.keyspace.keeps_places() {
            return;
        }
        if let (Some(asker), [key]) = (waiter.serve.asker(), &waiter.wait.keys[..]) {
            let (database, owner) = (waiter.wait.database, &asker.owner[..]);
            self.view.changes.record_some(|| Some(Mutation::Place { database, key, owner, place }));
        }
    }

    /// The place of a wait that begins now, moved forward by `gain_ms` milliseconds. Its keys must be in shards that are
    /// locked.
    pub fn next_place(&self, gain_ms: u64) -> Place {
        let number = self.view.keyspace.waits.fetch_add(1, Ordering::Relaxed);
        Place::at(self.view.now().lock, gain_ms, number)
    }

    /// Like [`ViewQueues::next_place`], for a wait for the locks of these keys. If its owner had a place under an earlier
    /// leader, and that is the better one, it has come back to it.
    pub(crate) fn lock_place(&mut self, keys: &[Bytes], owner: &[u8], gain_ms: u64) -> Place {
        let (database, now) = (self.view.database, self.view.now().lock);
        let kept = match keys {
            [key] => self.view.shard_state(key).places.take((database, key), owner, now),
            _ => None,
        };
        let next = self.next_place(gain_ms);
        kept.map_or(next, |kept| kept.min(next))
    }

    /// Removes a command from the queues of its keys, all of which must be in shards that are locked. Commands that it kept
    /// waiting are served when this view is finished. Returns its entry, if it was still in a queue.
    pub(in crate::keyspace) fn leave(&mut self, wait: &Wait) -> Option<Arc<Waiter>> {
        let mut left = None;
        for key in &wait.keys {
            let index = self.view.keyspace.shard_of(self.view.keyspace.hash(key));
            let queue = self.view.locked.held(index).queues.of(wait.kind);
            if let Some(waiter) = queue.leave(wait.database, key, wait.place) {
                left = Some(waiter);
                if wait.kind == WaitFor::Locks {
                    self.view.changes.ready(wait.database, key.clone());
                }
            }
        }
        if let Some(waiter) = &left {
            self.link(waiter, false);
        }
        left
    }

    /// The commands that wait for the lock of a key, in the order of their places.
    pub fn lock_waiters(self, key: &[u8]) -> impl Iterator<Item = &'v Arc<Waiter>> {
        let database = self.view.database;
        self.view.shard_state(key).queues.locks.waiting(database, key)
    }

    /// How many commands that wait for the lock of a key wait for other locks, too.
    pub(crate) fn lock_waits_for_several(&mut self, key: &[u8]) -> usize {
        let database = self.view.database;
        self.view.shard_state(key).queues.locks.several(database, key)
    }

    /// How many entries the queue for the lock of a key has.
    pub(crate) fn lock_queue_len(&mut self, key: &[u8]) -> usize {
        let database = self.view.database;
        self.view.shard_state(key).queues.locks.len_of(database, key)
    }

    /// Serves waiting commands until none finds what it waits for. Serving one may change the key of another.
    #[cold]
    pub(super) fn serve_waiting(&mut self) {
        let selected = self.view.database;
        while let Some((database, key)) = self.view.changes.next_ready() {
            self.view.database = database;
            self.serve_values(&key);
            self.serve_locks(&key);
        }
        self.view.database = selected;
    }

    /// Serves commands that wait for the value of a key.
    fn serve_values(&mut self, key: &Bytes) {
        let (database, index) =
            (self.view.database, self.view.keyspace.shard_of(self.view.keyspace.hash(key)));
        let mut last = Place::FIRST;
        // The queue may be long: it is scanned once, and only while the key has something to take.
        while !self.view.locked.held(index).queues.values.is_empty()
            && self.view.entry(key).occupied().is_some()
            && let Some(waiter) = self.view.locked.held(index).queues.values.next(database, key, last)
        {
            last = waiter.wait.place;
            if waiter.serve.is_ready(self.view, key) && waiter.wait.claim.take() {
                if waiter.wait.keys.len() == 1 {
                    self.leave(&waiter.wait);
                    waiter.wait.leave();
                } else {
                    self.view.locked.held(index).queues.values.leave(database, key, waiter.wait.place);
                }
                waiter.serve.serve(self.view, key);
            }
        }
    }

    /// Serves commands that wait for the lock of a key, until the first cannot have it.
    fn serve_locks(&mut self, key: &Bytes) {
        let (database, index) =
            (self.view.database, self.view.keyspace.shard_of(self.view.keyspace.hash(key)));
        let mut last = Place::FIRST;
        while let Some(waiter) = self.view.locked.held(index).queues.locks.next(database, key, last) {
            if !waiter.serve.is_ready(self.view, key) {
                return;
            }
            last = waiter.wait.place;
            if waiter.wait.claim.take() {
                self.view.locked.held(index).queues.locks.leave(database, key, waiter.wait.place);
                // Its other queues go on without it, too.
                if waiter.wait.keys.len() > 1 {
                    self.leave(&waiter.wait);
                }
                waiter.wait.leave();
                self.record_place(&waiter, None);
                waiter.serve.serve(self.view, key);
            }
        }
    }

    /// Serves a request for a lock that its holder has handed over. The claim of the request was taken.
    pub(crate) fn hand_over(&mut self, waiter: &Waiter) {
        self.end_wait(waiter);
        waiter.serve.take_over(self.view);
    }

    /// Serves requests for several locks, one of which their owner has got in another way: wherever they stand in its queue.
    pub(crate) fn serve_owner(&mut self, key: &[u8], owner: &[u8]) {
        let is_its = |waiter: &&Arc<Waiter>| waiter.serve.asker().is_some_and(|asker| asker.owner == owner);
        let waiters = self.view.queues().lock_waiters(key).filter(is_its);
        let several: Vec<_> = waiters.filter(|waiter| waiter.wait.keys.len() > 1).cloned().collect();
        for waiter in several {
            if waiter.serve.is_ready(self.view, key) && waiter.wait.claim.take() {
                self.end_wait(&waiter);
                waiter.serve.serve(self.view, key);
            }
        }
    }

    fn end_wait(&mut self, waiter: &Waiter) {
        self.leave(&waiter.wait);
        waiter.wait.leave();
        self.record_place(waiter, None);
    }

    /// Serves the requests that wait for locks, as far as they can have them. The view must have locked all shards.
    pub(crate) fn serve_all_locks(&mut self) {
        (0..self.view.keyspace.databases()).for_each(|database| self.serve_locks_of(database));
    }

    /// The same for the locks of one database.
    pub(crate) fn serve_locks_of(&mut self, database: u16) {
        let changes = &mut self.view.changes;
        self.view.locked.each(|_, held| {
            held.queues.locks.keys(database).for_each(|key| changes.ready(database, key.clone()));
        });
    }
}
