//! The order of a large sorted set: which slot has which rank.
//!
//! Rule    sorted chunks of bounded size, and a Fenwick tree over their lengths. A search by rank or by score takes
//!         logarithmic time. An insertion moves the entries of one chunk at most. The tree is rebuilt when the number of
//!         chunks changes, which takes dozens of insertions or removals.

use std::ops::Range;

/// One entry: its score, and the slot of its member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) score: f64,
    pub(super) slot: u32,
}

/// The position of an entry, valid until the next change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Position {
    pub(super) chunk: usize,
    pub(super) at: usize,
}

/// Items in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// No chunk is empty.
    chunks: Vec<Vec<Item>>,
    /// The Fenwick tree. Node `i`, from 1 on, is the sum of `i & -i` chunk lengths, up to chunk `i - 1`.
    sums: Vec<usize>,
}

impl Order {
    /// The order of `items`, which are sorted.
    pub(super) fn new(items: &[Item]) -> Self {
        let mut order = Self { chunks: items.chunks(CHUNK_FILL).map(<[_]>::to_vec).collect(), sums: vec![] };
        order.sum_up();
        order
    }

    /// Inserts `item` at `place`, which comes from [`Order::seek`].
    pub(super) fn insert(&mut self, place: Position, item: Item) {
        let Position { chunk, at } = place;
        let Some(items) = self.chunks.get_mut(chunk) else {
            self.chunks.push(vec![item]);
            return self.sum_up();
        };
        items.insert(at, item);
        if items.len() <= CHUNK_MAX {
            return self.shift(chunk, 1);
        }
        // If every entry is added at the end, as with times, the chunks stay full.
        let is_last = at + 1 == items.len() && chunk + 1 == self.chunks.len();
        let items = &mut self.chunks[chunk];
        let half = items.split_off(if is_last { CHUNK_MAX } else { CHUNK_MAX / 2 });
        self.chunks.insert(chunk + 1, half);
        self.sum_up();
    }

    /// Removes the item at `place`.
    pub(super) fn remove(&mut self, place: Position) {
        let Position { chunk, at } = place;
        self.chunks[chunk].remove(at);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
            return self.sum_up();
        }
        let is_small = |chunk: usize| self.chunks.get(chunk).is_some_and(|items| items.len() < CHUNK_MIN);
        let first = match (is_small(chunk), chunk.checked_sub(1)) {
            (false, _) => None,
            (true, _) if is_small(chunk + 1) => Some(chunk),
            (true, previous) => previous.filter(|previous| is_small(*previous)),
        };
        let Some(first) = first else {
            return self.shift(chunk, -1);
        };
        let tail = self.chunks.remove(first + 1);
        self.chunks[first].extend(tail);
        self.sum_up();
    }

    /// Sets the slot of the item at `place`.
    pub(super) fn set_slot(&mut self, place: Position, slot: u32) {
        self.chunks[place.chunk][place.at].slot = slot;
    }

    /// The position of the first item for which `is_before` is false. It is true for all earlier items and no later one.
    pub(super) fn seek(&self, is_before: impl Fn(&Item) -> bool) -> Position {
        let firsts = self.chunks.partition_point(|items| items.first().is_some_and(&is_before));
        let chunk = firsts.saturating_sub(1);
        match self.chunks.get(chunk).map(|items| (items.len(), items.partition_point(is_before))) {
            Some((len, at)) if at == len && firsts < self.chunks.len() => Position { chunk: firsts, at: 0 },
            found => Position { chunk, at: found.map_or(0, |(_, at)| at) },
        }
    }

    /// The number of items before `place`.
    pub(super) fn rank(&self, place: Position) -> usize {
        let (mut node, mut sum) = (place.chunk, place.at);
        while node > 0 {
            sum += self.sums[node];
            node &= node - 1;
        }
        sum
    }

    /// The position of the item with this rank; the end if there are fewer items.
    pub(super) fn at(&self, rank: usize) -> Position {
        let (mut node, mut left) = (0, rank);
        let mut step = self.chunks.len().checked_ilog2().map_or(0, |bits| 1 << bits);
        while step > 0 {
            if let Some(sum) = self.sums.get(node + step)
                && *sum <= left
            {
                node += step;
                left -= sum;
            }
            step >>= 1;
        }
        Position { chunk: node, at: left }
    }

    /// The items of these ranks, all of which exist.
    pub(super) fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = &Item> {
        let (front, back) = (self.at(ranks.start), self.at(ranks.end));
        (front.chunk..=back.chunk).flat_map(move |chunk| {
            let items = self.chunks.get(chunk).map_or(&[][..], Vec::as_slice);
            let start = if chunk == front.chunk { front.at } else { 0 };
            let end = if chunk == back.chunk { back.at } else { items.len() };
            &items[start..end]
        })
    }

    /// The item at `place`, if there is one.
    #[cfg(test)]
    pub(super) fn get(&self, place: Position) -> Option<&Item> {
        self.chunks.get(place.chunk)?.get(place.at)
    }

    /// Approximate bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        let chunk = size_of::<Vec<Item>>() + size_of::<usize>() + CHUNK_MAX * size_of::<Item>();
        self.chunks.capacity() * chunk
    }

    /// Adds `by` to the length of a chunk in the tree.
    fn shift(&mut self, chunk: usize, by: isize) {
        let mut node = chunk + 1;
        while let Some(sum) = self.sums.get_mut(node) {
            *sum = sum.wrapping_add_signed(by);
            node += node & node.wrapping_neg();
        }
    }

    fn sum_up(&mut self) {
        self.sums.clear();
        self.sums.push(0);
        self.sums.extend(self.chunks.iter().map(Vec::len));
        for node in 1..self.sums.len() {
            let parent = node + (node & node.wrapping_neg());
            if parent < self.sums.len() {
                self.sums[parent] += self.sums[node];
            }
        }
    }

    /// Panics if an invariant is broken.
    #[cfg(test)]
    pub(super) fn assert_laws(&self, len: usize) {
        assert!(self.chunks.iter().all(|items| (1..=CHUNK_MAX).contains(&items.len())));
        let mut rank = 0;
        for (chunk, items) in self.chunks.iter().enumerate() {
            assert_eq!(self.rank(Position { chunk, at: 0 }), rank);
            assert_eq!(self.at(rank), Position { chunk, at: 0 });
            assert_eq!(self.at(rank + items.len() - 1), Position { chunk, at: items.len() - 1 });
            rank += items.len();
        }
        assert_eq!(rank, len);
    }
}

/// Maximum number of items in a chunk.
const CHUNK_MAX: usize = 256;
/// Items of each chunk of a new order, with capacity for more.
const CHUNK_FILL: usize = 192;
/// Two neighbouring chunks with fewer items than this are joined.
const CHUNK_MIN: usize = 64;

const _: () = assert!(2 * CHUNK_MIN <= CHUNK_MAX && CHUNK_FILL <= CHUNK_MAX);
