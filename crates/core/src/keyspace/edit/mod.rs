//! Editors: an object under a key while a command changes it.
//!
//! Owns    the effects of every change of an object: the record for the journal, the key's events, and the removal of the
//!         key with the last element. The changes of each type are in `types`.
//! Rule    an object is changed through [`Editor::change`] and [`Editor::try_change`], or is changed and then recorded if
//!         the record names what the change has found.

mod types;

use std::marker::PhantomData;

use redlatch_proto::error::Refusal;

use super::{Lease, Occupied, Vacant};
use crate::journal::{Edit, Mutation};
use crate::locks::foreign::sole_owner;
use crate::types::Typed;

/// An object under a key, open for changes until it is dropped. A key whose object is empty then is removed.
#[derive(Debug)]
pub struct Editor<'v, T: Typed> {
    occupied: Occupied<'v>,
    /// Whether the key did not exist before.
    is_new: bool,
    is_changed: bool,
    /// The millisecond at which the key ended before.
    before_ms: u64,
    shape: PhantomData<T>,
}

impl<'v, T: Typed> Editor<'v, T> {
    /// Opens the object that a key holds.
    pub(super) fn of(occupied: Occupied<'v>) -> Result<Self, Refusal> {
        match occupied.object().and_then(T::of) {
            Some(_) => {
                let before_ms = occupied.end_ms();
                Ok(Self { occupied, is_new: false, is_changed: false, before_ms, shape: PhantomData })
            }
            None => Err(Refusal::WrongType),
        }
    }

    /// Opens an empty object under a key that does not exist.
    pub(super) fn new(vacant: Vacant<'v>) -> Self {
        let blank = T::blank(vacant.shard.seed());
        let occupied = vacant.insert_unseen(blank.into(), Lease::Never);
        Self { occupied, is_new: true, is_changed: false, before_ms: 0, shape: PhantomData }
    }

    pub fn get(&self) -> &T {
        self.occupied.object().and_then(T::of).expect("an editor is opened on an object of its shape")
    }

    /// An event of the key: the letter of its class, its name.
    pub fn event(&mut self, class: u8, event: &'static str) {
        self.occupied.event(class, event);
    }

    /// Whether the key did not exist before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Changes the object. `effect` makes the record of the change; it is called only when there is a journal.
    pub fn change<'e, R>(
        &mut self,
        change: impl FnOnce(&mut T) -> R,
        effect: impl FnOnce() -> Edit<&'e [u8]>,
    ) -> R {
        let result = change(self.object());
        self.record(effect);
        result
    }

    /// Like [`Editor::change`], for a change that may find nothing to do, and then returns `None`.
    pub(crate) fn try_change<'e, R>(
        &mut self,
        change: impl FnOnce(&mut T) -> Option<R>,
        effect: impl FnOnce(&R) -> Edit<&'e [u8]>,
    ) -> Option<R> {
        let result = change(self.object())?;
        self.record(|| effect(&result));
        Some(result)
    }

    /// Marks the object as changed: watches of the key break and cached values are invalidated.
    pub fn touch(&mut self) {
        self.is_changed = true;
    }

    /// An element is removed next. If it is the last one and the key is the lock of an unchanged client, the lock ends: its
    /// owner is known as long as the element is there.
    fn lock_ends_with(&mut self, element: &[u8]) {
        let object = self.occupied.object();
        if self.get().len() == 1 && object.and_then(sole_owner) == Some(element) {
            self.occupied.clear_lock();
        }
    }

    fn object(&mut self) -> &mut T {
        let Occupied { place, id } = &mut self.occupied;
        let object = place.shard.object_mut(*id).and_then(T::of_mut);
        object.expect("an editor is opened on an object of its shape")
    }

    fn record<'e>(&mut self, effect: impl FnOnce() -> Edit<&'e [u8]>) {
        let place = &mut self.occupied.place;
        if self.is_new && !self.is_changed {
            place.changes.event(b'n', "new", place.database, place.key);
        }
        self.is_changed = true;
        let (database, key) = (place.database, place.key);
        place.changes.record(|| Mutation::Edit { database, key, edit: effect() });
    }
}

impl<T: Typed> Drop for Editor<'_, T> {
    fn drop(&mut self) {
        if self.is_changed {
            self.occupied.note_end(self.before_ms);
            let bytes = self.get().heap_bytes();
            self.occupied.place.changes.grew_to(bytes);
            self.occupied.rearm();
            self.occupied.touch();
            self.occupied.place.touched();
        }
        if !self.get().is_empty() {
            if self.is_new {
                self.occupied.announce();
            }
            return;
        }
        if self.is_changed || !self.is_new {
            self.occupied.event(b'g', "del");
            self.occupied.remove_entry();
        } else {
            self.occupied.forget();
        }
    }
}

#[cfg(test)]
mod lock_tests;
#[cfg(test)]
mod tests;
