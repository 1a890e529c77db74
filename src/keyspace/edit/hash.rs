//! What can be changed in a hash.

use bytes::Bytes;

use super::Editor;
use crate::clock::Deadline;
use crate::journal::{Edit, HashEdit};
use crate::types::Hash;

impl Editor<'_, Hash> {
    /// Sets a field, which lives for ever then; true when it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if self.get().deadline(field).is_some() {
            self.set_deadline(field, None);
        }
        self.update(field, value)
    }

    /// Sets a field, which keeps its deadline; true when it is new.
    pub fn update(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.change(
            |hash| hash.set(field, value),
            || Edit::Hash(HashEdit::Set(Bytes::copy_from_slice(field), Bytes::copy_from_slice(value))),
        )
    }

    /// Removes a field; false when it was not there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = self.try_change(
            |hash| hash.remove(field).then_some(()),
            |()| Edit::Hash(HashEdit::Remove(Bytes::copy_from_slice(field))),
        );
        removed.is_some()
    }

    /// Sets or takes away the deadline of a field that is there.
    pub fn set_deadline(&mut self, field: &[u8], deadline: Option<Deadline>) {
        self.change(
            |hash| hash.set_deadline(field, deadline),
            || Edit::Hash(HashEdit::Deadline(Bytes::copy_from_slice(field), deadline)),
        );
    }
}

#[cfg(test)]
mod tests;
