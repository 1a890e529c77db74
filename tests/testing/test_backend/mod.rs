//! The test backend over real connections: one clock, namespaces, nodes.
//!
//! Belongs here  what TEST commands do to connections, clocks and stores. Replies and bad input are transcripts.
//! Time          only clocks that the tests move.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod clock;
mod cluster;
mod edges;
#[cfg(feature = "client")]
mod examples;
mod handle;
mod jumps;
mod namespaces;
mod nodes;

use redlatch::{EventKind, Server};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::support::stream::StreamClient;
use crate::support::waits::wait_until_async;

type Client = StreamClient<TcpStream>;

/// A server with TEST commands and `nodes` nodes.
async fn server(nodes: u16) -> Server {
    Server::builder().tests(nodes).start().await.unwrap()
}

/// A client of a node, from 1 on.
async fn client(server: &Server, node: usize) -> Client {
    Client::new(TcpStream::connect(server.node_addrs()[node - 1]).await.unwrap())
}

/// A client of the first node in a namespace.
async fn client_in(server: &Server, namespace: &str) -> Client {
    let mut client = client(server, 1).await;
    assert_eq!(client.ask(&["AUTH", &format!("namespace:{namespace}")]).await, "+OK");
    client
}

/// The number in the reply to a request.
async fn number(client: &mut Client, words: &[&str]) -> i64 {
    let reply = client.ask(words).await;
    reply
        .strip_prefix(':')
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("{words:?}: {reply}"))
}

/// The bulk string in the reply to a request; `None` for null.
async fn bulk(client: &mut Client, words: &[&str]) -> Option<String> {
    match client.ask(words).await.as_str() {
        "$-1" | "_" => None,
        _ => Some(client.line().await),
    }
}

/// Waits until so many clients wait for something.
async fn until_blocked(test: &mut Client, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    wait_until_async("so many wait", async || test.text(&["INFO", "clients"]).await.contains(&wanted)).await;
}
