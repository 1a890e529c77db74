//! Sets of members.
//!
//! Owns    the members: a set of integers is a sorted vector, other members are in a vector while few, else in a hash table.
//! Rule    a set that is not a set of integers never becomes one again.
//! Rule    members have places from 0. A removal moves the last member to the free place, so that a scan from the last
//!         place down visits every member that stays.
//! Source  Redis 7.0: `intset.c`, and `set-max-intset-entries` at its default.

use ahash::RandomState;
use indexmap::IndexSet;
use redlatch_proto::number;

use super::{Element, Seed, Shape};

#[derive(Clone, Debug)]
pub struct Set {
    form: Form,
    /// The seed of the hash table.
    seed: Seed,
}

#[derive(Clone, Debug)]
enum Form {
    /// A sorted vector.
    Integers(Vec<i64>),
    /// At most [`LISTED_MAX`] members, found by comparing each.
    Listed { members: Vec<Element>, long_bytes: usize },
    /// Any number of members; boxed to keep small sets small.
    Indexed(Box<Indexed>),
}

#[derive(Clone, Debug)]
struct Indexed {
    members: IndexSet<Element, RandomState>,
    long_bytes: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Member<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// The text of this integer.
    Integer(i64),
}

/// Maximum size of a set of integers.
const INTEGERS_MAX: usize = 512;
/// Maximum size of a set without a hash table: comparing so few members is faster than hashing.
const LISTED_MAX: usize = 16;

impl Set {
    /// An empty set.
    pub fn new(seed: Seed) -> Self {
        Self { form: Form::Integers(Vec::new()), seed }
    }

    /// Adds a member. Returns false if it existed.
    pub fn insert(&mut self, bytes: &[u8]) -> bool {
        if let Form::Integers(integers) = &mut self.form {
            if let Some(integer) = number::integer(bytes) {
                let Err(place) = integers.binary_search(&integer) else { return false };
                integers.insert(place, integer);
                if integers.len() > INTEGERS_MAX {
                    self.become_table();
                }
                return true;
            }
            self.become_table();
        }
        self.insert_bytes(bytes)
    }

    /// Removes a member. Returns false if it did not exist.
    pub fn remove(&mut self, bytes: &[u8]) -> bool {
        let Some(place) = self.place_of(bytes) else { return false };
        self.take_at(place);
        true
    }

    /// Removes and returns the member at a place. Another member may move to it.
    ///
    /// # Panics
    /// The place is not below the length.
    pub(crate) fn take_at(&mut self, place: usize) -> Element {
        match &mut self.form {
            Form::Integers(integers) => Member::Integer(integers.remove(place)).with_bytes(Element::new),
            Form::Listed { members, long_bytes } => {
                let member = members.swap_remove(place);
                *long_bytes -= member.heap_bytes();
                member
            }
            Form::Indexed(indexed) => {
                let Indexed { members, long_bytes } = &mut **indexed;
                let member = members.swap_remove_index(place).expect("the place is below the set's length");
                *long_bytes -= member.heap_bytes();
                if members.capacity() > CAPACITY_MIN && members.len() < members.capacity() / 8 {
                    members.shrink_to(members.len() * 2);
                }
                member
            }
        }
    }

    /// Is no set of integers from now on. Integers are converted to text, in their order.
    pub(crate) fn become_table(&mut self) {
        let Form::Integers(integers) = &mut self.form else { return };
        let integers = std::mem::take(integers);
        let members = integers.into_iter().map(|integer| Member::Integer(integer).with_bytes(Element::new));
        self.form = if members.len() <= LISTED_MAX {
            Form::Listed { members: members.collect(), long_bytes: 0 }
        } else {
            Form::Indexed(Indexed::of(members, 0, self.seed))
        };
    }

