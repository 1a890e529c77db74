//! Hashes: fields with values. A small hash is one packed block of bytes.
//!
//! Owns    the bytes of every field and value.
//! Rule    fields keep their order of insertion until the hash counts as a table. From then on a removed field is
//!         replaced by the last one; [`Hash::scan`] relies on that.
//! Source  Redis 7.0 `t_hash.c`: when a listpack becomes a table, which is never undone.

mod indexed;
mod packed;

use super::{Seed, Shape};
use indexed::Indexed;
use packed::Packed;

#[derive(Clone, Debug)]
pub struct Hash {
    form: Form,
    /// True if Redis would store it as a hash table.
    is_table: bool,
    /// The seed of the index.
    seed: Seed,
}

#[derive(Clone, Debug)]
enum Form {
    Packed(Packed),
    Indexed(Box<Indexed>),
}

impl Hash {
    /// An empty hash. It allocates nothing.
    pub fn new(seed: Seed) -> Self {
        Self { form: Form::Packed(Packed::default()), is_table: false, seed }
    }

    /// Sets a field. Returns true if it is new. An existing field keeps its place.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if field.len() > LISTPACK_BYTES_MAX || value.len() > LISTPACK_BYTES_MAX {
            self.is_table = true;
            self.indexed();
        }
        let is_new = match &mut self.form {
            Form::Packed(packed) if packed.len() < PACKED_FIELDS_MAX || packed.get(field).is_some() => {
                packed.set(field, value)
            }
            _ => self.indexed().set(field, value),
        };
        if self.len() > LISTPACK_FIELDS_MAX {
            self.is_table = true;
        }
        is_new
    }

    /// Removes a field. Returns false if it did not exist.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.form {
            Form::Packed(packed) => packed.remove(field),
            Form::Indexed(indexed) => indexed.remove(field, !self.is_table),
        }
    }

    /// Counts as a table from now on, however few fields there are.
    pub(crate) fn become_table(&mut self) {
        self.is_table = true;
    }

    /// The value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.form {
            Form::Packed(packed) => packed.get(field),
            Form::Indexed(indexed) => indexed.get(field),
        }
    }

    /// True if the field exists.
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// The field and value at a place, counted from 0.
    pub fn at(&self, place: usize) -> Option<(&[u8], &[u8])> {
        match &self.form {
            Form::Packed(packed) => packed.iter().nth(place),
            Form::Indexed(indexed) => indexed.at(place),
        }
    }

    /// Fields and values, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (packed, indexed) = match &self.form {
            Form::Packed(packed) => (Some(packed.iter()), None),
            Form::Indexed(indexed) => (None, Some(indexed.iter())),
        };
        packed.into_iter().flatten().chain(indexed.into_iter().flatten())
    }

    /// Visits about `count` fields from `cursor` on, and returns the next cursor; 0 at the end.
    ///
    /// A scan begins with cursor 0. A cursor may be any number, since it comes from a client. A field that exists during
    /// the whole scan is visited, rarely more than once: places are visited downwards, and a field that moves comes from
    /// the highest place, which was visited before.
    pub fn scan<'h>(&'h self, cursor: u64, count: u64, mut visit: impl FnMut(&'h [u8], &'h [u8])) -> u64 {
        let indexed = match &self.form {
            Form::Indexed(indexed) if self.is_table => indexed,
            _ => {
                self.iter().for_each(|(field, value)| visit(field, value));
                return 0;
            }
        };
        let len = self.len() as u64;
        let end = if cursor == 0 { len } else { cursor.min(len) };
        let start = end.saturating_sub(count.max(1));
        for place in (start..end).rev() {
            if let Some((field, value)) = indexed.at(place as usize) {
                visit(field, value);
            }
        }
        start
    }

    /// The indexed form; a packed hash is converted.
    fn indexed(&mut self) -> &mut Indexed {
        if let Form::Packed(packed) = &self.form {
            let mut indexed = Box::new(Indexed::with_capacity(packed.len() + 1, self.seed));
            for (field, value) in packed.iter() {
                indexed.set(field, value);
            }
            self.form = Form::Indexed(indexed);
        }
        match &mut self.form {
            Form::Indexed(indexed) => indexed,
            Form::Packed(_) => unreachable!("the fields have just been indexed"),
        }
    }
}

impl Shape for Hash {
    fn type_name(&self) -> &'static str {
        "hash"
    }

    fn encoding(&self) -> &'static str {
        if self.is_table { "hashtable" } else { "listpack" }
    }

    fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len(),
            Form::Indexed(indexed) => indexed.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.heap_bytes(),
            Form::Indexed(indexed) => size_of::<Indexed>() + indexed.heap_bytes(),
        }
    }
}

/// Hashes are equal if fields, places, values and encoding are.
impl PartialEq for Hash {
    fn eq(&self, other: &Self) -> bool {
        self.is_table == other.is_table && self.iter().eq(other.iter())
    }
}

impl Eq for Hash {}

/// Maximum number of fields of a listpack: Redis' `hash-max-listpack-entries`.
const LISTPACK_FIELDS_MAX: usize = 512;
/// Maximum bytes of a field or value of a listpack: Redis' `hash-max-listpack-value`.
const LISTPACK_BYTES_MAX: usize = 64;
/// Maximum number of fields that are found by comparing each.
const PACKED_FIELDS_MAX: usize = 16;

const _: () = assert!(LISTPACK_BYTES_MAX <= u8::MAX as usize, "a packed length is one byte");
const _: () = assert!(PACKED_FIELDS_MAX <= LISTPACK_FIELDS_MAX, "a packed hash is a listpack");

#[cfg(test)]
mod tests;
