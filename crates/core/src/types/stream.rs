//! Entries ordered by their ids.
//!
//! Rule    ids rise. A stream whose entries were all trimmed still exists: only one that never had an entry is empty.
//! Source  Redis 7.0 `t_stream.c`: `streamAppendItem`, `streamTrim`. Trimming with `~` is exact here.

use std::collections::VecDeque;
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
}

/// Entries ordered by their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Ids, and fields and values in turn; the words are shared with copies of the stream.
    entries: VecDeque<(StreamId, Arc<[Element]>)>,
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
        self.entries.push_back((id, words));
        self.last_id = id;
    }

    /// Removes the oldest entries, so that at most `len_max` stay. Returns how many it removed.
    pub fn trim(&mut self, len_max: u64) -> usize {
        let len_max = usize::try_from(len_max).unwrap_or(usize::MAX);
        let removed = self.entries.len().saturating_sub(len_max);
        self.entry_bytes -= self.entries.drain(..removed).map(|(_, words)| bytes_of(&words)).sum::<usize>();
        removed
    }

    /// Raises [`Stream::last_id`] to that of entries that were removed.
    pub(crate) fn raise_last_id(&mut self, id: StreamId) {
        self.last_id = self.last_id.max(id);
    }

    /// The entries, lowest id first: each with its fields and values in turn.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (StreamId, &[Element])> {
        self.entries.iter().map(|(id, words)| (*id, &words[..]))
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

/// Bytes of an entry without its words: its slot in the queue, and the counters of its allocation.
const ENTRY_BYTES: usize = size_of::<(StreamId, Arc<[Element]>)>() + 2 * size_of::<usize>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trim_removes_the_oldest_entries_and_their_bytes() {
        let mut stream = Stream::new();
        let mut sizes = vec![0];
        for ms in 1..=5 {
            stream.append(StreamId { ms, seq: 0 }, &[b"field", b"a value longer than an inline element"]);
            sizes.push(stream.heap_bytes());
        }
        for (len_max, removed, first) in [(9, 0, Some(1)), (3, 2, Some(3)), (3, 0, Some(3)), (0, 3, None)] {
            assert_eq!(stream.trim(len_max), removed);
            assert_eq!(stream.entries().next().map(|(id, _)| id.ms), first);
            assert_eq!(stream.heap_bytes(), sizes[stream.len()]);
        }
        assert_eq!((stream.last_id().ms, stream.is_empty()), (5, false));
    }
}
