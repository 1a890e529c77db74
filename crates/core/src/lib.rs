//! The core of redlatch: locks, keys and commands as a function of bytes and time, without input and output.
//!
//! Owns    the [`Engine`](engine::Engine), and all below it.
//! Rule    pure: no await, socket, file, thread, system clock or unseeded randomness. `clippy.toml` bans them.
//!
//! This crate is a part of `redlatch`; any version may change it.
//!
//! # Layers
//!
//! A module imports only from the layers below it.
//!
//! ```text
//! 6  engine/                the sans-IO server: execute, tick, next deadline; EXEC
//! 5  commands/              one folder per family: rows, parsing, behaviour
//! 4  scripts/               native scripts, and the seam to the interpreter of all others
//! 4  testing/               faults, history and their host: what TEST commands change
//! 3  locks/ keyspace/       who may have a lock, and who waits; shards, each under a mutex: entries, timers, waiting calls
//! 3  journal/ replication/  the log of effects and recovery; the log in etcd, and who may write it
//! 2  state/                 session, clients, channels, tracking, settings, metrics, effects
//! 1  types/ wheel/ svg      pure data structures
//! 0  sync                   mutexes and atomics
//! ```

#![forbid(unsafe_code)]

pub mod commands;
#[warn(missing_docs)]
pub mod engine;
#[warn(missing_docs)]
pub mod journal;
pub mod keyspace;
pub mod locks;
pub mod replication;
pub mod scripts;
pub mod state;
pub mod svg;
mod sync;
#[warn(missing_docs)]
pub mod testing;
pub mod types;
pub mod wheel;
