//! What can be changed in a set under a key.

use bytes::Bytes;

use super::Editor;
use crate::journal::{Edit, SetEdit};
use crate::types::{Element, Set};

impl Editor<'_, Set> {
    /// Adds a member; false when it was there.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        let effect = |(): &()| Edit::Set(SetEdit::Insert(Bytes::copy_from_slice(member)));
        self.try_change(|set| set.insert(member).then_some(()), effect).is_some()
    }

    /// Takes a member away; false when it was not there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let effect = |(): &()| Edit::Set(SetEdit::Remove(Bytes::copy_from_slice(member)));
        self.try_change(|set| set.remove(member).then_some(()), effect).is_some()
    }

    /// Takes the member at a place away; see [`Set::take_at`].
    ///
    /// # Panics
    /// When there is no such place.
    pub fn take_at(&mut self, place: usize) -> Element {
        let effect = |member: &Element| Edit::Set(SetEdit::Remove(Bytes::copy_from_slice(member)));
        self.try_change(|set| Some(set.take_at(place)), effect).expect("a member stood at that place")
    }
}
