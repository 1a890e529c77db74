//! The core of redlatch: locks, keys and commands as a function of bytes and time, without input and output.
//!
//! Owns    the [`Engine`](engine::Engine), and all below it.
//! Rule    pure: no await, socket, file, thread, system clock or unseeded randomness. `clippy.toml` bans them.
//!
//! This crate is a part of `redlatch`; any version may change it.
//!
//! # Layers
//!
//! A module imports only from the layers below it. `tests/repository/tidy.rs` reads this map and checks that;
//! docs/architecture.md shows it.
//!
//! ```text
//! 7  engine/                execute, tick, next deadline; EXEC
//! 6  commands/              one folder for each family: rows, parsing, behaviour
//! 5  scripts/               native scripts, and the seam to the interpreter of all others
//! 4  keyspace/              shards, each under a mutex: entries, timers, waiting calls; the locks in them
//! 4  journal/ replication/  the log of effects and recovery; the log in etcd, and who may write it
//! 3  locks/                 what a lock is, what happens to it, what a request for it comes to
//! 2  state/                 session, clients, channels, tracking, users, settings, metrics, effects
//! 1  types/ wheel/          data structures that do not know each other
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
mod sync;
pub mod types;
pub mod wheel;
