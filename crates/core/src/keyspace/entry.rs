//! One key of a locked shard, found by a single lookup, for a command that reads or changes it.
//!
//! Owns    nothing; it borrows a locked shard and the call's changes.

use bytes::Bytes;
use redlatch_proto::clock::Deadline;
use redlatch_proto::error::Refusal;

use super::Changes;
use super::observers::Observers;
use super::shard::{EntryId, Form, Shard};
use super::waiting::Queues;
use crate::journal::{Mutation, Mutations};
use crate::locks::EndReason;
use crate::locks::record::Grant;
use crate::state::tracking::Cause;
use crate::types::{Object, Typed};

/// A key that exists, or a key that can be inserted.
#[derive(Debug)]
pub enum Entry<'v> {
    Occupied(Occupied<'v>),
    /// The key does not exist.
    Vacant(Vacant<'v>),
}

/// What a write does to the deadline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lease {
    Keep,
    /// The key does not expire.
    Never,
    /// The key expires after this deadline.
    Until(Deadline),
}

impl Lease {
    fn deadline(self) -> Option<Deadline> {
        if let Self::Until(deadline) = self { Some(deadline) } else { None }
    }
}

#[derive(Debug)]
pub struct Occupied<'v> {
    pub(crate) place: Vacant<'v>,
    pub(crate) id: EntryId,
}

/// A key that does not exist and can be inserted. In an [`Occupied`], the context of the key.
#[derive(Debug)]
pub struct Vacant<'v> {
    pub(crate) shard: &'v mut Shard,
    pub(crate) observers: &'v mut Observers,
    pub(crate) queues: &'v Queues,
    pub(crate) changes: &'v mut Changes,
    pub(crate) key: &'v [u8],
    pub(crate) hash: u64,
    pub(crate) database: u16,
    pub(crate) stamp: u32,
}

impl<'v> Entry<'v> {
    /// The key, if it exists.
    pub fn occupied(self) -> Option<Occupied<'v>> {
        match self {
            Self::Occupied(occupied) => Some(occupied),
            Self::Vacant(_) => None,
        }
    }

    /// The string under the key, if the key exists.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] when it holds another type.
    pub fn string(&self) -> Result<Option<&[u8]>, Refusal> {
        match self {
            Self::Occupied(occupied) => occupied.string().map(Some),
            Self::Vacant(_) => Ok(None),
        }
    }

    /// Stores an object and replaces any value.
    pub(crate) fn put_object(self, object: Object, lease: Lease) -> Occupied<'v> {
        match self {
            Self::Occupied(mut occupied) => {
                occupied.put_object(object, lease);
                occupied
            }
            Self::Vacant(vacant) => vacant.insert_object(object, lease),
        }
    }

    /// Stores a string and replaces any value.
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

impl<'v> Occupied<'v> {
    /// The object under the key, for as long as the view is borrowed.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] when it holds another type.
    pub(crate) fn into_object<T: Typed>(self) -> Result<&'v T, Refusal> {
        let Vacant { shard, .. } = self.place;
        shard.object(self.id).and_then(T::of).ok_or(Refusal::WrongType)
    }
}

