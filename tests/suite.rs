//! Every test that runs inside the standard harness, in one program: linking is most of what a test run costs.
//!
//! Belongs here  a suite is a module of its own folder or file, named after its subject: `cargo test --test suite hostile`.
//! Apart         `allocations` replaces the allocator, `clients` reports clients that are not installed, and `concurrency`
//!               is built for another scheduler.
//! Skips         what needs a real server is ignored, with the reason; `.ci/run servers` runs it. What sends signals, or uses
//!               files and sockets of Unix, is left out on Windows.

#![cfg_attr(
    not(feature = "server"),
    allow(dead_code, unused_imports, reason = "the tests of the server use the rest")
)]
#![allow(
    clippy::module_inception,
    reason = "a suite of one file holds its tests in a module named after its subject"
)]

#[cfg(all(feature = "cli", unix))]
mod audit;
#[cfg(feature = "etcd")]
mod cluster;
#[cfg(all(feature = "cli", unix))]
mod cluster_mode;
#[cfg(all(feature = "cli", unix))]
mod durability;
#[cfg(feature = "server")]
mod embedding;
#[cfg(feature = "client")]
mod examples;
#[cfg(all(feature = "cli", unix))]
mod explore;
#[cfg(feature = "server")]
mod faults;
#[cfg(feature = "cli")]
mod history;
#[cfg(feature = "server")]
mod hostile;
#[cfg(feature = "http")]
mod http;
#[cfg(all(feature = "cli", unix))]
mod load;
#[cfg(feature = "client")]
mod lock_client;
#[cfg(feature = "cli")]
mod logging;
#[cfg(all(feature = "server", feature = "lua"))]
mod long_calls;
#[cfg(feature = "lua")]
mod lua_libraries;
#[cfg(all(feature = "cli", unix))]
mod mcp;
#[cfg(all(feature = "cli", unix))]
mod mutex;
#[cfg(all(feature = "http", feature = "otlp"))]
mod otlp;
#[cfg(all(feature = "cli", unix))]
mod process;
#[cfg(all(feature = "cli", unix))]
mod run;
#[cfg(all(feature = "cli", unix))]
mod service;
#[cfg(all(feature = "cli", unix))]
mod shell;
#[cfg(all(feature = "cli", feature = "lua"))]
mod soak;
#[cfg(feature = "server")]
mod test_backend;
#[cfg(all(feature = "cli", feature = "tls"))]
mod tls;
#[cfg(all(feature = "cli", unix))]
mod top;

mod blocking;
mod dependencies;
mod differential;
mod fuzz;
#[cfg(feature = "lua")]
mod grants;
mod lock_law;
mod quarantine;
mod race;
mod readme;
mod repository;
mod scripts;
mod simulation;
mod support;
mod tidy;
mod transcripts;

/// The table of clients, which the README's table is made from, and the projects that the tests of a cluster and of agents
/// run.
#[allow(dead_code, reason = "`cargo test --test clients` uses the rest")]
mod clients {
    #[cfg(any(feature = "etcd", feature = "mcp"))]
    pub(crate) mod installer;
    #[cfg(any(feature = "etcd", feature = "mcp"))]
    pub(crate) mod process;
    pub(crate) mod table;
}

/// The parts of the race that are checked here.
#[allow(dead_code, reason = "the race uses the rest")]
#[path = "../benches/compare/shared/mod.rs"]
mod compare;
