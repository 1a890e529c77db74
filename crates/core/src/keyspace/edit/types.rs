//! The changes that commands make to objects, each recorded as one edit of the journal.

use std::ops::Range;

use bytes::Bytes;

use super::Editor;
use crate::journal::{Edit, HashEdit, ListEdit, LockEdit, SetEdit, SortedSetEdit, StreamEdit};
use crate::keyspace::Occupied;
use crate::keyspace::locks::life;
use crate::locks::EndReason;
use crate::locks::history;
use crate::types::list::End;
use crate::types::lock::{Holder, LockKind};
use crate::types::stream::StreamId;
use crate::types::{Element, Hash, List, Lock, Set, Shape, SortedSet, Stream};

impl Editor<'_, Hash> {
    /// Sets a field. Returns true if it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.change(|hash| hash.set(field, value), || Edit::Hash(HashEdit::Set(field, value)))
    }

    /// Removes a field. Returns false if it did not exist.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        self.lock_ends_with(field);
        let removed = self
            .try_change(|hash| hash.remove(field).then_some(()), |()| Edit::Hash(HashEdit::Remove(field)));
        removed.is_some()
    }
}

impl Editor<'_, List> {
    /// Adds an element at an end.
    pub fn push(&mut self, end: End, element: &[u8]) {
        let effect = || Edit::List(ListEdit::Push { end, element });
        self.change(|list| list.push(end, element), effect);
    }

    /// Removes the element at an end, if there is one.
    pub fn pop(&mut self, end: End) -> Option<Element> {
        self.try_change(|list| list.pop(end), |_| Edit::List(ListEdit::Drop { end, count: 1 }))
    }

    /// Removes `count` elements at an end, or all.
    pub(crate) fn drop_from(&mut self, end: End, count: usize) {
        if count > 0 {
            self.change(|list| list.drop_from(end, count), || Edit::List(ListEdit::Drop { end, count }));
        }
    }

    /// Keeps the elements from `start` up to `end` and removes the others.
    pub fn keep(&mut self, start: usize, end: usize) {
        if start > 0 || end < self.get().len() {
            let start = start.min(end);
            self.change(|list| list.keep(start, end), || Edit::List(ListEdit::Keep { start, end }));
        }
    }

    /// Replaces the element at `index`. Returns false if there is none.
    pub fn set(&mut self, index: usize, element: &[u8]) -> bool {
        let effect = |(): &()| Edit::List(ListEdit::Set { index, element });
        self.try_change(|list| list.set(index, element).then_some(()), effect).is_some()
    }

    /// Inserts an element before the one at `index`, or at the tail if there is none.
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        let effect = || Edit::List(ListEdit::Insert { index, element });
        self.change(|list| list.insert(index, element), effect);
    }

    /// Removes up to `limit` elements equal to `element`, from `end` on. Returns their number.
    pub fn remove(&mut self, element: &[u8], end: End, limit: usize) -> usize {
        let effect = |count: &usize| Edit::List(ListEdit::Remove { element, end, count: *count });
        let remove = |list: &mut List| Some(list.remove(element, end, limit)).filter(|count| *count > 0);
        self.try_change(remove, effect).unwrap_or(0)
    }
}

impl Editor<'_, Lock> {
    /// Adds a holder, or replaces what is known of it.
    pub fn put(&mut self, kind: LockKind, owner: &Bytes, holder: Holder) {
        let Occupied { place, id } = &mut self.occupied;
        life::put_holder(place.shard, place.changes, *id, (kind, owner, &holder));
        let effect = || Edit::Lock(LockEdit::Put(kind, &owner[..], holder.clone()));
        self.change(|lock| lock.put(kind, owner, holder.clone()), effect);
    }

    /// Ends what an owner holds.
    pub fn remove(&mut self, owner: &[u8], reason: EndReason) {
        let Occupied { place, id } = &mut self.occupied;
        let hash = history::place(place.hash, place.database);
        life::end_holder(place.shard, place.changes, *id, hash, (owner, reason));
        let effect = |_: &Holder| Edit::Lock(LockEdit::Remove(owner));
        self.try_change(|lock| lock.remove(owner), effect);
    }
}

impl Editor<'_, Set> {
    /// Adds a member. Returns false if it existed.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        let effect = |(): &()| Edit::Set(SetEdit::Insert(member));
        self.try_change(|set| set.insert(member).then_some(()), effect).is_some()
    }

    /// Removes a member. Returns false if it did not exist.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let effect = |(): &()| Edit::Set(SetEdit::Remove(member));
        self.try_change(|set| set.remove(member).then_some(()), effect).is_some()
    }

    /// Removes and returns the member at a place; see [`Set::take_at`].
    ///
    /// # Panics
    /// The place is not below the length.
    pub(crate) fn take_at(&mut self, place: usize) -> Element {
        let member = self.object().take_at(place);
        self.record(|| Edit::Set(SetEdit::Remove(member.as_bytes())));
        member
    }
}

impl Editor<'_, SortedSet> {
    /// Adds a member, or changes its score.
    pub fn insert(&mut self, member: &[u8], score: f64) {
        let effect = || Edit::SortedSet(SortedSetEdit::Insert { member, score });
        self.change(|set| set.insert(member, score), effect);
    }

    /// Removes a member. Returns its score, if it existed.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        self.lock_ends_with(member);
        let effect = |_: &f64| Edit::SortedSet(SortedSetEdit::Remove(member));
        self.try_change(|set| set.remove(member), effect)
    }

    /// Removes the members of these ranks, all of which exist.
    pub(crate) fn remove_range(&mut self, ranks: Range<usize>) {
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

impl Editor<'_, Stream> {
    /// Adds an entry with an id above all others; `words` are fields and values in turn.
    pub fn append(&mut self, id: StreamId, words: &[&[u8]]) {
        let effect = || Edit::Stream(StreamEdit::Append { id, words: words.to_vec() });
        self.change(|stream| stream.append(id, words), effect);
    }

    /// Removes the oldest entries, so that at most `len_max` stay. Returns how many it removed.
    pub fn trim(&mut self, len_max: u64) -> usize {
        let effect = |_: &usize| Edit::Stream(StreamEdit::Trim { len_max });
        self.try_change(|stream| Some(stream.trim(len_max)).filter(|gone| *gone > 0), effect).unwrap_or(0)
    }
}