impl Occupied<'_> {
    /// Stores a string in place of the value.
    pub fn put(&mut self, value: &[u8], lease: Lease) {
        let before_ms = self.end_ms();
        let before = self.replaced_by(value);
        self.discard_object();
        self.id = self.place.shard.set_value(self.id, self.place.hash, value);
        self.place.changes.grew_to(value.len());
        self.set_lease(lease);
        self.changed(before_ms);
        if lease != Lease::Keep {
            self.renewed(before);
        }
    }

    /// Stores an object in place of the value.
    pub(crate) fn put_object(&mut self, object: Object, lease: Lease) {
        self.clear_lock();
        self.replace_object(object, lease);
    }

    /// Like [`Occupied::put_object`]; the lock that the key is goes on.
    pub(crate) fn replace_object(&mut self, object: Object, lease: Lease) {
        let before_ms = self.end_ms();
        self.discard_object();
        self.place.changes.grew_to(object.shape().heap_bytes());
        self.id = self.place.shard.set_object(self.id, self.place.hash, object);
        self.set_lease(lease);
        self.changed(before_ms);
        self.announce();
    }

    /// Adds bytes at the end of the string; returns its length. As in [`Occupied::put`], an equal value keeps the grant.
    pub fn append(&mut self, tail: &[u8]) -> usize {
        if tail.is_empty() {
            return self.rewritten();
        }
        self.clear_lock();
        self.id = self.place.shard.append(self.id, self.place.hash, tail);
        self.changed(self.end_ms());
        let len = self.place.shard.value(self.id).len();
        self.place.changes.grew_to(len);
        len
    }

    /// Writes `bytes` into the string at `offset`, with zeros up to it if it was shorter; returns its length. An equal
    /// value keeps the grant.
    pub fn overwrite(&mut self, offset: usize, bytes: &[u8]) -> usize {
        if self.place.shard.value(self.id).get(offset..offset + bytes.len()) == Some(bytes) {
            return self.rewritten();
        }
        self.clear_lock();
        let len = self.place.shard.value(self.id).len().max(offset + bytes.len());
        self.id = self.place.shard.resize(self.id, self.place.hash, len);
        self.place.shard.value_mut(self.id)[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.place.changes.grew_to(len);
        self.changed(self.end_ms());
        len
    }

    /// The string was written as it was: nothing is recorded, and a lock goes on. Returns its length.
    fn rewritten(&mut self) -> usize {
        self.set_form(Form::Edited);
        self.place.touched();
        self.place.shard.value(self.id).len()
    }

    /// Sets or removes the deadline.
    pub fn set_deadline(&mut self, deadline: Option<Deadline>) {
        let (before_ms, before) = (self.end_ms(), self.before());
        self.place.shard.set_deadline(self.id, deadline);
        self.note_end(before_ms);
        self.place.changes.arm(deadline);
        let (database, key) = (self.place.database, self.place.key);
        self.place.changes.record(|| Mutation::SetDeadline { database, key, deadline });
        self.place.touched();
        self.renewed(before);
    }

    /// Records the grant of the lock.
    #[inline]
    pub(crate) fn grant_changed(&mut self) {
        self.note_end(self.end_ms());
        let Vacant { shard, changes, key, database, .. } = &mut self.place;
        changes.record_some(|| granted(shard, self.id, *database, key));
    }

    /// Removes the key.
    pub fn remove(mut self) {
        self.remove_entry();
    }

    /// Like [`Occupied::remove`], by reference. The entry must not be used afterwards.
    #[inline]
    pub(crate) fn remove_entry(&mut self) {
        self.remove_for(self.place.changes.end_reason());
    }

    /// Like [`Occupied::remove_entry`]. If the key is a lock, the lock ends for this reason.
    #[inline]
    pub(crate) fn remove_for(&mut self, reason: EndReason) {
        let before_ms = self.end_ms();
        self.place.ends_at(before_ms, 0);
        self.lock_ends(reason);
        let object = self.place.shard.remove(self.id, self.place.hash);
        let (database, key) = (self.place.database, self.place.key);
        self.place.changes.discard(object);
        self.place.lock_ended();
        self.place.changes.record(|| Mutation::Remove { database, key, expired: false });
        self.place.touched();
    }

    /// Removes the key, and returns what makes it in another keyspace.
    #[cold]
    pub(super) fn take_away(mut self) -> Vec<Mutation> {
        let (Vacant { shard, database, key, .. }, mut made) = (&self.place, Mutations::default());
        made.push(&put(shard, self.id, *database, key));
        granted(shard, self.id, *database, key).iter().for_each(|granted| made.push(granted));
        self.remove_for(EndReason::Moved);
        made.to_vec()
    }

    /// Notes that the value of a new key may be what a command waits for.
    #[inline]
    pub(crate) fn announce(&mut self) {
        let place = &mut self.place;
        if !place.queues.values.is_empty() && place.shard.object(self.id).is_some() {
            place.changes.ready(place.database, Bytes::copy_from_slice(place.key));
        }
    }

    /// Arms the timer of the entry for the first element of its object to expire.
    #[inline]
    pub(crate) fn rearm(&mut self) {
        let Vacant { shard, changes, hash, .. } = &mut self.place;
        self.id = shard.rearm(self.id, *hash);
        changes.arm(shard.earliest_deadline(self.id));
    }

    /// Removes an entry that was inserted with [`Vacant::insert_unseen`], without a record or an event.
    pub(crate) fn forget(&mut self) {
        self.place.shard.remove(self.id, self.place.hash);
    }

    /// An event of this key: the letter of its class, its name.
    pub fn event(&mut self, class: u8, event: &'static str) {
        self.place.changes.event(class, event, self.place.database, self.place.key);
    }

    /// The string under the key.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] when it holds another type.
    #[inline]
    pub fn string(&self) -> Result<&[u8], Refusal> {
        match self.form() {
            Form::Object => Err(Refusal::WrongType),
            _ => Ok(self.place.shard.value(self.id)),
        }
    }

    /// The object under the key, unless the value is a string.
    pub fn object(&self) -> Option<&Object> {
        self.place.shard.object(self.id)
    }

    /// The name of the type of the value, as TYPE returns it.
    pub fn type_name(&self) -> &'static str {
        self.place.shard.type_name(self.id)
    }

    /// How the string was written.
    pub fn form(&self) -> Form {
        self.place.shard.form(self.id)
    }

    /// The deadline of the key, if it has one.
    pub fn deadline(&self) -> Option<Deadline> {
        self.place.shard.deadline(self.id)
    }

    /// Whether the history of the shard has a lock that was lost.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.place.shard.has_lost()
    }

    /// Who holds the lock, if the key is one.
    pub fn granted(&self) -> Option<Grant> {
        self.place.shard.granted(self.id)
    }

    /// The second of lock time of the last access.
    pub(crate) fn last_used_secs(&self) -> u32 {
        self.place.shard.stamp(self.id)
    }

    /// Sets how the string was written.
    pub(crate) fn set_form(&mut self, form: Form) {
        self.place.shard.set_form(self.id, form);
    }

    /// Sets the last access to now.
    pub fn touch(&mut self) {
        self.place.shard.set_stamp(self.id, self.place.stamp);
    }

    /// Bytes of memory of key and value.
    pub fn bytes(&self) -> usize {
        self.place.shard.bytes(self.id)
    }

    pub(crate) fn set_lease(&mut self, lease: Lease) {
        match lease {
            Lease::Keep => {}
            Lease::Never => self.place.shard.set_deadline(self.id, None),
            Lease::Until(deadline) => self.place.shard.set_deadline(self.id, Some(deadline)),
        }
        self.place.shard.set_stamp(self.id, self.place.stamp);
    }

    fn discard_object(&mut self) {
        let object = self.place.shard.take_object(self.id);
        self.place.changes.discard(object);
    }

    /// The millisecond at which the entry ends; 0 without a journal, which alone needs it.
    #[inline]
    pub(crate) fn end_ms(&self) -> u64 {
        if self.place.changes.is_recorded() { self.place.shard.end_ms(self.id) } else { 0 }
    }

    /// Notes when the entry, which has been changed, ended before and ends now.
    #[inline]
    pub(crate) fn note_end(&mut self, before_ms: u64) {
        let after_ms = self.end_ms();
        self.place.ends_at(before_ms, after_ms);
    }

    /// Says that the value, which has been changed, is a counter. It must not fall, so the record of the call never ends,
    /// whatever the deadline of the key.
    pub(crate) fn mark_counter(&mut self) {
        if let Some(ends) = self.place.changes.ends() {
            ends.note_endless();
        }
    }

    /// Records the current value and deadline. `before_ms`: [`Occupied::end_ms`] before the change.
    pub(crate) fn changed(&mut self, before_ms: u64) {
        self.note_end(before_ms);
        let (shard, id) = (&*self.place.shard, self.id);
        let (database, key) = (self.place.database, self.place.key);
        self.place.changes.arm(shard.earliest_deadline(id));
        self.place.changes.record(|| put(shard, id, database, key));
        self.place.touched();
    }

    /// Bytes of the value.
    pub(crate) fn value_bytes(&self) -> usize {
        match self.place.shard.object(self.id) {
            Some(object) => object.shape().heap_bytes(),
            None => self.place.shard.value(self.id).len(),
        }
    }
}

