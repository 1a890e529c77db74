//! The words of the log for what is inside an object.

use bytes::Bytes;

use crate::clock::{Deadline, LockTime};
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
    /// Takes the element out of an object that ended first, if one has ended, and says so.
    pub fn of_due(object: &mut Object, now: LockTime) -> Option<Self> {
        match object {
            Object::Hash(hash) => Some(Self::HashRemove { field: hash.take_due(now)?.into() }),
            _ => None,
        }
    }

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
