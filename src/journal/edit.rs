//! The words of the log for what is inside an object.

use super::{ListEdit, SetEdit, SortedSetEdit};
use crate::types::{List, Object, Set, SortedSet, Typed};

/// One change inside an object, in physical terms: whatever command it came from, it is replayed without looking at a
/// clock, a limit or a random number.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Inside a list.
    List(ListEdit),
    /// Inside a set.
    Set(SetEdit),
    /// Inside a sorted set.
    SortedSet(SortedSetEdit),
}

impl Edit {
    /// The empty object that the first edit of a new key begins with.
    pub fn blank(&self) -> Object {
        match self {
            Self::List(_) => List::default().into(),
            Self::Set(_) => Set::default().into(),
            Self::SortedSet(_) => SortedSet::default().into(),
        }
    }

    /// Carries the edit out. An object of another shape stays as it is: no journal says that.
    pub fn apply(&self, object: &mut Object) {
        match self {
            Self::List(edit) => change(object, |list| edit.apply(list)),
            Self::Set(edit) => change(object, |set| edit.apply(set)),
            Self::SortedSet(edit) => change(object, |set| edit.apply(set)),
        }
    }
}

fn change<T: Typed>(object: &mut Object, change: impl FnOnce(&mut T)) {
    if let Some(shape) = T::of_mut(object) {
        change(shape);
    }
}