/// The record of a key's value and deadline.
pub(crate) fn put<'a>(shard: &'a Shard, id: EntryId, database: u16, key: &'a [u8]) -> Mutation<&'a [u8]> {
    let deadline = shard.deadline(id);
    match shard.object(id) {
        Some(object) => Mutation::PutObject { database, key, object: object.clone(), deadline },
        None => Mutation::Put { database, key, value: shard.value(id), deadline },
    }
}

/// The record of a key's grant, if it has one.
pub(crate) fn granted<'a>(
    shard: &Shard,
    id: EntryId,
    database: u16,
    key: &'a [u8],
) -> Option<Mutation<&'a [u8]>> {
    let grant = shard.granted(id)?;
    let details = shard.grant_details(id).cloned().unwrap_or_default();
    Some(Mutation::Grant { database, key, grant, details })
}

impl<'v> Vacant<'v> {
    /// Notes when the key, which has been changed, ended before and ends now, in milliseconds.
    #[inline]
    pub(crate) fn ends_at(&mut self, before_ms: u64, after_ms: u64) {
        if let Some(ends) = self.changes.ends() {
            ends.note(self.database, self.hash, before_ms, after_ms);
        }
    }

    /// Breaks the watches of the key and invalidates cached values.
    #[inline]
    pub(crate) fn touched(&mut self) {
        self.changes.touched(self.observers, self.database, self.key, Cause::Change);
    }

