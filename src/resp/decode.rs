//! Finds requests in the bytes received so far, where they lie.
//!
//! Rule    every byte is looked at once however it arrives: what has been understood is remembered between calls.
//!         Nothing is copied, nothing recurses, and memory grows with bytes received, never with lengths claimed.
//! Source  limits and error texts: Redis 7.0.

use super::alike::are_alike;
use super::inline;
use super::request::{Request, Span};
use crate::error::ProtocolError;
use crate::limits::{
    ARGUMENTS_MAX, LINE_BYTES_MAX, REQUEST_BYTES_MAX, REQUESTS_AHEAD_MAX, UNAUTHENTICATED_ARGUMENTS_MAX,
    UNAUTHENTICATED_BULK_BYTES_MAX,
};

/// How every TLS client begins: a handshake record, major version 3.
const TLS_HANDSHAKE: &[u8] = &[0x16, 3];

/// How much a client may ask for: less before it has authenticated.
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
    /// Bytes of one argument, and of one request, beyond which it has to be looked at why.
    #[inline]
    fn bytes_max(self) -> (u64, u64) {
        let unknown = if self.authenticated { u64::MAX } else { UNAUTHENTICATED_BULK_BYTES_MAX };
        (self.bulk_bytes_max.min(unknown), self.request_bytes_max.min(REQUEST_BYTES_MAX as u64))
    }

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

/// Remembers how far into a request it has come, and what it has found behind it.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Where arguments lie, each in its own request: those of all requests found, then those received of the next one.
    spans: Vec<Span>,
    /// Whole requests, the front of the buffer first.
    found: Vec<Found>,
    /// How many of them have been asked for.
    asked: usize,
    /// What is wrong behind them.
    broken: Option<ProtocolError>,
    /// What all of that was read by.
    trust: RequestLimits,
    /// The next byte to look at, in the request being received.
    position: usize,
    /// Bytes already searched for the end of the current line.
    searched: usize,
    /// Arguments still to come; zero between requests.
    missing: u32,
    /// Length of the argument being received, once its line is read.
    bulk: Option<usize>,
    /// The unquoted arguments of inline requests, back to back.
    scratch: Vec<u8>,
}

/// A whole request.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Where its arguments begin and end among the spans.
    spans: (u32, u32),
    /// How long it is.
    bytes: usize,
    is_inline: bool,
}

/// Spans that there is room for between requests.
const SPANS_KEPT: usize = 1024;
/// Bytes of inline requests that there is room for between them.
const SCRATCH_BYTES_KEPT: usize = 4096;
/// Bytes of a request that no limit of a [`RequestLimits`] speaks against, as long as its arguments are short.
const SHORT_BYTES_MAX: usize = UNAUTHENTICATED_BULK_BYTES_MAX as usize;

impl Decoder {
    /// A decoder at the start of a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for one whole request at the front of `buffer`, which must begin where the last whole request ended and
    /// may only have grown since the last call.
    ///
    /// `Some(n)`: the request takes `n` bytes; read it with [`Decoder::request`], then drop the bytes. It may be empty
    /// (`*0`, a blank line), which is no request at all. `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`ProtocolError`]; the connection cannot go on.
    #[inline]
    pub fn next(&mut self, buffer: &[u8], trust: RequestLimits) -> Result<Option<usize>, ProtocolError> {
        if !self.knows_more() {
            self.gather(buffer, trust, 1);
        } else if trust != self.trust {
            self.forget_ahead();
            self.gather(buffer, trust, 1);
        }
        let Some(found) = self.found.get(self.asked) else {
            return self.broken.take().map_or(Ok(None), Err);
        };
        self.asked += 1;
        Ok(Some(found.bytes))
    }

    /// Looks for whole requests at the front of `buffer`, up to [`REQUESTS_AHEAD_MAX`], if none are known: how many it has
    /// found. [`Decoder::next`] gives one after the other, and says then what is wrong behind them.
    #[inline]
    pub fn look_ahead(&mut self, buffer: &[u8], trust: RequestLimits) -> usize {
        if self.knows_more() {
            return 0;
        }
        self.gather(buffer, trust, REQUESTS_AHEAD_MAX);
        self.found.len()
    }

