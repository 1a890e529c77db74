//! Whole databases: FLUSHDB, FLUSHALL, SWAPDB; sizes, counters, scans and random keys.
//!
//! Locks   every shard for a change, so that no key of a database is missed. What counts or scans takes one shard after the
//!         other, unless the view has locked all, and says so if a long call holds one.

use bytes::Bytes;
use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;

use super::View;
use crate::journal::Mutation;
use crate::keyspace::locks::life;
use crate::keyspace::shard::{EntryId, Shard};
use crate::keyspace::waiting::Queues;
use crate::keyspace::{Counts, ShardState};
use crate::locks::EndReason;
use crate::locks::history;

/// All keys of a view's keyspace, in shards that are locked by the view or not.
#[derive(Debug)]
pub struct WholeKeyspace<'v, 'k> {
    pub(super) view: &'v mut View<'k>,
}

impl WholeKeyspace<'_, '_> {
    /// Removes every key of a database. The view must have locked all shards.
    pub(crate) fn clear(&mut self, database: u16) {
        let tracked = self.empty(database);
        self.view.changes.flush(tracked);
        self.view.queues().serve_locks_of(database);
    }

    /// Removes every key. The view must have locked all shards.
    pub(crate) fn clear_all(&mut self) {
        let tracked = (0..self.view.keyspace.databases()).map(|database| self.empty(database)).sum();
        self.view.changes.flush(tracked);
        // No large value is left.
        self.view.keyspace.largest.forget();
        self.view.queues().serve_all_locks();
    }

    /// Empties one database; returns how many keys of any database were tracked.
    fn empty(&mut self, database: u16) -> usize {
        let (keyspace, changes, mut tracked) = (self.view.keyspace, &mut self.view.changes, 0);
        self.view.locked.each(|_, held| {
            let ShardState { shard, observers, .. } = held;
            observers.touch_each(database, |key| shard.find(database, keyspace.hash(key), key).is_some());
            tracked += observers.forget_readers();
            for id in shard.locks_in(database) {
                let place = history::place(keyspace.hash(shard.key(id)), database);
                life::end(shard, changes, id, place, EndReason::Flushed);
            }
            shard.clear(database);
        });
        self.note_endless();
        self.view.changes.record(|| Mutation::<&[u8]>::Clear { database });
        tracked
    }

    /// Exchanges two databases. The view must have locked all shards.
    pub(crate) fn swap(&mut self, a: u16, b: u16) {
        let (keyspace, changes) = (self.view.keyspace, &mut self.view.changes);
        self.view.locked.each(|_, held| {
            let ShardState { shard, observers, queues, .. } = held;
            for database in [a, b] {
                let is_in = |db, key: &[u8]| shard.find(db, keyspace.hash(key), key).is_some();
                observers.touch_each(database, |key| is_in(a, key) || is_in(b, key));
            }
            shard.swap(a, b);
            for database in [a, b] {
                queues.keys(database).for_each(|key| changes.ready(database, key.clone()));
            }
        });
        // Every cached value is out of date. Like Redis 7.0, this sends no invalidation now; clients that have read a key
        // get one at its next change.
        self.view.changes.flush(0);
        self.note_endless();
        self.view.changes.record(|| Mutation::<&[u8]>::Swap { a, b });
    }

    /// A whole database has keys without a deadline.
    fn note_endless(&mut self) {
        if let Some(ends) = self.view.changes.ends() {
            ends.note_endless();
        }
    }

    /// Visits the living keys of the database in the locked shards, in no order.
    pub fn for_each_key(&mut self, mut visit: impl FnMut(&[u8])) {
        let (database, now) = (self.view.database, self.view.now.lock);
        self.view.locked.each(|_, held| {
            let mut cursor = 0;
            loop {
                let shard = &held.shard;
                cursor = shard.scan(database, cursor, &mut |id| {
                    if !shard.has_ended(id, now) {
                        visit(shard.key(id));
                    }
                });
                if cursor == 0 {
                    break;
                }
            }
        });
    }

    /// A key of the database in the locked shards, chosen by `entropy`. It has not expired. With `accepts_ended`, an expired
    /// key is returned if no other was found.
    pub(crate) fn random_key(&mut self, entropy: u64, accepts_ended: bool) -> Option<Bytes> {
        let (database, now) = (self.view.database, self.view.now.lock);
        let mut total = 0;
        self.view.locked.each(|_, held| total += held.shard.len(database));
        let mut ended = None;
        // A key that has expired and was not removed yet is skipped: other bits choose again, a bounded number of times.
        for attempt in 0..16_u64 {
            let entropy = entropy.rotate_left(attempt as u32 * 7).wrapping_add(attempt);
            let mut rank = entropy.checked_rem(total as u64)? as usize;
            let mut chosen = None;
            self.view.locked.each(|_, held| {
                let len = held.shard.len(database);
                if rank < len {
                    let id = held.shard.random(database, entropy >> 8);
                    chosen = id.map(|id| {
                        (Bytes::copy_from_slice(held.shard.key(id)), held.shard.has_ended(id, now))
                    });
                    rank = usize::MAX;
                } else {
                    rank = rank.saturating_sub(len);
                }
            });
            match chosen {
                Some((key, false)) => return Some(key),
                Some((key, true)) => ended = Some(key),
                None => {}
            }
        }
        // Nearly all keys have expired: the first living key is returned.
        let mut living = None;
        self.for_each_key(|name| {
            living.get_or_insert_with(|| Bytes::copy_from_slice(name));
        });
        living.or(ended.filter(|_| accepts_ended))
    }

