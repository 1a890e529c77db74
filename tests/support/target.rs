//! A server under test: bytes in, bytes out, and time.
//!
//! Time     a target with a manual clock stands still between steps; for a running clock the target waits.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use super::reply::Reply;
use super::waits::PATIENCE;

/// A client's connection, numbered from 0 by the target.
pub(crate) type Link = usize;

/// The result of [`Target::receive`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Heard {
    Bytes,
    /// The server has closed this connection.
    Closed,
    /// Nothing arrived within the [`Wait`].
    Silence,
}

/// How long [`Target::receive`] waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wait {
    /// Until a reply arrives; gives up only when something is broken.
    UntilReply,
    /// No reply is expected now.
    Briefly,
}

impl Wait {
    /// How long a read on a socket may last.
    pub(crate) const fn limit(self) -> Duration {
        match self {
            Self::UntilReply => PATIENCE,
            Self::Briefly => Duration::from_millis(60),
        }
    }
}

/// Appends what arrives on a socket whose reads have a limit.
pub(crate) fn hear(mut socket: impl Read, into: &mut Vec<u8>) -> Heard {
    let mut bytes = [0; 65_536];
    match socket.read(&mut bytes) {
        Ok(0) => Heard::Closed,
        Ok(count) => {
            into.extend_from_slice(&bytes[..count]);
            Heard::Bytes
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Heard::Silence,
        Err(_) => Heard::Closed,
    }
}

/// A server, fresh for one transcript.
pub(crate) trait Target {
    /// Its name in the marks of transcripts: `redis`, `valkey` or `redlatch`.
    fn name(&self) -> &'static str;
    /// Whether time moves only by [`Target::advance`].
    fn clock_is_manual(&self) -> bool;
    /// The wall clock of the server, in milliseconds since 1970.
    fn unix_ms(&self) -> i64;
    /// Opens one more connection.
    fn connect(&mut self) -> Link;
    /// Opens a connection for the client of this name, to the node of a cluster that the name says.
    fn connect_as(&mut self, _client: &str) -> Link {
        self.connect()
    }
    /// Hands the server bytes. Bytes for a connection that it has closed are dropped.
    fn send(&mut self, link: Link, bytes: &[u8]);
    /// Appends what the server sent.
    fn receive(&mut self, link: Link, wait: Wait, into: &mut Vec<u8>) -> Heard;
    /// Sends one request and waits for its reply.
    fn ask(&mut self, link: Link, request: &[u8]) -> Reply {
        self.send(link, request);
        let mut bytes = Vec::new();
        loop {
            let received = self.receive(link, Wait::UntilReply, &mut bytes);
            assert_eq!(received, Heard::Bytes, "{}: {}", self.name(), request.escape_ascii());
            if let Some((reply, _)) = Reply::read(&bytes).expect("a well-formed reply") {
                return reply;
            }
        }
    }
    /// What the server has sent, as text.
    fn heard(&mut self, link: Link) -> String {
        let mut bytes = Vec::new();
        self.receive(link, Wait::Briefly, &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
    fn advance(&mut self, step: Duration);
}
