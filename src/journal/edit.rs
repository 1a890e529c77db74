//! Log entries for changes inside of an object.

use super::{HashEdit, ListEdit, SetEdit, SortedSetEdit, StreamEdit};
use crate::clock::LockTime;
use crate::types::{Hash, List, Object, Seed, Set, SortedSet, Stream, Typed};

/// One change inside of an object. It is replayed without a clock, limits or random numbers, whatever command caused it.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Inside a hash.
    Hash(HashEdit),
    /// Inside a list.
    List(ListEdit),
    /// Inside a set.
    Set(SetEdit),
    /// Inside a sorted set.
    SortedSet(SortedSetEdit),
    /// Inside a stream.
    Stream(StreamEdit),
}

impl Edit {
    /// Removes the element of an object that has expired first, if one has expired, and returns that edit.
    pub fn of_due(object: &mut Object, now: LockTime) -> Option<Self> {
        match object {
            Object::Hash(hash) => Some(Self::Hash(HashEdit::Remove(hash.take_due(now)?.into()))),
            _ => None,
        }
    }

    /// The empty object that the first edit of a new key begins with.
    pub fn blank(&self, seed: Seed) -> Object {
        match self {
            Self::Hash(_) => Hash::new(seed).into(),
            Self::List(_) => List::new().into(),
            Self::Set(_) => Set::new(seed).into(),
            Self::SortedSet(_) => SortedSet::new(seed).into(),
            Self::Stream(_) => Stream::new().into(),
        }
    }

    /// Applies the edit. An object of another shape stays as it is: no journal says that.
    pub fn apply(&self, object: &mut Object) {
        match self {
            Self::Hash(edit) => change(object, |hash| edit.apply(hash)),
            Self::List(edit) => change(object, |list| edit.apply(list)),
            Self::Set(edit) => change(object, |set| edit.apply(set)),
            Self::SortedSet(edit) => change(object, |set| edit.apply(set)),
            Self::Stream(edit) => change(object, |stream| edit.apply(stream)),
        }
    }
}

fn change<T: Typed>(object: &mut Object, change: impl FnOnce(&mut T)) {
    if let Some(shape) = T::of_mut(object) {
        change(shape);
    }
}
