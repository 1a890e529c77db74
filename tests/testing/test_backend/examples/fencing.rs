//! A holder that pauses past its lease, and the fencing token that stops it.

use std::error::Error;
use std::time::Duration;

use redlatch::Server;
use redlatch::lock::Locks;

/// What the lock protects. It refuses a token that is lower than one it has seen.
#[derive(Default)]
struct Stock {
    highest: u64,
}

impl Stock {
    fn write(&mut self, token: Option<u64>) -> bool {
        let token = token.unwrap_or(0);
        let is_fresh = token >= self.highest;
        self.highest = self.highest.max(token);
        is_fresh
    }
}

#[tokio::test]
async fn a_holder_that_pauses_past_its_lease_is_stopped_by_its_fencing_token() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().tests(1).start().await?;
    server.clock().freeze().await;
    let (slow, other) = (Locks::connect(&server.url()).await?, Locks::connect(&server.url()).await?);
    let mut stock = Stock::default();

    // The slow holder is paused: its lease ends before it has done anything, and it does not know.
    let paused = slow.lock("stock").acquire().lease(Duration::from_secs(30)).await?;
    server.clock().advance(Duration::from_millis(30_001)).await;
    let fresh = other.lock("stock").acquire().await?;
    assert!(stock.write(fresh.token()));
    assert!(!stock.write(paused.token()), "its token is stale");
    Ok(())
}
