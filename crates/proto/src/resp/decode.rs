//! Finds requests in the bytes received so far, without copying them.
//!
//! Rule    every byte is read once, however it arrives: the decoder keeps its progress between calls.
//!         Nothing is copied, nothing recurses, and memory grows with bytes received, never with lengths claimed.
//! Source  limits and error texts: Redis 7.0.

use super::inline;
use super::request::{Request, Span};
use crate::error::ProtocolError;
use crate::limits::{
    ARGUMENTS_MAX, LINE_BYTES_MAX, REQUEST_BYTES_MAX, UNAUTHENTICATED_ARGUMENTS_MAX,
    UNAUTHENTICATED_BULK_BYTES_MAX,
};

/// How every TLS client begins: a handshake record, major version 3.
const TLS_HANDSHAKE: &[u8] = &[0x16, 3];

/// How large a client's requests may be. A client that has not authenticated may send less.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RequestLimits {
    /// Bytes of one argument: `proto-max-bulk-len`.
    pub bulk_bytes_max: u64,
    /// Bytes of one request in all: `client-query-buffer-limit`, at most [`REQUEST_BYTES_MAX`].
    pub request_bytes_max: u64,
    /// False until a client that must authenticate has done so.
    pub authenticated: bool,
}

impl RequestLimits {
    /// The most bytes of one argument, and of one request.
    #[inline]
    fn bytes_max(self) -> (u64, u64) {
        let argument_max = if self.authenticated { u64::MAX } else { UNAUTHENTICATED_BULK_BYTES_MAX };
        (self.bulk_bytes_max.min(argument_max), self.request_bytes_max.min(REQUEST_BYTES_MAX as u64))
    }

    /// Which limit a request breaks whose current argument has `argument_bytes`.
    #[cold]
    fn refuse(self, argument_bytes: u64) -> ProtocolError {
        if argument_bytes > self.bulk_bytes_max {
            ProtocolError::BulkLength
        } else if argument_bytes > self.bytes_max().0 {
            ProtocolError::UnauthenticatedBulk
        } else {
            ProtocolError::RequestTooLarge
        }
    }
}

/// Decodes one request after the other, and keeps its progress in an incomplete request.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The positions of the arguments of the current request.
    spans: Vec<Span>,
    /// The unquoted arguments of an inline request, back to back.
    scratch: Vec<u8>,
    /// True if the spans are offsets into `scratch` and not into the buffer received.
    is_inline: bool,
    /// The next byte to decode.
    position: usize,
    /// Bytes already searched for the end of the current line.
    searched: usize,
    /// Arguments still to come; zero between requests.
    missing: u32,
    /// Length of the argument being received, once its line is read.
    bulk: Option<usize>,
}

/// Capacity for spans that is kept between requests.
const SPANS_KEPT: usize = 1024;
/// Capacity for inline requests that is kept between them, in bytes.
const SCRATCH_BYTES_KEPT: usize = 4096;
/// A request up to this size with short arguments is within every possible [`RequestLimits`].
const SHORT_BYTES_MAX: usize = UNAUTHENTICATED_BULK_BYTES_MAX as usize;

impl Decoder {
    /// A decoder at the start of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for one whole request at the front of `buffer`, which must begin where the last whole request ended and
    /// may only have grown since the last call.
    ///
    /// `Some(n)`: the request takes `n` bytes; read it with [`Decoder::request`], then drop the bytes. While the bytes
    /// stay, the next call finds this request again. The request may be empty (`*0`, a blank line): such a request
    /// is skipped without a reply. `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`ProtocolError`]; the connection cannot go on.
    #[inline]
    pub fn next(&mut self, buffer: &[u8], limits: RequestLimits) -> Result<Option<usize>, ProtocolError> {
        if self.missing == 0 {
            self.start_request();
            match buffer.first() {
                None => return Ok(None),
                Some(b'*') => match self.count(buffer, limits)? {
                    None => return Ok(None),
                    Some(count) => self.missing = count,
                },
                Some(_) => return self.inline(buffer),
            }
        }
        while self.missing > 0 {
            self.short_arguments(buffer);
            if self.missing > 0 && !self.argument(buffer, limits)? {
                return Ok(None);
            }
        }
        self.searched = 0;
        Ok(Some(self.position))
    }

