//! Locks of sessions: their holders are told before another node grants, and find their sessions on it.

use std::sync::mpsc;
use std::time::Instant;

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::harness::{Etcd, Node, token_in, wait_until};
use super::partitions::{LEADER, MEMBERS, World};
use super::takeover::pair;
use crate::support::wire::Link;

/// A connection with a lock that ends so many milliseconds after it, and the id of its session.
fn hold(node: &Node, key: &str, delay_ms: &str) -> (Link, String) {
    let mut link = Link::to(node.address()).expect("a node");
    let reply = link.ask(&["LOCK.ACQUIRE", key, "me", "SESSION", "DELAY", delay_ms]).expect("an answer");
    token_in(&reply).expect("a lock that is free");
    match link.ask(&["LOCK.SESSION", "ID"]).expect("an answer") {
        OwnedFrame::BulkString(id) => (link, String::from_utf8(id).expect("an id")),
        other => panic!("no id: {other:?}"),
    }
}

/// How many locks a session has that is attached to a new connection.
fn attach(node: &Node, id: &str) -> (Link, i64) {
    let mut link = Link::to(node.address()).expect("a node");
    match link.ask(&["LOCK.SESSION", "ATTACH", id]).expect("an answer") {
        OwnedFrame::Integer(count) => (link, count),
        other => panic!("{other:?}"),
    }
}

/// Notes when a connection ends.
fn end_of(mut link: Link) -> mpsc::Receiver<Instant> {
    let (note, noted) = mpsc::channel();
    std::thread::spawn(move || {
        while link.next().is_ok() {}
        let _ = note.send(Instant::now());
    });
    noted
}

// Shows P-session-told-first.
#[test]
#[ignore = "needs etcd, ip and root"]
fn a_leader_without_etcd_tells_the_holders_of_sessions_before_another_node_grants() {
    let mut world = World::new();
    let (holder, _) = hold(&world.leader, "lock", "0");
    let mut idle = Link::to(world.leader.address()).expect("a leader");
    idle.ask(&["LOCK.SESSION", "ID"]).expect("a session without locks");
    let ended = end_of(holder);
    (0..MEMBERS).for_each(|member| world.network.part(LEADER, member, true));
    world.leader.wait_for("Sessions end, because another node may lead");
    assert!(idle.send(&["PING"]).is_ok(), "who has no lock loses nothing before the node is deposed");
    wait_until("a grant by the other node", || world.standby.acquire("lock", "you").is_some());
    let granted = Instant::now();
    let ended = ended.try_recv().expect("the holder has been told");
    assert!(ended < granted);
    (0..MEMBERS).for_each(|member| world.network.part(LEADER, member, false));
    world.leader.wait_for("Another node leads");
}

#[test]
#[ignore = "needs etcd"]
fn a_session_outlives_its_leader() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, standby) = pair(&etcd, &["--cluster-takeover", "2000"]);
    let (long, long_id) = hold(&leader, "long", "60000");
    let (short, short_id) = hold(&leader, "short", "0");
    let (lost, _) = hold(&leader, "lost", "0");
    leader.signal(Signal::SIGKILL);
    // Each waits for the other node to lead. A lock without a delay is kept for the time of a takeover from then.
    let (_short, count) = attach(&standby, &short_id);
    assert_eq!(count, 1);
    let (attached, count) = attach(&standby, &long_id);
    assert_eq!(count, 1);
    for key in ["short", "long"] {
        assert_eq!(
            standby.ask(&["PTTL", key]),
            Some(OwnedFrame::Integer(-1)),
            "{key} lasts as its connection"
        );
        assert_eq!(standby.acquire(key, "you"), None, "{key} is held");
    }
    wait_until("the end of a session without a connection", || standby.acquire("lost", "you").is_some());
    drop((long, short, lost, attached));
    wait_until("the delay", || standby.ask(&["PTTL", "long"]) != Some(OwnedFrame::Integer(-1)));
    assert_eq!(standby.acquire("long", "you"), None, "it outlives its connection");
}

#[test]
#[ignore = "needs etcd"]
fn a_session_with_a_delay_is_handed_over() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, standby) = pair(&etcd, &["--cluster-takeover", "600000"]);
    let (_held, id) = hold(&leader, "long", "60000");
    let (_free, _) = hold(&leader, "short", "0");
    leader.signal(Signal::SIGTERM);
    assert_eq!(leader.end(), Some(0));
    let (_attached, count) = attach(&standby, &id);
    assert_eq!(count, 1);
    assert_eq!(standby.acquire("long", "you"), None, "it is held");
    assert!(standby.acquire("short", "you").is_some(), "its session has ended with its connection");
}

// Shows P-session-told-first.
#[test]
#[ignore = "needs etcd"]
fn a_leader_that_was_stopped_closes_the_connections_of_sessions_when_it_goes_on() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, standby) = pair(&etcd, &[]);
    let (mut held, id) = hold(&leader, "lock", "0");
    let token = leader.acquire("other", "you").expect("a lock that is free");
    leader.signal(Signal::SIGSTOP);
    let granted =
        || standby.ask(&["LOCK.ACQUIRE", "lock", "you", "LEASE", "60000"]).and_then(|it| token_in(&it));
    let mut later = None;
    wait_until("a grant by the other node", || {
        later = granted();
        later.is_some()
    });
    assert!(later > Some(token), "the token alone tells the holder of a leader that is stopped");
    leader.signal(Signal::SIGCONT);
    assert!(held.next().is_err(), "it is told when the leader goes on");
    let mut link = Link::to(standby.address()).expect("a leader");
    let told = link.ask(&["LOCK.SESSION", "ATTACH", &id]).expect("an answer");
    assert!(matches!(&told, OwnedFrame::Error(text) if text == "ERR no such session"), "{told:?}");
}
