//! Clusters that are broken on purpose, as processes: the live checker must catch each, and so must Porcupine.
//!
//! The same defects, and two more, are tried in `simulation::replicating`.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use nix::sys::signal::Signal;
use redlatch_core::journal::frame;
use redlatch_core::journal::item::Item;
use redlatch_core::replication::cluster::Keys;
use redlatch_proto::clock::LockTime;
use serde_json::Value;

use super::broken::{Fault, Proxy};
use super::harness::{Etcd, Host, Node};
use super::live::{
    LONGER_THAN_SESSIONS, check_while, python_in_groups, start, start_groups, stop_for, stop_for_a_while,
    strike_leader,
};
use super::porcupine::{self, Outcome};
use crate::locks::mutex::checker::Verdict;
use crate::locks::mutex::harness::{Told, python};
use crate::locks::mutex::history::Call;
use crate::support::http::HttpClient;

/// How long a broken cluster is watched per attempt, and how many attempts: a defect needs two clients that meet.
const ROUND: Duration = Duration::from_secs(4);
const ROUNDS_MAX: u32 = 20;

/// Watches clusters until the checker finds what is wrong with one.
pub(super) fn must_be_caught(fault: &str, mut round: impl FnMut() -> Verdict) {
    for _ in 0..ROUNDS_MAX {
        let verdict = round();
        if let Some(finding) = verdict.unsafe_findings().first() {
            println!("{fault}: {finding:?}");
            return;
        }
    }
    panic!("{fault} went unnoticed for {ROUNDS_MAX} rounds");
}

/// Watches clusters until the checker, and Porcupine where it is installed, have found what is wrong with one.
fn must_be_caught_by_both(fault: &str, mut round: impl FnMut() -> (Verdict, Vec<Call>)) {
    let (mut is_caught, mut is_rejected) = (false, false);
    for number in 1..=ROUNDS_MAX {
        let (verdict, calls) = round();
        if let Some(finding) = verdict.unsafe_findings().first().filter(|_| !is_caught) {
            println!("{fault}, round {number}: {finding:?}");
            is_caught = true;
        }
        match porcupine::check(&calls) {
            Some(Outcome::Accepted) => {}
            Some(Outcome::Rejected(lock)) => {
                println!("{fault}, round {number}: Porcupine finds no order of the calls of {lock}");
                is_rejected = true;
            }
            None => is_rejected = true,
        }
        if is_caught && is_rejected {
            return;
        }
    }
    panic!("{fault}: in {ROUNDS_MAX} rounds caught: {is_caught}, rejected by Porcupine: {is_rejected}");
}

/// A member of etcd, and a broken proxy before it.
fn behind(fault: Fault) -> (Etcd, Proxy) {
    let etcd = Etcd::start_one(&[]);
    let proxy = Proxy::before(etcd.address(), fault);
    (etcd, proxy)
}

/// Runs clients through two nodes, while `strike` harms the one that leads.
fn watch(
    (name, told): (&str, Told),
    endpoints: &str,
    mut strike: impl FnMut(&mut Node),
) -> (Verdict, Vec<Call>) {
    let mut nodes = start(endpoints, &[Host::local(), Host::local()]);
    check_while((name, ROUND, told), &mut nodes, python(), |nodes| {
        strike_leader(nodes, |nodes, leader| strike(&mut nodes[leader]));
    })
}

#[test]
#[ignore = "needs etcd"]
fn a_cluster_behind_a_whole_proxy_is_not_caught() {
    let (_etcd, proxy) = behind(Fault::None);
    let (verdict, calls) = watch(("cluster behind a proxy", Told::Late), &proxy.endpoint(), stop_for_a_while);
    assert!(verdict.unsafe_findings().is_empty(), "{:?}", verdict.unsafe_findings());
    assert!(verdict.grants > 0, "{verdict:?}");
    assert!(
        matches!(porcupine::check(&calls), None | Some(Outcome::Accepted)),
        "Porcupine finds no order of the calls"
    );
}

// Breaks P-replicated-one-holder.
#[test]
#[ignore = "needs etcd"]
fn commits_without_the_fence_are_caught() {
    must_be_caught_by_both("commits without the fence", || {
        let (_etcd, proxy) = behind(Fault::NoFence);
        watch(("cluster without the fence", Told::Late), &proxy.endpoint(), stop_for_a_while)
    });
}

