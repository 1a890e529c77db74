//! What a transcript is played to: bytes in, bytes out, and time.
//!
//! Time     a target with a manual clock stands still between steps; one whose clock runs is waited for.

use std::time::Duration;

/// A client's connection, numbered from 0 by the target.
pub(crate) type Link = usize;

/// What came of waiting for a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Heard {
    Bytes,
    /// The server has closed this connection.
    Closed,
    /// Nothing, for as long as it makes sense to wait.
    Silence,
}

/// How long it makes sense to wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Patience {
    /// A reply must come; give up only when something is broken.
    UntilReply,
    /// No reply is expected now.
    Briefly,
}

/// A server, fresh for one transcript.
pub(crate) trait Target {
    /// What marks in transcripts call it: `redis`, `valkey` or `redlatch`.
    fn name(&self) -> &'static str;
    /// Whether time moves only by [`Target::advance`].
    fn clock_is_manual(&self) -> bool;
    /// The wall clock of the server, in milliseconds since 1970.
    fn unix_ms(&self) -> i64;
    /// Opens one more connection.
    fn connect(&mut self) -> Link;
    /// Hands the server bytes. Bytes for a connection that it has closed are dropped.
    fn send(&mut self, link: Link, bytes: &[u8]);
    /// Appends what the server sent.
    fn receive(&mut self, link: Link, patience: Patience, into: &mut Vec<u8>) -> Heard;
    /// Lets time pass.
    fn advance(&mut self, step: Duration);
}
