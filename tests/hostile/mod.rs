//! Clients that mean harm, over real sockets: what becomes of them, what it costs, and that nobody else notices.
//!
//! Belongs here  broken and endless frames, floods, slow readers, half-closed sockets; bytes alone stand in
//!               `fuzz/decoder.rs`. The fates in [`OUTCOMES`] are those of Redis 7.0, and are held against the server that
//!               `REDLATCH_REDIS_SERVER` names.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod bounds;
mod floods;
mod frames;
mod hygiene;
mod idlers;
mod newcomers;
mod numbers;
mod outcomes;
mod pauses;
#[cfg(feature = "lua")]
mod sandbox;
mod scene;
mod slow_readers;
#[cfg(feature = "cli")]
mod table;
