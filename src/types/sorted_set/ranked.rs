//! A large sorted set: members in an index map, and their order.
//!
//! Rule    the slots of the index map are dense: when a member leaves, the last one takes its slot.

use ahash::RandomState;
use indexmap::IndexMap;

use super::bounds::precedes;
use super::order::{Item, Order, Place};
use crate::types::Seed;

/// A large sorted set: fewer than 2^32 members, as many as a request can bring in a lifetime of the server's memory.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    members: IndexMap<Box<[u8]>, f64, RandomState>,
    order: Order,
    /// Bytes of all members together.
    member_bytes: usize,
}

impl Ranked {
    /// What `entries`, which are in order, hold.
    pub(super) fn new<'a>(entries: impl Iterator<Item = (&'a [u8], f64)>, seed: Seed) -> Self {
        let mut members: IndexMap<Box<[u8]>, f64, RandomState> = IndexMap::with_hasher(seed.hasher());
        members.extend(entries.map(|(member, score)| (Box::from(member), score)));
        let slots = members.values().zip(0..);
        let items: Vec<Item> = slots.map(|(score, slot)| Item { score: *score, slot }).collect();
        let member_bytes = members.keys().map(|member| member.len()).sum();
        Self { members, order: Order::new(&items), member_bytes }
    }

    /// Adds `member`, or gives it another score; returns the score before.
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

    /// Takes out `member`; returns its slot and its score.
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<(usize, f64)> {
        let (slot, score) = self.place_of(member)?;
        self.order.remove(self.place(score, member));
        // Found while every slot still says the truth, since equal scores are told apart by what stands there.
        let moved = self.members.last().filter(|_| slot + 1 < self.members.len());
        let moved = moved.map(|(last, score)| self.place(*score, last));
        self.members.swap_remove_index(slot);
        if let Some(place) = moved {
            self.order.set_slot(place, slot as u32);
        }
        self.member_bytes -= member.len();
        Some((slot, score))
    }

    /// The slot of `member`, and its score.
    pub(super) fn place_of(&self, member: &[u8]) -> Option<(usize, f64)> {
        self.members.get_full(member).map(|(slot, _, score)| (slot, *score))
    }

    /// The score of `member`.
    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.members.get(member).copied()
    }

    /// How many members stand before `member`, and its score.
    pub(super) fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let score = self.score(member)?;
        Some((self.order.rank(self.place(score, member)), score))
    }

    /// How many entries there are for which `is_before` holds: none of them stands behind one for which it does not.
    pub(super) fn count_before(&self, is_before: impl Fn(&[u8], f64) -> bool) -> usize {
        self.order.rank(self.order.seek(|item| is_before(self.member(item), item.score)))
    }

    /// The entries from rank `from` up to `to`, both at most the length.
    pub(super) fn range(&self, from: usize, to: usize) -> Entries<'_> {
        Entries { set: self, front: self.order.at(from), back: self.order.at(to), left: to - from }
    }

    /// The entry in that slot, below the length.
    pub(super) fn slot(&self, slot: usize) -> Option<(&[u8], f64)> {
        self.members.get_index(slot).map(|(member, score)| (&**member, *score))
    }

    /// How many members there are.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Bytes on the heap, about.
    pub(super) fn heap_bytes(&self) -> usize {
        self.members.capacity() * SLOT_BYTES + self.member_bytes + self.order.heap_bytes()
    }

    /// Where the entry stands, or would stand.
    fn place(&self, score: f64, member: &[u8]) -> Place {
        self.order.seek(|item| precedes(item.score, self.member(item), score, member))
    }

    fn member(&self, item: &Item) -> &[u8] {
        self.members.get_index(item.slot as usize).map_or(&[], |(member, _)| member)
    }

    /// Panics if the set contradicts itself.
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

/// Entries that stand together, read from either end.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    set: &'a Ranked,
    front: Place,
    /// Behind the last entry.
    back: Place,
    left: usize,
}

impl<'a> Entries<'a> {
    fn entry(&self, place: Place) -> Option<(&'a [u8], f64)> {
        let item = self.set.order.get(place)?;
        Some((self.set.member(item), item.score))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], f64);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let place = self.front;
        self.front = self.set.order.next(place);
        self.entry(place)
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        self.back = self.set.order.previous(self.back);
        self.entry(self.back)
    }
}

/// What a slot of the index map takes: hash, member and score, and its place in the hash table.
const SLOT_BYTES: usize = size_of::<(u64, Box<[u8]>, f64)>() + 10;
