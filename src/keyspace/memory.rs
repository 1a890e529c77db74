//! The memory that all shards use, for `maxmemory`, and the size of the largest value.
//!
//! Rule    the sum is kept from the first time it is asked for. From then on a changed shard adds the difference when it
//!         is unlocked, unless the difference is small: a server that takes and releases locks writes nothing here.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::locked::LockWait;
use super::{Keyspace, ShardState};

/// The sum over all shards, within [`GRAIN_BYTES`] for each.
#[derive(Debug, Default)]
pub(super) struct Memory {
    is_asked_for: AtomicBool,
    used: AtomicU64,
}

/// The largest value that there has been, about: what the work of a call is measured by before it is done.
#[derive(Debug)]
pub(super) struct Largest(AtomicUsize);

/// Bytes of a value that are not worth being noted.
const SMALL_BYTES: usize = 1024;

impl Default for Largest {
    fn default() -> Self {
        Self(AtomicUsize::new(SMALL_BYTES))
    }
}

impl Largest {
    /// A call has left a value of that many bytes, and none larger.
    #[inline]
    pub(super) fn learn(&self, bytes: usize) {
        if bytes > SMALL_BYTES {
            self.0.fetch_max(bytes, Relaxed);
        }
    }

    /// Nothing is left.
    pub(super) fn forget(&self) {
        self.0.store(SMALL_BYTES, Relaxed);
    }
}

/// A shard does not report a smaller difference.
const GRAIN_BYTES: usize = 1024;

impl Memory {
    /// Whether the sum is kept.
    #[inline]
    pub(super) fn is_asked_for(&self) -> bool {
        self.is_asked_for.load(Relaxed)
    }

    /// A shard is about to be unlocked: adds how much its memory has changed.
    pub(super) fn learn(&self, held: &mut ShardState) {
        let used = held.shard.used_bytes();
        if used.abs_diff(held.reported_bytes) >= GRAIN_BYTES {
            // What a shard has reported before is part of the sum, so that the sum never falls below zero.
            self.used.fetch_add((used as u64).wrapping_sub(held.reported_bytes as u64), Relaxed);
            held.reported_bytes = used;
        }
    }
}

impl Keyspace {
    /// Bytes that all shards use, within a kibibyte for each. The caller has no shard locked.
    #[inline]
    pub fn used_bytes(&self) -> u64 {
        if !self.memory.is_asked_for() {
            self.ask_all();
        }
        self.memory.used.load(Relaxed)
    }

    /// Bytes of the largest value that there has been since all were removed; an object counts with what its elements take.
    /// At least a kibibyte.
    #[inline]
    pub fn largest_bytes(&self) -> u64 {
        self.largest.0.load(Relaxed) as u64
    }

    /// The work of looking once at what so many keys hold, at most.
    #[inline]
    pub fn work_of(&self, keys: usize) -> u64 {
        self.largest_bytes().saturating_mul(keys as u64)
    }

    /// Adds up the shards for the first time. A shard that a long call holds is added when it is unlocked.
    #[cold]
    fn ask_all(&self) {
        self.memory.is_asked_for.store(true, Relaxed);
        for index in 0..self.cells.len() {
            if let Some(mut held) = self.hold(index, LockWait::Short) {
                self.memory.learn(&mut held);
            }
        }
    }
}
