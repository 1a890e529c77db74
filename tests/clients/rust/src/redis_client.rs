//! redis-rs by hand, over RESP2 and RESP3: SET NX PX, scripts, transactions, a waiter that subscribes.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, ExistenceCheck, Script, SetExpiry, SetOptions};

use crate::checks::{Checked, EXTEND, LEASE, LONG, RELEASE, ROUNDS, Till, WORKERS, check, url};

pub(crate) async fn run() -> Checked {
    for protocol in ["resp2", "resp3"] {
        println!("ok over {protocol}");
        let client = redis::Client::open(format!("{}/?protocol={protocol}", url()?))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
        let locks = Locks { connection, release: Script::new(RELEASE), extend: Script::new(EXTEND) };
        ownership(&locks).await?;
        transactions(&locks).await?;
        wakes(&client, &locks).await?;
        race(&locks).await?;
    }
    Ok(())
}

/// What its users write around a connection.
struct Locks {
    connection: MultiplexedConnection,
    release: Script,
    extend: Script,
}

impl Locks {
    async fn acquire(&self, key: &str, token: &str, lease: Duration) -> redis::RedisResult<bool> {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::PX(lease.as_millis() as u64));
        let set: Option<String> = self.connection.clone().set_options(key, token, options).await?;
        Ok(set.is_some())
    }

    async fn wait(&self, key: &str, token: &str) -> redis::RedisResult<()> {
        while !self.acquire(key, token, LONG).await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn release(&self, key: &str, token: &str) -> redis::RedisResult<bool> {
        self.release.key(key).arg(token).invoke_async(&mut self.connection.clone()).await
    }

    async fn extend(&self, key: &str, token: &str, lease: Duration) -> redis::RedisResult<bool> {
        let lease = lease.as_millis() as u64;
        self.extend.key(key).arg(token).arg(lease).invoke_async(&mut self.connection.clone()).await
    }
}

async fn ownership(locks: &Locks) -> Checked {
    let mut connection = locks.connection.clone();
    check("acquire", locks.acquire("stock", "first", LONG).await?)?;
    check("contended acquire is refused", !locks.acquire("stock", "second", LONG).await?)?;
    check("release by a non-owner is refused", !locks.release("stock", "second").await?)?;
    check("extend by a non-owner is refused", !locks.extend("stock", "second", 2 * LONG).await?)?;
    check("extend", locks.extend("stock", "first", 2 * LONG).await?)?;
    let ttl: u64 = connection.pttl("stock").await?;
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
    check("release", locks.release("stock", "second").await? && !locks.release("stock", "second").await?)?;

    let start = Instant::now();
    locks.acquire("lease", "lapsed", LEASE).await?;
    locks.wait("lease", "heir").await?;
    check("expiry hands over, not before the lease ended", start.elapsed() >= LEASE)?;
    check("the lapsed holder cannot release", !locks.release("lease", "lapsed").await?)?;
    check("the heir can", locks.release("lease", "heir").await?)
}

/// A fence is taken with the lock, or neither is.
async fn transactions(locks: &Locks) -> Checked {
    let mut connection = locks.connection.clone();
    let mut take = redis::pipe();
    take.atomic();
    take.cmd("SET").arg("traded").arg("token").arg("NX").arg("PX").arg(10_000);
    take.incr("fence", 1);
    let (set, fence): (Option<String>, u64) = take.query_async(&mut connection).await?;
    check("a lock and its fence in one transaction", set.is_some() && fence == 1)?;
    let (set, fence): (Option<String>, u64) = take.query_async(&mut connection).await?;
    check("a transaction does not stop at a refusal", set.is_none() && fence == 2)?;

    let mut broken = redis::pipe();
    broken.atomic().cmd("SET").arg("traded").arg("other").cmd("NOSUCHCOMMAND").ignore();
    let refused = broken.exec_async(&mut connection).await;
    let kept: String = connection.get("traded").await?;
    check("a transaction with an unknown command does nothing", refused.is_err() && kept == "token")
}

/// A waiter that is told of the release instead of asking again and again.
async fn wakes(client: &redis::Client, locks: &Locks) -> Checked {
    let mut connection = locks.connection.clone();
    locks.acquire("told", "first", LONG).await?;
    let mut news = client.get_async_pubsub().await?;
    news.subscribe("released:told").await?;
    let counts: Vec<(String, u64)> =
        redis::cmd("PUBSUB").arg("NUMSUB").arg("released:told").query_async(&mut connection).await?;
    check("one waiter has subscribed", counts == [("released:told".to_owned(), 1)])?;
    locks.release("told", "first").await?;
    let told: u64 = connection.publish("released:told", "first").await?;
    let message = {
        use futures_util::StreamExt;
        news.on_message().next().await.ok_or("the subscription ended")?
    };
    let payload: String = message.get_payload()?;
    check("a waiter is told of the release", told == 1 && payload == "first")?;
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
