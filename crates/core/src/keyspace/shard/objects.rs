//! Values that are not strings: an entry holds the number of its object, the shard holds the object.

use redlatch_proto::clock::Deadline;

use super::{EntryId, Form, Shard};
use crate::locks::counts::KINDS;
use crate::types::Object;

impl Shard {
    /// Stores an entry with an object, whose key is not in the shard; see [`Shard::insert`].
    pub(crate) fn insert_object(
        &mut self,
        db: u16,
        hash: u64,
        key: &[u8],
        object: Object,
        deadline: Option<Deadline>,
        stamp: u32,
    ) -> EntryId {
        let number = self.keep(object);
        let id = self.insert(db, hash, key, &number, deadline, stamp);
        self.arena.set_form(id.0, Form::Object as u8);
        if matches!(self.object(id), Some(Object::Lock(_))) {
            self.granted.count_lock_value(self.arena.key(id.0), true);
        }
        self.rearm(id, hash)
    }

    /// Puts an object in place of a string, as [`Shard::set_value`] does another string.
    pub(crate) fn set_object(&mut self, id: EntryId, hash: u64, object: Object) -> EntryId {
        let number = self.keep(object);
        let id = self.set_value(id, hash, &number);
        self.arena.set_form(id.0, Form::Object as u8);
        if matches!(self.object(id), Some(Object::Lock(_))) {
            self.granted.count_lock_value(self.arena.key(id.0), true);
        }
        self.rearm(id, hash)
    }

    /// The object of an entry, unless its value is a string.
    #[inline]
    pub(crate) fn object(&self, id: EntryId) -> Option<&Object> {
        Some(&self.objects[self.number(id)?])
    }

    /// The object of an entry, mutable.
    #[inline]
    pub(crate) fn object_mut(&mut self, id: EntryId) -> Option<&mut Object> {
        let number = self.number(id)?;
        if self.counted.open.is_none_or(|(open, ..)| open != number) {
            self.close();
            let object = &self.objects[number];
            self.counted.open = Some((number, object.shape().heap_bytes(), lock_kind(object)));
        }
        Some(&mut self.objects[number])
    }

    /// Takes the object out of an entry. The caller then removes the entry or sets its value.
    #[inline]
    pub(crate) fn take_object(&mut self, id: EntryId) -> Option<Object> {
        self.number(id).map(|number| self.take_numbered(id, number))
    }

    fn take_numbered(&mut self, id: EntryId, number: usize) -> Object {
        self.forget_inner(id);
        self.arena.set_form(id.0, Form::Whole as u8);
        self.close();
        let object = self.objects.remove(number);
        if let Some(kind) = lock_kind(&object) {
            self.counted.locks[kind] -= 1;
            self.granted.count_lock_value(self.arena.key(id.0), false);
        }
        self.counted.bytes -= object.shape().heap_bytes();
        object
    }

    /// Bytes of heap memory of all objects.
    pub(super) fn object_bytes(&self) -> usize {
        self.counted.open.map_or(self.counted.bytes, |(open, before, _)| {
            self.counted.bytes - before + self.objects[open].shape().heap_bytes()
        })
    }

    /// How many objects are locks, by the index of their kind. The first holder of a lock chooses its kind.
    pub(super) fn lock_values(&self) -> [usize; KINDS] {
        let mut locks = self.counted.locks;
        if let Some((open, _, Some(before))) = self.counted.open {
            locks[before] -= 1;
            locks[lock_kind(&self.objects[open]).unwrap_or(before)] += 1;
        }
        locks
    }

    /// Counts the size of the object that was last changed.
    fn close(&mut self) {
        self.counted.bytes = self.object_bytes();
        self.counted.locks = self.lock_values();
        self.counted.open = None;
    }

    #[inline]
    fn number(&self, id: EntryId) -> Option<usize> {
        if self.arena.form(id.0) != Form::Object as u8 {
            return None;
        }
        let number = self.arena.value(id.0).first_chunk::<NUMBER_BYTES>();
        let number = number.expect("the value of an object's entry begins with its number");
        Some(u32::from_le_bytes(*number) as usize)
    }

    fn keep(&mut self, object: Object) -> [u8; NUMBER_BYTES] {
        self.counted.bytes += object.shape().heap_bytes();
        if let Some(kind) = lock_kind(&object) {
            self.counted.locks[kind] += 1;
        }
        let number = u32::try_from(self.objects.insert(object)).expect("fewer objects than entries");
        number.to_le_bytes()
    }
}

/// The bytes and the locks of all objects, updated as they change.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Bytes of all objects, with the open one as it was before.
    bytes: usize,
    /// How many objects are locks, by the index of their kind, with the open one as it was before.
    locks: [usize; KINDS],
    /// The object that was last borrowed mutably, its bytes before, and the index of its kind if it is a lock.
    open: Option<(usize, usize, Option<usize>)>,
}

impl Counted {
    /// Whether no object is a lock.
    pub(super) fn has_no_locks(&self) -> bool {
        self.locks == [0; KINDS]
    }
}

/// The index of the kind of a value of the type lock.
fn lock_kind(object: &Object) -> Option<usize> {
    if let Object::Lock(lock) = object { Some(lock.kind().index()) } else { None }
}

/// Bytes of an object's number.
pub(super) const NUMBER_BYTES: usize = size_of::<u32>();
