//! The words of the log for what is inside a hash.

use bytes::Bytes;

use crate::clock::Deadline;
use crate::types::Hash;

/// One change of a hash.
#[derive(Clone, Debug, PartialEq)]
pub enum HashEdit {
    /// The field, if it is there, ends at another moment.
    Deadline(Bytes, Option<Deadline>),
    /// The field is gone, and its deadline with it.
    Remove(Bytes),
    /// The field has this value; its deadline stays.
    Set(Bytes, Bytes),
}

impl HashEdit {
    pub(super) fn apply(&self, hash: &mut Hash) {
        match self {
            Self::Deadline(field, deadline) => hash.set_deadline(field, *deadline),
            Self::Remove(field) => {
                hash.remove(field);
            }
            Self::Set(field, value) => {
                hash.set(field, value);
            }
        }
    }
}
