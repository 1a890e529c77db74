//! A short byte string: an element of a list, set or stream.
//!
//! Rule    24 bytes each. An element of up to `INLINE_BYTES_MAX` bytes needs no allocation.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// Bytes of the longest element without an allocation.
pub(crate) const INLINE_BYTES_MAX: usize = 22;

/// A byte string. It compares and hashes as its bytes do.
#[derive(Clone)]
pub struct Element(Form);

#[derive(Clone)]
enum Form {
    Short { len: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<Element>() == 24, "an element is three words");

impl Element {
    /// A copy of the bytes.
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE_BYTES_MAX {
            return Self(Form::Long(bytes.into()));
        }
        let mut short = [0; INLINE_BYTES_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Self(Form::Short { len: bytes.len() as u8, bytes: short })
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Short { len, bytes } => &bytes[..usize::from(*len)],
            Form::Long(bytes) => bytes,
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Short { .. } => 0,
            Form::Long(bytes) => bytes.len() + ALLOCATION_BYTES,
        }
    }
}

/// Approximate overhead of an allocation in bytes.
const ALLOCATION_BYTES: usize = 8;

impl Deref for Element {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for Element {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Element {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Element {}

impl Hash for Element {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_at_every_length() {
        for len in [0, 1, INLINE_BYTES_MAX - 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 1000] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let element = Element::new(&bytes);
            assert_eq!(element.as_bytes(), bytes);
            assert_eq!(element.heap_bytes() > 0, len > INLINE_BYTES_MAX, "{len}");
        }
    }

    #[test]
    fn elements_compare_as_their_bytes() {
        assert_ne!(Element::new(b"a"), Element::new(b"a\0"));
        assert_eq!(format!("{:?}", Element::new(b"a\n")), "\"a\\n\"");
    }
}
