//! A lock server that speaks the Redis protocol.
//!
//! Lock clients written for Redis work against it unchanged. As a program it is started with `redlatch`; as this library
//! any number of servers start inside a test or a service. No state is global to the process.
//!
//! # Start, point, poke
//!
//! A server has a free port of its own unless another is set, and ends when it is dropped.
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
//! // The test takes the lock before the code under test tries to.
//! server.keys().set("lock:stock", "another owner", Some(Duration::from_secs(30)));
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
//! With [`Builder::manual_clock`] time stands still until the test moves it. [`Clock::advance`] returns after
//! everything due has happened, in order, and the messages about it have been sent to the clients that read.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use redlatch::{Server, WallTime};
//!
//! let start = WallTime::from_millis(1_700_000_000_000);
//! let server = Server::builder().manual_clock(start).start_blocking()?;
//! server.keys().set("lock:stock", "me", Some(Duration::from_secs(30)));
//!
//! server.clock().advance_blocking(Duration::from_secs(29));
//! assert_eq!(server.keys().lease("lock:stock"), Some(Some(Duration::from_secs(1))));
//!
//! // A step of the wall clock does not change the lease.
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
//! no more. `client` adds the module `lock`, for programs that take locks. Without any of these there is the [`Engine`]
//! alone: a server as a function of bytes and time, without tokio. `lua` (default) is the interpreter: without it scripts
//! that are not native are refused, with their SHA-1. `tls` (default) is what [`Builder::tls`] needs. `http` (default)
//! is the port that the setting `http-port` asks for, with metrics, health and the page.
//! `etcd` lets the program be a node of several that serve one set of locks, whose log is in etcd.
//! `otlp` lets the program send spans to an OpenTelemetry collector.
//!
//! The parts that an [`Engine`] is built from are in the hidden module `internals`, which any version may change.
//!
//! # Layers
//!
//! A layer imports only from the layers below it. Layers 0 to 6 are synchronous and pure: no await, socket, file,
//! thread, system clock or unseeded randomness. `tests/tidy.rs` checks it.
//!
//! ```text
//! 8  lib.rs main.rs        public names and this map; the binary holds no logic
//! 7  cli/                  flags, configuration file, log, signals: the process around one server; `redlatch run`
//! 7  client/               the client side of the wire: connections to a server, and locks over them
//! 7  load/                 clients that take, keep and release locks, and what that took: `redlatch load`
//! 7  server/               the only layer with tokio, sockets, files, threads, the system clock
//! 6  engine/               the sans-IO server: execute, tick, next deadline; EXEC
//! 5  commands/             one folder per family: rows, parsing, behaviour
//! 4  scripts/              native scripts; Lua for all others
//! 4  testing/              faults, history and their host: what TEST commands change
//! 3  keyspace/  journal/   shards (entries + wheel + waiting calls) each under a mutex; the log of effects and recovery
//! 3  replication/          one set of locks for several nodes: the log in etcd, and who may write it
//! 3  locks/                who may have a lock, and who waits for whom
//! 2  state/                session, clients, channels, tracking, settings, metrics, effects
//! 1  resp/ svg.rs wheel/ types/   pure data structures, independent of each other
//! 0  clock limits error number sync   vocabulary of all layers
//! ```

#![forbid(unsafe_code)]

// Modules with public names are documented whole. The others are seen through `internals` alone.
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "client")]
#[warn(missing_docs)]
mod client;
#[warn(missing_docs)]
mod clock;
mod commands;
#[warn(missing_docs)]
mod engine;
mod error;
#[warn(missing_docs)]
mod journal;
mod keyspace;
mod limits;
#[cfg(feature = "cli")]
mod load;
mod locks;
mod number;
mod replication;
mod resp;
mod scripts;
#[cfg(feature = "server")]
#[warn(missing_docs)]
mod server;
mod state;
mod svg;
mod sync;
#[warn(missing_docs)]
mod testing;
mod types;
mod wheel;

pub use clock::{LockTime, WallTime};
pub use engine::{Batch, Engine, Flow};
pub use journal::{Journal, Mutation, Mutations, Record};
#[cfg(feature = "server")]
pub use server::{
    Builder, Clock, Fault, FaultError, Faults, History, Keys, Namespace, NamespaceError, Nodes, Server,
    StartError, When,
};
#[cfg(feature = "server")]
pub use testing::{Event, EventKind, Finding, NodeFacts, NodeState};

#[cfg(feature = "client")]
pub mod lock {
    //! Locks of a server, for programs that take them: [`Locks`], [`Guard`].
    //!
    //! A lock is renewed in the background for as long as its [`Guard`] lives. [`Guard::lost`] says when it is lost, at the
    //! latest before the server grants it to anybody else. A process that is paused learns of it too late: only
    //! [`Guard::token`], checked by what the lock protects, stops such a process.
    //!
    //! The server may be any that speaks the protocol. One without LOCK commands has plain exclusive locks, without a token.

    pub use crate::client::{
        Acquire, BrokenBy, Client, Error, Guard, Held, Holder, Lock, Locks, Lost, Trust, Waiting,
    };
}

/// The internals that the binary, the tests and the benches of this crate use. They are not part of the interface: any
/// version may change them.
#[doc(hidden)]
pub mod internals {
    #[cfg(feature = "cli")]
    pub mod cli {
        pub use crate::cli::*;
    }
    pub mod clock {
        pub use crate::clock::*;
    }
    pub mod commands {
        pub use crate::commands::*;
    }
    pub mod engine {
        pub use crate::engine::*;
    }
    pub mod error {
        pub use crate::error::*;
    }
    pub mod journal {
        pub use crate::journal::*;
    }
    pub mod keyspace {
        pub use crate::keyspace::*;
    }
    pub mod limits {
        pub use crate::limits::*;
    }
    #[cfg(feature = "cli")]
    pub mod load {
        pub use crate::client::Trust;
        pub use crate::load::*;
    }
    pub mod locks {
        pub use crate::locks::*;
    }
    pub mod number {
        pub use crate::number::*;
    }
    pub mod replication {
        pub use crate::replication::*;
    }
    pub mod resp {
        pub use crate::resp::*;
    }
    pub mod scripts {
        pub use crate::scripts::*;
    }
    pub mod state {
        pub use crate::state::*;
    }
    pub mod svg {
        pub use crate::svg::*;
    }
    pub mod testing {
        pub use crate::testing::*;
    }
    pub mod types {
        pub use crate::types::*;
    }
    pub mod wheel {
        pub use crate::wheel::*;
    }
}

#[doc = include_str!("security.md")]
pub mod security {}

// The README's examples are run as this crate's.
#[cfg(all(doctest, feature = "server"))]
#[doc = include_str!("../README.md")]
struct Readme;
