//! Entries ordered by their ids.

use super::Shape;

/// Entries ordered by their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream;

impl Shape for Stream {
    fn type_name(&self) -> &'static str {
        "stream"
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
