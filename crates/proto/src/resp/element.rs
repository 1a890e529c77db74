//! Replies, taken off the bytes one element after the other.
//!
//! Rule    nothing is copied: an element's bytes are those of the reply.
//! Rule    an aggregate is its count alone. Its elements follow, and how deep they may nest is the caller's to bound.

/// One element of a reply, with the byte that its type begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Element<'r> {
    /// An array, a set, a push, a map or an attribute: how many elements follow, two for each pair. The element that an
    /// attribute is about follows its pairs.
    Aggregate(u8, usize),
    /// A bulk string, a bulk error or a verbatim string, whose format and colon are among its bytes.
    Bulk(u8, &'r [u8]),
    /// A simple string, an error, an integer, a double, a boolean or a big number.
    Line(u8, &'r [u8]),
    /// `_`, or the null string or array of RESP2.
    Null(u8),
}

impl<'r> Element<'r> {
    /// Takes the first element off the bytes; `None`: they begin with none that is whole.
    pub fn take(bytes: &mut &'r [u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\r')?;
        let (kind, line) = bytes[..end].split_first()?;
        let rest = bytes[end..].strip_prefix(b"\r\n")?;
        let (element, rest) = match *kind {
            kind @ (b'+' | b'-' | b':' | b',' | b'#' | b'(') => (Self::Line(kind, line), rest),
            kind @ b'_' => (Self::Null(kind), rest),
            kind @ (b'$' | b'*') if line == b"-1" => (Self::Null(kind), rest),
            kind @ (b'$' | b'!' | b'=') => {
                let (text, rest) = rest.split_at_checked(count(line)?)?;
                (Self::Bulk(kind, text), rest.strip_prefix(b"\r\n")?)
            }
            kind @ (b'*' | b'~' | b'>') => (Self::Aggregate(kind, count(line)?), rest),
            kind @ (b'%' | b'|') => (Self::Aggregate(kind, count(line)?.checked_mul(2)?), rest),
            _ => return None,
        };
        *bytes = rest;
        Some(element)
    }
}

fn count(line: &[u8]) -> Option<usize> {
    crate::number::integer(line)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_off_one_by_one_and_only_whole() {
        let reply = b"%1\r\n+key\r\n*3\r\n$3\r\na\r\n\r\n_\r\n=5\r\ntxt:b\r\n$-1\r\n*-1\r\n:-7\r\n";
        let expected = [
            Element::Aggregate(b'%', 2),
            Element::Line(b'+', b"key"),
            Element::Aggregate(b'*', 3),
            Element::Bulk(b'$', b"a\r\n"),
            Element::Null(b'_'),
            Element::Bulk(b'=', b"txt:b"),
            Element::Null(b'$'),
            Element::Null(b'*'),
            Element::Line(b':', b"-7"),
        ];
        for end in 0..=reply.len() {
            let mut bytes = &reply[..end];
            let found: Vec<_> = std::iter::from_fn(|| Element::take(&mut bytes)).collect();
            assert_eq!(found[..], expected[..found.len()], "cut at {end}");
            assert_eq!(found.len() == expected.len(), end == reply.len());
        }
        for bytes in [&b"?\r\n"[..], b"\r\n", b"$x\r\n", b"$-2\r\n", b"*-9\r\n", b"$1\r\nab\r\n"] {
            assert_eq!(Element::take(&mut &bytes[..]), None, "{}", bytes.escape_ascii());
        }
    }
}
