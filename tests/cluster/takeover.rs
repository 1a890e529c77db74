//! One node ends, or is stopped, and another one leads.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use super::harness::{Etcd, Node, token_in, wait_until};
use crate::support::wire::Link;

fn text(reply: &str) -> Option<OwnedFrame> {
    Some(OwnedFrame::SimpleString(reply.as_bytes().to_vec()))
}

fn bulk(value: &str) -> Option<OwnedFrame> {
    Some(OwnedFrame::BulkString(value.as_bytes().to_vec()))
}

/// A node that leads, and a standby.
pub(super) fn pair(etcd: &Etcd, more: &[&str]) -> (Node, Node) {
    let mut first = Node::start(etcd, more);
    first.wait_for("This node leads");
    let mut second = Node::start(etcd, more);
    second.wait_for("Another node leads");
    (first, second)
}

// Shows P-takeover-knows-all.
#[test]
#[ignore = "needs etcd"]
fn a_lock_outlives_the_node_that_granted_it() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, standby) = pair(&etcd, &[]);
    assert_eq!(standby.ask(&["SET", "plain", "me", "NX", "PX", "60000"]), text("OK"));
    let token = standby.acquire("lock", "me").expect("a lock that is free");
    assert_eq!(leader.ask(&["GET", "plain"]), bulk("me"));

    leader.signal(Signal::SIGKILL);
    let killed = Instant::now();
    let later = standby.acquire("other", "you").expect("a grant by the new leader");
    let took = killed.elapsed();
    println!("a new grant {took:?} after kill -9");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(later > token, "{later} after {token}");
    assert_eq!(standby.acquire("lock", "you"), None, "it is held");
    assert_eq!(standby.acquire("lock", "me"), Some(token), "its holder keeps it, with its token");
    assert_eq!(standby.ask(&["GET", "plain"]), bulk("me"));
    assert_eq!(standby.ask(&["SET", "plain", "you", "NX"]), Some(OwnedFrame::Null));

    leader.restart();
    leader.wait_for("Another node leads");
    assert_eq!(leader.ask(&["GET", "plain"]), bulk("me"), "the killed node is a standby now");
}

// Shows P-hand-over, P-takeover-knows-all.
#[test]
#[ignore = "needs etcd"]
fn a_hand_over_outlives_the_leader_that_made_it() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, standby) = pair(&etcd, &[]);
    for key in ["lock", "named"] {
        assert!(standby.acquire(key, "old").is_some());
    }
    let _wait = wait_in_turn(&leader, &["new"]);
    let hand_over = |node: &Node, words: &str| {
        let reply = node.ask(&words.split(' ').collect::<Vec<_>>()).expect("an answer");
        token_in(&reply).unwrap_or_else(|| panic!("{words}: {reply:?}"))
    };
    let waited = hand_over(&leader, "LOCK.TRANSFER lock old TO new");
    let named = hand_over(&leader, "LOCK.TRANSFER named old TO new LEASE 60000");
    leader.signal(Signal::SIGKILL);
    for (key, token) in [("lock", waited), ("named", named)] {
        assert_eq!(standby.acquire(key, "old"), None, "it has handed {key} over");
        assert_eq!(standby.ask(&["LOCK.RELEASE", key, "old"]), Some(OwnedFrame::Integer(0)));
        assert_eq!(standby.acquire(key, "new"), Some(token), "its successor has {key}");
        assert_eq!(standby.ask(&["LOCK.RELEASE", key, "new"]), Some(OwnedFrame::Integer(1)));
        assert!(standby.acquire(key, "old") > Some(named), "tokens rise");
    }
}

#[test]
#[ignore = "needs etcd"]
fn a_node_on_the_address_of_a_killed_leader_waits_like_any_other() {
    let etcd = Etcd::start_one(&[]);
    let settings = ["--cluster-takeover", "600000", "--cluster-failover-hold", "50"];
    let mut leader = Node::start(&etcd, &settings);
    leader.wait_for("This node leads");
    leader.signal(Signal::SIGKILL);
    leader.end();
    leader.restart();
    // It does not splice clients to its own port.
    let mut client = Link::to(leader.address()).expect("a node that accepts");
    let told = client.next().expect("the reason");
    assert!(matches!(&told, OwnedFrame::Error(text) if text.starts_with("MASTERDOWN")), "{told:?}");
}

#[test]
#[ignore = "needs etcd"]
fn a_leader_that_ends_in_good_order_hands_over_at_once() {
    let etcd = Etcd::start_one(&[]);
    // Nobody waits for so long: only a hand-over gives the other node the log.
    let (mut leader, mut standby) = pair(&etcd, &["--cluster-takeover", "600000"]);
    let mut client = Link::to(leader.address()).expect("a leader");
    client.ask(&["SET", "k", "v"]).expect("an answer");
    leader.signal(Signal::SIGTERM);
    let told = Instant::now();
    assert!(client.next().is_err(), "its clients are closed");
    standby.wait_for("This node leads");
    let took = told.elapsed();
    println!("the standby leads {took:?} after SIGTERM");
    assert_eq!(leader.end(), Some(0));
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(standby.ask(&["GET", "k"]), bulk("v"));
}

