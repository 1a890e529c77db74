//! What every Rust client here shares: where the server is, how a check reports, and what a race has seen.

use std::cell::Cell;
use std::error::Error;
use std::time::Duration;

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
