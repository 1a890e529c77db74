//! The hash table that finds an entry by the hash of its key: ids sorted by their hashes, with gaps.
//!
//! Owns    one word per entry: 32 bits of the key's hash and the entry's id. It never reads an entry.
//! Source  linear probing kept sorted by hash (Amble and Knuth, "Ordered hash tables", 1974). The bucket of a hash grows
//!         with the hash, so the whole array is sorted. Nothing wraps around; the array has a tail instead.
//!
//! Why not the standard table: a SCAN through the sorted array keeps its position as a hash, so growing and shrinking
//! between two steps can neither lose nor repeat an entry. A search that fails ends at the first greater hash, so the
//! table can be seven eighths full. And growing is one pass over the words, in order.

use prefetch_index::prefetch_index;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::block::Block;

/// Ids of entries by the hash of their keys. An empty table allocates nothing until it gets an entry.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// At least `buckets` words, each [`EMPTY`] or a hash above an id.
    block: Block,
    /// Over how many words the hashes are spread. Words that do not fit at the end are in the tail behind them.
    buckets: usize,
    len: usize,
}

impl Table {
    /// Adds an entry that is not in the table. `id` is below `u32::MAX`.
    pub(super) fn insert(&mut self, hash: u32, id: u32) {
        debug_assert_ne!(id, u32::MAX, "the id of an empty word");
        if self.len >= fill_max(self.buckets) {
            // Growing by an eighth would move each word nine times in all, and soon fill the gaps: an insertion would take
            // 70 % more instructions.
            self.rebuild(self.buckets + self.buckets / 2);
        }
        let from = self.bucket(hash);
        let words = self.words_mut();
        let last = word(hash, u32::MAX);
        let at = words[from..].iter().position(|word| word.get() >= last);
        let at = at.map_or(words.len(), |offset| from + offset);
        let Some(gap) = words[at..].iter().position(|word| word.get() == EMPTY) else {
            // The tail is full: the entries get another one.
            self.rebuild(self.buckets);
            return self.insert(hash, id);
        };
        words.copy_within(at..at + gap, at + 1);
        words[at] = word(hash, id).into();
        self.len += 1;
    }

    /// Removes an entry; false if it was not in the table.
    pub(super) fn remove(&mut self, hash: u32, id: u32) -> bool {
        let Some((at, _)) = self.position(hash, |other| other == id) else {
            return false;
        };
        // The words behind it move back by one, up to the first that is in its bucket or empty. A plain loop: there may be
        // dozens of them, and iterators take twice the instructions.
        let (buckets, words) = (self.buckets, self.words_mut());
        let mut end = at + 1;
        while let Some(word) = words.get(end).map(|word| word.get())
            && word != EMPTY
            && bucket(hash_of(word), buckets) < end
        {
            end += 1;
        }
        words.copy_within(at + 1..end, at);
        words[end - 1] = EMPTY.into();
        self.len -= 1;

        if self.len < fill_min(self.buckets) {
            self.rebuild(self.len + self.len / 2);
        }
        true
    }

    /// Gives an entry another id; false if it was not in the table.
    pub(super) fn rename(&mut self, hash: u32, old: u32, new: u32) -> bool {
        match self.position(hash, |other| other == old) {
            Some((at, _)) => {
                self.words_mut()[at] = word(hash, new).into();
                true
            }
            None => false,
        }
    }

    /// The entry with this hash for which `is_match` is true. It is called for entries of exactly this hash only.
    pub(super) fn find(&self, hash: u32, is_match: impl FnMut(u32) -> bool) -> Option<u32> {
        self.position(hash, is_match).map(|(_, id)| id)
    }

    /// Asks for the memory of the first word that [`Table::find`] reads; false if the table is small enough for a cache.
    #[inline]
    pub(super) fn prefetch(&self, hash: u32) -> bool {
        let is_large = self.len >= LARGE;
        if is_large {
            prefetch_index(self.words(), self.bucket(hash));
        }
        is_large
    }

    /// One step of a scan: visits the entries of the first hash from `cursor` on, and returns the next cursor.
    ///
    /// A scan begins at 0 and has ended when 0 is returned. Cursors are below 2^32. An entry that is in the table during
    /// the whole scan is visited exactly once. A cursor beyond the last hash ends the scan.
    pub(super) fn scan(&self, cursor: u64, mut visit: impl FnMut(u32)) -> u64 {
        let Ok(from) = u32::try_from(cursor) else {
            return 0;
        };
        if self.len == 0 {
            return 0;
        }
        let mut rest = self.words()[self.bucket(from)..]
            .iter()
            .map(|word| word.get())
            .filter(|word| *word != EMPTY && hash_of(*word) >= from);
        let Some(first) = rest.next() else {
            return 0;
        };
        visit(id_of(first));
        for word in rest {
            if hash_of(word) != hash_of(first) {
                return u64::from(hash_of(word));
            }
            visit(id_of(word));
        }
        0
    }

