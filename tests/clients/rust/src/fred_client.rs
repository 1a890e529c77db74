//! fred by hand, over RESP2 and RESP3: SET NX PX, scripts loaded when they are missed, transactions, a subscriber.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use fred::prelude::*;
use fred::types::scripts::Script;
use fred::types::{CustomCommand, RespVersion};

use crate::checks::{self, Checked, EXTEND, LONG, Locks as _, RELEASE, check, ownership, race, url};

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
        reload(&locks).await?;
        transactions(&locks.client).await?;
        wakes(config, &locks).await?;
        race(&locks).await?;
        locks.client.quit().await?;
    }
    Ok(())
}

struct Locks {
    client: Client,
    release: Script,
    extend: Script,
}

impl checks::Locks for Locks {
    async fn acquire(&self, key: &str, token: &str, lease: Duration) -> Result<bool, Box<dyn Error>> {
        let lease = Some(Expiration::PX(lease.as_millis() as i64));
        let set: Option<String> = self.client.set(key, token, lease, Some(SetOptions::NX), false).await?;
        Ok(set.is_some())
    }

    async fn release(&self, key: &str, token: &str) -> Result<bool, Box<dyn Error>> {
        Ok(self.release.evalsha_with_reload(&self.client, key, token).await?)
    }

    async fn extend(&self, key: &str, token: &str, lease: Duration) -> Result<bool, Box<dyn Error>> {
        let arguments = vec![token.to_owned(), lease.as_millis().to_string()];
        Ok(self.extend.evalsha_with_reload(&self.client, key, arguments).await?)
    }

    async fn pttl(&self, key: &str) -> Result<u64, Box<dyn Error>> {
        Ok(self.client.pttl(key).await?)
    }
}

/// A script that the server has forgotten is loaded again.
async fn reload(locks: &Locks) -> Checked {
    locks.acquire("flushed", "token", LONG).await?;
    locks.client.script_flush(false).await?;
    check("release, though the script was flushed", locks.release("flushed", "token").await?)
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
