//! The words of the log for what is inside a set.

use bytes::Bytes;

use crate::types::Set;

/// One change of a set.
#[derive(Clone, Debug, PartialEq)]
pub enum SetEdit {
    /// A member came.
    Insert(Bytes),
    /// A member is gone.
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
