//! Encodes replies in the client's version of the protocol.
//!
//! Rule    a status or error line never contains CR or LF: they are replaced by spaces.
//! Source  RESP2 and RESP3 specifications; what each RESP3 type becomes in RESP2 is as in Redis 7.0.

use crate::limits::REPLY_BYTES_MAX;
use crate::number::double::Text;

/// The version of RESP that a client uses.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Protocol {
    /// RESP2, the protocol of every client until it sends HELLO 3.
    #[default]
    Resp2,
    /// RESP3: maps, sets, doubles, booleans, nulls and pushes have types of their own.
    Resp3,
}

/// Writes one reply after the other into a connection's output.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Reply<'a> {
    /// Appends to `out` in the encoding of `protocol`.
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// Bytes in the output, this reply's and those before it.
    pub fn written(&self) -> usize {
        self.out.len()
    }

    /// What was written after the first `mark` bytes.
    pub fn since(&self, mark: usize) -> &[u8] {
        self.out.get(mark..).unwrap_or_default()
    }

    /// Later replies are written in `protocol`, beginning with the reply to HELLO itself.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A status line. `text` contains no CR and LF.
    #[inline]
    pub fn status(&mut self, text: &'static str) {
        debug_assert!(text.bytes().all(|byte| byte == unbroken(byte)), "{text:?}: breaks the line");
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// A status line with any bytes, for example of a script. CR and LF are replaced.
    pub fn status_bytes(&mut self, text: &[u8]) {
        self.out.push(b'+');
        self.line(text);
    }

    /// An error line; `text` begins with its code.
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    /// An error line that quotes bytes of the request.
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.out.push(b'-');
        self.line(text);
    }

    #[inline]
    pub fn integer(&mut self, value: i64) {
        match value {
            0 => self.out.extend_from_slice(b":0\r\n"),
            1 => self.out.extend_from_slice(b":1\r\n"),
            _ => self.headed(b':', value),
        }
    }

    /// A count as an integer.
    pub fn count(&mut self, value: usize) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A bulk string. Left out if the output exceeds [`REPLY_BYTES_MAX`] already, because it will not be sent.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.headed(b'$', bytes.len() as i64);
        if self.out.len() >= REPLY_BYTES_MAX {
            return;
        }
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer in the form of a bulk string.
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// Null in place of a string.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n".as_slice(),
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Null in place of an array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n".as_slice(),
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The head of an array of `len` replies.
    pub fn array(&mut self, len: usize) {
        self.headed(b'*', len as i64);
    }

    /// The head of a map of `len` pairs; in RESP2 an array of twice as many.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.headed(b'*', 2 * len as i64),
            Protocol::Resp3 => self.headed(b'%', len as i64),
        }
    }

    /// The head of a set of `len` members; in RESP2 an array.
    pub fn set(&mut self, len: usize) {
        self.headed(if self.protocol == Protocol::Resp3 { b'~' } else { b'*' }, len as i64);
    }

    /// The head of a push of `len` parts; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        self.headed(if self.protocol == Protocol::Resp3 { b'>' } else { b'*' }, len as i64);
    }

    /// A truth value; in RESP2 one or zero.
    pub fn boolean(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(i64::from(value)),
            Protocol::Resp3 => self.out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Text for people: a verbatim string in RESP3, a bulk string in RESP2.
    pub fn verbatim(&mut self, text: &str) {
        self.verbatim_bytes(b"txt", text.as_bytes());
    }

    /// Text in a format that has a name of three letters: longer ones are cut, shorter ones filled with blanks.
    pub fn verbatim_bytes(&mut self, format: &[u8], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.headed(b'=', text.len() as i64 + 4);
                self.out.extend(format.iter().chain(&[b' '; 3]).take(3));
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// A number of any size in decimal digits; in RESP2 a bulk string.
    pub fn big_number(&mut self, digits: &[u8]) {
        let digits: Vec<u8> = digits.iter().map(|byte| unbroken(*byte)).collect();
        match self.protocol {
            Protocol::Resp2 => self.bulk(&digits),
            Protocol::Resp3 => {
                self.out.push(b'(');
                self.line(&digits);
            }
        }
    }

    /// A double, with 17 digits where it needs them; in RESP2 its text as a bulk string.
    pub fn double(&mut self, value: f64) {
        self.double_text(Text::new(value).as_bytes());
    }

    /// A double by its text; in RESP2 a bulk string.
    pub fn double_text(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.out.push(b',');
                self.line(text);
            }
        }
    }

    /// An array of bulk strings.
    pub fn bulks<B: AsRef<[u8]>>(&mut self, items: &[B]) {
        self.array(items.len());
        for item in items {
            self.bulk(item.as_ref());
        }
    }

    /// Bytes that are already a reply.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// The protocol of the replies.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn line(&mut self, text: &[u8]) {
        let start = self.out.len();
        self.out.extend_from_slice(text);
        for byte in &mut self.out[start..] {
            *byte = unbroken(*byte);
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// A line of a mark and a number. Most are written at once: numbers of one or two digits, which most lengths are.
    #[inline]
    fn headed(&mut self, head: u8, value: i64) {
        match u8::try_from(value) {
            Ok(digit @ 0..=9) => self.out.extend_from_slice(&[head, b'0' + digit, b'\r', b'\n']),
            Ok(two @ 10..=99) => {
                self.out.extend_from_slice(&[head, b'0' + two / 10, b'0' + two % 10, b'\r', b'\n']);
            }
            _ => {
                self.out.push(head);
                self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// A byte that is allowed in a line.
fn unbroken(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, protocol));
        out.escape_ascii().to_string()
    }

    #[test]
    fn every_type_has_an_encoding_in_both_protocols() {
        let both =
            |write: fn(&mut Reply<'_>)| (written(Protocol::Resp2, write), written(Protocol::Resp3, write));
        let pair = |two: &str, three: &str| (two.replace('|', "\\r\\n"), three.replace('|', "\\r\\n"));
        assert_eq!(both(|r| r.null()), pair("$-1|", "_|"));
        assert_eq!(both(|r| r.null_array()), pair("*-1|", "_|"));
        assert_eq!(both(|r| r.map(2)), pair("*4|", "%2|"));
        assert_eq!(both(|r| r.boolean(true)), pair(":1|", "#t|"));
        assert_eq!(both(|r| r.double(2.5)), pair("$3|2.5|", ",2.5|"));
        assert_eq!(both(|r| r.verbatim("hi")), pair("$2|hi|", "=6|txt:hi|"));
        for number in [-12, 9, 10, 99, 100, 256] {
            assert_eq!(written(Protocol::Resp2, |r| r.integer(number)), format!(":{number}\\r\\n"));
        }
        assert_eq!(both(|r| r.bulk(b"a\r\n")), pair("$3|a||", "$3|a||"));
    }

    #[test]
    fn an_output_that_will_not_be_sent_grows_by_heads_alone() {
        // Untouched zeros take no memory.
        let mut out = vec![0; REPLY_BYTES_MAX];
        Reply::new(&mut out, Protocol::Resp2).bulk(&[b'x'; 100]);
        assert_eq!(&out[REPLY_BYTES_MAX..], b"$100\r\n");
    }

    #[test]
    fn no_line_break_escapes_into_a_line() {
        assert_eq!(written(Protocol::Resp2, |r| r.error_bytes(b"ERR a\r\n+b")), "-ERR a  +b\\r\\n");
    }
}