    /// Visits about `count` members from `cursor` on, and returns the next cursor.
    ///
    /// A scan begins with cursor 0 and ends when 0 is returned. A cursor may be any number, since it comes from a client.
    /// A member that exists during the whole scan is visited at least once.
    pub fn scan(&self, cursor: u64, count: u64, visit: impl FnMut(Member<'_>)) -> u64 {
        // Sorted integers change places with every change, and they are few.
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

    /// True if the bytes are a member.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        self.place_of(bytes).is_some()
    }

    /// True if a member of another set is a member of this one.
    pub fn has(&self, member: Member<'_>) -> bool {
        match (&self.form, member) {
            (Form::Integers(integers), Member::Integer(integer)) => integers.binary_search(&integer).is_ok(),
            _ => member.with_bytes(|bytes| self.contains(bytes)),
        }
    }

    /// The member at a place, if there is one.
    pub fn at(&self, place: usize) -> Option<Member<'_>> {
        match &self.form {
            Form::Integers(integers) => integers.get(place).copied().map(Member::Integer),
            Form::Listed { members, .. } => members.get(place).map(|member| Member::Bytes(member)),
            Form::Indexed(indexed) => indexed.members.get_index(place).map(|member| Member::Bytes(member)),
        }
    }

    /// The members in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = Member<'_>> {
        (0..self.len()).filter_map(|place| self.at(place))
    }

    /// True for a set of integers.
    pub(crate) fn is_integers(&self) -> bool {
        matches!(self.form, Form::Integers(_))
    }

    fn place_of(&self, bytes: &[u8]) -> Option<usize> {
        match &self.form {
            Form::Integers(integers) => integers.binary_search(&number::integer(bytes)?).ok(),
            Form::Listed { members, .. } => members.iter().position(|member| member.as_bytes() == bytes),
            Form::Indexed(indexed) => indexed.members.get_index_of(bytes),
        }
    }

    fn insert_bytes(&mut self, bytes: &[u8]) -> bool {
        if let Form::Listed { members, long_bytes } = &mut self.form {
            if members.iter().any(|member| member.as_bytes() == bytes) {
                return false;
            }
            if members.len() < LISTED_MAX {
                let member = Element::new(bytes);
                *long_bytes += member.heap_bytes();
                members.push(member);
                return true;
            }
            self.form = Form::Indexed(Indexed::of(members.drain(..), *long_bytes, self.seed));
        }
        let Form::Indexed(indexed) = &mut self.form else { return false };
        let member = Element::new(bytes);
        let heap_bytes = member.heap_bytes();
        let is_new = indexed.members.insert(member);
        indexed.long_bytes += if is_new { heap_bytes } else { 0 };
        is_new
    }
}

/// Capacity that a hash table keeps.
const CAPACITY_MIN: usize = 64;
/// Bytes of a member in a hash table: the element, its hash and its index.
const INDEXED_BYTES: usize = size_of::<Element>() + 2 * size_of::<usize>() + 2;

impl Indexed {
    fn of(elements: impl Iterator<Item = Element>, long_bytes: usize, seed: Seed) -> Box<Self> {
        let mut members = IndexSet::with_hasher(seed.hasher());
        members.extend(elements);
        Box::new(Self { members, long_bytes })
    }
}

impl Member<'_> {
    /// Calls `look` with the bytes of the member.
    #[inline]
    pub(crate) fn with_bytes<T>(self, look: impl FnOnce(&[u8]) -> T) -> T {
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
        match &self.form {
            Form::Integers(integers) => integers.len(),
            Form::Listed { members, .. } => members.len(),
            Form::Indexed(indexed) => indexed.members.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.capacity() * size_of::<i64>(),
            Form::Listed { members, long_bytes } => members.capacity() * size_of::<Element>() + long_bytes,
            Form::Indexed(indexed) => indexed.members.capacity() * INDEXED_BYTES + indexed.long_bytes,
        }
    }
}

/// Sets are equal if they have equal members, whatever their representation.
impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|member| other.has(member))
    }
}

impl Eq for Set {}

#[cfg(test)]
mod tests;
