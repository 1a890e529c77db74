//! Takes a lock, works while it is held, and says who has it if it is not granted.

use std::time::Duration;

use redlatch_client::{Error, Locks};

async fn restock(
    locks: &Locks,
    articles: &[&str],
    write: impl AsyncFn(&str, Option<u64>),
) -> Result<(), Error> {
    let lock = locks.lock("lock:stock");
    let guard = match lock.acquire().wait(Duration::from_secs(5)).meta("reason", "delivery 4711").await {
        Err(Error::Held(holder)) => {
            // Who has it, why, since when, and how to break it.
            println!("{}", Error::Held(holder));
            return Ok(());
        }
        answer => answer?,
    };
    for article in articles {
        // An error once the lock is lost.
        guard.check()?;
        write(article, guard.token()).await;
    }
    guard.check()?;
    guard.release().await.map(drop)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let locks = Locks::connect("redis://127.0.0.1:6379").await?;
    let write = async |article: &str, token: Option<u64>| println!("{article}, token {token:?}");
    restock(&locks, &["bolts", "nuts"], write).await
}
