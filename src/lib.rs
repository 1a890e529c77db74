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
//! no more. `client` adds the module `lock`, for programs that take locks. `lua` (default) is the interpreter: without it
//! scripts that are not native are refused, with their SHA-1. `tls` (default) is what [`Builder::tls`] needs. `http`
//! (default) is the port that the setting `http-port` asks for, with metrics, health and the page. `testing` (default)
//! is the test
//! backend, and what [`Builder::manual_clock`] and [`Builder::tests`] need; a server for production can be built without it.
//! `etcd` (with `http`) lets the program be a node of several that serve one set of locks, whose log is in etcd.
//! `otlp` lets the program send spans to an OpenTelemetry collector. `mcp` gives the program `redlatch mcp`, for coding
//! agents; `top` gives it `redlatch top`, which shows the locks of a server in a terminal.
//!
//! # Crates
//!
//! This crate gives the others their public names, and holds the program. A program that takes locks and starts no server
//! depends on `redlatch-client` alone. What the others make public, but what stands here, any version may change.
//!
//! ```text
//! redlatch           src/              public names; the binary holds no logic
//! redlatch-cli       crates/cli/       flags, configuration file, log, signals; `redlatch run`, `load`, `mcp`
//! redlatch-server    crates/server/    sockets, files, threads, tokio, the system clock
//! redlatch-client    crates/client/    the client side of the wire: connections to a server, and locks over them
//! redlatch-lua       crates/lua/       Lua 5.1 for the scripts that are not native
//! redlatch-testing   crates/testing/   the test backend: TEST commands, namespaces, clocks, faults, histories
//! redlatch-core      crates/core/      a server as a function of bytes and time
//! redlatch-proto     crates/proto/     what servers and clients share: time, numbers, errors, terms of locks, RESP
//! redlatch-platform  crates/platform/  what differs between operating systems; no other crate asks which one it is
//! ```
//!
//! A crate knows only those below it; `redlatch-lua` and `redlatch-client` do not know each other. The modules of
//! `redlatch-core` have layers of their own: `crates/core/src/lib.rs`.

#![forbid(unsafe_code)]

pub use redlatch_proto::clock::{LockTime, WallTime};
#[cfg(feature = "server")]
pub use redlatch_server::{Builder, Keys, LockRule, Server, StartError};
#[cfg(feature = "testing")]
pub use redlatch_server::{
    Clock, Event, EventKind, Fault, FaultError, Faults, Finding, History, Namespace, NamespaceError,
    NodeFacts, NodeState, Nodes, When,
};

#[cfg(feature = "client")]
pub mod lock {
    //! Locks of a server, for programs that take them: [`Locks`], [`Guard`].
    //!
    //! A lock is renewed in the background for as long as its [`Guard`] lives. [`Guard::lost`] says when it is lost, at the
    //! latest before the server grants it to anybody else. A process that is paused learns of it too late: only
    //! [`Guard::token`], checked by what the lock protects, stops such a process.
    //!
    //! The server may be any that speaks the protocol. One without LOCK commands has plain exclusive locks, without a token.
    //! A program that starts no server has the same in the crate `redlatch-client`.

    pub use redlatch_client::{
        Acquire, BrokenBy, Client, Error, Fence, FenceError, Fenced, Guard, Held, Hold, HoldEvent,
        HoldEvents, Holder, Kind, Lock, Locks, Lost, OnUnavailable, Trust, Waiting, Watch,
    };
}

#[doc = include_str!("security.md")]
pub mod security {}

// The README's examples are run as this crate's.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
