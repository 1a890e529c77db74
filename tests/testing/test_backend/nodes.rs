//! TEST.NODE: several stores in one process, which crash, pause and drift.

use super::*;

/// Connects to a node and expects a reset at the first request.
async fn is_reset(server: &Server, node: usize) -> bool {
    let mut client = client(server, node).await;
    client.say(&["PING"]).await;
    let mut rest = Vec::new();
    client.0.read_to_end(&mut rest).await.is_err() && rest.is_empty()
}

#[tokio::test]
async fn a_node_that_crashes_resets_its_clients_and_loses_its_keys() {
    let server = server(2).await;
    let (mut test, mut victim) = (client(&server, 1).await, client(&server, 2).await);
    victim.ask(&["SET", "k", "v"]).await;
    assert_eq!(test.ask(&["TEST.NODE", "CRASH", "2", "KEEP"]).await, "+OK");
    let error = victim.0.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(is_reset(&server, 2).await);
    assert_eq!(test.ask(&["PING"]).await, "+PONG");
    assert_eq!(test.ask(&["TEST.NODE", "START", "2"]).await, "+OK");
    let mut again = client(&server, 2).await;
    assert_eq!(bulk(&mut again, &["GET", "k"]).await.as_deref(), Some("v"), "KEEP");
    test.ask(&["TEST.NODE", "CRASH", "2"]).await;
    test.ask(&["TEST.NODE", "START", "2"]).await;
    let mut again = client(&server, 2).await;
    assert_eq!(bulk(&mut again, &["GET", "k"]).await, None);
}

