//! The table that finds an entry by the hash of its key: ids in the order of their hashes, with gaps.
//!
//! Owns    one word per entry: 32 bits of the key's hash and the entry's id. It never looks at an entry.
//! Source  linear probing kept sorted by hash (Amble and Knuth, "Ordered hash tables", 1974). The home of a
//!         hash grows with the hash, so the whole array is sorted; nothing wraps around, the array has a tail
//!         instead.
//!
//! Why our own. A walk through the sorted array in steps (SCAN) keeps its place by the hash it has come to,
//! so growing and shrinking between two steps can neither lose nor repeat an entry. A search that fails ends
//! at the first greater hash, so the table can be seven eighths full. And growing is one pass over the words,
//! in order.

/// Ids of entries by the hash of their keys. An empty table allocates nothing until it gets an entry.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// At least `homes` words, each [`EMPTY`] or a hash above an id.
    words: Vec<u64>,
    /// Over how many words the hashes are spread. What does not fit at the end lies in the tail behind them.
    homes: usize,
    len: usize,
}

impl Table {
    /// Adds an entry. The caller knows that it is not here yet. `id` is below `u32::MAX`.
    pub(super) fn insert(&mut self, hash: u32, id: u32) {
        debug_assert_ne!(id, u32::MAX, "the id of an empty word");
        if self.len >= fill_max(self.homes) {
            self.rebuild(larger(self.homes));
        }
        self.len += 1;

        let from = self.home(hash);
        let at = self.words[from..].iter().position(|word| hash_of(*word) > hash || *word == EMPTY);
        let at = at.map_or(self.words.len(), |offset| from + offset);
        let gap = self.words[at..].iter().position(|word| *word == EMPTY);
        let gap = gap.map_or(self.words.len(), |offset| at + offset);
        if gap == self.words.len() {
            // A vector that doubled for one word in its tail would give away what the dense table saves.
            if self.words.capacity() == gap {
                self.words.reserve_exact(TAIL_STEP);
            }
            self.words.push(EMPTY);
        }
        self.words.copy_within(at..gap, at + 1);
        self.words[at] = word(hash, id);
    }

    /// Takes an entry out; false when it was not here.
    pub(super) fn remove(&mut self, hash: u32, id: u32) -> bool {
        let Some(at) = self.position(hash, |other| other == id) else {
            return false;
        };
        // Words away from home move back by one, up to the first that is at home or missing.
        let rest = self.words[at + 1..].iter().enumerate();
        let stays = |(offset, word): (usize, &u64)| *word == EMPTY || self.home(hash_of(*word)) > at + offset;
        let moved = rest.map(stays).position(|stays| stays).unwrap_or(self.words.len() - at - 1);
        self.words.copy_within(at + 1..at + 1 + moved, at);
        self.words[at + moved] = EMPTY;
        self.len -= 1;

        if self.len < fill_min(self.homes) {
            self.rebuild(self.len + self.len / 2);
        }
        true
    }

    /// Gives an entry another id; false when it was not here.
    pub(super) fn rename(&mut self, hash: u32, old: u32, new: u32) -> bool {
        match self.position(hash, |other| other == old) {
            Some(at) => {
                self.words[at] = word(hash, new);
                true
            }
            None => false,
        }
    }

    /// The entry with this hash of which `is_it` says yes. It is asked about entries of exactly this hash
    /// only.
    pub(super) fn find(&self, hash: u32, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.position(hash, is_it).map(|at| id_of(self.words[at]))
    }

    /// One step of a walk: visits the entries of the first hash from `cursor` on, and returns where to go on.
    ///
    /// A walk begins at 0 and has ended when 0 comes back. Cursors are below 2^32. An entry that is in the
    /// table during the whole walk is visited exactly once, whatever else comes and goes. A cursor beyond the
    /// last hash ends the walk.
    pub(super) fn scan(&self, cursor: u64, mut visit: impl FnMut(u32)) -> u64 {
        let Ok(from) = u32::try_from(cursor) else {
            return 0;
        };
        if self.len == 0 {
            return 0;
        }
        let mut rest =
            self.words[self.home(from)..].iter().filter(|word| **word != EMPTY && hash_of(**word) >= from);
        let Some(first) = rest.next() else {
            return 0;
        };
        visit(id_of(*first));
        for word in rest {
            if hash_of(*word) != hash_of(*first) {
                return u64::from(hash_of(*word));
            }
            visit(id_of(*word));
        }
        0
    }

