//! One key, looked up once and then read or changed: what a command works on.
//!
//! Owns    nothing; it borrows a locked shard and the call's changes.

use bytes::Bytes;

use super::Changes;
use super::shard::{EntryId, Form, Shard};
use crate::clock::Deadline;
use crate::error::Refusal;
use crate::journal::Mutation;

/// A key that is there, or the place where it could be.
#[derive(Debug)]
pub enum Entry<'v> {
    /// The key is there.
    Occupied(Occupied<'v>),
    /// It is not.
    Vacant(Vacant<'v>),
}

/// What a write does to the lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lease {
    /// It stays as it is.
    Keep,
    /// The key lives for ever.
    Never,
    /// The key lives until then.
    Until(Deadline),
}

/// A key that is there.
#[derive(Debug)]
pub struct Occupied<'v> {
    pub(super) place: Vacant<'v>,
    pub(super) id: EntryId,
}

/// The place of a key.
#[derive(Debug)]
pub struct Vacant<'v> {
    pub(super) shard: &'v mut Shard,
    pub(super) changes: &'v mut Changes,
    pub(super) key: &'v [u8],
    pub(super) hash: u64,
    pub(super) database: u16,
    pub(super) stamp: u32,
}

impl<'v> Entry<'v> {
    /// The key, if it is there.
    pub fn occupied(self) -> Option<Occupied<'v>> {
        match self {
            Self::Occupied(occupied) => Some(occupied),
            Self::Vacant(_) => None,
        }
    }

    /// The string that the key holds, if it is there.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] when it holds another type.
    pub fn string(&self) -> Result<Option<&[u8]>, Refusal> {
        match self {
            Self::Occupied(occupied) => occupied.string().map(Some),
            Self::Vacant(_) => Ok(None),
        }
    }

    /// Stores a string, whatever was there.
    pub fn put(self, value: &[u8], lease: Lease) -> Occupied<'v> {
        match self {
            Self::Occupied(mut occupied) => {
                occupied.put(value, lease);
                occupied
            }
            Self::Vacant(vacant) => vacant.insert(value, lease),
        }
    }
}

impl Occupied<'_> {
    /// Stores a string in place of the value.
    pub fn put(&mut self, value: &[u8], lease: Lease) {
        self.id = self.place.shard.set_value(self.id, self.place.hash, value);
        match lease {
            Lease::Keep => {}
            Lease::Never => self.place.shard.set_deadline(self.id, None),
            Lease::Until(deadline) => self.place.shard.set_deadline(self.id, Some(deadline)),
        }
        self.place.shard.set_stamp(self.id, self.place.stamp);
        self.changed();
    }

    /// Adds bytes at the end of the string; returns its length.
    pub fn append(&mut self, tail: &[u8]) -> usize {
        self.id = self.place.shard.append(self.id, self.place.hash, tail);
        self.changed();
        self.place.shard.value(self.id).len()
    }

    /// Writes `bytes` into the string at `offset`, with zeros up to it if it was shorter; returns its length.
    pub fn overwrite(&mut self, offset: usize, bytes: &[u8]) -> usize {
        let len = self.place.shard.value(self.id).len().max(offset + bytes.len());
        self.id = self.place.shard.resize(self.id, self.place.hash, len);
        self.place.shard.value_mut(self.id)[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.changed();
        len
    }

    /// Sets or takes away the deadline.
    pub fn set_deadline(&mut self, deadline: Option<Deadline>) {
        self.place.shard.set_deadline(self.id, deadline);
        self.place.changes.arm(deadline);
        let (database, key) = (self.place.database, self.place.key);
        self.place.changes.record(|| Mutation::SetDeadline {
            database,
            key: Bytes::copy_from_slice(key),
            deadline,
        });
    }

    /// Removes the key.
    pub fn remove(self) {
        self.place.shard.remove(self.id, self.place.hash);
        let (database, key) = (self.place.database, self.place.key);
        let removed = || Mutation::Remove { database, key: Bytes::copy_from_slice(key), expired: false };
        self.place.changes.record(removed);
    }

    /// An event of this key: the letter of its class, its name.
    pub fn event(&mut self, class: u8, event: &'static str) {
        self.place.changes.event(class, event, self.place.database, self.place.key);
    }

    /// The string that the key holds.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] when it holds another type.
    #[inline]
    pub fn string(&self) -> Result<&[u8], Refusal> {
        Ok(self.place.shard.value(self.id))
    }

    /// The name of the type of the value: what TYPE answers.
    pub fn type_name(&self) -> &'static str {
        self.place.shard.type_name(self.id)
    }

    /// How the string came to be what it is.
    pub fn form(&self) -> Form {
        self.place.shard.form(self.id)
    }

    /// When the key ends, if ever.
    pub fn deadline(&self) -> Option<Deadline> {
        self.place.shard.deadline(self.id)
    }

    /// The second of lock time in which the key was last used.
    pub fn last_used_secs(&self) -> u32 {
        self.place.shard.stamp(self.id)
    }

    /// Says how the string came to be what it is.
    pub fn set_form(&mut self, form: Form) {
        self.place.shard.set_form(self.id, form);
    }

    /// The key counts as used now.
    pub fn touch(&mut self) {
        self.place.shard.set_stamp(self.id, self.place.stamp);
    }

    /// Bytes that key and value take in memory.
    pub fn bytes(&self) -> usize {
        self.place.shard.bytes(self.id)
    }

    /// Records the value and deadline as they are now.
    fn changed(&mut self) {
        let (shard, id) = (&*self.place.shard, self.id);
        let (database, key) = (self.place.database, self.place.key);
        let deadline = shard.deadline(id);
        self.place.changes.arm(deadline);
        self.place.changes.record(|| Mutation::Put {
            database,
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(shard.value(id)),
            deadline,
        });
    }
}

impl<'v> Vacant<'v> {
    /// Stores a string under the key. [`Lease::Keep`] has nothing to keep: the key lives for ever.
    pub fn insert(self, value: &[u8], lease: Lease) -> Occupied<'v> {
        let deadline = if let Lease::Until(deadline) = lease { Some(deadline) } else { None };
        let id = self.shard.insert(self.database, self.hash, self.key, value, deadline, self.stamp);
        self.changes.arm(deadline);
        self.changes.event(b'n', "new", self.database, self.key);
        let (database, key) = (self.database, self.key);
        self.changes.record(|| Mutation::Put {
            database,
            key: Bytes::copy_from_slice(key),
            value: Bytes::copy_from_slice(value),
            deadline,
        });
        Occupied { place: self, id }
    }
}
