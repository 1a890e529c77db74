//! Replies as one who asked reads them: finding the end of each in the bytes received, and its value.
//!
//! Owns    [`Reply`], the value, and [`Replies`], the bytes received that are not a whole reply yet.
//! Rule    each byte is looked at once for the frame's end, and the frame's size and depth are bounded, before its
//!         elements are read: that recurses.
//! Rule    not by the codec of redis-protocol, which tests use: it starts anew on partial input, and recurses without
//!         a limit.
//! Rule    RESP3 has the elements of RESP2, so that nobody has to know which of the two a server speaks.

use redlatch_proto::number::integer;
use redlatch_proto::resp::{Element, Protocol, Reply as Writer};

/// The bytes are no reply, or one beyond the bounds. The text says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// A reply, in either protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// An error, beginning with its code.
    Error(String),
    Integer(i64),
    List(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Null,
    /// A message that answers no request.
    Push(Vec<Reply>),
    Text(Vec<u8>),
}

impl Reply {
    /// The value of a field: of a map, or of the flat list that RESP2 sends in its place.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Map(pairs) => pairs.iter().find(|(field, _)| field.is(name)).map(|(_, value)| value),
            Self::List(items) => items.chunks_exact(2).find(|pair| pair[0].is(name)).map(|pair| &pair[1]),
            _ => None,
        }
    }

    /// The pairs of a map, or of the flat list that RESP2 sends in its place.
    pub fn pairs(&self) -> Vec<(&Self, &Self)> {
        match self {
            Self::Map(pairs) => pairs.iter().map(|(field, value)| (field, value)).collect(),
            Self::List(items) => items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
            _ => Vec::new(),
        }
    }

    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// A number, also one that is sent as text.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            Self::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn is(&self, text: &str) -> bool {
        self.text() == Some(text.as_bytes())
    }
}

/// Encodes a request.
pub(crate) fn encode(words: &[&[u8]], output: &mut Vec<u8>) {
    Writer::new(output, Protocol::Resp2).bulks(words);
}

/// The bytes received, and how far the frame at their front has been looked at.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    pub(crate) bytes: Vec<u8>,
    scanned: usize,
    /// How many elements each open aggregate still lacks, the outermost first.
    open: Vec<u64>,
}

impl Replies {
    /// Takes the next reply out of the bytes received; `None` if it is not whole yet.
    ///
    /// # Errors
    /// The bytes are no reply, or a reply beyond the bounds.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, Unreadable> {
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            self.scanned += header.bytes;
            if header.elements > 0 {
                self.open.push(header.elements);
                if self.open.len() > DEPTH_MAX {
                    return Err(Unreadable(format!("a reply is nested deeper than {DEPTH_MAX}")));
                }
            } else if self.close_element() {
                break;
            }
        }
        let reply = take(&mut &self.bytes[..self.scanned]);
        self.bytes.drain(..self.scanned);
        self.scanned = 0;
        reply.map(Some).ok_or_else(|| Unreadable("not a reply".to_owned()))
    }

    /// Counts a finished element. True if it was the last one of the frame.
    fn close_element(&mut self) -> bool {
        while let Some(lacking) = self.open.last_mut() {
            *lacking -= 1;
            if *lacking > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }

    /// The next element's header, and its bytes if it is no aggregate. `None` if it is not whole yet.
    fn header(&self) -> Result<Option<Header>, Unreadable> {
        let rest = &self.bytes[self.scanned..];
        let Some(kind) = rest.first() else { return Ok(None) };
        if !b"+-:_,#($=!*~>%|".contains(kind) {
            return Err(Unreadable(format!("not a reply: it begins with the byte {kind:#04x}")));
        }
        let line = &rest[..rest.len().min(LINE_BYTES_MAX)];
        let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
            return self.incomplete(rest.len() > LINE_BYTES_MAX);
        };
        let (mut bytes, mut elements) = (end + 2, 0);
        if !b"+-:_,#(".contains(kind) {
            let number = std::str::from_utf8(&rest[1..end]).ok().and_then(|text| text.parse::<i64>().ok());
            let number = number.filter(|number| *number <= FRAME_BYTES_MAX as i64);
            let number = number.ok_or_else(|| Unreadable("a reply has no valid length".to_owned()))?;
            let number = usize::try_from(number).ok();
            match (kind, number) {
                (b'$' | b'=' | b'!', Some(length)) => bytes += length + 2,
                (b'%', Some(pairs)) => elements = 2 * pairs as u64,
                // What follows an attribute is the element itself.
                (b'|', Some(pairs)) => elements = 2 * pairs as u64 + 1,
                (_, Some(count)) => elements = count as u64,
                // A negative length is the null of RESP2.
                (_, None) => {}
            }
        }
        if bytes > rest.len() {
            return self.incomplete(self.scanned + bytes > FRAME_BYTES_MAX);
        }
        Ok(Some(Header { bytes, elements }))
    }

    fn incomplete(&self, is_too_long: bool) -> Result<Option<Header>, Unreadable> {
        match is_too_long || self.bytes.len() > FRAME_BYTES_MAX {
            true => Err(Unreadable("a reply is too long".to_owned())),
            false => Ok(None),
        }
    }
}

