//! A few short fields in one block of bytes: for each field its length, the length of its value, field and value.
//!
//! Owns    one allocation, or none while there is no field.
//! Rule    the caller ensures that no field or value has more than 255 bytes.

use std::ops::Range;

/// The fields of a small hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    len: u16,
}

/// The bytes of one field.
#[derive(Clone, Copy, Debug)]
struct FieldRange {
    at: usize,
    field_len: usize,
    value_len: usize,
}

impl FieldRange {
    fn field(self) -> Range<usize> {
        let start = self.at + HEAD_BYTES;
        start..start + self.field_len
    }

    fn value(self) -> Range<usize> {
        let start = self.field().end;
        start..start + self.value_len
    }

    fn all(self) -> Range<usize> {
        self.at..self.value().end
    }
}

impl Packed {
    /// Sets a field. Returns true if it is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if self.replace(field, value) {
            return false;
        }
        self.reserve(HEAD_BYTES + field.len() + value.len());
        self.bytes.extend_from_slice(&[field.len() as u8, value.len() as u8]);
        self.bytes.extend_from_slice(field);
        self.bytes.extend_from_slice(value);
        self.len += 1;
        true
    }

    /// Replaces the value of a field. Returns false if the field does not exist.
    pub(super) fn replace(&mut self, field: &[u8], value: &[u8]) -> bool {
        let Some(range) = self.find(field) else { return false };
        let old = range.value();
        if value.len() == range.value_len {
            self.bytes[old].copy_from_slice(value);
            return true;
        }
        self.reserve(value.len().saturating_sub(range.value_len));
        self.bytes.splice(old, value.iter().copied());
        self.bytes[range.at + 1] = value.len() as u8;
        true
    }

    /// Removes a field. Returns false if it did not exist.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(range) = self.find(field) else { return false };
        self.bytes.drain(range.all());
        self.len -= 1;
        true
    }

    pub(super) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        Some(&self.bytes[self.find(field)?.value()])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ranges().map(|range| (&self.bytes[range.field()], &self.bytes[range.value()]))
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn find(&self, field: &[u8]) -> Option<FieldRange> {
        self.ranges().find(|range| self.bytes[range.field()] == *field)
    }

    fn ranges(&self) -> impl Iterator<Item = FieldRange> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let [field_len, value_len, ..] = self.bytes[at..] else { return None };
            let range = FieldRange { at, field_len: field_len.into(), value_len: value_len.into() };
            at = range.all().end;
            Some(range)
        })
    }

    /// Reserves `more` bytes in small steps, because doubling the block would waste what packing saves.
    fn reserve(&mut self, more: usize) {
        let need = self.bytes.len() + more;
        if need > self.bytes.capacity() {
            self.bytes.reserve_exact(need.next_multiple_of(GROWTH_BYTES) - self.bytes.len());
        }
    }
}

/// Bytes of the two lengths.
const HEAD_BYTES: usize = 2;
/// Bytes by which the block grows.
const GROWTH_BYTES: usize = 32;
