//! A lock server that speaks the Redis protocol.
//!
//! The house has floors, and a floor imports only from the floors below it. Floors 0 to 6 are synchronous and pure:
//! no await, socket, file, thread, system clock or unseeded randomness. `tests/tidy.rs` keeps it so.
//!
//! ```text
//! 8  lib.rs main.rs        public names and this map; the binary holds no logic
//! 7  cli/                  flags, configuration file, log, signals: the process around one server
//! 7  server/               the only floor with tokio, sockets, files, threads, the system clock
//! 6  engine/               the sans-IO server: execute, tick, next deadline
//! 5  commands/             one file per family: rows, parsing, behaviour
//! 4  scripts/              recognised shapes, and the native functions they land on
//! 3  keyspace/  journal/   shards (entries + wheel) each under a mutex; the ordered log of effects
//! 2  state/                session, clients, channels, settings, metrics, effects
//! 1  resp/ wheel/ types/   pure shapes that do not know each other
//! 0  clock limits error number   words every floor may say
//! ```

#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod commands;
pub mod engine;
pub mod error;
pub mod journal;
pub mod keyspace;
pub mod limits;
pub mod number;
pub mod resp;
pub mod scripts;
#[cfg(feature = "server")]
mod server;
pub mod state;
pub mod types;
pub mod wheel;

#[cfg(feature = "server")]
pub use server::{Builder, Clock, Keys, Server, StartError};