    /// Notes that commands which wait for the lock of the key may have it now.
    #[inline]
    pub(crate) fn lock_ended(&mut self) {
        if !self.queues.locks.is_empty() {
            self.changes.ready(self.database, Bytes::copy_from_slice(self.key));
        }
    }

    /// Whether requests wait for the lock of the key: it belongs to the first of them.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        !self.queues.locks.is_empty() && self.queues.locks.waiting(self.database, self.key).next().is_some()
    }

    /// Publishes the event of a read that has not found the key.
    #[inline]
    pub(crate) fn missed(&mut self) {
        self.changes.event(b'm', "keymiss", self.database, self.key);
    }

    /// Stores a string under the key. With [`Lease::Keep`] the key does not expire.
    pub fn insert(self, value: &[u8], lease: Lease) -> Occupied<'v> {
        let id = self.shard.insert(self.database, self.hash, self.key, value, lease.deadline(), self.stamp);
        self.changes.grew_to(value.len());
        self.inserted(id)
    }

    /// Stores an object under the key, as [`Vacant::insert`] does a string.
    pub(crate) fn insert_object(self, object: Object, lease: Lease) -> Occupied<'v> {
        self.changes.grew_to(object.shape().heap_bytes());
        let Occupied { place, id } = self.insert_unseen(object, lease);
        place.inserted(id)
    }

    /// Like [`Vacant::insert_object`], without a record or an event. The caller publishes the change.
    pub(crate) fn insert_unseen(self, object: Object, lease: Lease) -> Occupied<'v> {
        let (database, deadline) = (self.database, lease.deadline());
        let id = self.shard.insert_object(database, self.hash, self.key, object, deadline, self.stamp);
        Occupied { place: self, id }
    }

    #[inline]
    fn inserted(mut self, id: EntryId) -> Occupied<'v> {
        let (shard, database, key) = (&*self.shard, self.database, self.key);
        self.changes.arm(shard.earliest_deadline(id));
        self.changes.event(b'n', "new", database, key);
        if let Some(ends) = self.changes.ends() {
            ends.note(database, self.hash, 0, shard.end_ms(id));
        }
        self.changes.record(|| put(shard, id, database, key));
        self.touched();
        let mut occupied = Occupied { place: self, id };
        occupied.announce();
        occupied
    }
}
