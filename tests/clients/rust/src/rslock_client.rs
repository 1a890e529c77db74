//! rslock on redis-rs: acquire, wait, extend, release, expiry, and workers that must not overlap.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use rslock::{Lock, LockError, LockManager};

use crate::checks::{Checked, LEASE, LONG, ROUNDS, Till, check, url};

pub(crate) async fn run() -> Checked {
    let url = url()?;
    let mut client = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    let mut hasty = LockManager::new(vec![url.as_str()]);
    hasty.set_retry(1, Duration::from_millis(1));
    let mut patient = LockManager::new(vec![url.as_str()]);
    patient.set_retry(2_000, Duration::from_millis(10));

    ownership(&mut client, &hasty, &patient).await?;
    leases(&mut client, &hasty, &patient).await?;
    race(&patient).await
}

async fn ownership(
    client: &mut MultiplexedConnection,
    hasty: &LockManager,
    patient: &LockManager,
) -> Checked {
    let first = hasty.lock("stock", LONG).await?;
    check("acquire", client.get::<_, Vec<u8>>("stock").await? == first.val)?;
    check("contended acquire is refused", is_unavailable(hasty.lock("stock", LONG).await))?;

    let stranger = Lock {
        resource: first.resource.clone(),
        val: b"not the holder's".to_vec(),
        validity_time: first.validity_time,
        lock_manager: hasty.clone(),
    };
    hasty.unlock(&stranger).await;
    check("release by a non-owner changes nothing", client.get::<_, Vec<u8>>("stock").await? == first.val)?;
    check("extend by a non-owner is refused", is_unavailable(hasty.extend(&stranger, LONG).await))?;
    let seen = hasty.is_freed(&stranger).await;
    check("a non-owner learns that it is another's", matches!(seen, Err(LockError::RedisKeyMismatch)))?;

    let first = hasty.extend(&first, 2 * LONG).await?;
    let ttl: u64 = client.pttl("stock").await?;
    check("extend takes the lease anew", (19_001..=20_000).contains(&ttl))?;
    check("the owner still holds it", !hasty.is_freed(&first).await?)?;

    let release = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        hasty.unlock(&first).await;
    };
    let (second, ()) = tokio::join!(patient.lock("stock", LONG), release);
    let second = second?;
    check("contended acquire waits for the release", client.get::<_, Vec<u8>>("stock").await? == second.val)?;
    patient.unlock(&second).await;
    check("release", !client.exists::<_, bool>("stock").await?)?;
    check("nothing is left", matches!(hasty.is_freed(&second).await, Err(LockError::RedisKeyNotFound)))
}

async fn leases(client: &mut MultiplexedConnection, hasty: &LockManager, patient: &LockManager) -> Checked {
    let start = Instant::now();
    let lapsed = hasty.lock("lease", LEASE).await?;
    let heir = patient.lock("lease", LONG).await?;
    check("expiry hands over, not before the lease ended", start.elapsed() >= LEASE)?;
    hasty.unlock(&lapsed).await;
    check("the lapsed holder cannot release", client.get::<_, Vec<u8>>("lease").await? == heir.val)?;
    check("the lapsed holder cannot extend", is_unavailable(hasty.extend(&lapsed, LONG).await))?;
    patient.unlock(&heir).await;

    let guard = patient.acquire("guarded", LONG).await?;
    check("a guard holds the lock", client.exists("guarded").await?)?;
    guard.release().await;
    check("and releases it", !client.exists::<_, bool>("guarded").await?)
}

/// Workers that share a counter which loses updates unless they exclude each other.
async fn race(patient: &LockManager) -> Checked {
    let till = Till::default();
    let work = async || -> Checked {
        for _ in 0..ROUNDS {
            let lock = patient.lock("race", LONG).await?;
            till.update().await;
            patient.unlock(&lock).await;
        }
        Ok(())
    };
    tokio::try_join!(work(), work(), work(), work())?;
    till.check()
}

fn is_unavailable(result: Result<Lock, LockError>) -> bool {
    matches!(result, Err(LockError::Unavailable))
}
