//! The table of outcomes: requests, the reply, and whether the connection is closed; and its check.

use std::net::SocketAddr;

use super::fixture::Peer;

/// The state of a connection after its request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    Closed,
    /// It stays open: a following PING is answered.
    Open,
}
pub(crate) use Outcome::{Closed, Open};

/// Requests, the whole reply, and the outcome, as in Redis 7.0.15.
pub(crate) const OUTCOMES: &[(&[u8], &[u8], Outcome)] = &[
    (b"*1\r\n:1\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n", Closed),
    (b"*1\r\n*1\r\n*1\r\n*1\r\n", b"-ERR Protocol error: expected '$', got '*'\r\n", Closed),
    (b"*1\r\n\xff1\r\n", b"-ERR Protocol error: expected '$', got '\xff'\r\n", Closed),
    (b"*1\r\n\r\n$4\r\n", b"-ERR Protocol error: expected '$', got ' '\r\n", Closed),
    (b"*x\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*01\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*+1\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*-0\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*2147483648\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*99999999999999999999\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*1\r\n$-1\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"*1\r\n$-0\r\n\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"*1\r\n$\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"*1\r\n$x\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"*1\r\n$536870913\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"PING\r\n*1\r\n:1\r\n", b"+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n", Closed),
    (b"SET \"a\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n", Closed),
    (b"SET \"a\"b\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n", Closed),
    (b"ECHO 'a\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n", Closed),
    (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"", Closed),
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"", Closed),
    (b"PING\r\nPOST /\r\nPING\r\n", b"", Closed),
    (b"*2\r\n$5\r\nHOST:\r\n$1\r\na\r\n", b"", Closed),
    (b"QUIT\r\nPING\r\n", b"+OK\r\n", Closed),
    (b"*0\r\n*-1\r\n*-5\r\n\r\n\n", b"", Open),
    (b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n", b"+PONG\r\n+PONG\r\n", Open),
    (b"*1\rx$4\rxPING\r\n", b"+PONG\r\n", Open),
    (b"\tPING\t\nPING\n", b"+PONG\r\n+PONG\r\n", Open),
    (b"\x0bPING\x0b\r\n", b"-ERR unknown command 'PING\x0b', with args beginning with: \r\n", Open),
    (b"ECHO \xff\xfe\r\n", b"$2\r\n\xff\xfe\r\n", Open),
    (b"ECHO \"\\x41\\xzz\"\r\n", b"$4\r\nAxzz\r\n", Open),
    (b"*1\r\n$0\r\n\r\n", b"-ERR unknown command '', with args beginning with: \r\n", Open),
    (b"*1\r\n$3\r\na\0b\r\n", b"-ERR unknown command 'a', with args beginning with: \r\n", Open),
    (
        b"*2\r\n$6\r\nfoo\r\nb\r\n$5\r\na\r\nb\xff\r\n",
        b"-ERR unknown command 'foo  b', with args beginning with: 'a  b\xff' \r\n",
        Open,
    ),
];

/// Unterminated lines: their first bytes, and the reply once they pass 64 KiB.
pub(crate) const ENDLESS: &[(&[u8], &[u8])] = &[
    (b"", b"-ERR Protocol error: too big inline request\r\n"),
    (b"*", b"-ERR Protocol error: too big mbulk count string\r\n"),
    (b"*1\r\n$", b"-ERR Protocol error: too big bulk count string\r\n"),
];

pub(crate) fn assert_outcome(address: SocketAddr, bytes: &[u8], answer: &[u8], end: Outcome) {
    let mut peer = Peer::to(address);
    let said = bytes[..bytes.len().min(40)].escape_ascii();
    let heard = if end == Open {
        peer.answers(bytes).unwrap_or_else(|error| panic!("{said}: {error}"))
    } else {
        peer.send(bytes);
        peer.rest()
    };
    assert_eq!(heard.escape_ascii().to_string(), answer.escape_ascii().to_string(), "{said}");
}

pub(crate) fn all_outcomes(address: SocketAddr) {
    for (bytes, answer, end) in OUTCOMES {
        assert_outcome(address, bytes, answer, *end);
    }
    for (start, answer) in ENDLESS {
        // Exactly the limit is sent: unread input would turn the close into a reset and lose the reply.
        let line = [start, &vec![b'1'; 64 * 1024 + 1][..]].concat();
        assert_outcome(address, &line, answer, Closed);
    }
}
