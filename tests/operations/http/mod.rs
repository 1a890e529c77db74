//! HTTP as browsers, probes and scrapers use it: routes, access, health, metrics.
//!
//! Belongs here  what a response says. Peers that misbehave: `tests/protocol/hostile/http.rs`.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod access;
mod api;
mod health;
mod holds;
mod metrics;
mod openapi;
#[cfg(feature = "cli")]
#[cfg(unix)]
mod process;
mod prometheus;

use redlatch::Server;
use serde_json::Value;

use crate::support::http::{HttpClient, HttpReply, get};

/// A server with an HTTP port and these settings.
fn server(settings: &[(&str, &str)]) -> Server {
    let builder = Server::builder().set("http-port", "auto");
    let builder = settings.iter().fold(builder, |builder, (name, value)| builder.set(*name, *value));
    builder.start_blocking().expect("a server starts")
}

/// The value of a response that is JSON.
fn value(reply: &HttpReply) -> Value {
    assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
    serde_json::from_str(&reply.body).expect("JSON")
}

/// The answer to a request that must succeed.
fn told(server: &Server, path: &str) -> Value {
    let reply = get(server.http_addr(), path);
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    value(&reply)
}

/// Sends a request with a body, and with further headers, each with its line end, on a connection of its own.
fn post(server: &Server, path: &str, headers: &str, body: &str) -> HttpReply {
    let mut client = HttpClient::to(server.http_addr());
    client.post(path, headers, body);
    client.reply(true)
}