    /// An entry chosen by `entropy`, each about as likely as any other; `None` when there is none.
    pub(super) fn random(&self, entropy: u64) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut state = entropy;
        for _ in 0..RANDOM_TRIES {
            state = scramble(state);
            let at = (u128::from(state) * self.words.len() as u128) >> 64;
            let word = self.words[at as usize];
            if word != EMPTY {
                return Some(id_of(word));
            }
        }
        let from = state as usize % self.words.len();
        let around = self.words[from..].iter().chain(&self.words[..from]);
        around.copied().find(|word| *word != EMPTY).map(id_of)
    }

    /// Every id, in the order of a walk.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.words.iter().filter(|word| **word != EMPTY).map(|word| id_of(*word))
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True when there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of heap this table holds.
    pub(super) fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Panics if this table contradicts itself; `hash_of_id` gives the true hash of an entry. For tests.
    pub(super) fn assert_laws(&self, hash_of_id: impl Fn(u32) -> u32) {
        let mut seen = 0;
        let mut last = 0;
        for (at, word) in self.words.iter().enumerate().filter(|(_, word)| **word != EMPTY) {
            let (hash, home) = (hash_of(*word), self.home(hash_of(*word)));
            assert_eq!(hash, hash_of_id(id_of(*word)), "word {at}: the hash of its entry");
            assert!(hash >= last, "word {at}: sorted by hash");
            assert!(home <= at, "word {at}: never before its home {home}");
            assert!(
                self.words[home..at].iter().all(|word| *word != EMPTY),
                "word {at}: no gap after its home {home}"
            );
            (last, seen) = (hash, seen + 1);
        }
        assert_eq!(seen, self.len, "as many words as entries");
        assert!(self.len <= fill_max(self.homes), "{} entries in {} homes", self.len, self.homes);
    }

    fn position(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let from = self.home(hash);
        for (offset, word) in self.words[from..].iter().enumerate() {
            if hash_of(*word) > hash || *word == EMPTY {
                return None;
            }
            if hash_of(*word) == hash && is_it(id_of(*word)) {
                return Some(from + offset);
            }
        }
        None
    }

    /// Spreads the entries over another number of homes, in place.
    ///
    /// A large allocation grows and shrinks where it is, or moves by its page tables. Copying to a new one
    /// would leave holes of the old size behind, which this table, now larger, can never fill.
    fn rebuild(&mut self, homes: usize) {
        self.homes = homes.max(HOMES_MIN);
        let tail = TAIL_STEP.min(self.homes);
        let len = self.homes + tail;
        if len > self.words.len() {
            self.words.reserve_exact(len - self.words.len());
            self.words.resize(len, EMPTY);
        }

        let (mut at, mut end) = (self.gather(), 0);
        while at < self.words.len() {
            let word = self.words[at];
            let to = self.home(hash_of(word)).max(end);
            if to > at {
                // More entries than the tail takes have their homes at the end: they move on, to overwrite none.
                self.words.splice(at..at, std::iter::repeat_n(EMPTY, to - at));
                at = to;
            }
            self.words[at] = EMPTY;
            self.words[to] = word;
            (at, end) = (at + 1, to + 1);
        }
        self.words.truncate(end.max(self.homes));
        self.words.shrink_to(self.words.len() + tail);
    }

    /// Moves every entry to the end of the array, in order and without gaps, and returns where they begin.
    fn gather(&mut self) -> usize {
        let mut first = self.words.len();
        for at in (0..self.words.len()).rev() {
            let word = std::mem::replace(&mut self.words[at], EMPTY);
            // An empty word is written as well, over another: that costs less than to guess what it is.
            self.words[first - 1] = word;
            first -= usize::from(word != EMPTY);
        }
        first
    }

    fn home(&self, hash: u32) -> usize {
        home(hash, self.homes)
    }
}

/// The first word where a hash may lie among so many homes; it grows with the hash.
#[inline]
pub(super) fn home(hash: u32, homes: usize) -> usize {
    ((u64::from(hash) * homes as u64) >> 32) as usize
}

const fn word(hash: u32, id: u32) -> u64 {
    (hash as u64) << 32 | id as u64
}

const fn hash_of(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn id_of(word: u64) -> u32 {
    word as u32
}

/// With how many entries a table is full: seven eighths of its homes.
const fn fill_max(homes: usize) -> usize {
    homes - homes / 8
}

/// With fewer entries than this a table gives memory back. The smallest one stays: a shard where a single
/// lock comes and goes shall not allocate each time.
const fn fill_min(homes: usize) -> usize {
    if homes > HOMES_MIN { homes * 2 / 5 } else { 0 }
}

/// Small tables grow by half, so that few passes are made; large ones by an eighth, so that little lies idle.
const fn larger(homes: usize) -> usize {
    if homes < HOMES_LARGE { homes + homes / 2 } else { homes + homes / 8 }
}

/// The finaliser of SplitMix64: every bit of the input moves every bit of the output.
const fn scramble(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A word without an entry: the greatest, so that a search past the last hash ends here too.
const EMPTY: u64 = u64::MAX;
const HOMES_MIN: usize = 8;
const HOMES_LARGE: usize = 4096;
const TAIL_STEP: usize = 64;
const RANDOM_TRIES: usize = 64;

#[cfg(test)]
mod tests;
