//! A set: members without order, each once.
//!
//! Owns    the members. Integers alone are kept sorted, as Redis does; a few of any kind in a row, many under a hash.
//! Rule    what is no set of integers any more never becomes one again.
//! Rule    members have places, from 0; a removal moves the last member into the place that became free, so that a walk
//!         from the last place down to the first misses no member that stays.
//! Source  Redis 7.0: `intset.c`, and `set-max-intset-entries` at its default.

use ahash::RandomState;
use indexmap::IndexSet;

use super::{Element, Seed, Shape};
use crate::number;

/// Members, each once.
#[derive(Clone, Debug)]
pub struct Set {
    kept: Kept,
    /// Of the hash table.
    seed: Seed,
}

#[derive(Clone, Debug)]
enum Kept {
    /// Sorted.
    Integers(Vec<i64>),
    /// At most [`FEW_MAX`], found by looking at each.
    Few { members: Vec<Element>, long_bytes: usize },
    /// Any number; behind a pointer, so that the small ones are small.
    Many(Box<Hashed>),
}

#[derive(Clone, Debug)]
struct Hashed {
    members: IndexSet<Element, RandomState>,
    long_bytes: usize,
}

/// A member: of a set of integers there are no bytes to lend.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Member<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// The text of this integer.
    Integer(i64),
}

/// Integers that a set keeps sorted; with one more it becomes a hash table.
const INTEGERS_MAX: usize = 512;
/// Members that are looked at one by one faster than they are hashed.
const FEW_MAX: usize = 16;

impl Set {
    /// One without members.
    pub fn new(seed: Seed) -> Self {
        Self { kept: Kept::Integers(Vec::new()), seed }
    }

    /// Adds a member; false when it was there.
    pub fn insert(&mut self, bytes: &[u8]) -> bool {
        if let Kept::Integers(integers) = &mut self.kept {
            if let Some(integer) = number::integer(bytes) {
                let Err(place) = integers.binary_search(&integer) else { return false };
                integers.insert(place, integer);
                if integers.len() > INTEGERS_MAX {
                    self.become_bytes();
                }
                return true;
            }
            self.become_bytes();
        }
        self.insert_bytes(bytes)
    }

    /// Takes a member away; false when it was not there.
    pub fn remove(&mut self, bytes: &[u8]) -> bool {
        let Some(place) = self.place_of(bytes) else { return false };
        self.take_at(place);
        true
    }

