//! Log entries for changes inside of a hash.

use bytes::Bytes;

use crate::clock::Deadline;
use crate::types::Hash;

/// One change of a hash.
#[derive(Clone, Debug, PartialEq)]
pub enum HashEdit {
    /// The field has this deadline, if it exists.
    Deadline(Bytes, Option<Deadline>),
    /// The field is removed with its deadline.
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
