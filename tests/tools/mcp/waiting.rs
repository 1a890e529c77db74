//! Calls that wait for a lock: their turn, their end, and what they leave.

use serde_json::json;

use super::host::{Host, server};
use crate::support::binary::{Running, ended, redlatch};
use crate::support::contend::contend;
use crate::support::waits::wait_until;

fn cancel(host: &mut Host, id: u64) {
    let params = json!({ "requestId": id, "reason": "the user has pressed a key" });
    host.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
}

/// Returns when nobody waits for the key.
fn nobody_waits(server: &Running, key: &str) {
    wait_until("nobody waits", || server.ask(&format!("LOCK.WAITERS {key}")) == "*0\r\n");
}

/// Returns when nobody holds the key.
fn is_freed(server: &Running, key: &str) {
    let (code, said, told) =
        ended(redlatch().args(["wait", key, "--timeout", "60s", "--url", &server.url()]));
    assert_eq!(code, Some(0), "{said}{told}");
}

#[test]
fn a_host_is_shown_the_place_in_the_queue_and_the_agent_gets_the_lock_in_its_turn() {
    let server = server();
    let mut hosts: Vec<Host> = (0..3).map(|number| Host::of(&server, &format!("agent{number}"))).collect();
    hosts[0].done("take", json!({ "key": "db", "why": "tests" }));
    let mut calls = Vec::new();
    for place in [1, 2] {
        calls.push(hosts[place].begin("take", json!({ "key": "db", "wait": "1h" })));
        let shown = hosts[place].waits();
        let begin = format!("waiting for db, at place {place} of its queue\n  key:    db\n  holder: agent0-");
        assert!(shown.starts_with(&begin) && shown.contains("\n  reason: tests\n"), "{shown}");
    }
    for (place, call) in [1, 2].into_iter().zip(calls) {
        hosts[place - 1].done("release", json!({ "key": "db" }));
        assert_eq!(hosts[place].end(call).value["token"], place + 1);
    }
}

#[test]
fn a_wait_that_has_ended_is_refused_with_the_holder() {
    let server = server();
    let (mut one, mut other) = (Host::of(&server, "one"), Host::of(&server, "other"));
    one.done("take", json!({ "key": "db", "lease": "1h" }));
    let call = other.begin("take", json!({ "key": "db", "wait": "1m" }));
    other.waits();
    server.pass(60_001);
    let refused = other.end(call);
    assert!(refused.is_error && refused.text.starts_with("not taken: db is held\n"), "{refused:?}");
    assert_eq!(server.ask("LOCK.WAITERS db"), "*0\r\n");
}

#[test]
fn a_call_that_is_cancelled_leaves_the_queue() {
    let server = server();
    let (mut one, mut other) = (Host::of(&server, "one"), Host::of(&server, "other"));
    one.done("take", json!({ "key": "db", "lease": "1h" }));
    for _ in 0..ROUNDS {
        // The agent may ask again at once.
        let call = other.begin("take", json!({ "key": "db", "wait": "1h" }));
        other.waits();
        cancel(&mut other, call);
    }
    nobody_waits(&server, "db");
    one.done("release", json!({ "key": "db" }));
    assert_eq!(other.done("who", json!({ "key": "db" }))["free"], true);
    assert_eq!(other.done("take", json!({ "key": "db" }))["taken"], true, "and it may ask again");
}

#[test]
fn a_lock_that_is_granted_while_its_call_is_cancelled_is_given_back() {
    let server = server();
    let (mut one, mut other) = (Host::of(&server, "one"), Host::of(&server, "other"));
    for round in 0..ROUNDS {
        let key = format!("db:{round}");
        one.done("take", json!({ "key": key, "lease": "1h" }));
        let call = other.begin("take", json!({ "key": key, "wait": "1h", "lease": "1h" }));
        other.waits();
        let release = one.begin("release", json!({ "key": key }));
        cancel(&mut other, call);
        assert_eq!(one.end(release).value["released"], true);
        is_freed(&server, &key);
    }
}

#[test]
fn one_of_several_that_is_granted_while_its_call_is_cancelled_is_given_back() {
    let server = server();
    let (mut one, mut other) = (Host::of(&server, "one"), Host::of(&server, "other"));
    for round in 0..ROUNDS {
        let [a, b] = [format!("a:{round}"), format!("b:{round}")];
        for key in [&a, &b] {
            one.done("take", json!({ "key": key, "lease": "1h" }));
        }
        let call = other.begin("take", json!({ "one_of": [a, b], "wait": "1h", "lease": "1h" }));
        let shown = other.waits();
        assert!(shown.starts_with("waiting for one of 2 locks\n  key:    a:"), "{shown}");
        let release = one.begin("release", json!({ "key": b }));
        cancel(&mut other, call);
        assert_eq!(one.end(release).value["released"], true);
        is_freed(&server, &b);
        nobody_waits(&server, &a);
    }
}

#[test]
fn a_host_that_goes_leaves_nothing_in_the_queue() {
    let server = server();
    let mut one = Host::of(&server, "one");
    one.done("take", json!({ "key": "db", "lease": "1h" }));
    for end in [b"" as &[u8], b"{\"jsonrpc\":\"2.0\",\"id\":9,\"meth", b"garbage"] {
        let mut other = Host::of(&server, "other");
        other.begin("take", json!({ "key": "db", "wait": "1h" }));
        other.begin("wait", json!({ "key": "db", "timeout": "1h" }));
        other.waits();
        other.write(end);
        assert_eq!(other.close().0, Some(0));
        nobody_waits(&server, "db");
    }
    let mut other = Host::of(&server, "other");
    other.begin("take", json!({ "key": "db", "wait": "1h" }));
    other.waits();
    other.process.kill().unwrap();
    nobody_waits(&server, "db");
    one.done("release", json!({ "key": "db" }));
    assert_eq!(server.ask("EXISTS db"), ":0\r\n");
}

// Shows P-mcp-one-holder.
#[test]
fn fifty_agents_hold_the_lock_one_at_a_time_and_their_tokens_rise() {
    let server = Running::start(redlatch().args(["--port", "auto"]));
    contend(CONTENDERS, TURNS, |contender, grants| {
        let mut host = Host::of(&server, &format!("agent{contender}"));
        for _ in 0..TURNS {
            let taken = host.done("take", json!({ "key": "db", "lease": "1h", "wait": "1h" }));
            let token = grants.hold(|| taken["token"].as_u64().unwrap());
            host.done("release", json!({ "key": "db", "token": token }));
        }
        assert_eq!(host.close().0, Some(0));
    });
}

const CONTENDERS: usize = 50;
const TURNS: usize = 20;
const ROUNDS: usize = 100;