    /// An entry chosen by `entropy`, with about equal probabilities; `None` if there is none.
    pub(super) fn random(&self, entropy: u64) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let (mut state, words) = (entropy, self.words());
        for _ in 0..RANDOM_TRIES {
            state = scramble(state);
            let at = (u128::from(state) * words.len() as u128) >> 64;
            let word = words[at as usize].get();
            if word != EMPTY {
                return Some(id_of(word));
            }
        }
        let from = state as usize % words.len();
        let around = words[from..].iter().chain(&words[..from]);
        around.map(|word| word.get()).find(|word| *word != EMPTY).map(id_of)
    }

    /// Every id, in the order of a scan.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.words().iter().map(|word| word.get()).filter(|word| *word != EMPTY).map(id_of)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory of this table.
    pub(super) fn heap_bytes(&self) -> usize {
        self.block.len()
    }

    /// Panics if an invariant is broken; `hash_of_id` gives the true hash of an entry. For tests.
    pub(super) fn assert_laws(&self, hash_of_id: impl Fn(u32) -> u32) {
        let mut seen = 0;
        let mut last = 0;
        for (at, word) in self.words().iter().enumerate().filter(|(_, word)| word.get() != EMPTY) {
            let (hash, bucket) = (hash_of(word.get()), self.bucket(hash_of(word.get())));
            assert_eq!(hash, hash_of_id(id_of(word.get())), "word {at}: the hash of its entry");
            assert!(hash >= last, "word {at}: sorted by hash");
            assert!(bucket <= at, "word {at}: not before its bucket {bucket}");
            assert!(
                self.words()[bucket..at].iter().all(|word| word.get() != EMPTY),
                "word {at}: no gap after its bucket {bucket}"
            );
            (last, seen) = (hash, seen + 1);
        }
        assert_eq!(seen, self.len, "as many words as entries");
        assert!(self.len <= fill_max(self.buckets), "{} entries in {} buckets", self.len, self.buckets);
    }

    /// Where the entry with this hash is for which `is_match` is true, and its id.
    fn position(&self, hash: u32, mut is_match: impl FnMut(u32) -> bool) -> Option<(usize, u32)> {
        let (from, last) = (self.bucket(hash), word(hash, u32::MAX));
        for (at, word) in (from..).zip(self.words()[from..].iter().map(|word| word.get())) {
            // A greater hash, or no entry.
            if word >= last {
                return None;
            }
            if hash_of(word) == hash && is_match(id_of(word)) {
                return Some((at, id_of(word)));
            }
        }
        None
    }

    /// Spreads the entries over another number of buckets.
    fn rebuild(&mut self, buckets: usize) {
        self.buckets = buckets.max(BUCKETS_MIN);
        let old = std::mem::take(&mut self.block);
        let entries = || words_of(&old).iter().filter(|word| word.get() != EMPTY);
        // More entries than fit into the tail may have their buckets at the end.
        let end = entries().fold(0, |end, word| self.bucket(hash_of(word.get())).max(end) + 1);
        let len = end.max(self.buckets) + TAIL_STEP.min(self.buckets);
        self.block = Block::filled(len * size_of::<U64>(), u8::MAX);

        let mut end = 0;
        for word in entries() {
            let to = self.bucket(hash_of(word.get())).max(end);
            self.words_mut()[to] = *word;
            end = to + 1;
        }
    }

    fn words(&self) -> &[U64] {
        words_of(&self.block)
    }

    fn words_mut(&mut self) -> &mut [U64] {
        <[U64]>::mut_from_bytes(&mut self.block).expect("the block has whole words")
    }

    fn bucket(&self, hash: u32) -> usize {
        bucket(hash, self.buckets)
    }
}

fn words_of(block: &Block) -> &[U64] {
    <[U64]>::ref_from_bytes(block).expect("the block has whole words")
}

/// The first word where a hash may be. It grows with the hash.
#[inline]
fn bucket(hash: u32, buckets: usize) -> usize {
    ((u64::from(hash) * buckets as u64) >> 32) as usize
}

fn word(hash: u32, id: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(id)
}

const fn hash_of(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn id_of(word: u64) -> u32 {
    word as u32
}

/// The maximum number of entries in a table with this number of buckets: seven eighths.
const fn fill_max(buckets: usize) -> usize {
    buckets - buckets / 8
}

/// A table with fewer entries shrinks. The smallest table stays, so that a shard with a single lock that is taken and
/// released again and again does not allocate.
const fn fill_min(buckets: usize) -> usize {
    if buckets > BUCKETS_MIN { buckets * 2 / 5 } else { 0 }
}

/// The finaliser of SplitMix64: every bit of the input moves every bit of the output.
const fn scramble(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A word without an entry: the greatest, so that a search past the last hash ends here too. All its bytes are
/// [`u8::MAX`].
const EMPTY: u64 = u64::MAX;
const BUCKETS_MIN: usize = 8;
const TAIL_STEP: usize = 64;
/// Entries of a shard from which on they are too many for a fast cache: of 64 shards, half a megabyte.
const LARGE: usize = 64;
const RANDOM_TRIES: usize = 64;

#[cfg(test)]
mod tests;
