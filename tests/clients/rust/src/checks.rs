//! What every Rust client here shares: where the server is, how a check reports, and what a race has seen.

use std::cell::Cell;
use std::error::Error;
use std::time::{Duration, Instant};

pub(crate) type Checked = Result<(), Box<dyn Error>>;

/// What a client by hand sends to release: delete the key if it still holds the token.
pub(crate) const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
/// And to extend: begin the lease anew.
pub(crate) const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

pub(crate) const LEASE: Duration = Duration::from_millis(200);
pub(crate) const LONG: Duration = Duration::from_secs(10);
pub(crate) const WORKERS: usize = 4;
pub(crate) const ROUNDS: usize = 15;

/// `redis://` and the address of each server.
pub(crate) fn urls() -> Result<Vec<String>, Box<dyn Error>> {
    let host = std::env::var("REDLATCH_HOST")?;
    let ports = std::env::var("REDLATCH_PORTS")?;
    Ok(ports.split(',').map(|port| format!("redis://{host}:{port}")).collect())
}

/// The one server of a client that needs no more.
pub(crate) fn url() -> Result<String, Box<dyn Error>> {
    urls()?.into_iter().next().ok_or_else(|| "no server".into())
}

/// Prints `ok <name>`, or ends the program.
pub(crate) fn check(name: &str, truth: bool) -> Checked {
    if !truth {
        return Err(format!("FAILED {name}").into());
    }
    println!("ok {name}");
    Ok(())
}

/// What users write around a client that has no lock.
pub(crate) trait Locks {
    async fn acquire(&self, key: &str, token: &str, lease: Duration) -> Result<bool, Box<dyn Error>>;
    async fn release(&self, key: &str, token: &str) -> Result<bool, Box<dyn Error>>;
    async fn extend(&self, key: &str, token: &str, lease: Duration) -> Result<bool, Box<dyn Error>>;
    async fn pttl(&self, key: &str) -> Result<u64, Box<dyn Error>>;

    async fn wait(&self, key: &str, token: &str) -> Checked {
        while !self.acquire(key, token, LONG).await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

pub(crate) async fn ownership(locks: &impl Locks) -> Checked {
    check("acquire", locks.acquire("stock", "first", LONG).await?)?;
    check("contended acquire is refused", !locks.acquire("stock", "second", LONG).await?)?;
    check("release by a non-owner is refused", !locks.release("stock", "second").await?)?;
    check("extend by a non-owner is refused", !locks.extend("stock", "second", 2 * LONG).await?)?;
    check("extend", locks.extend("stock", "first", 2 * LONG).await?)?;
    check("takes the lease anew", (19_001..=20_000).contains(&locks.pttl("stock").await?))?;

    let start = Instant::now();
    let release = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        locks.release("stock", "first").await
    };
    let (waited, released) = tokio::join!(locks.wait("stock", "second"), release);
    waited?;
    let is_late = start.elapsed() >= Duration::from_millis(50);
    check("contended acquire waits for the release", released? && is_late)?;
    check("release", locks.release("stock", "second").await? && !locks.release("stock", "second").await?)?;

    let start = Instant::now();
    locks.acquire("lease", "lapsed", LEASE).await?;
    locks.wait("lease", "heir").await?;
    check("expiry hands over, not before the lease ended", start.elapsed() >= LEASE)?;
    check("the lapsed holder cannot release", !locks.release("lease", "lapsed").await?)?;
    check("the heir can", locks.release("lease", "heir").await?)
}

/// Workers that share a counter which loses updates unless they exclude each other.
pub(crate) async fn race(locks: &impl Locks) -> Checked {
    let till = Till::default();
    let work = async |worker: usize| -> Checked {
        for round in 0..ROUNDS {
            let token = format!("{worker}/{round}");
            locks.wait("race", &token).await?;
            till.update().await;
            locks.release("race", &token).await?;
        }
        Ok(())
    };
    const { assert!(WORKERS == 4, "as many as are joined here") };
    tokio::try_join!(work(0), work(1), work(2), work(3))?;
    till.check()
}

/// A counter that loses updates, and says so, unless its users exclude each other.
#[derive(Default)]
pub(crate) struct Till {
    count: Cell<usize>,
    inside: Cell<usize>,
    overlaps: Cell<usize>,
}

impl Till {
    /// An update in two halves with a pause between them.
    pub(crate) async fn update(&self) {
        self.inside.set(self.inside.get() + 1);
        self.overlaps.set(self.overlaps.get() + usize::from(self.inside.get() > 1));
        let seen = self.count.get();
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.count.set(seen + 1);
        self.inside.set(self.inside.get() - 1);
    }

    pub(crate) fn check(&self) -> Checked {
        check("workers never overlap", self.overlaps.get() == 0)?;
        check("no update is lost", self.count.get() == WORKERS * ROUNDS)
    }
}
