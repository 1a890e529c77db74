//! Passwords, of which the server keeps only the SHA-256.
//!
//! Rule    two digests are compared in constant time, and a password is hashed before the user is looked up.

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 of a password.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Digest([u8; DIGEST_BYTES]);

const DIGEST_BYTES: usize = 32;

impl Digest {
    /// The digest of a password.
    pub fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// Parses 64 lower-case hexadecimal digits; `None` for anything else.
    pub fn parse(hex: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        if hex.len() != 2 * DIGEST_BYTES {
            return None;
        }
        let mut bytes = [0; DIGEST_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// The digest as 64 lower-case hexadecimal digits.
    pub fn hex(&self) -> String {
        hex(&self.0)
    }

    /// Whether both are equal, in constant time.
    pub fn is(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

// Digests do not appear in logs.
impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// Bytes in lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_as_it_is_read() {
        let digest = Digest::of(b"secret");
        let text = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert_eq!(digest.hex(), text);
        assert_eq!(Digest::parse(text.as_bytes()), Some(digest));
        assert!(bool::from(digest.is(&digest)) && !bool::from(digest.is(&Digest::of(b"Secret"))));
    }

    #[test]
    fn what_is_no_digest_is_none() {
        let text = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let (upper, short, long) = (text.to_uppercase(), &text[1..], format!("{text}0"));
        for wrong in ["", "abc", &upper, short, &long, &text.replace('b', "g")] {
            assert_eq!(Digest::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_digest_is_not_shown() {
        assert_eq!(format!("{:?}", Digest::of(b"secret")), "Digest(..)");
    }
}