#[tokio::test]
async fn a_lock_that_a_crash_loses_is_granted_to_none_who_waited_for_it() {
    // A session ends with its connection, before those that are reset after it.
    let set = &["SET", "lock", "a", "NX", "PX", "60000"][..];
    for (take, answer) in [(set, "+OK"), (&["LOCK.ACQUIRE", "lock", "a", "SESSION"], "*6")] {
        for keeps_keys in [true, false] {
            let server = server(2).await;
            let (mut test, mut holder) = (client(&server, 2).await, client(&server, 2).await);
            assert_eq!(holder.ask(take).await, answer);
            let mut waiters = Vec::new();
            for owner in ["b", "c", "d", "e"] {
                let mut waiter = client(&server, 2).await;
                waiter.say(&["LOCK.ACQUIRE", "lock", owner, "LEASE", "60000", "WAIT", "60000"]).await;
                waiters.push(waiter);
                until_blocked(&mut test, waiters.len()).await;
            }
            server.nodes().crash(2, keeps_keys).await;
            assert_eq!(server.nodes().list()[1].state, redlatch::NodeState::Crashed);
            for waiter in &mut waiters {
                assert_eq!(waiter.0.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
            }
            let events = server.history().events();
            let granted = events.iter().filter(|event| event.kind == EventKind::Granted);
            assert_eq!(granted.count(), 1, "{take:?} {keeps_keys}");
            assert_eq!(server.history().check(), [], "{take:?} {keeps_keys}");
        }
    }
}

#[tokio::test]
async fn a_node_that_has_started_after_a_crash_grants_locks_to_those_who_wait() {
    let server = server(2).await;
    let (mut test, mut before) = (client(&server, 1).await, client(&server, 2).await);
    before.ask(&["LOCK.ACQUIRE", "lock", "a", "LEASE", "60000"]).await;
    test.ask(&["TEST.NODE", "CRASH", "2"]).await;
    test.ask(&["TEST.NODE", "START", "2"]).await;
    let (mut holder, mut waiter) = (client(&server, 2).await, client(&server, 2).await);
    assert_eq!(holder.ask(&["LOCK.ACQUIRE", "lock", "b", "LEASE", "60000", "JUSTTOKEN"]).await, ":2");
    waiter.say(&["LOCK.ACQUIRE", "lock", "c", "LEASE", "60000", "WAIT", "60000", "JUSTTOKEN"]).await;
    until_blocked(&mut holder, 1).await;
    assert_eq!(holder.ask(&["LOCK.RELEASE", "lock", "b"]).await, ":1");
    assert_eq!(waiter.line().await, ":3");
}

#[tokio::test]
async fn a_node_that_starts_at_once_after_its_crash_has_reset_its_clients() {
    let server = server(1).await;
    for keeps_keys in [true, false] {
        let mut victim = client(&server, 1).await;
        victim.ask(&["SET", "k", "v"]).await;
        server.nodes().crash(1, keeps_keys).await;
        server.nodes().start(1).await;
        let error = victim.0.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(client(&server, 1).await.ask(&["PING"]).await, "+PONG");
    }
}

#[tokio::test]
async fn a_crash_in_one_namespace_is_not_seen_in_another() {
    let server = server(2).await;
    let mut test = client(&server, 1).await;
    test.ask(&["TEST.NODE", "CRASH", "2"]).await;
    let mut other = client(&server, 2).await;
    assert_eq!(other.ask(&["AUTH", "namespace:x"]).await, "+OK");
    assert_eq!(other.ask(&["PING"]).await, "+PONG");
    assert!(is_reset(&server, 2).await);
}

#[tokio::test]
async fn a_node_that_is_paused_answers_when_it_is_resumed() {
    let server = server(2).await;
    let (mut test, mut client) = (client(&server, 1).await, client(&server, 2).await);
    assert_eq!(client.ask(&["PING"]).await, "+PONG");
    assert_eq!(test.ask(&["TEST.NODE", "PAUSE", "2"]).await, "+OK");
    client.say(&["SET", "k", "v"]).await;
    // Moving the clock does not wait for a node that is paused.
    number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    number(&mut test, &["TEST.CLOCK", "ADVANCE", "1000"]).await;
    assert!(client.has_no_answer().await);
    assert_eq!(test.ask(&["TEST.NODE", "RESUME", "2"]).await, "+OK");
    assert_eq!(client.line().await, "+OK");
}

#[tokio::test]
async fn a_partition_is_between_a_node_and_the_clients_that_it_names() {
    let server = server(2).await;
    let mut test = client(&server, 1).await;
    let (mut cut, mut other) = (client(&server, 2).await, client(&server, 2).await);
    cut.ask(&["CLIENT", "SETNAME", "worker-7"]).await;
    assert_eq!(test.ask(&["TEST.NODE", "PARTITION", "2", "CLIENT", "worker-*"]).await, "+OK");
    cut.say(&["PING"]).await;
    assert_eq!(other.ask(&["PING"]).await, "+PONG");
    assert_eq!(test.ask(&["PING"]).await, "+PONG");
    assert!(cut.has_no_answer().await);
    assert_eq!(test.ask(&["TEST.NODE", "HEAL", "2"]).await, "+OK");
    assert_eq!(cut.line().await, "+PONG");
}

#[tokio::test]
async fn leases_of_a_node_whose_clock_is_ahead_end_early() {
    let server = server(2).await;
    let (mut near, mut far) = (client(&server, 1).await, client(&server, 2).await);
    number(&mut near, &["TEST.CLOCK", "FREEZE"]).await;
    for client in [&mut near, &mut far] {
        assert_eq!(client.ask(&["SET", "lock", "me", "NX", "PX", "10000"]).await, "+OK");
    }
    assert_eq!(near.ask(&["TEST.NODE", "SKEW", "2", "8000"]).await, "+OK");
    assert_eq!(number(&mut far, &["PTTL", "lock"]).await, 2_000);
    assert_eq!(number(&mut near, &["PTTL", "lock"]).await, 10_000);
    number(&mut near, &["TEST.CLOCK", "ADVANCE", "2001"]).await;
    assert_eq!(bulk(&mut far, &["GET", "lock"]).await, None);
    assert_eq!(bulk(&mut near, &["GET", "lock"]).await.as_deref(), Some("me"));
    // Set back, the clock stands still until the other has caught up.
    far.ask(&["SET", "lock", "me", "PX", "1000"]).await;
    near.ask(&["TEST.NODE", "SKEW", "2", "0"]).await;
    number(&mut near, &["TEST.CLOCK", "ADVANCE", "7999"]).await;
    assert_eq!(number(&mut far, &["PTTL", "lock"]).await, 1_000);
    number(&mut near, &["TEST.CLOCK", "ADVANCE", "900"]).await;
    assert!(number(&mut far, &["PTTL", "lock"]).await < 1_000);
}
