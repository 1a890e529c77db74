//! Redlock with crashed nodes: a client holds a lock when most nodes have granted it.

use std::error::Error;
use std::time::Duration;

use redlatch::Server;
use redlatch::lock::{Guard, Locks};

/// Takes the lock on every node that grants it.
async fn acquire(server: &Server) -> Vec<Guard> {
    let mut guards = Vec::new();
    for address in server.node_addrs() {
        let Ok(locks) = Locks::connect(&format!("redis://{address}")).await else { continue };
        guards.extend(locks.lock("stock").acquire().lease(Duration::from_secs(30)).await);
    }
    guards
}

#[tokio::test]
async fn redlock_with_crashed_nodes() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().tests(5).start().await?;
    server.clock().freeze().await;
    server.nodes().crash(1, false).await;
    server.nodes().crash(2, false).await;
    assert_eq!(acquire(&server).await.len(), 3, "a majority");

    server.clock().advance(Duration::from_millis(30_001)).await;
    server.nodes().crash(3, false).await;
    assert_eq!(acquire(&server).await.len(), 2, "no majority");
    Ok(())
}