    /// Looks for up to `max` whole requests at the front of `buffer`. Those that were found have been asked for.
    fn gather(&mut self, buffer: &[u8], trust: RequestLimits, max: usize) {
        self.forget_asked();
        self.trust = trust;
        // A request that is gone on with is no measure of the next: its front may have been read by other limits.
        let begun_before = usize::from(self.missing > 0);
        let (mut before, mut rest) = (&buffer[..0], buffer);
        while self.found.len() < max {
            if self.found.len() > begun_before && self.repeats(before, rest) {
                self.found.extend_from_within(self.found.len() - 1..);
                rest = &rest[before.len()..];
                continue;
            }
            match self.whole(rest, trust) {
                Ok(0) => break,
                Ok(bytes) => (before, rest) = rest.split_at(bytes),
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            }
        }
    }

    /// The requests at the front of `buffer` that have been found and not asked for.
    pub fn ahead<'a>(&'a self, buffer: &'a [u8]) -> impl ExactSizeIterator<Item = Request<'a>> {
        let mut rest = buffer;
        self.found[self.asked..].iter().map(move |found| {
            let request = self.at(found, rest);
            rest = &rest[found.bytes..];
            request
        })
    }

    /// The request that [`Decoder::next`] gave last is not done with: it will be given again.
    pub fn again(&mut self) {
        self.asked = self.asked.saturating_sub(1);
    }

    /// The request that [`Decoder::next`] found in `buffer`.
    pub fn request<'a>(&'a self, buffer: &'a [u8]) -> Request<'a> {
        self.at(&self.found[self.asked - 1], buffer)
    }

    #[inline]
    fn at<'a>(&'a self, found: &Found, buffer: &'a [u8]) -> Request<'a> {
        let bytes = if found.is_inline { &self.scratch } else { buffer };
        Request::received(bytes, self.spans_of(found))
    }

    /// Where its arguments lie.
    #[inline]
    fn spans_of(&self, found: &Found) -> &[Span] {
        &self.spans[found.spans.0 as usize..found.spans.1 as usize]
    }

    /// Whether something has been found that was not asked for.
    #[inline]
    fn knows_more(&self) -> bool {
        self.asked < self.found.len() || self.broken.is_some()
    }

    /// What was found and not asked for will be looked for again.
    #[cold]
    fn forget_ahead(&mut self) {
        self.found.truncate(self.asked);
        self.spans.truncate(self.begun());
        (self.broken, self.bulk) = (None, None);
        (self.missing, self.searched) = (0, 0);
    }

    /// Makes room for the next requests.
    #[inline]
    fn forget_asked(&mut self) {
        if self.missing > 0 {
            self.spans.drain(..self.begun());
        } else {
            self.spans.clear();
            self.scratch.clear();
        }
        self.found.clear();
        self.asked = 0;
        if self.spans.capacity() > SPANS_KEPT || self.scratch.capacity() > SCRATCH_BYTES_KEPT {
            self.trim();
        }
    }

    /// Where among the spans those of the request being received begin.
    fn begun(&self) -> usize {
        self.found.last().map_or(0, |found| found.spans.1 as usize)
    }

    /// Whether the next request at the front of `buffer` is whole and as the one `before` it in all but its words: as many,
    /// each as long. Then its words lie where they lie there. So it is within most pipelines.
    #[inline]
    fn repeats(&self, before: &[u8], buffer: &[u8]) -> bool {
        let Some(buffer) = buffer.get(..before.len()) else { return false };
        match self.found.last() {
            Some(found) if !found.is_inline => {
                let spans = self.spans_of(found);
                !spans.is_empty() && are_alike(before, buffer, spans)
            }
            _ => false,
        }
    }

    /// Looks for one whole request at the front of `buffer`, or goes on looking: how many bytes it has, or zero where more
    /// are needed.
    #[inline]
    fn whole(&mut self, buffer: &[u8], trust: RequestLimits) -> Result<usize, ProtocolError> {
        if self.missing == 0 {
            self.position = 0;
            match buffer.first() {
                None => return Ok(0),
                Some(b'*') => match self.count(buffer, trust)? {
                    None => return Ok(0),
                    Some(count) => self.missing = count,
                },
                Some(_) => return self.inline(buffer),
            }
        }
        while self.missing > 0 {
            self.short_arguments(buffer);
            if self.missing > 0 && !self.argument(buffer, trust)? {
                return Ok(0);
            }
        }
        Ok(self.complete(false))
    }

