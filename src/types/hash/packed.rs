//! A few short fields in one block of bytes: for each field its length, the length of its value, field and value.
//!
//! Owns    one allocation, or none while there is no field.
//! Rule    the caller ensures that no field or value has more than 255 bytes.

/// The fields of a small hash.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    len: u16,
}

/// Where a field is.
#[derive(Clone, Copy, Debug)]
struct Spot {
    at: usize,
    field_len: usize,
    value_len: usize,
}

impl Spot {
    fn value(self) -> std::ops::Range<usize> {
        let from = self.at + HEAD_BYTES + self.field_len;
        from..from + self.value_len
    }

    fn all(self) -> std::ops::Range<usize> {
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
        let Some(spot) = self.find(field) else { return false };
        let old = spot.value();
        if value.len() == spot.value_len {
            self.bytes[old].copy_from_slice(value);
            return true;
        }
        self.reserve(value.len().saturating_sub(spot.value_len));
        self.bytes.splice(old, value.iter().copied());
        self.bytes[spot.at + 1] = value.len() as u8;
        true
    }

    /// Removes a field. Returns false if it did not exist.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(spot) = self.find(field) else { return false };
        self.bytes.drain(spot.all());
        self.len -= 1;
        true
    }

    pub(super) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        Some(&self.bytes[self.find(field)?.value()])
    }

    pub(super) fn iter(&self) -> Iter<'_> {
        Iter { rest: &self.bytes }
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn find(&self, field: &[u8]) -> Option<Spot> {
        let mut at = 0;
        while let Some([field_len, value_len, rest @ ..]) = self.bytes.get(at..) {
            let spot = Spot { at, field_len: usize::from(*field_len), value_len: usize::from(*value_len) };
            if rest.get(..spot.field_len) == Some(field) {
                return Some(spot);
            }
            at = spot.all().end;
        }
        None
    }

    /// Reserves `more` bytes in small steps, because doubling the block would waste what packing saves.
    fn reserve(&mut self, more: usize) {
        let need = self.bytes.len() + more;
        if need > self.bytes.capacity() {
            self.bytes.reserve_exact(need.next_multiple_of(ROOM_STEP) - self.bytes.len());
        }
    }
}

/// Fields and values in order of insertion.
#[derive(Debug)]
pub struct Iter<'h> {
    rest: &'h [u8],
}

impl<'h> Iterator for Iter<'h> {
    type Item = (&'h [u8], &'h [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [field_len, value_len, rest @ ..] = self.rest else { return None };
        let (field, rest) = rest.split_at_checked(usize::from(*field_len))?;
        let (value, rest) = rest.split_at_checked(usize::from(*value_len))?;
        self.rest = rest;
        Some((field, value))
    }
}

/// Bytes of the two lengths.
const HEAD_BYTES: usize = 2;
/// Bytes by which the block grows.
const ROOM_STEP: usize = 32;