    /// Takes the member at a place away. Another one may stand there afterwards.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn take_at(&mut self, place: usize) -> Element {
        match &mut self.kept {
            Kept::Integers(integers) => Member::Integer(integers.remove(place)).with_bytes(Element::new),
            Kept::Few { members, long_bytes } => {
                let member = members.swap_remove(place);
                *long_bytes -= member.heap_bytes();
                member
            }
            Kept::Many(hashed) => {
                let Hashed { members, long_bytes } = &mut **hashed;
                let member = members.swap_remove_index(place).expect("the place is below the set's length");
                *long_bytes -= member.heap_bytes();
                if members.capacity() > PLACES_MIN && members.len() < members.capacity() / 8 {
                    members.shrink_to(members.len() * 2);
                }
                member
            }
        }
    }

    /// A part of a walk over all members: visits about `count` of them and returns the next cursor. It begins with a
    /// cursor of 0 and ends when 0 comes back; any other may come from a client. A member that is there during the
    /// whole walk is visited at least once.
    pub fn scan(&self, cursor: u64, count: u64, visit: impl FnMut(Member<'_>)) -> u64 {
        // Integers move when one comes or goes, and are few.
        if self.is_integers() {
            self.iter().for_each(visit);
            return 0;
        }
        let from = match usize::try_from(cursor) {
            Ok(cursor) if cursor > 0 => cursor.min(self.len()),
            _ => self.len(),
        };
        let to = from.saturating_sub(usize::try_from(count.max(1)).unwrap_or(usize::MAX));
        (to..from).rev().filter_map(|place| self.at(place)).for_each(visit);
        to as u64
    }

    /// Whether those bytes are a member.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        self.place_of(bytes).is_some()
    }

    /// Whether another set's member is one of this one.
    pub fn has(&self, member: Member<'_>) -> bool {
        match (&self.kept, member) {
            (Kept::Integers(integers), Member::Integer(integer)) => integers.binary_search(&integer).is_ok(),
            _ => member.with_bytes(|bytes| self.contains(bytes)),
        }
    }

    /// The member at a place, if there is one.
    pub fn at(&self, place: usize) -> Option<Member<'_>> {
        match &self.kept {
            Kept::Integers(integers) => integers.get(place).copied().map(Member::Integer),
            Kept::Few { members, .. } => members.get(place).map(|member| Member::Bytes(member)),
            Kept::Many(hashed) => hashed.members.get_index(place).map(|member| Member::Bytes(member)),
        }
    }

    /// The members, by their places.
    pub fn iter(&self) -> impl Iterator<Item = Member<'_>> {
        (0..self.len()).filter_map(|place| self.at(place))
    }

    /// Whether all of them are integers kept as such: such a set is walked in one step.
    pub fn is_integers(&self) -> bool {
        matches!(self.kept, Kept::Integers(_))
    }

    fn place_of(&self, bytes: &[u8]) -> Option<usize> {
        match &self.kept {
            Kept::Integers(integers) => integers.binary_search(&number::integer(bytes)?).ok(),
            Kept::Few { members, .. } => members.iter().position(|member| member.as_bytes() == bytes),
            Kept::Many(hashed) => hashed.members.get_index_of(bytes),
        }
    }

    fn insert_bytes(&mut self, bytes: &[u8]) -> bool {
        if let Kept::Few { members, long_bytes } = &mut self.kept {
            if members.iter().any(|member| member.as_bytes() == bytes) {
                return false;
            }
            if members.len() < FEW_MAX {
                let member = Element::new(bytes);
                *long_bytes += member.heap_bytes();
                members.push(member);
                return true;
            }
            self.kept = Kept::Many(Hashed::of(members.drain(..), *long_bytes, self.seed));
        }
        let Kept::Many(hashed) = &mut self.kept else { return false };
        let member = Element::new(bytes);
        let heap_bytes = member.heap_bytes();
        let is_new = hashed.members.insert(member);
        hashed.long_bytes += if is_new { heap_bytes } else { 0 };
        is_new
    }

    /// Integers become text, in their order.
    fn become_bytes(&mut self) {
        let Kept::Integers(integers) = &mut self.kept else { return };
        let integers = std::mem::take(integers);
        let members = integers.into_iter().map(|integer| Member::Integer(integer).with_bytes(Element::new));
        self.kept = if members.len() <= FEW_MAX {
            Kept::Few { members: members.collect(), long_bytes: 0 }
        } else {
            Kept::Many(Hashed::of(members, 0, self.seed))
        };
    }
}

/// Places that a hash table keeps, however few are taken.
const PLACES_MIN: usize = 64;
/// A member in a hash table: its bytes, its hash, its place in the table.
const HASHED_BYTES: usize = size_of::<Element>() + 2 * size_of::<usize>() + 2;

impl Hashed {
    fn of(elements: impl Iterator<Item = Element>, long_bytes: usize, seed: Seed) -> Box<Self> {
        let mut members = IndexSet::with_hasher(seed.hasher());
        members.extend(elements);
        Box::new(Self { members, long_bytes })
    }
}

impl Member<'_> {
    /// Lends the bytes for as long as `look` runs.
    #[inline]
    pub fn with_bytes<T>(self, look: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Bytes(bytes) => look(bytes),
            Self::Integer(integer) => look(itoa::Buffer::new().format(integer).as_bytes()),
        }
    }
}

impl Shape for Set {
    fn type_name(&self) -> &'static str {
        "set"
    }

    fn encoding(&self) -> &'static str {
        if self.is_integers() { "intset" } else { "hashtable" }
    }

    #[inline]
    fn len(&self) -> usize {
        match &self.kept {
            Kept::Integers(integers) => integers.len(),
            Kept::Few { members, .. } => members.len(),
            Kept::Many(hashed) => hashed.members.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        match &self.kept {
            Kept::Integers(integers) => integers.capacity() * size_of::<i64>(),
            Kept::Few { members, long_bytes } => members.capacity() * size_of::<Element>() + long_bytes,
            Kept::Many(hashed) => hashed.members.capacity() * HASHED_BYTES + hashed.long_bytes,
        }
    }
}

/// Two sets are equal that have the same members, however they are kept.
impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|member| other.has(member))
    }
}

impl Eq for Set {}

#[cfg(test)]
mod tests;
