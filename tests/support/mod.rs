//! Shared by several suites: engines and servers under test, replies, connections, randomness, certificates.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

pub(crate) mod backend;
#[allow(dead_code, reason = "benches and the count of allocations use it")]
pub(crate) mod bare;
#[cfg(feature = "cli")]
pub(crate) mod binary;
pub(crate) mod certificates;
pub(crate) mod clock;
#[cfg(any(feature = "http", all(feature = "cli", unix)))]
#[allow(dead_code, reason = "tests of the shell, of agents and of HTTP use it")]
pub(crate) mod contend;
pub(crate) mod engine;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod interpreter;
#[cfg(feature = "server")]
#[allow(dead_code, reason = "only transcripts have several nodes")]
pub(crate) mod nodes;
pub(crate) mod pattern;
pub(crate) mod ports;
pub(crate) mod real;
pub(crate) mod reply;
pub(crate) mod rng;
pub(crate) mod run;
pub(crate) mod script;
#[cfg(feature = "cli")]
#[allow(dead_code, reason = "the run of clients uses all of it")]
pub(crate) mod server;
pub(crate) mod shapes;
pub(crate) mod stream;
pub(crate) mod target;
#[allow(dead_code, reason = "benches and the count of allocations do not wait")]
pub(crate) mod waits;
pub(crate) mod wire;
pub(crate) mod words;
