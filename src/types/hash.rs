//! Fields with values, in the order in which they came while there are few.

use super::Shape;

/// Fields with values, in the order in which they came while there are few.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hash;

impl Shape for Hash {
    fn type_name(&self) -> &'static str {
        "hash"
    }

    fn encoding(&self) -> &'static str {
        ""
    }

    fn len(&self) -> usize {
        0
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}
