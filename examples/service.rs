//! A service with several workers that do one job at a time: a lock, its renewal, its loss, its fencing token.
//!
//! `cargo run --example service`; with `REDLATCH_URL` against a server that runs already.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlatch::Server;
use redlatch::lock::Locks;

/// What the lock protects. It remembers the highest token, and refuses a holder that has lost the lock since.
#[derive(Default)]
struct Stock {
    items: AtomicU64,
    highest_token: AtomicU64,
}

impl Stock {
    fn add_one(&self, token: u64) -> Result<(), String> {
        let highest = self.highest_token.fetch_max(token, Ordering::SeqCst);
        if token < highest {
            return Err(format!("token {token} is older than {highest}"));
        }
        // Without the lock two workers could read the same number.
        let items = self.items.load(Ordering::SeqCst);
        self.items.store(items + 1, Ordering::SeqCst);
        Ok(())
    }
}

async fn work(url: String, name: String, stock: Arc<Stock>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let locks = Locks::connect(&url).await?;
    for _ in 0..3 {
        // The lease is renewed for as long as the guard lives.
        let asked = locks.lock("stock").acquire().owner(name.as_str());
        let guard = asked.lease(Duration::from_secs(30)).wait(Duration::from_secs(10)).await?;
        let token = guard.token().ok_or("this server has no fencing tokens")?;
        tokio::select! {
            lost = guard.lost() => return Err(format!("{name} has lost the lock: {lost:?}").into()),
            done = async { stock.add_one(token) } => done?,
        }
        println!("{name} has added an item under token {token}");
        guard.release().await?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    // A service is given the URL of its server; here is one for the example.
    let server = Server::builder().start().await?;
    let url = std::env::var("REDLATCH_URL").unwrap_or_else(|_| server.url());

    let stock = Arc::new(Stock::default());
    let workers: Vec<_> = ["anna", "ben", "cleo"]
        .map(|name| tokio::spawn(work(url.clone(), name.to_owned(), stock.clone())))
        .into();
    for worker in workers {
        worker.await??;
    }

    assert_eq!(stock.items.load(Ordering::SeqCst), 9, "no item was lost");
    println!("9 items");
    Ok(())
}
