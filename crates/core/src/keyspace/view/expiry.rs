//! Expiry: removing entries, and elements of objects, whose deadlines have passed.
//!
//! Rule    the command or the tick that finds such an entry first removes it. Both emit equal effects.

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::View;
use crate::journal::{Edit, Mutation};
use crate::keyspace::locks::life;
use crate::keyspace::shard::EntryId;
use crate::keyspace::{Changes, ShardState};
use crate::locks::EndReason;
use crate::locks::history;
use crate::state::tracking::Cause;
use crate::types::Object;

impl View<'_> {
    /// Removes the entries and elements that are due in the locked shard. Every step of work takes one from `budget`; at
    /// zero, there may be more to do. Returns the steps that a rebuilt table has cost.
    pub(in crate::keyspace) fn expire_due(&mut self, budget: &mut u32) -> u32 {
        let (now, keyspace) = (self.now.lock, self.keyspace);
        let (locked, changes) = (&mut self.locked, &mut self.changes);
        let mut rebuilt_bytes = 0;
        locked.each(|_, held| {
            let before = held.shard.table_bytes();
            while let Some(id) = held.shard.due(now, budget) {
                let hash = keyspace.hash(held.shard.key(id));
                held.expire_elements(id, hash, now, ELEMENTS_PER_STEP, changes);
            }
            rebuilt_bytes += if held.shard.table_bytes() == before { 0 } else { before };
        });
        u32::try_from(rebuilt_bytes / TABLE_BYTES_PER_STEP).unwrap_or(u32::MAX)
    }

    /// The earliest moment at which a locked shard has work.
    pub(in crate::keyspace) fn next_wakeup(&mut self) -> Option<LockTime> {
        let mut next = None;
        self.locked.each(|_, held| next = [next, held.shard.next_wakeup()].into_iter().flatten().min());
        next
    }
}

impl ShardState {
    /// Removes an entry that has expired, or up to `elements_max` elements that have. `None`: the entry is gone. A shard that
    /// keeps them removes nothing.
    #[cold]
    pub(super) fn expire_elements(
        &mut self,
        id: EntryId,
        hash: u64,
        now: LockTime,
        elements_max: usize,
        changes: &mut Changes,
    ) -> Option<EntryId> {
        if self.shard.keeps_ended() {
            return Some(id);
        }
        if self.shard.deadline(id).is_some_and(|deadline| deadline.has_passed(now)) {
            self.expire(id, hash, changes);
            return None;
        }
        let (database, key) = (self.shard.db(id), Bytes::copy_from_slice(self.shard.key(id)));
        let mut ended = 0;
        while ended < elements_max {
            if let Some(Object::Lock(lock)) = self.shard.object(id)
                && let Some(owner) = lock.due(now).cloned()
            {
                let (place, reason) = (history::place(hash, database), EndReason::Expired);
                life::end_holder(&mut self.shard, changes, id, place, (&owner, reason));
            }
            let Some(edit) = self.shard.object_mut(id).and_then(|object| Edit::of_due(object, now)) else {
                break;
            };
            changes.record(|| Mutation::Edit { database, key: key.clone(), edit });
            ended += 1;
        }
        if ended > 0 {
            changes.touched(&mut self.observers, database, &key, Cause::Expiry);
            if !self.queues.locks.is_empty() {
                changes.ready(database, key.clone());
            }
        }
        if self.shard.object(id).is_some_and(|object| object.shape().is_empty()) {
            changes.event(b'g', "del", database, &key);
            changes.discard(self.shard.remove(id, hash));
            changes.record(|| Mutation::Remove { database, key, expired: true });
            return None;
        }
        Some(self.shard.rearm(id, hash))
    }

    fn expire(&mut self, id: EntryId, hash: u64, changes: &mut Changes) {
        let (database, key) = (self.shard.db(id), self.shard.key(id));
        changes.event(b'x', "expired", database, key);
        changes.record(|| Mutation::Remove { database, key, expired: true });
        changes.touched(&mut self.observers, database, key, Cause::Expiry);
        if !self.queues.locks.is_empty() {
            changes.ready(database, Bytes::copy_from_slice(key));
        }
        if self.shard.is_lock(id) {
            life::end(&mut self.shard, changes, id, history::place(hash, database), EndReason::Expired);
        } else {
            changes.key_expired(key);
        }
        changes.discard(self.shard.remove(id, hash));
        self.expired += 1;
    }
}

/// Elements of one object that end in one step of expiry work.
const ELEMENTS_PER_STEP: usize = 4;
/// Bytes of a table that are moved in the time of one step.
const TABLE_BYTES_PER_STEP: usize = 1024;