    /// How many more bytes the argument being received needs, if that is known: what to make room for next.
    pub fn wanted(&self, buffer: &[u8]) -> usize {
        self.bulk.map_or(0, |length| (self.position + length + 2).saturating_sub(buffer.len()))
    }

    /// Gives back memory that an unusually large request left behind.
    pub fn trim(&mut self) {
        let is_empty = self.missing == 0 && self.asked == self.found.len();
        if is_empty && self.spans.capacity() > SPANS_KEPT {
            (self.found, self.spans, self.asked) = Default::default();
        }
        if is_empty && self.scratch.capacity() > SCRATCH_BYTES_KEPT {
            self.scratch = Vec::new();
        }
    }

    /// A request is whole: the next one is searched from its own start.
    #[inline]
    fn complete(&mut self, is_inline: bool) -> usize {
        self.searched = 0;
        let spans = (self.begun() as u32, self.spans.len() as u32);
        self.found.push(Found { spans, bytes: self.position, is_inline });
        self.position
    }

    fn count(&mut self, buffer: &[u8], trust: RequestLimits) -> Result<Option<u32>, ProtocolError> {
        let count = match short_line(b'*', &buffer[self.position..]) {
            Some((head, count)) => {
                self.position += head;
                count as i64
            }
            None => {
                let Some(line) = self.line(buffer, ProtocolError::CountLine)? else { return Ok(None) };
                integer(&buffer[line.0 + 1..line.1]).ok_or(ProtocolError::ArgumentCount)?
            }
        };
        if count > ARGUMENTS_MAX {
            return Err(ProtocolError::ArgumentCount);
        }
        if count > UNAUTHENTICATED_ARGUMENTS_MAX && !trust.authenticated {
            return Err(ProtocolError::UnauthenticatedCount);
        }
        Ok(Some(u32::try_from(count).unwrap_or(0)))
    }

