//! Commands on whole databases: FLUSHDB, FLUSHALL, SWAPDB.
//!
//! Locks   every shard, so that no key of a database is missed.

use super::View;
use crate::journal::Mutation;
use crate::keyspace::ShardState;
use crate::locks::EndReason;
use crate::locks::{history, life};

impl View<'_> {
    /// Removes every key of a database. The view must have locked all shards.
    pub fn clear(&mut self, database: u16) {
        let tracked = self.empty(database);
        self.changes.flush(tracked);
    }

    /// Removes every key. The view must have locked all shards.
    pub fn clear_all(&mut self) {
        let tracked = (0..self.keyspace.databases()).map(|database| self.empty(database)).sum();
        self.changes.flush(tracked);
        // No large value is left.
        self.keyspace.largest.forget();
    }

    /// Empties one database; returns how many keys of any database were tracked.
    fn empty(&mut self, database: u16) -> usize {
        let (keyspace, changes, mut tracked) = (self.keyspace, &mut self.changes, 0);
        self.locked.each(|_, held| {
            let ShardState { shard, observers, queues, .. } = held;
            observers.touch_each(database, |key| shard.find(database, keyspace.hash(key), key).is_some());
            tracked += observers.forget_readers();
            for id in shard.locks_in(database) {
                let place = history::place(keyspace.hash(shard.key(id)), database);
                life::end(shard, changes, id, place, EndReason::Flushed);
            }
            shard.clear(database);
            // Commands that wait for a lock of the database may have it now.
            queues.locks.keys(database).for_each(|key| changes.ready(database, key.clone()));
        });
        self.note_endless();
        self.changes.record(|| Mutation::<&[u8]>::Clear { database });
        tracked
    }

    /// Serves the requests that wait for locks, as far as they can have them. The view must have locked all shards.
    pub fn serve_lock_queues(&mut self) {
        for database in 0..self.keyspace.databases() {
            let changes = &mut self.changes;
            self.locked.each(|_, held| {
                held.queues.locks.keys(database).for_each(|key| changes.ready(database, key.clone()));
            });
        }
    }

    /// Exchanges two databases. The view must have locked all shards.
    pub fn swap(&mut self, a: u16, b: u16) {
        let (keyspace, changes) = (self.keyspace, &mut self.changes);
        self.locked.each(|_, held| {
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
        self.changes.flush(0);
        self.note_endless();
        self.changes.record(|| Mutation::<&[u8]>::Swap { a, b });
    }

    /// A whole database has keys without a deadline.
    fn note_endless(&mut self) {
        if let Some(ends) = self.changes.ends() {
            ends.note_endless();
        }
    }
}
