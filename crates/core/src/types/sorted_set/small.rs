//! A small sorted set: a vector of entries, lowest score first.
//!
//! Rule    a search compares every member: the owner keeps these sets small.

use std::ops::Range;

use super::bounds::precedes;
use crate::types::Element;

/// The members and scores of a small sorted set.
#[derive(Clone, Debug, Default)]
pub(super) struct Small {
    entries: Vec<(Element, f64)>,
    /// Bytes of all members on the heap.
    long_bytes: usize,
}

impl Small {
    /// Adds a member that is not in the set.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) {
        // Redis keeps whole numbers of small sets as integers, in which the sign of a zero is lost.
        let score = if score == 0.0 { 0.0 } else { score };
        let is_before = |(other, of_other): &(Element, f64)| precedes(*of_other, other, score, member);
        let rank = self.entries.partition_point(is_before);
        let member = Element::new(member);
        self.long_bytes += member.heap_bytes();
        self.entries.insert(rank, (member, score));
    }

    /// Removes the members of these ranks, all of which exist.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        self.long_bytes -= self.entries.drain(ranks).map(|(member, _)| member.heap_bytes()).sum::<usize>();
    }

    /// The rank of a member and its score.
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let mut ranked = self.entries.iter().enumerate();
        let found = ranked.find(|(_, (other, _))| other.as_bytes() == member);
        found.map(|(rank, (_, score))| (rank, *score))
    }

    /// The entries of these ranks, all of which exist.
    pub(super) fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.entries[ranks].iter().map(|(member, score)| (member.as_bytes(), *score))
    }

    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.range(0..self.len())
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(Element, f64)>() + self.long_bytes
    }
}