#[test]
#[ignore = "needs etcd"]
fn shutdown_through_a_standby_ends_the_leader_alone() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, mut standby) = pair(&etcd, &["--cluster-takeover", "600000"]);
    assert_eq!(standby.ask(&["SHUTDOWN"]), None);
    assert_eq!(leader.end(), Some(0));
    standby.wait_for("This node leads");
    assert_eq!(standby.ask(&["PING"]), text("PONG"));
}

#[test]
#[ignore = "needs etcd"]
fn a_leader_that_was_stopped_answers_nothing_that_it_has_not_committed() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, standby) = pair(&etcd, &[]);
    let mut direct = Link::to(leader.address()).expect("a leader");
    let mut spliced = Link::to(standby.address()).expect("a standby");
    for link in [&mut direct, &mut spliced] {
        link.ask(&["SET", "k", "old"]).expect("an answer");
    }
    leader.signal(Signal::SIGSTOP);
    for words in [["SET", "k", "stale"], ["GET", "k", ""]] {
        let words: Vec<_> = words.iter().copied().filter(|word| !word.is_empty()).collect();
        direct.send(&words).expect("a socket that takes it");
    }
    assert!(spliced.next().is_err(), "a splice ends when another node leads");
    assert_eq!(standby.ask(&["SET", "k", "new"]), text("OK"));
    leader.signal(Signal::SIGCONT);
    assert!(direct.next().is_err(), "neither the write nor the read is answered");
    leader.wait_for("does not lead any more");
    leader.wait_for("Another node leads");
    for node in [&leader, &standby] {
        assert_eq!(node.ask(&["GET", "k"]), bulk("new"));
    }
}

/// Calls of these owners, with their options, begin to wait for `lock`, one after the other.
fn wait_in_turn(node: &Node, owners: &[&str]) -> Vec<Link> {
    let begin = |(number, owner): (usize, &&str)| {
        let mut link = Link::to(node.address()).expect("a node");
        let words = ["LOCK.ACQUIRE", "lock"].into_iter().chain(owner.split(' '));
        let words: Vec<&str> = words.chain(["LEASE", "60000", "WAIT", "60000"]).collect();
        link.send(&words).expect("a socket");
        wait_until("the wait", || waiting_owners(node).len() > number);
        link
    };
    owners.iter().enumerate().map(begin).collect()
}

/// The owners that wait for `lock`, in order.
fn waiting_owners(node: &Node) -> Vec<String> {
    let Some(OwnedFrame::Array(waiters)) = node.ask(&["LOCK.WAITERS", "lock"]) else { return Vec::new() };
    let owner = |waiter: &OwnedFrame| {
        let OwnedFrame::Array(fields) = waiter else { return None };
        let owner = fields.iter().skip_while(|field| field.as_str() != Some("owner")).nth(1)?;
        owner.as_str().map(str::to_owned)
    };
    waiters.iter().filter_map(owner).collect()
}

// Shows P-places-kept.
#[test]
#[ignore = "needs etcd"]
fn waiters_that_come_back_under_their_names_keep_their_places() {
    for end in [Signal::SIGKILL, Signal::SIGTERM] {
        let etcd = Etcd::start_one(&[]);
        let (mut leader, mut standby) = pair(&etcd, &[]);
        assert!(standby.acquire("lock", "holder").is_some());
        let before = wait_in_turn(&leader, &["one", "gone", "two", "three"]);
        // One that has timed out has no place any more.
        let mut short = Link::to(standby.address()).expect("a standby");
        assert_eq!(
            short.ask(&["LOCK.ACQUIRE", "lock", "late", "WAIT", "1"]).expect("an answer"),
            OwnedFrame::Null
        );
        leader.signal(end);
        standby.wait_for("This node leads");
        for mut link in before {
            assert!(link.next().is_err(), "a wait ends with its connection");
        }

        let mut back = wait_in_turn(&standby, &["late", "three", "two", "one"]);
        assert_eq!(waiting_owners(&standby), ["one", "two", "three", "late"], "after {end}");
        for owner in ["holder", "one", "two", "three"] {
            let released = standby.ask(&["LOCK.RELEASE", "lock", owner]);
            assert_eq!(released, Some(OwnedFrame::Integer(1)), "{owner} is the next holder");
        }
        assert!(token_in(&back[0].next().expect("a grant")).is_some());
    }
}

