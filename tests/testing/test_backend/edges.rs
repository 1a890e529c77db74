//! The test backend at its edges: the end of time, clients that cannot be reached, long scripts.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::*;

/// Longer than any of these replies takes.
const LONG: Duration = Duration::from_secs(10);

/// A server on threads of its own, so that a request that never ends fails its test.
fn threaded(nodes: u16) -> Server {
    Server::builder().tests(nodes).start_on_threads(1).unwrap()
}

async fn ask_soon(client: &mut Client, words: &[&str]) -> String {
    let reply = timeout(LONG, client.ask(words)).await;
    reply.unwrap_or_else(|_| panic!("{words:?} is not answered"))
}

#[tokio::test]
async fn time_ends_with_the_year_9999() {
    let server = threaded(1);
    let mut test = client(&server, 1).await;
    for moment in ["9223372036854775807", "253402300800000"] {
        let reply = ask_soon(&mut test, &["TEST.CLOCK", "SET", moment]).await;
        assert!(reply.starts_with("-ERR"), "{reply}");
    }
    let start = number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    // Far keys never end, and an automatic clock does not look for their end.
    assert_eq!(test.ask(&["SET", "far", "v", "PXAT", "9223372036854775807"]).await, "+OK");
    assert_eq!(ask_soon(&mut test, &["TEST.CLOCK", "NEXT"]).await, "$-1");
    assert_eq!(test.ask(&["TEST.CLOCK", "AUTO", "ON", "IDLE", "1"]).await, "+OK");
    assert_eq!(ask_soon(&mut test, &["BLPOP", "list", "86400"]).await, "*-1");
    assert_eq!(ask_soon(&mut test, &["TEST.CLOCK", "AUTO", "OFF"]).await, "+OK");
    assert_eq!(number(&mut test, &["TEST.CLOCK", "FREEZE"]).await, start + 86_400_000);
    assert_eq!(ask_soon(&mut test, &["TEST.CLOCK", "SET", "253402300799999"]).await, ":253402300799999");
    assert_eq!(ask_soon(&mut test, &["TEST.CLOCK", "ADVANCE", "1"]).await, ":253402300799999");
}

#[tokio::test]
async fn a_rust_test_can_go_to_the_end_of_time() {
    let server = threaded(1);
    let clock = server.clock();
    timeout(LONG, clock.advance(Duration::MAX)).await.expect("it gets there");
    assert!(clock.now().as_millis() >= 253_402_300_799_999);
}

#[tokio::test]
async fn a_wait_ends_in_time_after_a_running_clock_was_moved() {
    let server = threaded(1);
    let (mut test, mut waiter, mut queued) =
        (client(&server, 1).await, client(&server, 1).await, client(&server, 1).await);
    waiter.say(&["BLPOP", "list", "3600.05"]).await;
    until_blocked(&mut test, 1).await;
    assert_eq!(test.ask(&["SET", "lock", "me", "PX", "3600050"]).await, "+OK");
    queued.say(&["LOCK.ACQUIRE", "lock", "other", "LEASE", "100", "WAIT", "7200000"]).await;
    until_blocked(&mut test, 2).await;
    number(&mut test, &["TEST.CLOCK", "ADVANCE", "3600000"]).await;
    let start = Instant::now();
    assert_eq!(timeout(LONG, waiter.line()).await.expect("its time is over"), "*-1");
    timeout(LONG, queued.line()).await.expect("the lock is free");
    assert!(start.elapsed() < Duration::from_millis(300), "{:?}", start.elapsed());
    // The same when the clock stood still meanwhile.
    waiter.say(&["BLPOP", "list", "3600.05"]).await;
    until_blocked(&mut test, 1).await;
    number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    number(&mut test, &["TEST.CLOCK", "ADVANCE", "3600000"]).await;
    number(&mut test, &["TEST.CLOCK", "RUN"]).await;
    assert_eq!(timeout(LONG, waiter.line()).await.expect("its time is over"), "*-1");
}

#[tokio::test]
async fn a_client_that_is_not_answered_does_not_hold_up_the_next_deadline() {
    let server = threaded(2);
    let (mut test, mut waiter) = (client(&server, 1).await, client(&server, 2).await);
    let start = number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    waiter.say(&["BLPOP", "list", "1"]).await;
    let mut other = client(&server, 2).await;
    until_blocked(&mut other, 1).await;
    test.ask(&["TEST.NODE", "PAUSE", "2"]).await;
    test.ask(&["SET", "k", "v", "PX", "5000"]).await;
    assert_eq!(number(&mut test, &["TEST.CLOCK", "NEXT"]).await, start + 1_000);
    assert_eq!(number(&mut test, &["TEST.CLOCK", "NEXT"]).await, start + 5_001);
    test.ask(&["TEST.NODE", "RESUME", "2"]).await;
    assert_eq!(waiter.line().await, "*-1");
}

#[tokio::test]
async fn the_next_deadline_of_a_node_whose_clock_stands_still_is_met() {
    let server = threaded(2);
    let (mut test, mut far) = (client(&server, 1).await, client(&server, 2).await);
    let start = number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    test.ask(&["TEST.NODE", "SKEW", "2", "8000"]).await;
    test.ask(&["TEST.NODE", "SKEW", "2", "0"]).await;
    far.ask(&["SET", "k", "v", "PX", "1000"]).await;
    assert_eq!(number(&mut test, &["TEST.CLOCK", "NEXT"]).await, start + 9_001);
    assert_eq!(number(&mut far, &["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn connections_to_a_paused_node_end_with_their_namespace() {
    let server = threaded(2);
    let mut test = client(&server, 1).await;
    let mut inside = client_in(&server, "x").await;
    let mut far = client(&server, 2).await;
    assert_eq!(far.ask(&["AUTH", "namespace:x"]).await, "+OK");
    assert_eq!(inside.ask(&["TEST.NODE", "PAUSE", "2"]).await, "+OK");
    assert_eq!(number(&mut test, &["TEST.NAMESPACE", "DROP", "x"]).await, 1);
    assert!(timeout(LONG, far.has_ended()).await.expect("it is disconnected"));
}

#[tokio::test]
async fn a_clock_moves_and_is_shown_while_a_script_runs() {
    let server = threaded(1);
    let (mut test, mut busy, mut next) =
        (client(&server, 1).await, client(&server, 1).await, client(&server, 1).await);
    number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    test.ask(&["SET", "k", "v", "PX", "5000"]).await;
    busy.say(&["EVAL", "while true do end", "1", "x"]).await;
    // The script runs once its key is not to be read any more.
    let mut reader = client(&server, 1).await;
    while timeout(Duration::from_millis(100), reader.ask(&["GET", "x"])).await.is_ok() {}
    next.say(&["EVAL", "return 1 + #KEYS", "0"]).await;
    for (words, head) in
        [(["TEST.CLOCK", "SHOW"], "*8"), (["TEST.NODE", "LIST"], "*1"), (["TEST.NAMESPACE", "LIST"], "*1")]
    {
        assert_eq!(ask_soon(&mut test, &words).await, head);
        while timeout(Duration::from_millis(50), test.line()).await.is_ok() {}
    }
    assert!(ask_soon(&mut test, &["TEST.CLOCK", "ADVANCE", "1"]).await.starts_with(':'));
    assert!(ask_soon(&mut test, &["SCRIPT", "KILL"]).await.starts_with('+'));
}
