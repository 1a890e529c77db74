//! Elements in a row.

use super::Shape;

/// Elements in a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct List;

impl Shape for List {
    fn type_name(&self) -> &'static str {
        "list"
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
