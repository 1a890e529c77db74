//! Redlock's rule on five nodes in one process: a lock is held if most nodes have granted it, and two nodes may crash.
//!
//! `cargo run --example redlock`. Several nodes that serve one set of locks need an etcd: docs/replication.md.

use std::error::Error;
use std::time::Duration;

use redlatch::Server;
use redlatch::lock::{Guard, Locks};

const NODES: u16 = 5;
const LEASE: Duration = Duration::from_secs(30);

/// The lock of each node that grants it.
async fn acquire(server: &Server, owner: &str) -> Vec<Guard> {
    let mut guards = Vec::new();
    for address in server.node_addrs() {
        // A node that has crashed resets the connection.
        let Ok(locks) = Locks::connect(&format!("redis://{address}")).await else { continue };
        guards.extend(locks.lock("stock").acquire().owner(owner).lease(LEASE).await);
    }
    guards
}

fn is_held(guards: &[Guard]) -> bool {
    guards.len() > usize::from(NODES) / 2
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().tests(NODES).start().await?;
    server.clock().freeze().await;

    server.nodes().crash(1, false).await;
    server.nodes().crash(2, false).await;
    let first = acquire(&server, "first").await;
    assert!(is_held(&first), "three of five");
    let second = acquire(&server, "second").await;
    assert!(!is_held(&second), "no node grants it twice");

    for guard in first {
        guard.release().await?;
    }
    server.nodes().crash(3, false).await;
    assert!(!is_held(&acquire(&server, "second").await), "two of five are no majority");
    println!("a lock survives the crash of two nodes of five, and nobody gets it without a majority");
    Ok(())
}
