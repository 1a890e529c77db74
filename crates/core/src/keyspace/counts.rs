//! The counters of all shards, summed by the reader.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use redlatch_proto::clock::LockTime;
use redlatch_proto::number::total;

use super::ShardState;
use crate::locks::{LockCounts, LockGroups};

/// The counters of all shards.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not find their key.
    pub misses: u64,
    /// Keys removed because their deadline had passed.
    pub expired: u64,
    /// Bytes of keys and values.
    pub bytes: usize,
    /// Keys that CLIENT TRACKING tracks.
    pub tracked_keys: usize,
    /// Clients that have cached one of these keys, summed over the keys.
    pub copies: usize,
    /// The counters of locks.
    pub locks: LockCounts,
    /// Some of these counters by groups, if locks are grouped.
    pub(crate) lock_groups: Option<LockGroups>,
    /// Commands in the queues of locks.
    pub lock_waiters: usize,
    /// Commands in the longest of these queues.
    pub lock_queue_longest: usize,
    /// The moment of the oldest of these counters: a shard that a long call holds has those of when it was taken. `None`:
    /// all are of now.
    pub as_of: Option<LockTime>,
}

impl Counts {
    pub(super) fn of(held: &ShardState) -> Self {
        let (tracked_keys, copies) = held.observers.tracked();
        Self {
            hits: held.hits,
            misses: held.misses,
            expired: held.expired,
            bytes: held.shard.used_bytes(),
            tracked_keys,
            copies,
            locks: held.shard.lock_counts(),
            lock_groups: held.shard.lock_groups().cloned(),
            lock_waiters: held.queues.locks.len(),
            lock_queue_longest: held.queues.locks.longest(),
            as_of: None,
        }
    }

    /// The sum of both.
    pub(super) fn with(self, more: &Self) -> Self {
        Self {
            hits: total([self.hits, more.hits]),
            misses: total([self.misses, more.misses]),
            expired: total([self.expired, more.expired]),
            bytes: self.bytes.saturating_add(more.bytes),
            tracked_keys: self.tracked_keys.saturating_add(more.tracked_keys),
            copies: self.copies.saturating_add(more.copies),
            locks: self.locks.with(&more.locks),
            lock_groups: sum_of_groups(self.lock_groups, more.lock_groups.as_ref()),
            lock_waiters: self.lock_waiters.saturating_add(more.lock_waiters),
            lock_queue_longest: self.lock_queue_longest.max(more.lock_queue_longest),
            as_of: self.as_of.into_iter().chain(more.as_of).min(),
        }
    }
}

fn sum_of_groups(sum: Option<LockGroups>, more: Option<&LockGroups>) -> Option<LockGroups> {
    match (sum, more) {
        (Some(mut sum), Some(more)) => {
            sum.add_all(more);
            Some(sum)
        }
        (sum, more) => sum.or_else(|| more.cloned()),
    }
}
