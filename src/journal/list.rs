//! Log entries for changes inside of a list.

use bytes::Bytes;

use crate::types::List;
use crate::types::list::End;

/// One change of a list. Indices count from the head, from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum ListEdit {
    /// Elements at an end are removed.
    Drop {
        /// The end.
        end: End,
        /// How many.
        count: usize,
    },
    /// An element is inserted before another.
    Insert {
        /// The index of the new element.
        index: usize,
        /// The new element.
        element: Bytes,
    },
    /// All elements outside of a range are removed.
    Keep {
        /// The index of its first element.
        start: usize,
        /// The index behind its last.
        end: usize,
    },
    /// An element is added at an end.
    Push {
        /// The end.
        end: End,
        /// The new element.
        element: Bytes,
    },
    /// Elements that equal this one are removed.
    Remove {
        /// What they equal.
        element: Bytes,
        /// Where the search for them began.
        end: End,
        /// How many.
        count: usize,
    },
    /// An element is replaced.
    Set {
        /// Where.
        index: usize,
        /// The new element.
        element: Bytes,
    },
}

impl ListEdit {
    pub(super) fn apply(&self, list: &mut List) {
        match self {
            Self::Drop { end, count } => list.drop_from(*end, *count),
            Self::Insert { index, element } => list.insert(*index, element),
            Self::Keep { start, end } => list.keep(*start, *end),
            Self::Push { end, element } => list.push(*end, element),
            Self::Remove { element, end, count } => {
                list.remove(element, *end, *count);
            }
            Self::Set { index, element } => {
                list.set(*index, element);
            }
        }
    }
}
