//! The server as operators run it: the process, its files and logs, HTTP, TLS, traces.
//!
//! Belongs here  what a process, a supervisor, a browser or a collector sees.

#[cfg(all(feature = "cli", unix))]
mod audit;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "cli")]
mod logging;
#[cfg(all(feature = "http", feature = "otlp"))]
mod otlp;
#[cfg(all(feature = "cli", unix))]
mod process;
#[cfg(all(feature = "cli", unix))]
pub(crate) mod service;
#[cfg(all(feature = "cli", feature = "lua"))]
mod soak;
#[cfg(all(feature = "cli", feature = "tls"))]
mod tls;