    /// The request that [`Decoder::next`] found in `buffer`.
    #[inline]
    pub fn request<'a>(&'a self, buffer: &'a [u8]) -> Request<'a> {
        Request::received(if self.is_inline { &self.scratch } else { buffer }, &self.spans)
    }

    /// How many more bytes the argument being received needs; zero if that is not known yet. The connection reserves
    /// this much for its next read.
    pub fn wanted(&self, buffer: &[u8]) -> usize {
        self.bulk.map_or(0, |length| (self.position + length + 2).saturating_sub(buffer.len()))
    }

    /// Frees the memory of an unusually large request, if its request has ended.
    pub fn trim(&mut self) {
        if self.missing == 0 && self.spans.capacity() > SPANS_KEPT {
            self.spans = Vec::new();
        }
        if self.scratch.capacity() > SCRATCH_BYTES_KEPT {
            self.scratch = Vec::new();
        }
    }

    /// Bytes that it takes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>() + self.scratch.capacity()
    }

    #[inline]
    fn start_request(&mut self) {
        self.spans.clear();
        self.scratch.clear();
        (self.is_inline, self.position) = (false, 0);
        if self.spans.capacity() > SPANS_KEPT || self.scratch.capacity() > SCRATCH_BYTES_KEPT {
            self.trim();
        }
    }

    fn count(&mut self, buffer: &[u8], limits: RequestLimits) -> Result<Option<u32>, ProtocolError> {
        let count = match short_line(b'*', &buffer[self.position..]) {
            Some((head, count)) => {
                self.position += head;
                count as i64
            }
            None => match self.long_count(buffer)? {
                Some(count) => count,
                None => return Ok(None),
            },
        };
        if count > ARGUMENTS_MAX {
            return Err(ProtocolError::ArgumentCount);
        }
        if count > UNAUTHENTICATED_ARGUMENTS_MAX && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        Ok(Some(u32::try_from(count).unwrap_or(0)))
    }

    #[cold]
    fn long_count(&mut self, buffer: &[u8]) -> Result<Option<i64>, ProtocolError> {
        let Some(line) = self.line(buffer, ProtocolError::CountLine)? else { return Ok(None) };
        integer(&buffer[line.0 + 1..line.1]).map(Some).ok_or(ProtocolError::ArgumentCount)
    }

    /// Takes one argument; false if not all of its bytes have arrived.
    // Never inlined: what it and other rare cases keep in registers would cost every request twenty instructions.
    #[inline(never)]
    fn argument(&mut self, buffer: &[u8], limits: RequestLimits) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                let Some(length) = self.bulk_length(buffer)? else { return Ok(false) };
                let (bulk_max, request_max) = limits.bytes_max();
                if length > bulk_max || length.saturating_add(self.position as u64 + 2) > request_max {
                    return Err(limits.refuse(length));
                }
                length as usize
            }
        };
        let end = self.position + length;
        if buffer.len() < end + 2 {
            self.bulk = Some(length);
            return Ok(false);
        }
        // Offsets fit: REQUEST_BYTES_MAX is far below 4 GiB.
        self.spans.push(Span { start: self.position as u32, end: end as u32 });
        self.position = end + 2;
        self.missing -= 1;
        self.bulk = None;
        Ok(true)
    }

    /// Takes arguments of less than a hundred bytes that have arrived whole: nearly all arguments are like that.
    /// Stops at the first other argument, which is left to [`Decoder::argument`].
    #[inline]
    fn short_arguments(&mut self, buffer: &[u8]) {
        if self.bulk.is_some() {
            return;
        }
        let bytes = &buffer[..buffer.len().min(SHORT_BYTES_MAX)];
        let (mut at, mut missing) = (self.position, self.missing);
        while missing > 0 {
            let line = bytes.get(at..).and_then(|rest| short_line(b'$', rest));
            let Some((head, length)) = line else { break };
            let (start, end) = (at + head, at + head + length);
            if end + 2 > bytes.len() {
                break;
            }
            self.spans.push(Span { start: start as u32, end: end as u32 });
            missing -= 1;
            at = end + 2;
        }
        (self.missing, self.position) = (missing, at);
    }

    /// The length that an argument announces, once its line has arrived.
    fn bulk_length(&mut self, buffer: &[u8]) -> Result<Option<u64>, ProtocolError> {
        let Some(line) = self.line(buffer, ProtocolError::BulkLine)? else { return Ok(None) };
        if buffer[line.0] != b'$' {
            return Err(ProtocolError::ExpectedBulk(buffer[line.0]));
        }
        let length = integer(&buffer[line.0 + 1..line.1]).ok_or(ProtocolError::BulkLength)?;
        u64::try_from(length).map(Some).map_err(|_| ProtocolError::BulkLength)
    }

    /// The line at `position`, as offsets without its CRLF, once it has all arrived; steps over it.
    #[inline]
    fn line(
        &mut self,
        buffer: &[u8],
        too_long: ProtocolError,
    ) -> Result<Option<(usize, usize)>, ProtocolError> {
        let start = self.position;
        let from = self.searched.max(start);
        match buffer[from..].iter().position(|byte| *byte == b'\r') {
            Some(found) if from + found + 1 < buffer.len() => {
                let end = from + found;
                self.position = end + 2;
                Ok(Some((start, end)))
            }
            Some(found) => {
                self.searched = from + found;
                Ok(None)
            }
            None => {
                self.searched = buffer.len();
                if buffer.len() - start > LINE_BYTES_MAX { Err(too_long) } else { Ok(None) }
            }
        }
    }

    #[cold]
    fn inline(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if buffer.starts_with(TLS_HANDSHAKE) {
            return Err(ProtocolError::Tls);
        }
        let from = self.searched;
        let Some(found) = buffer[from..].iter().position(|byte| *byte == b'\n') else {
            self.searched = buffer.len();
            return if buffer.len() > LINE_BYTES_MAX { Err(ProtocolError::InlineLine) } else { Ok(None) };
        };
        let end = from + found;
        let line = buffer[..end].strip_suffix(b"\r").unwrap_or(&buffer[..end]);
        inline::split(line, &mut self.scratch, &mut self.spans)?;
        (self.is_inline, self.searched) = (true, 0);
        Ok(Some(end + 1))
    }
}

