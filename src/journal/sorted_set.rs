//! The words of the log for what is inside a sorted set.

use bytes::Bytes;

use crate::types::SortedSet;

/// One change inside a sorted set.
#[derive(Clone, Debug, PartialEq)]
pub enum SortedSetEdit {
    /// The member has this score, whether it was there or not.
    Insert {
        /// The member.
        member: Bytes,
        /// Its score.
        score: f64,
    },
    /// The member is gone.
    Remove(Bytes),
    /// The members from one rank up to another are gone.
    RemoveRange {
        /// The first rank.
        from: usize,
        /// The rank behind the last.
        to: usize,
    },
}

impl SortedSetEdit {
    /// Carries the edit out.
    pub(super) fn apply(&self, set: &mut SortedSet) {
        match self {
            Self::Insert { member, score } => {
                set.insert(member, *score);
            }
            Self::Remove(member) => {
                set.remove(member);
            }
            Self::RemoveRange { from, to } => set.remove_range(*from..*to),
        }
    }
}
