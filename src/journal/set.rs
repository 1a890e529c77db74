//! Log entries for changes inside of a set.

use bytes::Bytes;

use crate::types::Set;

/// One change of a set.
#[derive(Clone, Debug, PartialEq)]
pub enum SetEdit {
    /// A member is added.
    Insert(Bytes),
    /// A member is removed.
    Remove(Bytes),
}

impl SetEdit {
    pub(super) fn apply(&self, set: &mut Set) {
        match self {
            Self::Insert(member) => set.insert(member),
            Self::Remove(member) => set.remove(member),
        };
    }
}
