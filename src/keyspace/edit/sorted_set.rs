//! What can be changed in a sorted set under a key.

use std::ops::Range;

use bytes::Bytes;

use super::{Editor, Undo};
use crate::journal::{Edit, SortedSetEdit};
use crate::types::SortedSet;

impl Editor<'_, SortedSet> {
    /// Adds a member, or gives it another score.
    pub fn insert(&mut self, member: &[u8], score: f64) {
        let effect = || {
            let member = Bytes::copy_from_slice(member);
            Edit::SortedSet(SortedSetEdit::Insert { member, score })
        };
        self.change(|set| as_it_stands(set, member), |set| set.insert(member, score), effect);
    }

    /// Takes a member away; returns its score, if it was there.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let effect = |_: &f64| Edit::SortedSet(SortedSetEdit::Remove(Bytes::copy_from_slice(member)));
        self.try_change(|set| as_it_stands(set, member), |set| set.remove(member), effect)
    }

    /// Takes the members of these ranks away, which are all there.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        if ranks.is_empty() {
            return;
        }
        let Range { start: from, end: to } = ranks;
        let undo = if self.is_kept() {
            let mut gone = Vec::with_capacity(to - from);
            let goes = |member: &[u8], place, score| gone.push((Box::<[u8]>::from(member), place, score));
            self.object().remove_range(from..to, goes);
            Some(Undo::of(move |set: &mut SortedSet| {
                gone.iter().rev().for_each(|(member, place, score)| set.put_back(*place, member, *score));
            }))
        } else {
            self.object().remove_range(from..to, |_, _, _| {});
            None
        };
        self.record(undo, || Edit::SortedSet(SortedSetEdit::RemoveRange { from, to }));
    }
}

/// What takes back the next change of a member.
fn as_it_stands(set: &SortedSet, member: &[u8]) -> impl FnOnce(&mut SortedSet) + use<> {
    let (before, member) = (set.place(member), Box::<[u8]>::from(member));
    move |set| match before {
        Some((place, score)) => set.put_back(place, &member, score),
        None => drop(set.remove(&member)),
    }
}
