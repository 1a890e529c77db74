//! A small sorted set in one piece of memory, lowest score first.
//!
//! Rule    an entry is its score, its member's length, the member, and the length again, so that entries can be read
//!         from both ends. Every search is a walk: the owner keeps these sets small.

use super::bounds::precedes;

/// A small sorted set: at most 65,535 members of at most [`MEMBER_BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    len: u16,
}

/// Where a member stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Of its entry, in bytes.
    offset: usize,
    /// Members before it.
    pub(super) rank: usize,
    /// Its score.
    pub(super) score: f64,
}

impl Packed {
    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        // Redis keeps whole numbers of small sets as integers, in which the sign of a zero is lost.
        let score = if score == 0.0 { 0.0 } else { score };
        let mut offset = 0;
        for (other, other_score) in self.all() {
            if !precedes(other_score, other, score, member) {
                break;
            }
            offset += entry_bytes(other);
        }
        let end = self.bytes.len();
        let size = entry_bytes(member);
        self.bytes.resize(end + size, 0);
        self.bytes.copy_within(offset..end, offset + size);
        let entry = &mut self.bytes[offset..offset + size];
        let length = member.len() as u8;
        entry[..SCORE_BYTES].copy_from_slice(&score.to_le_bytes());
        entry[SCORE_BYTES] = length;
        entry[HEAD_BYTES..HEAD_BYTES + member.len()].copy_from_slice(member);
        entry[size - 1] = length;
        self.len += 1;
    }

    /// Gives the member at `place` another score.
    pub(super) fn move_to(&mut self, place: Place, member: &[u8], score: f64) {
        self.remove(place);
        self.insert(member, score);
    }

    /// Takes out the member at `place`, which was found after the last change.
    pub(super) fn remove(&mut self, place: Place) {
        let size = FRAME_BYTES + usize::from(self.bytes[place.offset + SCORE_BYTES]);
        self.bytes.drain(place.offset..place.offset + size);
        self.len -= 1;
    }

    /// Takes out the members from rank `from` up to `to`.
    pub(super) fn remove_range(&mut self, from: usize, to: usize) {
        let (start, end) = (self.offset(from), self.offset(to));
        self.bytes.drain(start..end);
        self.len -= (to - from) as u16;
    }

    /// Where `member` stands, if it is there.
    pub(super) fn find(&self, member: &[u8]) -> Option<Place> {
        let mut offset = 0;
        for (rank, (other, score)) in self.all().enumerate() {
            if other == member {
                return Some(Place { offset, rank, score });
            }
            offset += entry_bytes(other);
        }
        None
    }

    /// How many members there are.
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// All entries.
    pub(super) fn all(&self) -> Entries<'_> {
        Entries { bytes: &self.bytes }
    }

    /// The entries from rank `from` up to `to`, both at most the length.
    pub(super) fn range(&self, from: usize, to: usize) -> Entries<'_> {
        if (from, to) == (0, self.len()) {
            return self.all();
        }
        let start = self.offset(from);
        let mut tail = Entries { bytes: &self.bytes[start..] };
        let before = tail.bytes.len();
        for _ in from..to {
            tail.next();
        }
        let end = start + before - tail.bytes.len();
        Entries { bytes: &self.bytes[start..end] }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Where the entry of that rank begins.
    fn offset(&self, rank: usize) -> usize {
        let mut rest = self.all();
        for _ in 0..rank {
            rest.next();
        }
        self.bytes.len() - rest.bytes.len()
    }
}

/// Entries that stand together, read from either end.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (score, rest) = self.bytes.split_first_chunk::<SCORE_BYTES>()?;
        let (length, rest) = rest.split_first()?;
        let (member, rest) = rest.split_at(usize::from(*length));
        self.bytes = &rest[1..];
        Some((member, f64::from_le_bytes(*score)))
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let length = usize::from(*self.bytes.last()?);
        let (rest, entry) = self.bytes.split_at(self.bytes.len() - FRAME_BYTES - length);
        self.bytes = rest;
        Self { bytes: entry }.next()
    }
}

const fn entry_bytes(member: &[u8]) -> usize {
    FRAME_BYTES + member.len()
}

const SCORE_BYTES: usize = size_of::<f64>();
/// What stands before a member.
const HEAD_BYTES: usize = SCORE_BYTES + 1;
/// What stands around a member.
const FRAME_BYTES: usize = HEAD_BYTES + 1;
/// Bytes of the longest member that an entry can hold.
pub(super) const MEMBER_BYTES_MAX: usize = u8::MAX as usize;