// Shows P-places-kept.
#[test]
#[ignore = "needs etcd"]
fn a_priority_counts_under_the_next_leader_too() {
    let etcd = Etcd::start_one(&[]);
    let (mut leader, mut standby) = pair(&etcd, &[]);
    assert!(standby.acquire("lock", "holder").is_some());
    let _waits = wait_in_turn(&leader, &["one", "two PRIORITY 2", "three PRIORITY 1", "four"]);
    assert_eq!(waiting_owners(&leader), ["two", "three", "one", "four"]);
    assert_eq!(leader.ask(&["SET", "k", "what was there before is committed"]), text("OK"));
    leader.signal(Signal::SIGKILL);
    standby.wait_for("This node leads");
    let back = ["four", "new PRIORITY 9", "one", "three PRIORITY 1", "late", "two PRIORITY 2"];
    let _waits = wait_in_turn(&standby, &back);
    assert_eq!(waiting_owners(&standby), ["new", "two", "three", "one", "four", "late"]);
}

#[test]
#[ignore = "needs etcd"]
fn a_waiter_that_comes_back_before_one_that_waits_for_several_locks_need_not_wait() {
    let etcd = Etcd::start_one(&[]);
    let (leader, mut standby) = pair(&etcd, &[]);
    for key in ["lock", "other"] {
        assert!(standby.acquire(key, "holder").is_some());
    }
    let _wait = wait_in_turn(&leader, &["one"]);
    assert_eq!(leader.ask(&["SET", "k", "what was there before is committed"]), text("OK"));
    drop(leader);
    standby.wait_for("This node leads");
    let mut both = Link::to(standby.address()).expect("a node");
    both.send(&["LOCK.MACQUIRE", "2", "lock", "other", "both", "WAIT", "60000"]).expect("a socket");
    wait_until("the wait", || waiting_owners(&standby) == ["both"]);
    assert_eq!(standby.ask(&["LOCK.RELEASE", "lock", "holder"]), Some(OwnedFrame::Integer(1)));
    assert_eq!(standby.acquire("lock", "another"), None, "it is kept for a request that waits");
    let mut back = Link::to(standby.address()).expect("a node");
    let granted = back.ask(&["LOCK.ACQUIRE", "lock", "one", "WAIT", "60000"]).expect("an answer");
    assert!(token_in(&granted).is_some(), "{granted:?}");
}

// Shows P-places-kept.
#[test]
#[ignore = "needs etcd"]
fn places_outlive_two_leaders_and_a_copy_of_the_live_keys() {
    let etcd = Etcd::start_one(&[]);
    let (mut first, mut second) = pair(&etcd, &[]);
    assert!(first.acquire("lock", "holder").is_some());
    let _waits = wait_in_turn(&first, &["one", "two"]);
    assert!(matches!(first.ask(&["BGREWRITEAOF"]), Some(OwnedFrame::SimpleString(_))));
    wait_until("the copy", || {
        let info = second.ask(&["INFO", "persistence"]);
        info.and_then(|info| info.as_str().map(|text| text.contains("aof_rewrite_in_progress:0")))
            == Some(true)
    });
    first.signal(Signal::SIGTERM);
    second.wait_for("This node leads");
    assert_eq!(first.end(), Some(0));
    first.restart();
    first.wait_for("Another node leads");
    let _waits = wait_in_turn(&second, &["two"]);
    second.signal(Signal::SIGTERM);
    first.wait_for("This node leads");
    let _waits = wait_in_turn(&first, &["two", "one"]);
    assert_eq!(waiting_owners(&first), ["one", "two"]);
}

#[test]
#[ignore = "needs etcd"]
fn clients_wait_for_a_leader_and_are_told_if_there_is_none() {
    let mut etcd = Etcd::start_one(&[]);
    let (mut leader, standby) = pair(&etcd, &["--cluster-failover-hold", "700"]);
    leader.signal(Signal::SIGKILL);
    // Without etcd nobody can lead.
    etcd.signal(0, Signal::SIGSTOP);
    let begun = Instant::now();
    let Some(OwnedFrame::Error(text)) = standby.ask(&["PING"]) else { panic!("an error") };
    assert!(text.starts_with("MASTERDOWN "), "{text}");
    assert!(begun.elapsed() >= Duration::from_millis(600), "{:?}", begun.elapsed());
    etcd.signal(0, Signal::SIGCONT);
    wait_until("a new leader", || standby.ask(&["PING"]) == text_pong());
}

fn text_pong() -> Option<OwnedFrame> {
    text("PONG")
}

#[test]
#[ignore = "needs etcd"]
fn etcd_may_be_away_for_a_while() {
    let mut etcd = Etcd::start_one(&[]);
    let (leader, _standby) = pair(&etcd, &[]);
    let token = leader.acquire("lock", "me").expect("a lock that is free");
    etcd.signal(0, Signal::SIGKILL);
    let mut client = Link::to(leader.address()).expect("a leader");
    client.send(&["SET", "k", "v"]).expect("a socket");
    etcd.restart(0);
    etcd.wait();
    // Either the same leader commits it, or the standby has taken over and closes the connection.
    let answer = client.next().ok();
    println!("after etcd came back: {answer:?}");
    wait_until("a leader", || leader.acquire("lock", "me") == Some(token));
    if answer.is_some() {
        assert_eq!(leader.ask(&["GET", "k"]), bulk("v"));
    }
}
