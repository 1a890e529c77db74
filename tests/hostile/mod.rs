//! Clients that mean harm, over real sockets: what becomes of them, what it costs, and that nobody else notices.
//!
//! Belongs here  broken and endless frames, floods, slow readers, half-closed sockets; bytes alone stand in
//!               `fuzz/decoder.rs`. The ends in [`OUTCOMES`] are those of Redis 7.0, and are held against the server that
//!               `REDLATCH_REDIS_SERVER` names.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod accepts;
mod bounds;
mod fixture;
mod floods;
mod frames;
mod hygiene;
mod idlers;
mod numbers;
mod outcomes;
mod pauses;
#[cfg(feature = "lua")]
mod sandbox;
mod slow_readers;