/// Two nodes grant the locks of one group, and nothing else is wrong.
// Breaks P-replicated-one-holder.
#[test]
#[ignore = "needs etcd"]
fn two_leaders_of_one_group_are_caught() {
    must_be_caught_by_both("groups without the fence", || {
        let (_etcd, proxy) = behind(Fault::NoFence);
        let mut nodes = start_groups(&proxy.endpoint(), &[Host::local(), Host::local()]);
        let mut turn = 0;
        let what = ("groups without the fence", ROUND, Told::Late);
        check_while(what, &mut nodes, python_in_groups(), |nodes| {
            stop_for(&mut nodes[turn % 2], LONGER_THAN_SESSIONS);
            turn += 1;
        })
    });
}

// Breaks P-answered-stays.
#[test]
#[ignore = "needs etcd"]
fn replies_before_the_commit_are_caught() {
    must_be_caught_by_both("replies before the commit", || {
        let (_etcd, proxy) = behind(Fault::EarlyReplies);
        watch(("cluster with early replies", Told::Late), &proxy.endpoint(), |leader| {
            leader.signal(Signal::SIGKILL);
            proxy.lose_commits();
            leader.restart();
        })
    });
}

// Breaks P-leases-never-shorter.
#[test]
#[ignore = "needs etcd"]
fn a_lock_time_that_does_not_go_on_is_caught() {
    must_be_caught_by_both("lock time ahead of that of the leader before", || {
        let etcd = Etcd::start_one(&[]);
        let mut jumps = 0;
        watch(("cluster with another lock time", Told::Late), &etcd.endpoints(), |leader| {
            leader.signal(Signal::SIGKILL);
            jumps += 1;
            set_lock_time(&etcd, jumps);
            leader.restart();
        })
    });
}

/// A process that does not run closes no connection: its sessions are still open when another node ends them.
// Breaks P-session-told-first.
#[test]
#[ignore = "needs etcd"]
fn sessions_that_a_deposed_leader_keeps_are_caught() {
    must_be_caught_by_both("sessions that a deposed leader keeps", || {
        let etcd = Etcd::start_one(&[]);
        watch(("cluster with a leader that is stopped for long", Told::First), &etcd.endpoints(), |leader| {
            stop_for(leader, LONGER_THAN_SESSIONS);
        })
    });
}

/// Adds a record to the log, without changes, that was decided so many hours after the present. Nobody leads meanwhile.
fn set_lock_time(etcd: &Etcd, hours: u32) {
    // Lock time has begun with the wall clock.
    let now = UNIX_EPOCH.elapsed().expect("a year after 1970") + hours * Duration::from_secs(3600);
    let now = LockTime::from_millis(now.as_millis() as u64);
    let mut bytes = Vec::new();
    frame::body_start(&mut bytes);
    Item::Record { now, mutations: Vec::new() }.encode(&mut bytes);
    frame::seal(&mut bytes).expect("a short frame");
    let keys = Keys::under("/redlatch/");
    let head: u64 = String::from_utf8_lossy(&value(etcd, &keys.head())).parse().expect("a number");
    // An entry begins with the number of its file and the offset in it. One without bytes belongs to none.
    let mut entries = (0..head).rev().map(|sequence| value(etcd, &keys.log(sequence)));
    let last = entries.find(|entry| !entry.is_empty()).expect("a log");
    let (number, offset) = (last.slice(..8), last.slice(8..16));
    let offset = u64::from_le_bytes(offset[..].try_into().expect("eight bytes")) + last.len() as u64 - 16;
    let entry = [&number[..], &offset.to_le_bytes(), &bytes].concat();
    put_at_once(etcd, &[(keys.log(head), &entry), (keys.head(), (head + 1).to_string().as_bytes())]);
}

/// Puts values under keys in one transaction, as a leader does: nodes find an entry that was put alone.
fn put_at_once(etcd: &Etcd, values: &[(Bytes, &[u8])]) {
    let puts = values.iter().map(|(key, value)| {
        let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
        serde_json::json!({ "requestPut": { "key": key, "value": value } })
    });
    let body = serde_json::json!({ "success": puts.collect::<Vec<_>>() }).to_string();
    let mut gateway = HttpClient::to(etcd.address());
    let head =
        format!("POST /v3/kv/txn HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    gateway.send((head + &body).as_bytes());
    assert_eq!(gateway.reply(true).status, 200);
}

/// The bytes under a key; empty if there is none.
fn value(etcd: &Etcd, key: &[u8]) -> Bytes {
    let key = std::str::from_utf8(key).expect("a key is text");
    let (_, found) = etcd.ctl(&["get", key, "--write-out", "json"]);
    let found: Value = serde_json::from_str(&found).expect("etcdctl writes JSON");
    let value = found["kvs"][0]["value"].as_str().unwrap_or_default();
    STANDARD.decode(value).expect("base64").into()
}
