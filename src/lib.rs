//! A lock server that speaks the Redis protocol.
//!
//! Lock clients written for Redis work against it unchanged. As a program it is started with `redlatch`; as this library
//! a server starts inside a test or a service, as many of them as you like, and nothing is global to the process.
//!
//! # Start, point, poke
//!
//! A server has a free port of its own unless it is told otherwise, and ends when it is dropped.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use redlatch::Server;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let server = Server::builder().start().await?;
//! assert!(server.url().starts_with("redis://127.0.0.1:"));
//!
//! // The test takes the lock that the code under test is to find taken.
//! server.keys().set("lock:stock", "somebody else", Some(Duration::from_secs(30)));
//!
//! // Any Redis client would do; this one needs no socket.
//! let mut client = server.stream();
//! client.write_all(b"SET lock:stock me NX PX 30000\r\n").await?;
//! let mut answer = [0; 5];
//! client.read_exact(&mut answer).await?;
//! assert_eq!(&answer, b"$-1\r\n");
//! # Ok(()) }
//! ```
//!
//! Without a runtime, [`Builder::start_blocking`] gives the server a thread of its own. [`Builder::set`] takes every
//! setting that the command line has.
//!
//! # Own its time
//!
//! With [`Builder::manual_clock`] time stands still until the test moves it. [`Clock::advance`] returns when
//! everything that was due has happened, in order, and has been sent to the clients that read.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use redlatch::{Server, clock::WallTime};
//!
//! let start = WallTime::from_millis(1_700_000_000_000);
//! let server = Server::builder().manual_clock(start).start_blocking()?;
//! server.keys().set("lock:stock", "me", Some(Duration::from_secs(30)));
//!
//! server.clock().advance_blocking(Duration::from_secs(29));
//! assert_eq!(server.keys().lease("lock:stock"), Some(Some(Duration::from_secs(1))));
//!
//! // Whatever the wall clock does, the lease is not touched.
//! server.clock().step_wall(-3_600_000);
//! assert_eq!(server.keys().lease("lock:stock"), Some(Some(Duration::from_secs(1))));
//!
//! // A key lives through its last millisecond.
//! server.clock().advance_blocking(Duration::from_secs(1));
//! assert!(server.keys().get("lock:stock").is_some());
//! server.clock().advance_blocking(Duration::from_millis(1));
//! assert!(server.keys().get("lock:stock").is_none());
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! `cli` (default) is the program's: flags, configuration file, logs. `server` is the shell with [`Server`]: a library needs
//! no more. Without either there is the [`engine`] alone: a server as a function of bytes and time, without tokio. `lua`
//! (default) is the interpreter: without it scripts that are not native are refused, by their SHA-1. `tls` (default) is what
//! [`Builder::tls`] needs.
//!
//! # The house
//!
//! The house has floors, and a floor imports only from the floors below it. Floors 0 to 6 are synchronous and pure:
//! no await, socket, file, thread, system clock or unseeded randomness. `tests/tidy.rs` keeps it so.
//!
//! ```text
//! 8  lib.rs main.rs        public names and this map; the binary holds no logic
//! 7  cli/                  flags, configuration file, log, signals: the process around one server
//! 7  server/               the only floor with tokio, sockets, files, threads, the system clock
//! 6  engine/               the sans-IO server: execute, tick, next deadline; EXEC
//! 5  commands/             one file per family: rows, parsing, behaviour
//! 4  scripts/              native scripts; the Lua interpreter for all others
//! 3  keyspace/  journal/   shards (entries + wheel + parked calls) each under a mutex; the ordered log of effects
//! 2  state/                session, clients, channels, tracking, settings, metrics, effects
//! 1  resp/ wheel/ types/   pure shapes that do not know each other
//! 0  clock limits error number sync   words every floor may say
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
mod sync;
pub mod types;
pub mod wheel;

#[cfg(feature = "server")]
pub use server::{Builder, Clock, Keys, Server, StartError};

#[doc = include_str!("security.md")]
pub mod security {}

// The README's examples are run as this crate's.
#[cfg(all(doctest, feature = "server"))]
#[doc = include_str!("../README.md")]
struct Readme;
