//! A test that owns the time: the end of a lease, a wall clock that is stepped, a waiter that is served.
//!
//! `cargo run --example clock`

use std::error::Error;
use std::time::Duration;

use redlatch::lock::Locks;
use redlatch::{Server, WallTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let start = WallTime::from_millis(1_700_000_000_000);
    let server = Server::builder().manual_clock(start).start().await?;

    // An unchanged client takes the lock for 30 seconds, and crashes.
    let mut crashed = server.stream();
    crashed.write_all(b"SET stock crashed NX PX 30000\r\n").await?;
    let mut answer = [0; 5];
    crashed.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"+OK\r\n");
    drop(crashed);

    // Somebody sets the clock of the machine. A lease does not care.
    server.clock().step_wall(3_600_000);
    server.clock().advance(Duration::from_millis(30_000)).await;
    assert!(server.keys().get("stock").is_some(), "the lease has its last millisecond");

    // Who waits in the queue gets the lock in the instant in which it is free.
    let locks = Locks::connect(&server.url()).await?;
    let waits = tokio::spawn(async move { locks.lock("stock").acquire().owner("next").wait_forever().await });
    let queue = server.locks();
    while queue.waiters("stock").await?.is_empty() {
        tokio::task::yield_now().await;
    }
    server.clock().advance(Duration::from_millis(1)).await;
    let guard = waits.await??;
    assert_eq!(guard.owner(), b"next");
    println!("the lock went from the crashed client to the next one; no time has passed for it");
    Ok(())
}
