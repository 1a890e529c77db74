//! Hostile clients over real sockets: the outcome of their connections, the cost, and that other clients are unaffected.
//!
//! Belongs here  malformed and endless frames, floods, slow readers, half-closed sockets, and what clients make the server
//!               hold: `waits` counts its work, `memory` its bytes. Decoder-only cases are in
//!               `fuzz/decoder.rs`. [`OUTCOMES`] lists the outcomes of Redis 7.0; they are compared with the server
//!               that `REDLATCH_REDIS_SERVER` names.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod accepts;
mod bounds;
mod fixture;
mod floods;
mod foreign_keys;
mod frames;
mod guesses;
#[cfg(feature = "http")]
mod http;
mod hygiene;
mod idlers;
mod lock_queues;
mod memory;
mod numbers;
mod outcomes;
mod pauses;
#[cfg(feature = "lua")]
mod sandbox;
mod slow_readers;
mod waits;
