//! Keys, owners and other names of clients in the log: escaped, and cut.
//!
//! Rule    a line of the log stays one line, of bounded length, whatever clients send.

use std::fmt;

/// Bytes of a name that the log and spans show.
pub const NAME_BYTES_SHOWN: usize = 64;

/// A name as the log shows it: the first [`NAME_BYTES_SHOWN`] bytes, escaped as in a byte string of Rust; `...` follows if
/// there are more. A space is `\x20`, so that no name looks like another field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogName<'n>(pub &'n [u8]);

impl fmt::Display for LogName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(self.0, NAME_BYTES_SHOWN, f)
    }
}

/// Writes the first `most` bytes of a name, escaped.
pub fn shown(name: &[u8], most: usize, out: &mut impl fmt::Write) -> fmt::Result {
    for part in name[..name.len().min(most)].split_inclusive(|byte| *byte == b' ') {
        match part.split_last() {
            Some((b' ', before)) => write!(out, "{}\\x20", before.escape_ascii())?,
            _ => write!(out, "{}", part.escape_ascii())?,
        }
    }
    if name.len() > most { out.write_str("...") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_escaped_and_cut() {
        assert_eq!(LogName(b"job:7").to_string(), "job:7");
        assert_eq!(LogName(b"a\"b\n\xff").to_string(), "a\\\"b\\n\\xff");
        assert_eq!(LogName(b" a owner=b").to_string(), "\\x20a\\x20owner=b");
        let long = [b'x'; NAME_BYTES_SHOWN + 1];
        assert_eq!(LogName(&long[1..]).to_string(), "x".repeat(64));
        assert_eq!(LogName(&long).to_string(), "x".repeat(64) + "...");
    }
}
