//! One of several locks, and several kinds at once, as the client for Rust asks for them.
//!
//! Belongs here  what a program sees of LOCK.MACQUIRE with ANY and MODE; its replies are in docs/allocation.md.
//! Time          the runtime's stands still and moves only when nothing else can happen; the server's is manual.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::time::Duration;

use redlatch::lock::{Error, Kind, Locks, Lost};
use redlatch::{Server, WallTime, When};

use crate::support::waits::wait_until_async;

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);
const FOUR: Kind = Kind::Permits { count: 1, limit: 4 };

async fn manual() -> (Server, Locks) {
    let start = WallTime::from_millis(1_700_000_000_000);
    let server = Server::builder().manual_clock(start).tests(1).start().await.unwrap();
    let locks = server.locks();
    (server, locks)
}

async fn keys(locks: &Locks) -> Vec<Vec<u8>> {
    locks.list("*").await.unwrap().into_iter().map(|held| held.key).collect()
}

#[tokio::test]
async fn one_of_several_is_the_lock_of_that_key_alone() {
    let (server, locks) = manual().await;
    let first = locks.lock("a").acquire().await.unwrap();
    let second = locks.any_of(["a", "b", "c"]).acquire().await.unwrap();
    assert_eq!((first.key(), second.key()), (&b"a"[..], &b"b"[..]));
    assert!(second.token() > first.token());
    second.extend(Some(HOUR)).await.unwrap();
    assert_eq!((server.keys().lease("b"), server.keys().lease("a")), (Some(Some(HOUR)), Some(Some(LEASE))));
    assert!(second.release().await.unwrap());
    assert_eq!(keys(&locks).await, [b"a"]);
    assert!(first.release().await.unwrap(), "nobody else has released it");
}

#[tokio::test]
async fn a_wait_for_one_of_several_gets_the_first_that_is_free_and_leaves_the_other_queues() {
    let (_server, locks) = manual().await;
    let [a, b] = [locks.lock("a").acquire().await.unwrap(), locks.lock("b").acquire().await.unwrap()];
    let Err(Error::Held(Some(held))) = locks.any_of(["a", "b"]).acquire().await else {
        panic!("all are held")
    };
    assert_eq!(held.key, b"a");
    let waiting = tokio::spawn(locks.any_of(["a", "b"]).acquire().wait(HOUR).into_future());
    let waits = async || !locks.waiters("b").await.unwrap().is_empty();
    wait_until_async("it waits", waits).await;
    assert_eq!(locks.waiters("a").await.unwrap().len(), 1);
    assert!(b.release().await.unwrap());
    assert_eq!(waiting.await.unwrap().unwrap().key(), b"b");
    assert_eq!(locks.waiters("a").await.unwrap(), []);
    assert!(a.release().await.unwrap());
}

#[tokio::test]
async fn a_request_whose_answer_is_lost_is_sent_again_and_gets_the_same_key() {
    let (server, locks) = manual().await;
    for request in [locks.any_of(["a", "b"]).acquire(), locks.any_of(["a", "b"]).acquire().wait(HOUR)] {
        let fault = server.faults().drop_reply(When::command("LOCK.MACQUIRE").times(1)).unwrap();
        let guard = request.await.unwrap();
        assert_eq!((fault.hits(), guard.key(), keys(&locks).await.len()), (1, &b"a"[..], 1));
        assert!(guard.release().await.unwrap());
    }
}

#[tokio::test]
async fn the_loss_of_one_of_several_is_told_and_it_can_be_handed_over() {
    let (_server, locks) = manual().await;
    let any = locks.any_of(["a", "b"]);
    let [a, b] = [any.acquire().await.unwrap(), any.acquire().await.unwrap()];
    assert!(locks.break_lock("b", b.token().unwrap(), None).await.unwrap());
    assert!(matches!(b.lost().await, Lost::Broken(_)));
    assert_eq!(a.transfer_to("successor", Some(LEASE)).await.unwrap(), b.token().map(|token| token + 1));
    assert_eq!(a.lost().await, Lost::Transferred);
    assert_eq!(locks.who("a").await.unwrap().unwrap().holders[0].owner, b"successor");
    // What one owner holds already comes first.
    let again = any.acquire().owner("successor").hold().await.unwrap();
    assert_eq!((again.key, keys(&locks).await.len()), (b"a".to_vec(), 1));
}

#[tokio::test]
async fn each_key_has_its_own_mode_also_while_it_is_left() {
    let (_server, locks) = manual().await;
    let all = || {
        locks.lock_all(["x", "tenant", "total"]).acquire().mode("total", FOUR).mode("tenant", Kind::Shared)
    };
    let first = all().await.unwrap();
    assert_eq!(first.key(), b"x");
    assert!(matches!(all().await, Err(Error::Held(Some(held))) if held.key == b"x"));
    assert!(first.leave(LEASE).await.unwrap());
    let kinds: Vec<_> = locks.list("*").await.unwrap().into_iter().map(|held| held.kind).collect();
    assert_eq!(kinds, ["shared", "permits", "exclusive"]);

    let gpu = || locks.any_of(["x", "total"]).acquire().mode("total", FOUR);
    for _ in 0..3 {
        let guard = gpu().await.unwrap();
        assert_eq!(guard.key(), b"total");
        assert!(guard.leave(LEASE).await.unwrap());
    }
    assert!(matches!(gpu().await, Err(Error::Held(_))));
    let one = locks.lock("tenant").acquire().mode("tenant", Kind::Shared).await.unwrap();
    assert!(one.release().await.unwrap());
}

#[tokio::test]
async fn a_server_without_lock_commands_has_no_one_of_several() {
    let (server, locks) = manual().await;
    for command in ["LOCK.ACQUIRE", "LOCK.MACQUIRE"] {
        server.faults().error("ERR unknown command", When::command(command)).unwrap();
    }
    for (acquire, lacking) in [
        (locks.any_of(["a", "b"]).acquire(), "one of several keys"),
        (locks.lock_all(["a", "b"]).acquire().mode("a", Kind::Shared), "several keys at once"),
        (locks.lock("a").acquire().mode("a", Kind::Shared), "a shared lock"),
    ] {
        let refused = acquire.await.unwrap_err();
        assert!(matches!(refused, Error::Unsupported(what) if what == lacking), "{refused}");
    }
    // One of one key is the lock of that key.
    assert_eq!(locks.any_of(["a", "a"]).acquire().await.unwrap().key(), b"a");
}

#[tokio::test]
async fn what_no_server_grants_is_refused_before_anything_is_sent() {
    let locks = Locks::over(|| async { Err::<tokio::net::TcpStream, _>(std::io::Error::other("sent")) });
    let any = || locks.any_of(["a", "b", "a"]).acquire();
    for (acquire, fault) in [
        (locks.any_of(Vec::<Vec<u8>>::new()).acquire(), "a lock needs a key"),
        (locks.any_of(["a", ""]).acquire(), "a lock needs a key"),
        (any().mode("c", Kind::Shared), "modes name a key that is not one of the keys"),
        (any().mode("a", Kind::Reentrant), "modes are exclusive, shared and permits"),
        (any().mode("a", Kind::Permits { count: 3, limit: 2 }), "permits are 1 at least"),
        (any().mode("a", Kind::Shared).mode("a", FOUR), "a lock is one of"),
        (any().shared(), "several keys have no meta"),
        (any().meta("reason", "tests"), "several keys have no meta"),
    ] {
        let refused = acquire.await.unwrap_err();
        assert!(matches!(refused, Error::Usage(said) if said.starts_with(fault)), "{refused}");
    }
}
