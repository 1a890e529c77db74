//! A lease that ends without sleep.

use std::error::Error;
use std::time::Duration;

use redlatch::Server;
use redlatch::lock::{Error::Held, Locks};

#[tokio::test]
async fn a_lease_ends_without_sleep() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().tests(1).start().await?;
    server.clock().freeze().await;
    let locks = Locks::connect(&server.url()).await?;
    let crashed = locks.lock("stock").acquire().await?;
    crashed.leave(Duration::from_secs(30)).await?; // nobody renews it any more

    server.clock().advance(Duration::from_secs(30)).await; // the last millisecond of the lease
    assert!(matches!(locks.lock("stock").acquire().await, Err(Held(_))));
    server.clock().advance(Duration::from_millis(1)).await;
    locks.lock("stock").acquire().await?;
    Ok(())
}
