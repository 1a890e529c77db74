//! What can be changed in a sorted set under a key.

use std::ops::Range;

use bytes::Bytes;

use super::Editor;
use crate::journal::{Edit, SortedSetEdit};
use crate::types::SortedSet;

impl Editor<'_, SortedSet> {
    /// Adds a member, or gives it another score.
    pub fn insert(&mut self, member: &[u8], score: f64) {
        let effect = || {
            let member = Bytes::copy_from_slice(member);
            Edit::SortedSet(SortedSetEdit::Insert { member, score })
        };
        self.change(|set| set.insert(member, score), effect);
    }

    /// Takes a member away; returns its score, if it was there.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let effect = |_: &f64| Edit::SortedSet(SortedSetEdit::Remove(Bytes::copy_from_slice(member)));
        self.try_change(|set| set.remove(member), effect)
    }

    /// Takes the members of these ranks away, which are all there.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        if ranks.is_empty() {
            return;
        }
        let Range { start: from, end: to } = ranks;
        self.change(
            |set| set.remove_range(from..to),
            || Edit::SortedSet(SortedSetEdit::RemoveRange { from, to }),
        );
    }
}
