//! Members ordered by their scores.

use super::Shape;

/// Members ordered by their scores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SortedSet;

impl Shape for SortedSet {
    fn type_name(&self) -> &'static str {
        "zset"
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
