//! Memory fetched ahead: where keys will be looked for, while what comes before them is carried out.
//!
//! Why. A look at one key among very many waits for memory several times in a row, each as long as some hundred
//! instructions. Of requests that are known before their turn all words are fetched at once, and then all entries.
//!
//! Rule    nothing is changed, waited for or relied upon: whoever looks later finds what he would have found.
//!         What that is worth, `benches/README.md` says.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use smallvec::SmallVec;

use super::{Keyspace, table};
use crate::limits::REQUESTS_AHEAD_MAX;

/// Where the words of a shard's table are, for whoever has not locked the shard. They may have moved meanwhile.
#[derive(Debug, Default)]
pub(super) struct Hint {
    address: AtomicUsize,
    homes: AtomicUsize,
}

impl Hint {
    /// The table is there, and has so many homes.
    #[inline]
    pub(super) fn set(&self, (address, homes): (usize, usize)) {
        self.address.store(address, Relaxed);
        self.homes.store(homes, Relaxed);
    }

    /// Has the words fetched among which a hash is looked for.
    #[inline]
    fn fetch(&self, hash: u64) {
        let home = table::home(hash as u32, self.homes.load(Relaxed));
        let word = self.address.load(Relaxed).wrapping_add(home * size_of::<u64>());
        // A full table has an entry's word some words behind its home.
        fetch(word);
        fetch(word.wrapping_add(LINE_BYTES));
    }
}

impl Keyspace {
    /// Has the memory fetched where the first [`REQUESTS_AHEAD_MAX`] of these keys are found, each in its database, unless
    /// so few keys are stored that it is near anyway.
    pub fn foresee<'r>(&self, keys: impl Iterator<Item = (u16, &'r [u8])>) {
        // Keys are spread evenly: one shard is as good as another.
        if self.cells[0].hint.homes.load(Relaxed) * self.cells.len() < HOMES_NEAR {
            return;
        }
        let mut places = SmallVec::<[(u16, u64); REQUESTS_AHEAD_MAX]>::new();
        keys.take(REQUESTS_AHEAD_MAX).for_each(|(database, key)| {
            let hash = self.hash(key);
            self.cells[self.shard_of(hash)].hint.fetch(hash);
            places.push((database, hash));
        });
        for (database, hash) in &places {
            if let Some(held) = self.cells[self.shard_of(*hash)].held.try_lock() {
                held.shard.fetch(*database, *hash);
            }
        }
    }
}

/// Has the line of memory fetched that is at an address, if there is any.
#[inline]
#[allow(unsafe_code)]
pub(super) fn fetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the processor takes it as a hint: it reads nothing for the program, and ignores what it cannot reach.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Bytes of memory that are fetched together.
pub(super) const LINE_BYTES: usize = 64;
/// Homes of all shards' tables. As long as there are fewer, they and their entries, some six megabytes, are in a cache that
/// is fast enough.
const HOMES_NEAR: usize = 1 << 12;
