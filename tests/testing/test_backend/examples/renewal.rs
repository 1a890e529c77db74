//! A renewal that is lost.

use std::error::Error;
use std::time::Duration;

use redlatch::lock::Error::Held;
use redlatch::{Server, When};

// The time of the runtime, in which the guard renews, passes by itself; that of the server stands still.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_lost() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().tests(1).start().await?;
    server.clock().freeze().await;
    let locks = server.locks();
    let guard = locks.lock("stock").acquire().lease(Duration::from_secs(30)).await?;
    let fault = server.faults().drop_before(When::command("LOCK.EXTEND"))?;

    guard.lost().await; // before the server could grant the lock to another
    assert!(fault.hits() > 0);
    assert!(matches!(locks.lock("stock").acquire().await, Err(Held(_))));
    server.clock().advance(Duration::from_millis(30_001)).await;
    locks.lock("stock").acquire().await?;
    Ok(())
}
