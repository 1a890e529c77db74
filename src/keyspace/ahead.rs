//! Memory fetched ahead: where keys will be looked for, while what comes before them is carried out.
//!
//! Why. A look at one key among very many waits for memory several times in a row, each as long as some hundred
//! instructions. Of requests that are known before their turn all words are fetched at once, and then all entries.
//!
//! Rule    nothing is changed, waited for or relied upon: whoever looks later finds what he would have found.
//! Worth   among 400,000 keys at random, pipelined by 16, in cycles outside the kernel: GET 1,220 to 600, extend by EVALSHA
//!         2,240 to 1,630. Below some 60,000 keys it costs more than it gives, and is not done.

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

/// Keys that will be looked for.
#[derive(Debug)]
pub struct Ahead<'k> {
    keyspace: &'k Keyspace,
    /// The database and the hash of each.
    places: SmallVec<[(u16, u64); REQUESTS_AHEAD_MAX]>,
}

impl Keyspace {
    /// For whoever knows keys that will be looked for; `None` where so few are stored that all memory is near anyway.
    #[inline]
    pub fn ahead(&self) -> Option<Ahead<'_>> {
        // Keys are spread evenly: one shard is as good as another.
        let homes = self.cells[0].hint.homes.load(Relaxed) * self.cells.len();
        (homes >= HOMES_NEAR).then(|| Ahead { keyspace: self, places: SmallVec::new() })
    }
}

impl Ahead<'_> {
    /// Has the words fetched among which a key of a database will be looked for.
    #[inline]
    pub fn look(&mut self, database: u16, key: &[u8]) {
        let hash = self.keyspace.hash(key);
        self.keyspace.cells[self.keyspace.shard_of(hash)].hint.fetch(hash);
        self.places.push((database, hash));
    }

    /// Has the entries fetched of all these keys, whose words have come meanwhile.
    pub fn fetch(&self) {
        for (database, hash) in &self.places {
            if let Some(held) = self.keyspace.cells[self.keyspace.shard_of(*hash)].held.try_lock() {
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
/// Homes of all shards' tables. As long as there are fewer, they and their entries, some four hundred kilobytes, are in a
/// cache that is fast enough.
const HOMES_NEAR: usize = 1 << 12;
