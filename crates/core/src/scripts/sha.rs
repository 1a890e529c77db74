//! The SHA-1 of a text, which names a script.

use sha1::{Digest, Sha1};

/// Hexadecimal digits of a SHA-1.
pub(crate) const SHA_DIGITS: usize = 40;
/// A SHA-1 in hexadecimal and lower case: as clients send it.
pub type Sha = [u8; SHA_DIGITS];

/// The SHA-1 of a text.
pub fn digest(text: &[u8]) -> Sha {
    let mut sha = [0; SHA_DIGITS];
    for (digits, byte) in sha.as_chunks_mut().0.iter_mut().zip(Sha1::digest(text)) {
        *digits = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
    }
    sha
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_sha1_in_hexadecimal() {
        assert_eq!(&digest(b"abc"), b"a9993e364706816aba3e25717850c26c9cd0d89d");
    }
}
