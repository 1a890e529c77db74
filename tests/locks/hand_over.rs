//! Hand-overs of a lock to a named successor, as the client for Rust asks for them.
//!
//! Belongs here  what a program sees of LOCK.TRANSFER; its replies are in the transcript `lock_transfer`.
//! Time          the server's clock stands still.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redlatch::lock::{Error, Guard, Locks, Lost};
use redlatch::{Server, WallTime};
use tokio::task::JoinHandle;

use crate::support::stream::StreamClient;
use crate::support::waits::wait_until_async;

const LEASE: Duration = Duration::from_secs(30);

async fn manual() -> (Server, Locks) {
    let start = WallTime::from_millis(1_700_000_000_000);
    let server = Server::builder().manual_clock(start).start().await.unwrap();
    let locks = server.locks();
    (server, locks)
}

/// A leader that is to hand over, and the task of a successor that waits for the lock.
async fn leader(locks: &Locks) -> (Guard, JoinHandle<Result<Guard, Error>>) {
    let old = locks.lock("leader").acquire().owner("node-1").await.unwrap();
    let acquire = locks.lock("leader").acquire().owner("node-2").wait(Duration::from_secs(3_600));
    let successor = tokio::spawn(async move { acquire.await });
    let waits = async || {
        let waiters = locks.waiters("leader").await.unwrap();
        waiters.iter().any(|waiter| waiter.owner.as_deref() == Some(b"node-2"))
    };
    wait_until_async("the successor waits", waits).await;
    (old, successor)
}

// Shows P-hand-over.
#[tokio::test]
async fn a_leader_hands_over_in_a_rolling_deploy_and_nobody_else_gets_the_lock() {
    let (server, locks) = manual().await;
    let (old, successor) = leader(&locks).await;
    let is_over = Arc::new(AtomicBool::new(false));
    // Somebody who asks for the lock all the time, and would have it in any gap.
    let mut thief = StreamClient::new(server.stream());
    let ends = Arc::clone(&is_over);
    let thief = tokio::spawn(async move {
        while !ends.load(Ordering::Relaxed) {
            assert_eq!(thief.ask_lines("SET leader thief NX PX 1\r\n", 1).await, ["$-1"]);
        }
    });

    let token = old.transfer_to("node-2", None).await.unwrap();

    let new = successor.await.unwrap().unwrap();
    assert_eq!((new.token(), new.token() > old.token()), (token, true));
    assert_eq!(old.lost().await, Lost::Transferred);
    assert!(matches!(old.extend(None).await, Err(Error::Lost { reason: Lost::Transferred, .. })));
    let mut resource = StreamClient::new(server.stream());
    assert_eq!(resource.ask(&["LOCK.GUARD", "stock", "2"]).await, ":1");
    assert_eq!(resource.ask(&["LOCK.GUARD", "stock", "1"]).await, "-STALE token 1 is lower than 2");
    is_over.store(true, Ordering::Relaxed);
    thief.await.unwrap();
    assert!(!old.release().await.unwrap(), "it was held no longer");
    assert!(new.release().await.unwrap());
}

#[tokio::test]
async fn a_refused_hand_over_keeps_the_lock() {
    let (_server, locks) = manual().await;
    let old = locks.lock("leader").acquire().owner("node-1").await.unwrap();
    let refused = old.transfer_to("node-2", None).await.unwrap_err();
    assert!(matches!(&refused, Error::Refused(text) if text.starts_with("NOLEASE ")), "{refused}");
    let long = "x".repeat(1_025);
    for (owner, lease, fault) in [
        ("", LEASE, "an owner has 1 to 1,024 bytes"),
        (&long, LEASE, "an owner has 1 to 1,024 bytes"),
        ("node-1", LEASE, "the owner has the lock already"),
        ("node-2", Duration::ZERO, "a lease lasts for 1 ms at least"),
    ] {
        let refused = old.transfer_to(owner, Some(lease)).await.unwrap_err();
        assert!(matches!(&refused, Error::Usage(text) if text.starts_with(fault)), "{refused}");
    }
    old.check().unwrap();
    old.extend(None).await.unwrap();
    let token = old.transfer_to("node-2", Some(LEASE)).await.unwrap();
    // It has not waited: it asks under its name, and has the same grant.
    let new = locks.lock("leader").acquire().owner("node-2").await.unwrap();
    assert_eq!((new.token(), token), (Some(2), Some(2)));
}

#[tokio::test]
async fn a_lock_that_was_lost_cannot_be_handed_over() {
    let (server, locks) = manual().await;
    let old = locks.lock("leader").acquire().owner("node-1").renew(false).await.unwrap();
    server.keys().remove("leader");
    assert!(matches!(old.transfer_to("node-2", Some(LEASE)).await, Err(Error::Lost { .. })));
    let several = locks.lock_all(["a", "b"]).acquire().await.unwrap();
    assert!(matches!(several.transfer_to("node-2", Some(LEASE)).await, Err(Error::Usage(_))));
    several.check().unwrap();
}
