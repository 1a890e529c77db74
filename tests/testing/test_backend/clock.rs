//! TEST.CLOCK: one clock for leases, TIME and waits.

use super::*;

#[tokio::test]
async fn a_lease_ends_without_sleep() {
    let server = server(1).await;
    let (mut holder, mut other) = (client(&server, 1).await, client(&server, 1).await);
    let start = number(&mut other, &["TEST.CLOCK", "FREEZE"]).await;
    assert_eq!(holder.ask(&["SET", "lock", "me", "NX", "PX", "30000"]).await, "+OK");
    assert_eq!(number(&mut other, &["TEST.CLOCK", "ADVANCE", "30000"]).await, start + 30_000);
    assert_eq!(bulk(&mut other, &["GET", "lock"]).await.as_deref(), Some("me"), "its last millisecond");
    assert_eq!(number(&mut other, &["TEST.CLOCK", "NEXT"]).await, start + 30_001);
    assert_eq!(bulk(&mut other, &["GET", "lock"]).await, None);
    assert_eq!(other.ask(&["TEST.CLOCK", "NEXT"]).await, "$-1", "nothing is due");
}

#[tokio::test]
async fn everything_that_falls_due_has_happened_when_advance_answers() {
    let server = server(1).await;
    let mut test = client(&server, 1).await;
    number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    test.ask(&["SET", "lock", "first", "NX", "PX", "50"]).await;
    let (mut waiter, mut later) = (client(&server, 1).await, client(&server, 1).await);
    waiter.say(&["LOCK.ACQUIRE", "lock", "second", "LEASE", "100", "WAIT", "60"]).await;
    until_blocked(&mut test, 1).await;
    later.say(&["BLPOP", "list", "0.3"]).await;
    until_blocked(&mut test, 2).await;
    // The lock is handed over at 51 ms, ends at 152 ms, and the pop gives up at 300 ms.
    number(&mut test, &["TEST.CLOCK", "ADVANCE", "1000"]).await;
    assert_eq!(waiter.lines(6).await, ["*6", "$5", "token", ":2", "$5", "lease"]);
    assert_eq!(later.line().await, "*-1");
    assert_eq!(bulk(&mut test, &["GET", "lock"]).await, None);
    assert_eq!(waiter.lines(4).await, [":100", "$6", "waited", ":51"], "it was told at its own time");
}

// Shows P-lease-never-early.
#[tokio::test]
async fn time_and_expiries_in_unix_time_follow_the_wall_clock_and_leases_do_not() {
    let server = server(1).await;
    let mut test = client(&server, 1).await;
    let start = number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    test.ask(&["SET", "k", "v", "PX", "5000"]).await;
    assert_eq!(number(&mut test, &["TEST.CLOCK", "STEP-WALL", "-3600000"]).await, start - 3_600_000);
    assert_eq!(number(&mut test, &["PTTL", "k"]).await, 5_000);
    assert_eq!(number(&mut test, &["PEXPIRETIME", "k"]).await, start - 3_600_000 + 5_000);
    let time = test.ask_lines("TIME\r\n", 5).await;
    assert_eq!(time[2], ((start - 3_600_000) / 1000).to_string());
    assert_eq!(number(&mut test, &["TEST.CLOCK", "SET", &start.to_string()]).await, start);
    assert_eq!(bulk(&mut test, &["GET", "k"]).await, None, "an hour has passed");
}

#[tokio::test]
async fn an_automatic_clock_goes_to_the_next_deadline_when_clients_are_silent() {
    let server = server(1).await;
    let (mut test, mut waiter) = (client(&server, 1).await, client(&server, 1).await);
    let start = number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    assert_eq!(test.ask(&["TEST.CLOCK", "AUTO", "ON", "IDLE", "1"]).await, "+OK");
    assert_eq!(waiter.ask(&["BLPOP", "list", "86400"]).await, "*-1", "a day is over at once");
    assert_eq!(test.ask(&["TEST.CLOCK", "AUTO", "OFF"]).await, "+OK");
    assert_eq!(number(&mut test, &["TEST.CLOCK", "FREEZE"]).await, start + 86_400_000);
}

#[tokio::test]
async fn a_clock_that_runs_again_ends_the_waits_that_began_while_it_stood_still() {
    let server = server(1).await;
    let (mut test, mut waiter) = (client(&server, 1).await, client(&server, 1).await);
    number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    waiter.say(&["BLPOP", "list", "0.05"]).await;
    until_blocked(&mut test, 1).await;
    number(&mut test, &["TEST.CLOCK", "RUN"]).await;
    assert_eq!(waiter.line().await, "*-1");
}

#[tokio::test]
async fn a_pause_and_an_idle_timeout_end_by_the_clock() {
    let server = server(1).await;
    let (mut test, mut held, mut idle) =
        (client(&server, 1).await, client(&server, 1).await, client(&server, 1).await);
    number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
    assert_eq!(idle.ask(&["PING"]).await, "+PONG");
    assert_eq!(test.ask(&["CLIENT", "PAUSE", "5000"]).await, "+OK");
    held.say(&["PING"]).await;
    number(&mut test, &["TEST.CLOCK", "ADVANCE", "5000"]).await;
    assert_eq!(held.line().await, "+PONG");
    test.ask(&["CONFIG", "SET", "timeout", "10"]).await;
    number(&mut test, &["TEST.CLOCK", "ADVANCE", "11000"]).await;
    assert!(idle.has_ended().await, "it was idle for longer than 10 s");
}
