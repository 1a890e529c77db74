//! The generator's wire format: request templates with a place for a key, and the parsed part of replies.
//!
//! Rule    a request is written by copying its bytes and sixteen digits, for a generator must keep up.

use std::io;

use redlatch_proto::resp::Element;

/// Stands in a request for the key, which differs from one request to the next.
pub(crate) const KEY: &str = "{key}";
/// The owner of all locks of the race: as long as a UUID.
pub(crate) const OWNER: &str = "3b241101-e2bb-4255-8caf-4136c566a962";
/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = KEY_HEAD.len() + DIGITS;
/// The prefix of every key.
const KEY_HEAD: &str = "lock:id:";
const DIGITS: usize = 16;

/// A request, ready to be written for any key.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    /// Where the digits of the key begin.
    slots: Vec<usize>,
}

impl Template {
    /// The request of these words, in which [`KEY`] stands for the key.
    pub(crate) fn new<W: AsRef<str>>(words: &[W]) -> Self {
        let (mut bytes, mut slots) = (format!("*{}\r\n", words.len()).into_bytes(), Vec::new());
        for word in words.iter().map(AsRef::as_ref) {
            if word == KEY {
                bytes.extend_from_slice(format!("${KEY_BYTES}\r\n{KEY_HEAD}").as_bytes());
                slots.push(bytes.len());
                bytes.extend_from_slice(&[b'0'; DIGITS]);
            } else {
                bytes.extend_from_slice(format!("${}\r\n{word}", word.len()).as_bytes());
            }
            bytes.extend_from_slice(b"\r\n");
        }
        Self { bytes, slots }
    }

    /// The same request for keys that begin with this hash tag, which is as long as what they begin with otherwise.
    #[must_use]
    pub(crate) fn tagged(mut self, tag: &str) -> Self {
        assert_eq!(tag.len(), KEY_HEAD.len());
        for slot in &self.slots {
            self.bytes[slot - KEY_HEAD.len()..*slot].copy_from_slice(tag.as_bytes());
        }
        self
    }

    pub(crate) fn then(mut self, next: &Self) -> Self {
        self.slots.extend(next.slots.iter().map(|slot| slot + self.bytes.len()));
        self.bytes.extend_from_slice(&next.bytes);
        self
    }

    /// Appends the request for key number `n`.
    pub(crate) fn write(&self, n: u64, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(&self.bytes);
        let digits = digits(n);
        for slot in &self.slots {
            into[start + slot..start + slot + DIGITS].copy_from_slice(&digits);
        }
    }
}

/// Key number `n` as text.
pub(crate) fn key(n: u64) -> String {
    format!("{KEY_HEAD}{}", String::from_utf8_lossy(&digits(n)))
}

/// The digits of key number `n`: scattered, unique, and equal for every server.
fn digits(n: u64) -> [u8; DIGITS] {
    // Each step can be undone, so that two numbers never meet.
    let mut mixed = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let nibble = |at: usize| ((mixed >> (60 - 4 * at)) & 15) as usize;
    std::array::from_fn(|at| b"0123456789abcdef"[nibble(at)])
}

/// The answer to a request, as far as a load looks at it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Array,
    Error,
    Integer(i64),
    Nil,
    /// `+OK`, `+PONG`.
    Simple,
    /// A string of this many bytes.
    Text(usize),
}

/// The answer in front and how many bytes it has, or `None` if some are still to come.
pub(crate) fn answer(bytes: &[u8]) -> io::Result<Option<(Answer, usize)>> {
    let mut rest = bytes;
    let Some(element) = Element::take(&mut rest) else {
        return match bytes.first() {
            Some(kind) if !b"+-:$*".contains(kind) => Err(unknown(*kind)),
            _ => Ok(None),
        };
    };
    let found = match element {
        Element::Line(b'+', _) => Answer::Simple,
        Element::Line(b'-', _) => Answer::Error,
        Element::Line(b':', number) => {
            let number = str::from_utf8(number).ok().and_then(|number| number.parse().ok());
            Answer::Integer(number.ok_or_else(|| io::Error::other("an answer's number is none"))?)
        }
        Element::Bulk(_, text) => Answer::Text(text.len()),
        Element::Null(_) => Answer::Nil,
        Element::Aggregate(_, len) => {
            for _ in 0..len {
                let Some((_, length)) = answer(rest)? else { return Ok(None) };
                rest = &rest[length..];
            }
            Answer::Array
        }
        Element::Line(kind, _) => return Err(unknown(kind)),
    };
    Ok(Some((found, bytes.len() - rest.len())))
}

fn unknown(kind: u8) -> io::Error {
    io::Error::other(format!("an answer of type {}", kind.escape_ascii()))
}