    /// How many keys a database has, and how many of these have a deadline, in all shards, locked by this view or not.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds them.
    pub(crate) fn size(&mut self, database: u16) -> Result<(usize, usize), Refusal> {
        let mut size = (0, 0);
        self.each_shard(|held| size = held.add_size(database, size))?;
        Ok(size)
    }

    /// The sum of all shards' counters, locked by this view or not. Waits for no long call; see [`Counts::as_of`].
    pub(crate) fn counts(&mut self) -> Counts {
        if !self.view.holds_all() {
            return self.view.keyspace.counts();
        }
        let mut sum = Counts::default();
        self.view.locked.each(|_, held| sum = std::mem::take(&mut sum).with(&Counts::of(held)));
        sum
    }

    /// Like [`WholeKeyspace::size`], but waits for no long call: a shard that one holds counts as it was when the call took
    /// it.
    pub(crate) fn known_size(&mut self, database: u16) -> (usize, usize) {
        match self.view.holds_all() {
            true => self.size(database).unwrap_or_default(),
            false => self.view.keyspace.known_size(database),
        }
    }

    /// Resets the counters of all shards.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds them.
    pub(crate) fn reset_counts(&mut self) -> Result<(), Refusal> {
        let keyspace = self.view.keyspace;
        if !self.view.holds_all() && (0..keyspace.shards()).any(|index| keyspace.long_call.holds(index)) {
            return Err(Refusal::Occupied);
        }
        self.each_shard(ShardState::reset_counts)
    }

    /// Visits all shards, one after the other unless this view has locked them.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds one. The others are visited.
    pub(crate) fn each_shard(&mut self, visit: impl FnMut(&mut ShardState)) -> Result<(), Refusal> {
        match self.each_free_shard(visit) {
            0 => Ok(()),
            _ => Err(Refusal::Occupied),
        }
    }

    /// Visits the shards that no long call holds, one after the other unless this view has locked them. Returns the number of
    /// the others.
    pub(super) fn each_free_shard(&mut self, mut visit: impl FnMut(&mut ShardState)) -> usize {
        if self.view.holds_all() {
            self.view.locked.each(|_, held| visit(held));
            return 0;
        }
        let mut is_occupied = |index: &usize| match self.view.keyspace.hold(*index) {
            Some(mut held) => {
                visit(&mut held);
                false
            }
            None => true,
        };
        (0..self.view.keyspace.shards()).filter(|index| is_occupied(index)).count()
    }

    /// One step of a scan over a whole database: visits living keys and the names of their types, about `keys` of one shard
    /// at most, and returns the next cursor; 0 at the end. The cursor comes from a client.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds the shard.
    pub(crate) fn scan(
        &mut self,
        cursor: u64,
        keys: u64,
        visit: &mut dyn FnMut(&[u8], &'static str),
    ) -> Result<u64, Refusal> {
        self.scan_entries(cursor, keys, &mut |shard, _, id, _| visit(shard.key(id), shard.type_name(id)))
    }

    /// One step of a scan; see [`WholeKeyspace::scan`]. `visit` also gets the queues of the shard and its time.
    pub(crate) fn scan_entries(
        &mut self,
        cursor: u64,
        keys: u64,
        visit: &mut dyn FnMut(&Shard, &Queues, EntryId, LockTime),
    ) -> Result<u64, Refusal> {
        let (keyspace, database) = (self.view.keyspace, self.view.database);
        let bits = keyspace.shards().trailing_zeros();
        let (index, mut inner) = (cursor as usize & (keyspace.shards() - 1), cursor >> bits);
        let mut guard;
        let held = if self.view.holds_all() {
            self.view.locked.held(index)
        } else {
            guard = keyspace.hold(index).ok_or(Refusal::Occupied)?;
            &mut *guard
        };
        let (shard, now) = (&held.shard, self.view.now.lock.max(held.shard.time()));
        for _ in 0..keys.max(1) {
            inner = shard.scan(database, inner, &mut |id| {
                if !shard.has_ended(id, now) {
                    visit(shard, &held.queues, id, now);
                }
            });
            if inner == 0 {
                break;
            }
        }
        Ok(match inner {
            0 if index + 1 == keyspace.shards() => 0,
            0 => index as u64 + 1,
            inner => inner << bits | index as u64,
        })
    }
}
