//! The words of the log for what is inside an object.

use crate::types::Object;

/// One change inside an object, in physical terms: whatever command it came from, it is replayed without looking at a
/// clock, a limit or a random number.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {}

impl Edit {
    /// The empty object that the first edit of a new key begins with.
    pub fn blank(&self) -> Object {
        match *self {}
    }

    /// Carries the edit out. An object of another shape stays as it is: no journal says that.
    pub fn apply(&self, _object: &mut Object) {
        match *self {}
    }
}
