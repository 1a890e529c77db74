//! fred by hand, over RESP2 and RESP3: SET NX PX, scripts loaded when they are missed, transactions, a subscriber.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fred::prelude::*;
use fred::types::scripts::Script;
use fred::types::{CustomCommand, RespVersion};

use crate::checks::{Checked, EXTEND, LEASE, LONG, RELEASE, ROUNDS, Till, WORKERS, check, url};

pub(crate) async fn run() -> Checked {
    for version in [RespVersion::RESP2, RespVersion::RESP3] {
        println!("ok over {version:?}");
        let mut config = Config::from_url(&url()?)?;
        config.version = version;
        let client = Builder::from_config(config.clone()).build()?;
        client.init().await?;
        client.flushall::<()>(false).await?;
        let locks = Locks { client, release: Script::from_lua(RELEASE), extend: Script::from_lua(EXTEND) };
        ownership(&locks).await?;
        transactions(&locks.client).await?;
        wakes(config, &locks).await?;
        race(&locks).await?;
        locks.client.quit().await?;
    }
    Ok(())
}

/// What its users write around a client.
struct Locks {
    client: Client,
    release: Script,
    extend: Script,
}

impl Locks {
    async fn acquire(&self, key: &str, token: &str, lease: Duration) -> FredResult<bool> {
        let lease = Some(Expiration::PX(lease.as_millis() as i64));
        let set: Option<String> = self.client.set(key, token, lease, Some(SetOptions::NX), false).await?;
        Ok(set.is_some())
    }

    async fn wait(&self, key: &str, token: &str) -> FredResult<()> {
        while !self.acquire(key, token, LONG).await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn release(&self, key: &str, token: &str) -> FredResult<bool> {
        self.release.evalsha_with_reload(&self.client, key, token).await
    }

    async fn extend(&self, key: &str, token: &str, lease: Duration) -> FredResult<bool> {
        let arguments = vec![token.to_owned(), lease.as_millis().to_string()];
        self.extend.evalsha_with_reload(&self.client, key, arguments).await
    }
}

async fn ownership(locks: &Locks) -> Checked {
    check("acquire", locks.acquire("stock", "first", LONG).await?)?;
    check("contended acquire is refused", !locks.acquire("stock", "second", LONG).await?)?;
    check("release by a non-owner is refused", !locks.release("stock", "second").await?)?;
    check("extend by a non-owner is refused", !locks.extend("stock", "second", 2 * LONG).await?)?;
    check("extend", locks.extend("stock", "first", 2 * LONG).await?)?;
    let ttl: u64 = locks.client.pttl("stock").await?;
    check("takes the lease anew", (19_001..=20_000).contains(&ttl))?;

    let start = Instant::now();
    let release = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        locks.release("stock", "first").await
    };
    let (waited, released) = tokio::join!(locks.wait("stock", "second"), release);
    waited?;
    let is_late = start.elapsed() >= Duration::from_millis(50);
    check("contended acquire waits for the release", released? && is_late)?;
    locks.client.script_flush(false).await?;
    check("release, though the script was flushed", locks.release("stock", "second").await?)?;
    check("a second release is refused", !locks.release("stock", "second").await?)?;

    let start = Instant::now();
    locks.acquire("lease", "lapsed", LEASE).await?;
    locks.wait("lease", "heir").await?;
    check("expiry hands over, not before the lease ended", start.elapsed() >= LEASE)?;
    check("the lapsed holder cannot release", !locks.release("lease", "lapsed").await?)?;
    check("the heir can", locks.release("lease", "heir").await?)
}

/// A fence is taken with the lock, or neither is.
async fn transactions(client: &Client) -> Checked {
    let lease = Some(Expiration::PX(10_000));
    for fence in 1..=2 {
        let take = client.multi();
        take.set::<(), _, _>("traded", "token", lease.clone(), Some(SetOptions::NX), false).await?;
        take.incr::<(), _>("fence").await?;
        let (set, seen): (Option<String>, u64) = take.exec(true).await?;
        check("a lock and its fence in one transaction", set.is_some() == (fence == 1) && seen == fence)?;
    }
    let broken = client.multi();
    broken.set::<(), _, _>("traded", "other", None, None, false).await?;
    broken.custom::<(), String>(CustomCommand::new_static("NOSUCHCOMMAND", None, false), vec![]).await?;
    let refused = broken.exec::<()>(true).await.is_err();
    let kept: String = client.get("traded").await?;
    check("a transaction with an unknown command does nothing", refused && kept == "token")
}

/// A waiter that is told of the release instead of asking again and again.
async fn wakes(config: Config, locks: &Locks) -> Checked {
    locks.acquire("told", "first", LONG).await?;
    let news = Builder::from_config(config).build_subscriber_client()?;
    news.init().await?;
    let mut messages = news.message_rx();
    news.subscribe("released:told").await?;
    // Over RESP2 it returns before it has even asked.
    let is_heard = async || -> FredResult<bool> {
        let counts: HashMap<String, u64> = locks.client.pubsub_numsub("released:told").await?;
        Ok(counts.values().sum::<u64>() == 1)
    };
    while !is_heard().await? {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    locks.release("told", "first").await?;
    let told: u64 = locks.client.publish("released:told", "first").await?;
    let message = messages.recv().await?;
    let payload: String = message.value.convert()?;
    check("a waiter is told of the release", told == 1 && payload == "first")?;
    news.quit().await?;
    check("and acquires", locks.acquire("told", "second", LONG).await?)
}

/// Workers that share a counter which loses updates unless they exclude each other.
async fn race(locks: &Locks) -> Checked {
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
