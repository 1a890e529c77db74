//! Every test that runs inside the standard harness, in one program: linking is most of what a test run costs.
//!
//! Belongs here  a suite is a module of its own folder or file, named after its subject: `cargo test --test suite hostile`.
//! Apart         `allocations` replaces the allocator, `clients` reports clients that are not installed, and `concurrency`
//!               is built for another scheduler.
//! Skips         what needs a real server is ignored, with the reason; `.ci/run servers` runs it.

#![allow(
    clippy::module_inception,
    reason = "a suite of one file holds its tests in a module named after its subject"
)]

#[cfg(feature = "cli")]
mod audit;
#[cfg(feature = "etcd")]
mod cluster;
#[cfg(feature = "cli")]
mod cluster_mode;
#[cfg(feature = "cli")]
mod durability;
#[cfg(feature = "server")]
mod embedding;
#[cfg(feature = "client")]
mod examples;
#[cfg(feature = "cli")]
mod explore;
#[cfg(feature = "server")]
mod faults;
#[cfg(feature = "cli")]
mod history;
#[cfg(feature = "server")]
mod hostile;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "cli")]
mod load;
#[cfg(feature = "client")]
mod lock_client;
#[cfg(feature = "cli")]
mod logging;
#[cfg(all(feature = "server", feature = "lua"))]
mod long_calls;
#[cfg(feature = "lua")]
mod lua_libraries;
#[cfg(feature = "cli")]
mod mutex;
#[cfg(all(feature = "http", feature = "otlp"))]
mod otlp;
#[cfg(feature = "cli")]
mod process;
#[cfg(feature = "cli")]
mod run;
#[cfg(feature = "cli")]
mod service;
#[cfg(feature = "cli")]
mod shell;
#[cfg(all(feature = "cli", feature = "lua"))]
mod soak;
#[cfg(feature = "server")]
mod test_backend;
#[cfg(all(feature = "cli", feature = "tls"))]
mod tls;
#[cfg(feature = "cli")]
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

/// The table of clients, which the README's table is made from, and the projects that the tests of a cluster run.
#[allow(dead_code, reason = "`cargo test --test clients` uses the rest")]
mod clients {
    #[cfg(feature = "etcd")]
    pub(crate) mod installer;
    #[cfg(feature = "etcd")]
    pub(crate) mod process;
    pub(crate) mod table;
}

/// The parts of the race that are checked here.
#[allow(dead_code, reason = "the race uses the rest")]
#[path = "../benches/compare/shared/mod.rs"]
mod compare;