/// The length of the line in front, and the number in it, if the line is the mark, one or two digits and CRLF, as it
/// nearly always is. `None` for every other line, whole or not: [`Decoder::line`] reads those.
#[inline]
pub(super) fn short_line(mark: u8, bytes: &[u8]) -> Option<(usize, usize)> {
    let [first, second, third, fourth] = *bytes.first_chunk()?;
    let [high, low] = [second, third].map(|digit| usize::from(digit.wrapping_sub(b'0')));
    if first != mark || high > 9 {
        None
    } else if third == b'\r' {
        Some((4, high))
    } else if fourth == b'\r' && low <= 9 && high > 0 && bytes.len() > 4 {
        Some((5, 10 * high + low))
    } else {
        None
    }
}

/// A number as Redis reads lengths: an optional minus, digits without leading zeros, nothing else, 64 bits.
#[inline]
fn integer(digits: &[u8]) -> Option<i64> {
    if let [digit @ b'0'..=b'9'] = digits {
        return Some(i64::from(digit - b'0'));
    }
    crate::number::integer(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: RequestLimits =
        RequestLimits { bulk_bytes_max: 512 << 20, request_bytes_max: 1 << 30, authenticated: true };
    const CLOSED: RequestLimits = RequestLimits { authenticated: false, ..OPEN };
    const NARROW: RequestLimits = RequestLimits { bulk_bytes_max: 100, ..OPEN };

    /// Feeds `bytes` in pieces; whole requests are dropped from the front of the buffer, as a connection does.
    fn all(bytes: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let mut decoder = Decoder::new();
        let (mut buffer, mut requests) = (Vec::new(), Vec::new());
        for chunk in bytes.chunks(piece) {
            buffer.extend_from_slice(chunk);
            while let Some(taken) = decoder.next(&buffer, OPEN)? {
                requests.push(decoder.request(&buffer).words().map(<[u8]>::to_vec).collect());
                buffer.drain(..taken);
            }
        }
        Ok(requests)
    }

    #[test]
    fn requests_do_not_depend_on_how_their_bytes_arrive() {
        let bytes =
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING \"a b\"\r\n*0\r\n\r\n*1\r\n$0\r\n\r\n*-1\r\nECHO 'x'\n";
        let bytes = &[&bytes[..], b"*10\r\n", &b"$10\r\n0123456789\r\n".repeat(10)].concat();
        let whole = all(bytes, bytes.len()).unwrap();
        assert_eq!((whole.len(), whole[7].len()), (8, 10));
        assert_eq!(whole[0], [b"GET".to_vec(), b"k".to_vec()]);
        assert_eq!(whole[1], [b"PING".to_vec(), b"a b".to_vec()]);
        for piece in 1..bytes.len() {
            assert_eq!(all(bytes, piece).unwrap(), whole, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_request_whose_bytes_stay_is_found_again() {
        for bytes in [&b"*2\r\n$4\r\nECHO\r\n$1\r\nk\r\n*1"[..], b"ECHO 'k'\r\nPI", b"*0\r\n*"] {
            let mut decoder = Decoder::new();
            let taken = decoder.next(bytes, OPEN).unwrap().unwrap();
            let words: Vec<_> = decoder.request(bytes).words().map(<[u8]>::to_vec).collect();
            assert_eq!(decoder.next(bytes, OPEN), Ok(Some(taken)));
            assert!(decoder.request(bytes).words().eq(words.iter().map(Vec::as_slice)));
            assert_eq!(decoder.next(&bytes[taken..], OPEN), Ok(None));
        }
    }

    #[test]
    fn limits_that_change_apply_to_the_next_argument() {
        let long = [&b"*2\r\n$4\r\nECHO\r\n$200\r\n"[..], &[b'x'; 200], b"\r\n"].concat();
        let mut decoder = Decoder::new();
        assert_eq!(decoder.next(&long[..17], OPEN), Ok(None));
        assert_eq!(decoder.next(&long, NARROW), Err(ProtocolError::BulkLength));
        // An argument whose length has been accepted is received to its end.
        let (mut decoder, twice) = (Decoder::new(), long.repeat(2));
        assert_eq!(decoder.next(&twice[..long.len() - 1], OPEN), Ok(None));
        assert_eq!(decoder.next(&twice, NARROW), Ok(Some(long.len())));
        assert_eq!(decoder.next(&twice[long.len()..], NARROW), Err(ProtocolError::BulkLength));
    }

    #[test]
    fn broken_frames_are_named() {
        for (bytes, error) in [
            (&b"*1\r\n:1\r\n"[..], ProtocolError::ExpectedBulk(b':')),
            (b"*x\r\n", ProtocolError::ArgumentCount),
            (b"*2147483648\r\n", ProtocolError::ArgumentCount),
            (b"*1\r\n$-1\r\n", ProtocolError::BulkLength),
            (b"*1\r\n$536870913\r\n", ProtocolError::BulkLength),
            (b"PING \"x\r\n", ProtocolError::Quotes),
            (b"\x16\x03\x01\x02", ProtocolError::Tls),
        ] {
            assert_eq!(all(bytes, bytes.len()), Err(error), "{}", bytes.escape_ascii());
        }
        let endless = vec![b'1'; LINE_BYTES_MAX + 2];
        assert_eq!(all(&endless, 1000), Err(ProtocolError::InlineLine));
        assert_eq!(all(&[b"*", &endless[..]].concat(), 1000), Err(ProtocolError::CountLine));
        assert_eq!(all(&[b"*1\r\n$", &endless[..]].concat(), 1000), Err(ProtocolError::BulkLine));
    }

    #[test]
    fn unauthenticated_clients_may_send_less() {
        let mut decoder = Decoder::new();
        assert_eq!(decoder.next(b"*11\r\n", CLOSED), Err(ProtocolError::UnauthenticatedCount));
        let mut decoder = Decoder::new();
        assert_eq!(decoder.next(b"*1\r\n$16385\r\n", CLOSED), Err(ProtocolError::UnauthenticatedBulk));
    }

    #[test]
    fn memory_grows_with_bytes_received_and_not_with_lengths_claimed() {
        let mut decoder = Decoder::new();
        assert_eq!(decoder.next(b"*2147483647\r\n$536870912\r\n", OPEN), Ok(None));
        assert!(decoder.spans.capacity() < 16);
    }
}
