//! Every test that runs inside the standard harness, in one program: linking is most of what a test run costs.
//!
//! Belongs here  a room for each subject, and in it a module for each suite: `cargo test --test suite hostile`. `README.md`
//!               says which room has what.
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

#[cfg(feature = "etcd")]
mod cluster;
#[cfg(all(feature = "cli", unix))]
mod durability;
mod locks;
mod operations;
mod protocol;
mod repository;
mod simulation;
mod support;
mod testing;
#[cfg(all(feature = "cli", unix))]
mod tools;

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
#[cfg(feature = "cli")]
#[allow(dead_code, reason = "the race uses the rest")]
#[path = "../benches/compare/shared/mod.rs"]
mod compare;