    /// Takes one argument; false when its bytes are not all here yet.
    #[inline]
    fn argument(&mut self, buffer: &[u8], trust: RequestLimits) -> Result<bool, ProtocolError> {
        let length = match self.bulk {
            Some(length) => length,
            None => {
                let Some(length) = self.bulk_length(buffer)? else { return Ok(false) };
                let (bulk_max, request_max) = trust.bytes_max();
                if length > bulk_max || length.saturating_add(self.position as u64 + 2) > request_max {
                    return Err(trust.refuse(length));
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

    /// Takes arguments for as long as they are what they nearly always are: of less than a hundred bytes, and all here.
    /// Whatever else it meets is left to a closer look.
    #[inline]
    fn short_arguments(&mut self, buffer: &[u8]) {
        if self.bulk.is_some() {
            return;
        }
        let end = buffer.len().min(SHORT_BYTES_MAX);
        let mut rest = buffer.get(self.position..end).unwrap_or_default();
        let mut missing = self.missing;
        while missing > 0 {
            let Some((head, length)) = short_line(b'$', rest) else { break };
            let Some(behind) = rest.get(head + length + 2..) else { break };
            let start = (end - rest.len() + head) as u32;
            self.spans.push(Span { start, end: start + length as u32 });
            missing -= 1;
            rest = behind;
        }
        self.missing = missing;
        self.position = self.position.max(end - rest.len());
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

    fn inline(&mut self, buffer: &[u8]) -> Result<usize, ProtocolError> {
        if buffer.starts_with(TLS_HANDSHAKE) {
            return Err(ProtocolError::Tls);
        }
        let from = self.searched;
        let Some(found) = buffer[from..].iter().position(|byte| *byte == b'\n') else {
            self.searched = buffer.len();
            return if buffer.len() > LINE_BYTES_MAX { Err(ProtocolError::InlineLine) } else { Ok(0) };
        };
        let end = from + found;
        let line = buffer[..end].strip_suffix(b"\r").unwrap_or(&buffer[..end]);
        inline::split(line, &mut self.scratch, &mut self.spans)?;
        self.position = end + 1;
        Ok(self.complete(true))
    }
}

/// How long the line in front is, and the number in it, when it is as nearly always: the mark, a digit or two, CRLF, all
/// here. `None` says nothing but that a closer look is needed.
#[inline]
fn short_line(mark: u8, bytes: &[u8]) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte - b'0');
    match *bytes {
        [first, ones @ b'0'..=b'9', b'\r', _, ..] if first == mark => Some((4, digit(ones))),
        [first, tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', _, ..] if first == mark => {
            Some((5, 10 * digit(tens) + digit(ones)))
        }
        _ => None,
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
pub(super) mod tests {
    use super::*;

    pub(in crate::resp) const OPEN: RequestLimits =
        RequestLimits { bulk_bytes_max: 512 << 20, request_bytes_max: 1 << 30, authenticated: true };
    const CLOSED: RequestLimits = RequestLimits { authenticated: false, ..OPEN };
    const NARROW: RequestLimits = RequestLimits { bulk_bytes_max: 100, ..OPEN };

    /// Feeds `bytes` in pieces; whole requests are dropped from the front of the buffer, as a connection does.
    pub(in crate::resp) fn all(bytes: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
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
    fn requests_are_the_same_however_they_arrive() {
        let bytes =
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING \"a b\"\r\n*0\r\n\r\n*1\r\n$0\r\n\r\n*-1\r\nECHO 'x'\n";
        let whole = all(bytes, bytes.len()).unwrap();
        assert_eq!(whole.len(), 7);
        assert_eq!(whole[0], [b"GET".to_vec(), b"k".to_vec()]);
        assert_eq!(whole[1], [b"PING".to_vec(), b"a b".to_vec()]);
        for piece in 1..bytes.len() {
            assert_eq!(all(bytes, piece).unwrap(), whole, "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_found_ahead_is_given_in_order_and_an_error_behind_it() {
        let bytes = b"*1\r\n$4\r\nPING\r\nECHO 'a b'\r\n*0\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n:1\r\n";
        let mut decoder = Decoder::new();
        assert_eq!(decoder.look_ahead(bytes, OPEN), 4);
        let names: Vec<_> = decoder.ahead(bytes).map(|request| request.get(0).map(<[u8]>::to_vec)).collect();
        assert_eq!(names, [Some(b"PING".to_vec()), Some(b"ECHO".to_vec()), None, Some(b"GET".to_vec())]);
        let mut rest = &bytes[..];
        for words in [&["PING"][..], &["ECHO", "a b"], &[], &["GET", "k"]] {
            // Looked for again, or given again, it is the same.
            assert_eq!(decoder.look_ahead(rest, OPEN), 0);
            let taken = decoder.next(rest, OPEN).unwrap().unwrap();
            decoder.again();
            assert_eq!(decoder.next(rest, OPEN), Ok(Some(taken)));
            let request = decoder.request(rest);
            assert!(request.words().eq(words.iter().map(|word| word.as_bytes())), "{words:?}");
            rest = &rest[taken..];
        }
        assert_eq!(decoder.next(rest, OPEN), Err(ProtocolError::ExpectedBulk(b':')));
    }

    #[test]
    fn what_is_found_ahead_is_looked_for_again_under_other_limits() {
        let long = [&b"*2\r\n$4\r\nECHO\r\n$200\r\n"[..], &[b'x'; 200], b"\r\n"].concat();
        let bytes = [&b"*1\r\n$4\r\nPING\r\n"[..], &long, b"*2\r\n$4\r\nECHO\r\n$1"].concat();
        for (less, expected) in [(OPEN, Ok(Some(long.len()))), (NARROW, Err(ProtocolError::BulkLength))] {
            let mut decoder = Decoder::new();
            assert_eq!(decoder.look_ahead(&bytes, OPEN), 2);
            let taken = decoder.next(&bytes, OPEN).unwrap().unwrap();
            assert_eq!(decoder.next(&bytes[taken..], less), expected);
        }
        // The other way round: what was too much is not, any more.
        let mut decoder = Decoder::new();
        assert_eq!(decoder.look_ahead(&bytes, NARROW), 1);
        let taken = decoder.next(&bytes, NARROW).unwrap().unwrap();
        assert_eq!(decoder.next(&bytes[taken..], OPEN), Ok(Some(long.len())));
        assert_eq!(decoder.next(&bytes[taken + long.len()..], OPEN), Ok(None));
        // What had begun was within the limits of its time; the next like it is not.
        let (mut decoder, twice) = (Decoder::new(), long.repeat(2));
        assert_eq!(decoder.look_ahead(&twice[..long.len() - 1], OPEN), 0);
        assert_eq!(decoder.look_ahead(&twice, NARROW), 1);
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
    fn strangers_may_ask_for_less() {
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
