//! The crate `redlock`, which blocks: on one server and over three.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::Commands;
use redlock::{Lock, RedLock};

use crate::checks::{Checked, LEASE, LONG, ROUNDS, WORKERS, check, urls};

const LEASE_MS: usize = LEASE.as_millis() as usize;
const LONG_MS: usize = LONG.as_millis() as usize;

pub(crate) fn run() -> Checked {
    let urls = urls()?;
    check("three servers", urls.len() == 3)?;
    let connect = |url: &String| redis::Client::open(url.as_str())?.get_connection();
    let mut clients = urls.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
    for count in [1, 3] {
        println!("ok on {count}");
        let some: Vec<&str> = urls[..count].iter().map(String::as_str).collect();
        let mut hasty = RedLock::new(some.clone());
        hasty.set_retry(1, 1);
        let mut patient = RedLock::new(some);
        patient.set_retry(2_000, 10);
        ownership(&mut clients[..count], &hasty, &patient)?;
        race(&patient)?;
    }
    Ok(())
}

fn ownership(clients: &mut [redis::Connection], hasty: &RedLock, patient: &RedLock) -> Checked {
    let client = &mut clients[0];
    let first = hasty.lock(b"stock", LONG_MS)?.ok_or("refused")?;
    check("acquire", client.get::<_, Vec<u8>>("stock")? == first.val && first.validity_time <= LONG_MS)?;
    check("contended acquire is refused", hasty.lock(b"stock", LONG_MS)?.is_none())?;
    let (resource, val) = (b"stock".to_vec(), b"not the holder's".to_vec());
    hasty.unlock(&Lock { resource, val, validity_time: LONG_MS, lock_manager: hasty });
    check("release by a non-owner changes nothing", client.get::<_, Vec<u8>>("stock")? == first.val)?;

    let start = Instant::now();
    let second = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            hasty.unlock(&first);
        });
        patient.lock(b"stock", LONG_MS)
    });
    let second = second?.ok_or("refused")?;
    let waited = start.elapsed() >= Duration::from_millis(50);
    check("contended acquire waits for the release", waited && second.val != first.val)?;
    patient.unlock(&second);
    check("release", !client.exists::<_, bool>("stock")?)?;

    let start = Instant::now();
    let lapsed = hasty.lock(b"lease", LEASE_MS)?.ok_or("refused")?;
    let heir = patient.lock(b"lease", LONG_MS)?.ok_or("refused")?;
    check("expiry hands over, not before the lease ended", start.elapsed() >= LEASE)?;
    hasty.unlock(&lapsed);
    // A majority is enough, and may be all that the heir got: the leases do not end in the same instant everywhere.
    let mut kept = 0;
    for client in clients.iter_mut() {
        kept += usize::from(client.get::<_, Vec<u8>>("lease")? == heir.val);
    }
    check("the lapsed holder cannot release", 2 * kept > clients.len())?;
    patient.unlock(&heir);

    let client = &mut clients[0];
    let guard = patient.acquire(b"guarded", LONG_MS)?;
    check("a guard holds the lock", client.exists("guarded")?)?;
    drop(guard);
    check("and releases it", !client.exists::<_, bool>("guarded")?)
}

/// Threads that share a counter which loses updates unless they exclude each other.
fn race(patient: &RedLock) -> Checked {
    let (count, inside, overlaps) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    // Its errors are those of another version of redis-rs; a failure is told by its text.
    let work = || -> Result<(), String> {
        for _ in 0..ROUNDS {
            let _guard = patient.acquire(b"race", LONG_MS).map_err(|error| error.to_string())?;
            overlaps.fetch_add(inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            let seen = count.load(Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            count.store(seen + 1, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    check("workers never overlap", overlaps.into_inner() == 0)?;
    check("no update is lost", count.into_inner() == WORKERS * ROUNDS)
}