struct Header {
    /// Its own bytes, with those of a string behind it.
    bytes: usize,
    elements: u64,
}

/// Takes the value at the front of the bytes. [`Replies`] has bounded its depth.
fn take(bytes: &mut &[u8]) -> Option<Reply> {
    Some(match Element::take(bytes)? {
        Element::Aggregate(b'|', len) => {
            for _ in 0..len {
                take(bytes)?;
            }
            take(bytes)?
        }
        Element::Aggregate(b'%', len) => {
            let pairs = (0..len / 2).map(|_| Some((take(bytes)?, take(bytes)?)));
            Reply::Map(pairs.collect::<Option<_>>()?)
        }
        Element::Aggregate(kind, len) => {
            let items = (0..len).map(|_| take(bytes)).collect::<Option<_>>()?;
            if kind == b'>' { Reply::Push(items) } else { Reply::List(items) }
        }
        Element::Bulk(b'!', text) | Element::Line(b'-', text) => {
            Reply::Error(String::from_utf8_lossy(text).into_owned())
        }
        // Text for people, after its format and a colon.
        Element::Bulk(b'=', text) => Reply::Text(text.get(4..)?.to_vec()),
        Element::Line(b':', line) => Reply::Integer(integer(line)?),
        Element::Line(b'#', line) => Reply::Integer((line == b"t").into()),
        Element::Bulk(_, text) | Element::Line(_, text) => Reply::Text(text.to_vec()),
        Element::Null(_) => Reply::Null,
    })
}

/// Bytes of a reply from another process at most: far more than any that the lock client asks for.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of a line at most: of a simple string, an error or a number.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Aggregates within aggregates at most; LOCK.LIST takes six.
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the bytes are, received one by one.
    fn received(bytes: &[u8]) -> Vec<Result<Reply, String>> {
        let (mut replies, mut found) = (Replies::default(), Vec::new());
        for byte in bytes {
            replies.bytes.push(*byte);
            match replies.next() {
                Ok(None) => {}
                Ok(Some(reply)) => found.push(Ok(reply)),
                Err(error) => {
                    found.push(Err(error.to_string()));
                    break;
                }
            }
        }
        found
    }

    fn text(text: &str) -> Reply {
        Reply::Text(text.into())
    }

    #[test]
    fn a_reply_is_found_however_its_bytes_arrive() {
        let bytes = b"+OK\r\n*3\r\n$3\r\na\r\n\r\n:-7\r\n*0\r\n$-1\r\n-ERR no\r\n*-1\r\n";
        let expected = vec![
            Ok(text("OK")),
            Ok(Reply::List(vec![text("a\r\n"), Reply::Integer(-7), Reply::List(Vec::new())])),
            Ok(Reply::Null),
            Ok(Reply::Error("ERR no".to_owned())),
            Ok(Reply::Null),
        ];
        assert_eq!(received(bytes), expected);
    }

    #[test]
    fn maps_and_pushes_are_told_apart() {
        let bytes = b"%2\r\n+token\r\n:41\r\n+meta\r\n%0\r\n>2\r\n+lock-lost\r\n_\r\n,1.5\r\n#t\r\n\
            |1\r\n+ttl\r\n:9\r\n=5\r\ntxt:a\r\n!6\r\nERR no\r\n(12\r\n";
        let found = received(bytes);
        let map = found[0].clone().unwrap();
        assert_eq!(map.field("token").and_then(Reply::integer), Some(41));
        assert_eq!(map.field("meta"), Some(&Reply::Map(Vec::new())));
        let push = Reply::Push(vec![text("lock-lost"), Reply::Null]);
        let refused = Reply::Error("ERR no".to_owned());
        let expected = [push, text("1.5"), Reply::Integer(1), text("a"), refused, text("12")].map(Ok);
        assert_eq!(found[1..], expected, "an attribute is not seen");
    }

    #[test]
    fn a_field_is_found_in_the_flat_list_of_resp2_too() {
        let found = received(b"*4\r\n+token\r\n:41\r\n+lease\r\n:9\r\n");
        assert_eq!(found[0].clone().unwrap().field("lease").and_then(Reply::integer), Some(9));
    }

    #[test]
    fn garbage_ends_at_its_first_byte_and_bounds_hold_before_bytes_arrive() {
        for (bytes, reason) in [
            (&b"HTTP/1.1 400 Bad Request\r\n"[..], "begins with the byte 0x48"),
            (b"\x15\x03\x01", "begins with the byte 0x15"),
            (b"$99999999999\r\n", "no valid length"),
            (b"$17000000\r\n", "no valid length"),
            (b"$16777216\r\n", "too long"),
            (b"*x\r\n", "no valid length"),
            (b"*?\r\n", "no valid length"),
            (b":12x\r\n", "not a reply"),
        ] {
            let found = received(bytes);
            let error = found[0].clone().unwrap_err();
            assert!(found.len() == 1 && error.contains(reason), "{error}");
        }
        assert!(received(&b"*1\r\n".repeat(100_000))[0].is_err(), "nested without end");
        let line = [b"+", &b"x".repeat(LINE_BYTES_MAX + 1)[..]].concat();
        let mut replies = Replies { bytes: line, ..Replies::default() };
        assert!(replies.next().is_err(), "a line without end");
    }
}
