//! The counters of all shards, summed by the reader.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects, clippy::disallowed_methods)]

use super::ShardState;
use super::shard::{LockCounts, LockGroups};
use crate::number::total;

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
    pub lock_groups: Option<LockGroups>,
    /// Commands in the queues of locks.
    pub lock_waiters: usize,
    /// Commands in the longest of these queues.
    pub lock_queue_longest: usize,
}

impl Counts {
    pub(super) fn with(self, held: &ShardState) -> Self {
        let (tracked_keys, copies) = held.observers.tracked();
        Self {
            hits: total([self.hits, held.hits]),
            misses: total([self.misses, held.misses]),
            expired: total([self.expired, held.expired]),
            bytes: self.bytes.saturating_add(held.shard.used_bytes()),
            tracked_keys: self.tracked_keys.saturating_add(tracked_keys),
            copies: self.copies.saturating_add(copies),
            locks: self.locks.with(&held.shard.lock_counts()),
            lock_groups: sum_of_groups(self.lock_groups, held.shard.lock_groups()),
            lock_waiters: self.lock_waiters.saturating_add(held.queues.locks.len()),
            lock_queue_longest: self.lock_queue_longest.max(held.queues.locks.longest()),
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
