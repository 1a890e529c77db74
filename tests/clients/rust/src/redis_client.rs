//! redis-rs by hand, over RESP2 and RESP3, and in cluster mode: SET NX PX, scripts, transactions, a waiter that subscribes.

use std::error::Error;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::{AsyncCommands, ExistenceCheck, Script, SetExpiry, SetOptions};

use crate::checks::{self, Checked, EXTEND, LONG, Locks as _, RELEASE, check, ownership, race, url};

pub(crate) async fn run() -> Checked {
    for protocol in ["resp2", "resp3"] {
        println!("ok over {protocol}");
        let client = redis::Client::open(format!("{}/?protocol={protocol}", url()?))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
        let locks = Locks::new(connection);
        ownership(&locks).await?;
        transactions(&locks).await?;
        wakes(&client, &locks).await?;
        race(&locks).await?;
    }
    Ok(())
}

/// On a `ClusterClient`, which finds the node of each key.
pub(crate) async fn run_in_cluster_mode() -> Checked {
    let connection = ClusterClient::new(vec![url()?])?.get_async_connection().await?;
    let locks = Locks::new(connection);
    ownership(&locks).await?;
    transactions(&locks).await?;
    race(&locks).await
}

struct Locks<C> {
    connection: C,
    release: Script,
    extend: Script,
}

impl<C> Locks<C> {
    fn new(connection: C) -> Self {
        Self { connection, release: Script::new(RELEASE), extend: Script::new(EXTEND) }
    }
}

impl<C: ConnectionLike + AsyncCommands + Clone> checks::Locks for Locks<C> {
    async fn acquire(&self, key: &str, token: &str, lease: Duration) -> Result<bool, Box<dyn Error>> {
        let options = SetOptions::default()
            .conditional_set(ExistenceCheck::NX)
            .with_expiration(SetExpiry::PX(lease.as_millis() as u64));
        let set: Option<String> = self.connection.clone().set_options(key, token, options).await?;
        Ok(set.is_some())
    }

    async fn release(&self, key: &str, token: &str) -> Result<bool, Box<dyn Error>> {
        Ok(self.release.key(key).arg(token).invoke_async(&mut self.connection.clone()).await?)
    }

    async fn extend(&self, key: &str, token: &str, lease: Duration) -> Result<bool, Box<dyn Error>> {
        let lease = lease.as_millis() as u64;
        Ok(self.extend.key(key).arg(token).arg(lease).invoke_async(&mut self.connection.clone()).await?)
    }

    async fn pttl(&self, key: &str) -> Result<u64, Box<dyn Error>> {
        Ok(self.connection.clone().pttl(key).await?)
    }
}

/// A fence is taken with the lock, or neither is.
async fn transactions(locks: &Locks<impl ConnectionLike + AsyncCommands + Clone>) -> Checked {
    let mut connection = locks.connection.clone();
    let mut take = redis::pipe();
    take.atomic();
    take.cmd("SET").arg("{traded}").arg("token").arg("NX").arg("PX").arg(10_000);
    take.incr("fence:{traded}", 1);
    let (set, fence): (Option<String>, u64) = take.query_async(&mut connection).await?;
    check("a lock and its fence in one transaction", set.is_some() && fence == 1)?;
    let (set, fence): (Option<String>, u64) = take.query_async(&mut connection).await?;
    check("a transaction does not stop at a refusal", set.is_none() && fence == 2)?;

    let mut broken = redis::pipe();
    broken.atomic().cmd("SET").arg("{traded}").arg("other").cmd("NOSUCHCOMMAND").ignore();
    let refused = broken.exec_async(&mut connection).await;
    let kept: String = connection.get("{traded}").await?;
    check("a transaction with an unknown command does nothing", refused.is_err() && kept == "token")
}

/// A waiter that is told of the release instead of asking again and again.
async fn wakes(client: &redis::Client, locks: &Locks<MultiplexedConnection>) -> Checked {
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
