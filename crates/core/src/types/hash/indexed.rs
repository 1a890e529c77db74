//! Many or long fields in an index map.
//!
//! Owns    an allocation for every field and one for every value.

use ahash::RandomState;
use indexmap::IndexMap;

use crate::types::Seed;

/// The fields of a larger hash.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    fields: IndexMap<Box<[u8]>, Box<[u8]>, RandomState>,
    /// Bytes of all fields and values.
    element_bytes: usize,
}

impl Indexed {
    /// An empty map with capacity for some fields.
    pub(super) fn with_capacity(fields: usize, seed: Seed) -> Self {
        Self { fields: IndexMap::with_capacity_and_hasher(fields, seed.hasher()), element_bytes: 0 }
    }

    /// Sets a field. Returns true if it is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        match self.fields.get_mut(field) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(old) => {
                self.element_bytes = self.element_bytes - old.len() + value.len();
                *old = value.into();
            }
            None => {
                self.element_bytes += field.len() + value.len();
                self.fields.insert(field.into(), value.into());
                return true;
            }
        }
        false
    }

    /// Removes a field. Returns false if it did not exist. Either later fields move up, or the last field takes its place.
    pub(super) fn remove(&mut self, field: &[u8], keeps_order: bool) -> bool {
        let removed = match keeps_order {
            true => self.fields.shift_remove(field),
            false => self.fields.swap_remove(field),
        };
        let Some(value) = removed else { return false };
        self.element_bytes -= field.len() + value.len();
        // A table that was large is shrunk when few fields are left.
        if self.fields.capacity() > CAPACITY_KEPT && self.fields.len() < self.fields.capacity() / 8 {
            self.fields.shrink_to(self.fields.len() * 2);
        }
        true
    }

    pub(super) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.fields.get(field).map(AsRef::as_ref)
    }

    pub(super) fn at(&self, place: usize) -> Option<(&[u8], &[u8])> {
        self.fields.get_index(place).map(|(field, value)| (field.as_ref(), value.as_ref()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|(field, value)| (field.as_ref(), value.as_ref()))
    }

    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.element_bytes + 2 * ALLOCATION_BYTES * self.len() + self.fields.capacity() * SLOT_BYTES
    }
}

/// Approximate overhead of an allocation in bytes.
const ALLOCATION_BYTES: usize = 8;
/// Bytes of the hash, the two boxes, and the index with its control byte.
const SLOT_BYTES: usize = size_of::<u64>() + 2 * size_of::<Box<[u8]>>() + size_of::<usize>() + 1;
/// Capacity that is never freed.
const CAPACITY_KEPT: usize = 64;
