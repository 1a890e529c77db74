//! Entries ordered by their ids.
//!
//! Rule    ids rise. A stream whose entries were all removed still exists: only one that never had an entry is empty.
//! Source  Redis 7.0 `t_stream.c`: `streamAppendItem`, `streamTrim`. Trimming with `~` is exact here.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{Element, Shape};

/// The id of an entry.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct StreamId {
    /// Milliseconds of Unix time, unless the client chose another number.
    pub ms: u64,
    /// Tells entries of one millisecond apart.
    pub seq: u64,
}

impl StreamId {
    /// The lowest id. No entry has it.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The highest id.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The id right behind this one, if there is one.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The id right before this one, if there is one.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

/// Which entries a trim removes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Trim {
    /// The entries that stay.
    pub keep: Keep,
    /// Entries that one trim removes at most; 0: no limit.
    pub limit: u64,
}

/// The entries that stay after a trim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keep {
    /// The last entries, this many.
    Last(u64),
    /// The entries from this id on.
    From(StreamId),
}

/// One entry of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'s> {
    /// Its id.
    pub id: StreamId,
    /// Fields and values in turn.
    pub words: &'s [Element],
}

/// Entries ordered by their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Fields and values in turn; shared with copies of the stream.
    entries: BTreeMap<StreamId, Arc<[Element]>>,
    last_id: StreamId,
    /// Bytes on the heap of all entries together.
    entry_bytes: usize,
}

impl Stream {
    /// A stream without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry with an id behind [`Stream::last_id`]; `words` are fields and values in turn.
    pub fn append(&mut self, id: StreamId, words: &[&[u8]]) {
        let words: Arc<[Element]> = words.iter().map(|word| Element::new(word)).collect();
        self.entry_bytes += bytes_of(&words);
        self.entries.insert(id, words);
        self.last_id = id;
    }

    /// Removes an entry. Returns false if there is none with this id.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let removed = self.entries.remove(&id);
        self.entry_bytes -= removed.as_deref().map_or(0, bytes_of);
        removed.is_some()
    }

    /// Removes entries from the front. Returns how many.
    pub fn trim(&mut self, trim: Trim) -> usize {
        let len_before = self.entries.len();
        let limit =
            if trim.limit == 0 { usize::MAX } else { usize::try_from(trim.limit).unwrap_or(usize::MAX) };
        while len_before - self.entries.len() < limit {
            let Some(first) = self.entries.first_entry() else { break };
            let id = *first.key();
            let stays = match trim.keep {
                Keep::Last(count) => self.entries.len() as u64 <= count,
                Keep::From(least) => id >= least,
            };
            if stays {
                break;
            }
            self.delete(id);
        }
        len_before - self.entries.len()
    }

    /// The entries with ids in this range, lowest id first.
    pub fn range(&self, ids: RangeInclusive<StreamId>) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        let found = (ids.start() <= ids.end()).then(|| self.entries.range(ids));
        found.into_iter().flatten().map(|(id, words)| Entry { id: *id, words })
    }

    /// The id of the entry that was added last, even if it was removed since; [`StreamId::MIN`] if there was none.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }
}

impl Shape for Stream {
    fn type_name(&self) -> &'static str {
        "stream"
    }

    fn encoding(&self) -> &'static str {
        "stream"
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn heap_bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES + self.entry_bytes
    }

    fn is_empty(&self) -> bool {
        self.last_id == StreamId::MIN
    }
}

/// Bytes on the heap of the words of one entry.
fn bytes_of(words: &[Element]) -> usize {
    size_of_val(words) + words.iter().map(Element::heap_bytes).sum::<usize>()
}

/// Approximate bytes of an entry without its words: its node in the tree, and the counters of its allocation.
const ENTRY_BYTES: usize = 72;
/// Entries that a trim with `~` removes at most, unless the client gives another limit. Redis' default.
pub const TRIM_LIMIT: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn of(ids: impl IntoIterator<Item = StreamId>) -> Stream {
        let mut stream = Stream::new();
        ids.into_iter()
            .for_each(|id| stream.append(id, &[b"field", b"a value longer than an inline element"]));
        stream
    }

    fn ids(stream: &Stream, from: StreamId, to: StreamId) -> Vec<StreamId> {
        stream.range(from..=to).map(|entry| entry.id).collect()
    }

    #[test]
    fn a_range_includes_both_of_its_ends() {
        let stream = of((1..=5).map(|ms| id(ms, ms)));
        assert_eq!(ids(&stream, id(2, 2), id(4, 4)), [id(2, 2), id(3, 3), id(4, 4)]);
        assert_eq!(ids(&stream, id(2, 3), id(4, 3)), [id(3, 3)]);
        assert!(ids(&stream, id(4, 0), id(2, 0)).is_empty(), "a range that ends before it begins");
        let last: Vec<_> =
            stream.range(StreamId::MIN..=StreamId::MAX).rev().take(2).map(|entry| entry.id.ms).collect();
        assert_eq!(last, [5, 4]);
    }

    #[test]
    fn a_trim_removes_the_oldest_entries_up_to_its_limit() {
        let full = of((1..=10).map(|ms| id(ms, 0)));
        for (keep, limit, removed) in [
            (Keep::Last(3), 0, 7),
            (Keep::Last(3), 2, 2),
            (Keep::Last(0), 0, 10),
            (Keep::Last(11), 0, 0),
            (Keep::From(id(4, 0)), 0, 3),
            (Keep::From(id(4, 1)), 0, 4),
            (Keep::From(id(4, 1)), 1, 1),
            (Keep::From(StreamId::MAX), 0, 10),
        ] {
            let mut stream = full.clone();
            assert_eq!(stream.trim(Trim { keep, limit }), removed, "{keep:?} {limit}");
            assert_eq!(stream.len(), 10 - removed);
            let first = stream.range(StreamId::MIN..=StreamId::MAX).next().map(|entry| entry.id.ms);
            assert_eq!(first, (removed < 10).then_some(removed as u64 + 1));
        }
    }

    #[test]
    fn memory_is_counted_until_the_last_entry_is_gone() {
        let mut stream = of([id(1, 0), id(2, 0)]);
        let two = stream.heap_bytes();
        assert!(stream.delete(id(1, 0)) && !stream.delete(id(1, 0)));
        assert_eq!(stream.heap_bytes() * 2, two);
        assert!(stream.delete(id(2, 0)));
        assert_eq!((stream.heap_bytes(), stream.len(), stream.is_empty()), (0, 0, false));
        assert_eq!(stream.last_id(), id(2, 0));
    }
}
