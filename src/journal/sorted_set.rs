//! Log entries for changes inside of a sorted set.

use bytes::Bytes;

use crate::types::{Shape, SortedSet};

/// One change inside a sorted set.
#[derive(Clone, Debug, PartialEq)]
pub enum SortedSetEdit {
    /// The member has this score; it is added if it does not exist.
    Insert {
        /// The member.
        member: Bytes,
        /// Its score.
        score: f64,
    },
    /// The member is removed.
    Remove(Bytes),
    /// The members of a range of ranks are removed.
    RemoveRange {
        /// The first rank.
        from: usize,
        /// The rank behind the last.
        to: usize,
    },
}

impl SortedSetEdit {
    /// Applies the edit.
    pub(super) fn apply(&self, set: &mut SortedSet) {
        match self {
            Self::Insert { member, score } => {
                set.insert(member, *score);
            }
            Self::Remove(member) => {
                set.remove(member);
            }
            // A journal that has lost records may name ranks that the set does not have.
            Self::RemoveRange { from, to } => {
                let len = set.len();
                set.remove_range((*from).min(len)..(*to).min(len));
            }
        }
    }
}
