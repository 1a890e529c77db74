//! A node of a stream: entries that stand together in one piece of memory.
//!
//! Rule    an entry that is deleted stays where it is, marked, until its node goes, as in Redis. An entry with the
//!         fields of the node's first one does not repeat them.

use std::ops::Range;

use super::{StreamId, size};

/// Entries that stand together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// The id of the first entry, deleted or not.
    first: StreamId,
    /// The id of the last entry, deleted or not.
    pub(super) last: StreamId,
    /// Entries that are not deleted.
    pub(super) live: usize,
    /// Entries, deleted or not.
    total: usize,
    /// Bytes that the node would take in Redis.
    size: usize,
    /// Pairs of the first entry.
    first_pairs: usize,
    /// Where the words of the first entry are.
    first_words: Range<usize>,
    /// Flags; milliseconds since the first entry; sequence number; how many pairs, unless their fields are the first
    /// entry's; the words of the pairs with their lengths, without the fields if they are the first entry's.
    data: Vec<u8>,
}

/// One entry.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its id.
    pub id: StreamId,
    /// How many pairs of a field and a value it has.
    pub len: usize,
    is_deleted: bool,
    /// Where it begins in its node.
    start: usize,
    /// The words of the node's first entry, if its fields are this one's.
    first: Option<Words<'a>>,
    words: Words<'a>,
}

impl Node {
    /// A node with one entry; `words` are fields and values in turn.
    pub(super) fn new(id: StreamId, words: &[&[u8]]) -> Self {
        let pairs = words.len() / 2;
        let fields: usize = words.iter().step_by(2).map(|field| size::text(field)).sum();
        let head = size::integer(1) + size::integer(0) + size::integer(pairs as i64) + size::integer(0);
        let mut node = Self {
            first: id,
            last: id,
            live: 0,
            total: 0,
            size: size::EMPTY + head + fields,
            first_pairs: pairs,
            first_words: 0..0,
            data: Vec::new(),
        };
        node.push(id, words);
        node
    }

    /// Whether an entry with these words would go into this node.
    pub(super) fn has_room(&self, words: &[&[u8]]) -> bool {
        let bytes: usize = words.iter().map(|word| word.len()).sum();
        self.size + bytes < NODE_BYTES_MAX && self.total < NODE_ENTRIES_MAX
    }

    /// Adds an entry behind all others; `words` are fields and values in turn.
    pub(super) fn push(&mut self, id: StreamId, words: &[&[u8]]) {
        let is_first = self.total == 0;
        let fields = words.iter().step_by(2).copied();
        let is_alike = !is_first && self.first_words().step_by(2).eq(fields);
        self.data.push(if is_alike { ALIKE } else { 0 });
        put_number(&mut self.data, id.ms.wrapping_sub(self.first.ms));
        put_number(&mut self.data, id.seq);
        if !is_alike {
            put_number(&mut self.data, words.len() as u64 / 2);
        }
        let start = self.data.len();
        for word in words.iter().skip(usize::from(is_alike)).step_by(1 + usize::from(is_alike)) {
            put_number(&mut self.data, word.len() as u64);
            self.data.extend_from_slice(word);
        }
        if is_first {
            self.first_words = start..self.data.len();
        }
        self.size += self.size_of(id, words, is_first || is_alike);
        self.last = id;
        self.live += 1;
        self.total += 1;
    }

    /// Bytes that an entry takes in Redis.
    fn size_of(&self, id: StreamId, words: &[&[u8]], is_alike: bool) -> usize {
        let pairs = words.len() as i64 / 2;
        let (ms, seq) = (id.ms.wrapping_sub(self.first.ms), id.seq.wrapping_sub(self.first.seq));
        let ids = size::integer(ms.cast_signed()) + size::integer(seq.cast_signed());
        let values: usize = words.iter().skip(1).step_by(2).map(|value| size::text(value)).sum();
        let (fields, count) = if is_alike {
            (0, pairs + 3)
        } else {
            let fields: usize = words.iter().step_by(2).map(|field| size::text(field)).sum();
            (size::integer(pairs) + fields, 2 * pairs + 4)
        };
        size::integer(0) + ids + fields + values + size::integer(count)
    }

    /// Marks as deleted the first living entries whose ids are `wanted`, at most so many; returns how many they were.
    pub(super) fn delete(&mut self, most: usize, wanted: impl Fn(StreamId) -> bool) -> usize {
        let starts: Vec<usize> =
            self.living().filter(|entry| wanted(entry.id)).take(most).map(|entry| entry.start).collect();
        starts.iter().for_each(|start| self.data[*start] |= DELETED);
        self.live -= starts.len();
        starts.len()
    }

    /// The entries that are not deleted.
    pub(super) fn living(&self) -> impl Iterator<Item = Entry<'_>> {
        Entries { node: self, at: 0 }.filter(|entry| !entry.is_deleted)
    }

    /// The id of the first entry, deleted or not.
    pub(super) fn first(&self) -> StreamId {
        self.first
    }

    /// Bytes of its entries: about what it takes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.data.len()
    }

    fn first_words(&self) -> Words<'_> {
        Words(&self.data[self.first_words.clone()])
    }
}

impl<'a> Entry<'a> {
    /// Its fields and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let (mut first, mut words) = (self.first.clone(), self.words.clone());
        std::iter::from_fn(move || {
            let field = match &mut first {
                Some(first) => {
                    let field = first.next();
                    first.next();
                    field
                }
                None => words.next(),
            };
            field.zip(words.next())
        })
    }
}

/// The entries of a node, deleted ones too.
struct Entries<'a> {
    node: &'a Node,
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        let (flags, mut rest) = self.node.data.get(start..)?.split_first()?;
        let ms = self.node.first.ms.wrapping_add(take_number(&mut rest));
        let id = StreamId { ms, seq: take_number(&mut rest) };
        let is_alike = flags & ALIKE != 0;
        let len = if is_alike { self.node.first_pairs } else { take_number(&mut rest) as usize };
        let mut behind = Words(rest);
        for _ in 0..if is_alike { len } else { 2 * len } {
            behind.next();
        }
        self.at = self.node.data.len() - behind.0.len();
        Some(Entry {
            id,
            len,
            is_deleted: flags & DELETED != 0,
            start,
            first: is_alike.then(|| self.node.first_words()),
            words: Words(&rest[..rest.len() - behind.0.len()]),
        })
    }
}

/// Words with their lengths, one behind the other.
#[derive(Clone, Debug)]
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let len = take_number(&mut self.0) as usize;
        let (word, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(word)
    }
}

/// Seven bits a byte, lowest first; the highest bit says that more follow.
fn put_number(data: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        data.push(number as u8 | 0x80);
        number >>= 7;
    }
    data.push(number as u8);
}

fn take_number(data: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, rest)) = data.split_first() {
        *data = rest;
        number |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

/// The entry is deleted.
const DELETED: u8 = 1;
/// Its fields are those of the node's first entry.
const ALIKE: u8 = 2;
/// Bytes of a node at most, as Redis counts them: `stream-node-max-bytes`.
const NODE_BYTES_MAX: usize = 4096;
/// Entries of a node at most: `stream-node-max-entries`.
pub(super) const NODE_ENTRIES_MAX: usize = 100;
