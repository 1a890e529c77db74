//! rslock and native holders of the same key.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue, Value, cmd};
use rslock::{LockError, LockManager};

use crate::checks::{Checked, LONG, check, url};

type Map = HashMap<String, Value>;

pub(crate) async fn run() -> Checked {
    let url = url()?;
    let client = redis::Client::open(url.as_str())?;
    // The library gives up waiting for a reply after half a second otherwise.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut native = client.get_multiplexed_async_connection().await?;
    let mut waiter = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut hasty = LockManager::new(vec![url.as_str()]);
    hasty.set_retry(1, Duration::from_millis(1));
    let mut patient = LockManager::new(vec![url.as_str()]);
    patient.set_retry(2_000, Duration::from_millis(10));

    let first: Map = ask(&mut native, &["LOCK.ACQUIRE", "stock", "first", "LEASE", "10000"]).await?;
    let refused = matches!(hasty.lock("stock", LONG).await, Err(LockError::Unavailable));
    check("what a native client holds is refused", refused)?;

    let release = async {
        until_waited(&mut native, "polling").await?;
        Ok::<_, Box<dyn std::error::Error>>(
            ask::<u64>(&mut native, &["LOCK.RELEASE", "stock", "first"]).await?,
        )
    };
    let (lock, released) = tokio::join!(patient.lock("stock", LONG), release);
    check("a release by a native client", released? == 1)?;
    let lock = lock?;
    let value: Vec<u8> = ask(&mut native, &["GET", "stock"]).await?;
    check("lets the next one have it", value == lock.val)?;

    let second: u64 = cmd("LOCK.TOKEN").arg("stock").arg(&value).query_async(&mut native).await?;
    check("its token is higher", second > token(&first)?)?;
    let who: Map = ask(&mut native, &["LOCK.WHO", "stock"]).await?;
    let holders: Vec<Map> = field(&who, "holders")?;
    let holder = holders.first().ok_or("a holder")?;
    let library: Map = field(holder, "client")?;
    let is_named = field::<String>(&library, "lib-name")? == "redis-rs";
    check("LOCK.WHO names it", is_named && field::<Vec<u8>>(holder, "owner")? == value)?;
    let refused: Value = ask(&mut native, &["LOCK.ACQUIRE", "stock", "heir"]).await?;
    check("a native client is refused", refused == Value::Nil)?;

    let wait = ["LOCK.ACQUIRE", "stock", "heir", "LEASE", "10000", "WAIT", "10000"];
    let release = async {
        until_waited(&mut native, "queued").await?;
        hasty.unlock(&lock).await;
        Ok::<_, Box<dyn std::error::Error>>(ask::<String>(&mut native, &["GET", "stock"]).await?)
    };
    let (third, heir) = tokio::join!(ask::<Map>(&mut waiter, &wait), release);
    // One command after the release: nobody can have come between.
    check("a native waiter has it as soon as it is released", heir? == "heir")?;
    check("with a higher token", token(&third?)? > second)?;
    let refused = matches!(hasty.lock("stock", LONG).await, Err(LockError::Unavailable));
    check("and it is refused again", refused)?;
    check("until it is released", ask::<u64>(&mut native, &["LOCK.RELEASE", "stock", "heir"]).await? == 1)?;
    let last = hasty.lock("stock", LONG).await?;
    let released: u64 = cmd("LOCK.RELEASE").arg("stock").arg(&last.val).query_async(&mut native).await?;
    check("its lock is released by its value", released == 1)?;
    check("which it learns", matches!(hasty.extend(&last, LONG).await, Err(LockError::Unavailable)))
}

async fn ask<T: FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> redis::RedisResult<T> {
    let mut command = cmd(words[0]);
    command.arg(&words[1..]).query_async(connection).await
}

/// Until somebody waits for the lock in that way: queued, or polling.
async fn until_waited(
    connection: &mut MultiplexedConnection,
    how: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        for waiter in ask::<Vec<Map>>(connection, &["LOCK.WAITERS", "stock"]).await? {
            if field::<String>(&waiter, "how")? == how {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn token(grant: &Map) -> Result<u64, Box<dyn std::error::Error>> {
    field(grant, "token")
}

fn field<T: FromRedisValue>(map: &Map, name: &str) -> Result<T, Box<dyn std::error::Error>> {
    let value = map.get(name).ok_or_else(|| format!("no field {name}"))?;
    T::from_redis_value(value.clone()).map_err(|error| error.to_string().into())
}
