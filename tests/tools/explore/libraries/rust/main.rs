//! Programs that take a lock, add one to a counter, and release the lock: one for each library, chosen by its name.

mod orders;

use std::error::Error;
use std::time::Duration;

use redis::{Client, Commands};
use rslock::LockManager;

const LEASE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rslock"] => use_rslock(&url).await,
        ["orders"] => orders::ship_orders(&url, ""),
        ["orders", bug] => orders::ship_orders(&url, bug),
        _ => Err("which library?".into()),
    }
}

async fn use_rslock(url: &str) -> Result<(), Box<dyn Error>> {
    let locks = LockManager::new(vec![url]);
    let lock = locks.lock("orders", LEASE).await?;
    let worked = Client::open(url)?.incr::<_, _, i64>("paid", 1);
    locks.unlock(&lock).await;
    worked?;
    Ok(())
}
