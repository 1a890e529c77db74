//! HTTP as browsers, probes and scrapers use it: routes, access, health, metrics.
//!
//! Belongs here  what a response says. Peers that misbehave: tests/hostile/http.rs.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod access;
mod api;
mod health;
mod metrics;
#[cfg(feature = "cli")]
#[cfg(unix)]
mod process;
mod prometheus;

use redlatch::Server;

/// A server with an HTTP port and these settings.
fn server(settings: &[(&str, &str)]) -> Server {
    let builder = Server::builder().set("http-port", "auto");
    let builder = settings.iter().fold(builder, |builder, (name, value)| builder.set(*name, *value));
    builder.start_blocking().expect("a server starts")
}
