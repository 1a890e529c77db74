//! The words of the log for what is inside an object.

use bytes::Bytes;

use crate::clock::Deadline;
use crate::types::{Hash, Object};

/// One change inside an object, in physical terms: whatever command it came from, it is replayed without looking at a
/// clock, a limit or a random number.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// The field of the hash, if it is there, ends at another moment.
    HashDeadline {
        /// The field.
        field: Bytes,
        /// When it ends, if ever.
        deadline: Option<Deadline>,
    },
    /// The field of the hash is gone, and its deadline with it.
    HashRemove {
        /// The field.
        field: Bytes,
    },
    /// The field of the hash has this value; its deadline stays.
    HashSet {
        /// The field.
        field: Bytes,
        /// The value.
        value: Bytes,
    },
}

impl Edit {
    /// The empty object that the first edit of a new key begins with.
    pub fn blank(&self) -> Object {
        match self {
            Self::HashDeadline { .. } | Self::HashRemove { .. } | Self::HashSet { .. } => Hash::new().into(),
        }
    }

    /// Carries the edit out. An object of another shape stays as it is: no journal says that.
    pub fn apply(&self, object: &mut Object) {
        match (self, object) {
            (Self::HashDeadline { field, deadline }, Object::Hash(hash)) => {
                hash.set_deadline(field, *deadline);
            }
            (Self::HashRemove { field }, Object::Hash(hash)) => {
                hash.remove(field);
            }
            (Self::HashSet { field, value }, Object::Hash(hash)) => {
                hash.set(field, value);
            }
            _ => {}
        }
    }
}
