//! How much memory the shards have in use, as one number that anybody may read: for `maxmemory`.
//!
//! Rule    nobody pays for it before somebody asks. From then on a shard that was changed adds the difference when it is
//!         let go, and a few bytes are no difference: a server that takes and releases locks writes nothing here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::locked::Patience;
use super::{Held, Keyspace};

/// The sum over all shards, give or take [`GRAIN_BYTES`] for each.
#[derive(Debug, Default)]
pub(super) struct Memory {
    is_asked_for: AtomicBool,
    used: AtomicU64,
}

/// Differences below this are kept back by the shard.
const GRAIN_BYTES: usize = 1024;

impl Memory {
    /// Whether anybody has asked.
    #[inline]
    pub(super) fn is_asked_for(&self) -> bool {
        self.is_asked_for.load(Relaxed)
    }

    /// A shard is about to be let go.
    pub(super) fn learn(&self, held: &mut Held) {
        let used = held.shard.used_bytes();
        if used.abs_diff(held.told_bytes) >= GRAIN_BYTES {
            // What a shard has told before is part of the sum, so that the sum never falls below zero.
            self.used.fetch_add((used as u64).wrapping_sub(held.told_bytes as u64), Relaxed);
            held.told_bytes = used;
        }
    }
}

impl Keyspace {
    /// Bytes that all shards have in use: give or take a kibibyte for each. The caller has no shard locked.
    #[inline]
    pub fn used_bytes(&self) -> u64 {
        if !self.memory.is_asked_for() {
            self.ask_all();
        }
        self.memory.used.load(Relaxed)
    }

    /// Asks every shard for the first time; one that a long call holds tells when it is let go.
    #[cold]
    fn ask_all(&self) {
        self.memory.is_asked_for.store(true, Relaxed);
        for index in 0..self.cells.len() {
            if let Some(mut held) = self.hold(index, Patience::Short) {
                self.memory.learn(&mut held);
            }
        }
    }
}
