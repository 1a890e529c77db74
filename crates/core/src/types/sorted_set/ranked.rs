//! A large sorted set: members in an index map, and their order.
//!
//! Rule    the slots of the index map are dense: when a member is removed, the last one takes its slot.

use std::ops::Range;

use ahash::RandomState;
use indexmap::IndexMap;

use super::bounds::precedes;
use super::order::{Item, Order, Position};
use crate::types::Seed;

/// The members and scores of a large sorted set: fewer than 2^32 members.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    members: IndexMap<Box<[u8]>, f64, RandomState>,
    order: Order,
    /// Bytes of all members together.
    member_bytes: usize,
}

impl Ranked {
    /// A set of `entries`, which are in order.
    pub(super) fn new<'a>(entries: impl Iterator<Item = (&'a [u8], f64)>, seed: Seed) -> Self {
        let mut members: IndexMap<Box<[u8]>, f64, RandomState> = IndexMap::with_hasher(seed.hasher());
        members.extend(entries.map(|(member, score)| (Box::from(member), score)));
        let slots = members.values().zip(0..);
        let items: Vec<Item> = slots.map(|(score, slot)| Item { score: *score, slot }).collect();
        let member_bytes = members.keys().map(|member| member.len()).sum();
        Self { members, order: Order::new(&items), member_bytes }
    }

    /// Adds `member`, or changes its score. Returns its previous score.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let found = self.members.get_full(member).map(|(slot, _, score)| (slot, *score));
        let slot = match found {
            Some((_, old)) if old == score => return Some(old),
            Some((slot, old)) => {
                self.order.remove(self.place(old, member));
                self.members[slot] = score;
                slot
            }
            None => {
                self.member_bytes += member.len();
                self.members.insert_full(Box::from(member), score).0
            }
        };
        let place = self.place(score, member);
        self.order.insert(place, Item { score, slot: slot as u32 });
        found.map(|(_, old)| old)
    }

    /// Removes `member`. Returns its score.
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let (slot, score) = self.members.get_full(member).map(|(slot, _, score)| (slot, *score))?;
        self.order.remove(self.place(score, member));
        // Looked up before the swap: entries with equal scores are compared by the members in their slots.
        let moved = self.members.last().filter(|_| slot + 1 < self.members.len());
        let moved = moved.map(|(last, score)| self.place(*score, last));
        self.members.swap_remove_index(slot);
        if let Some(place) = moved {
            self.order.set_slot(place, slot as u32);
        }
        self.member_bytes -= member.len();
        Some(score)
    }

    /// The score of `member`.
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.members.get(member).copied()
    }

    /// The number of members before `member`, and its score.
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let score = self.score(member)?;
        Some((self.order.rank(self.place(score, member)), score))
    }

    /// The number of entries for which `is_before` is true. They come before all other entries.
    pub(super) fn count_before(&self, is_before: impl Fn(&[u8], f64) -> bool) -> usize {
        self.order.rank(self.order.seek(|item| is_before(self.member(item), item.score)))
    }

    /// The entries of these ranks, all of which exist.
    pub(super) fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.order.range(ranks).map(|item| (self.member(item), item.score))
    }

    /// The entry in a slot.
    pub(super) fn slot(&self, slot: usize) -> Option<(&[u8], f64)> {
        self.members.get_index(slot).map(|(member, score)| (&**member, *score))
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.members.capacity() * SLOT_BYTES + self.member_bytes + self.order.heap_bytes()
    }

    /// The position of an entry, or where it would be inserted.
    fn place(&self, score: f64, member: &[u8]) -> Position {
        self.order.seek(|item| precedes(item.score, self.member(item), score, member))
    }

    fn member(&self, item: &Item) -> &[u8] {
        self.members.get_index(item.slot as usize).map_or(&[], |(member, _)| member)
    }

    /// Panics if an invariant is broken.
    #[cfg(test)]
    pub(super) fn assert_laws(&self) {
        self.order.assert_laws(self.len());
        assert_eq!(self.member_bytes, self.members.keys().map(|member| member.len()).sum::<usize>());
        for (slot, (member, score)) in self.members.iter().enumerate() {
            let item = self.order.get(self.place(*score, member)).expect("every member has a place");
            assert_eq!((item.slot as usize, item.score.to_bits()), (slot, score.to_bits()));
        }
    }
}

/// Bytes of a slot of the index map: hash, member, score, and the index in the hash table.
const SLOT_BYTES: usize = size_of::<(u64, Box<[u8]>, f64)>() + 10;
