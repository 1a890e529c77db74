//! The memory that all shards use, for `maxmemory`, and the size of the largest value.
//!
//! Rule    the sum is kept from the first request for it. From then on a changed shard adds the difference when it
//!         is unlocked, unless the difference is small: a server that takes and releases locks writes nothing here.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::{Keyspace, ShardState};

/// The sum over all shards, within [`GRAIN_BYTES`] for each.
#[derive(Debug, Default)]
pub(super) struct Memory {
    is_measured: AtomicBool,
    used: AtomicU64,
}

/// The approximate size of the largest value so far. Decides whether a call may be large, before its keys are read.
#[derive(Debug)]
pub(super) struct Largest(AtomicUsize);

/// Values up to this size, in bytes, are not recorded.
const SMALL_BYTES: usize = 1024;

impl Default for Largest {
    fn default() -> Self {
        Self(AtomicUsize::new(SMALL_BYTES))
    }
}

impl Largest {
    /// Takes into account that a call has written a value of this size.
    #[inline]
    pub(super) fn update(&self, bytes: usize) {
        if bytes > SMALL_BYTES {
            self.0.fetch_max(bytes, Relaxed);
        }
    }

    /// Resets the size after all keys were removed.
    pub(super) fn forget(&self) {
        self.0.store(SMALL_BYTES, Relaxed);
    }
}

/// A shard does not report a difference below this, in bytes.
const GRAIN_BYTES: usize = 1024;

impl Memory {
    /// Whether the sum is kept.
    #[inline]
    pub(super) fn is_measured(&self) -> bool {
        self.is_measured.load(Relaxed)
    }

    /// A shard is about to be unlocked: adds how much its memory has changed.
    pub(super) fn update(&self, held: &mut ShardState) {
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
        if !self.memory.is_measured() {
            self.start_measuring();
        }
        self.memory.used.load(Relaxed)
    }

    /// Bytes of the largest value since all keys were last removed, the elements of an object included. At least 1024.
    #[inline]
    pub(crate) fn largest_bytes(&self) -> u64 {
        self.largest.0.load(Relaxed) as u64
    }

    /// An upper bound of the bytes in the values of `keys` keys.
    #[inline]
    pub(crate) fn bytes_of_keys_max(&self, keys: usize) -> u64 {
        self.largest_bytes().saturating_mul(keys as u64)
    }

    /// Adds up the shards for the first time. A shard that a long call holds is added when it is unlocked.
    #[cold]
    fn start_measuring(&self) {
        self.memory.is_measured.store(true, Relaxed);
        for index in 0..self.cells.len() {
            if let Some(mut held) = self.hold(index) {
                self.memory.update(&mut held);
            }
        }
    }
}
