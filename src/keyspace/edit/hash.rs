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
            |hash| as_it_stands(hash, field),
            |hash| hash.set(field, value),
            || Edit::Hash(HashEdit::Set(Bytes::copy_from_slice(field), Bytes::copy_from_slice(value))),
        )
    }

    /// Removes a field; false when it was not there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let removed = self.try_change(
            |hash| as_it_stands(hash, field),
            |hash| hash.remove(field).then_some(()),
            |()| Edit::Hash(HashEdit::Remove(Bytes::copy_from_slice(field))),
        );
        removed.is_some()
    }

    /// Sets or takes away the deadline of a field that is there.
    pub fn set_deadline(&mut self, field: &[u8], deadline: Option<Deadline>) {
        self.change(
            |hash| as_it_stands(hash, field),
            |hash| hash.set_deadline(field, deadline),
            || Edit::Hash(HashEdit::Deadline(Bytes::copy_from_slice(field), deadline)),
        );
    }
}

/// What takes back the next change of a field.
fn as_it_stands(hash: &Hash, field: &[u8]) -> impl FnOnce(&mut Hash) + use<> {
    let before = hash.standing(field);
    |hash| hash.put_back(before)
}

#[cfg(test)]
mod tests;
