//! Members without order.

use super::Shape;

/// Members without order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Set;

impl Shape for Set {
    fn type_name(&self) -> &'static str {
        "set"
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
