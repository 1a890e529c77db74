//! The binary as a service: what a supervisor is told, the sockets that it hands over, a graceful stop, the check of a
//! configuration, the files for deployment, the names of Redis' programs, and the tools that operators point at a server.
//!
//! Time  no sleep: a test waits for a message, a line of the log, or the end of the process.

// The helpers are part of the tests, and may panic as well.
#![allow(clippy::unwrap_used)]

mod activation;
mod as_redis;
mod backup;
mod check_config;
pub(crate) mod deploy;
mod notify;
mod stop;
mod tools;
mod watch;
