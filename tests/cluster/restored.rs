//! etcd is restored from a snapshot, as its disaster recovery is: locks that were granted after the snapshot are not granted
//! again before they have ended, and tokens go on.
//!
//! The rules are tried one by one in `simulation::replicated_terms`, and with faults in `simulation::replicating`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::canaries::must_be_caught;
use super::harness::{Etcd, Host, Node, token_in, wait_until};
use super::live::check_while;
use crate::locks::mutex::checker::{Law, Verdict};
use crate::locks::mutex::client::FENCED;
use crate::locks::mutex::harness::{Told, python};
use crate::support::binary::{Directory, redlatch};
use crate::support::http;
use crate::support::ports::free_port;

/// What a node says that has found it.
const FOUND: &str = "etcd was restored from an older state";
/// The longest lease of these tests, and the setting for it.
const LEASE: Duration = Duration::from_secs(3);
const SETTINGS: [&str; 4] = ["--horizon-max-lease", "3000", "--cluster-failover-hold", "100"];

/// A lock for [`LEASE`]: its token.
fn acquire(node: &Node, key: &str, owner: &str) -> Option<i64> {
    token_in(&node.ask(&["LOCK.ACQUIRE", key, owner, "LEASE", "3000"])?)
}

/// Runs `redlatch cluster`; whether it succeeds, and what it says.
pub(crate) fn cluster(words: &[&str]) -> (bool, String) {
    let output = redlatch().arg("cluster").args(words).output().expect("redlatch starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn accept(etcd: &Etcd, more: &[&str]) {
    let (is_done, said) =
        cluster(&[&["accept-restored", "--cluster-etcd", &etcd.endpoints()], more].concat());
    assert!(is_done && said.contains("Accepted"), "{said}");
}

/// Asks for a lock until it is granted; returns its token, and when it was asked for last.
fn acquire_at_last(node: &Node, key: &str) -> (i64, Instant) {
    let mut granted = None;
    wait_until("a grant", || {
        granted = acquire(node, key, "another").map(|token| (token, Instant::now()));
        granted.is_some()
    });
    granted.expect("it was waited for")
}

/// Locks are granted before and after a snapshot, which is restored. Nothing is granted before somebody accepts it.
fn go_through(mut etcd: Etcd) {
    let http_port = free_port().to_string();
    let mut leader = Node::start(&etcd, &[&SETTINGS[..], &["--http-port", &http_port]].concat());
    leader.wait_for("This node leads");
    let mut standby = Node::start(&etcd, &SETTINGS);
    standby.wait_for("Another node leads");
    acquire(&standby, "early", "me").expect("a lock that is free");
    let snapshot = etcd.save();
    let asked = Instant::now();
    let late = acquire(&standby, "late", "me").expect("a lock that is free");
    etcd.restore(&snapshot, "etcd-cluster");

    leader.wait_for(FOUND);
    standby.wait_for(FOUND);
    for node in [&leader, &standby] {
        let told = node.ask(&["SET", "late", "another", "NX"]);
        assert!(
            matches!(&told, Some(OwnedFrame::Error(text)) if text.starts_with("MASTERDOWN etcd was restored")),
            "{told:?}"
        );
    }
    let http: SocketAddr = format!("127.0.0.1:{http_port}").parse().expect("an address");
    let ready = http::get(http, "/readyz");
    assert!(ready.status == 503 && ready.body.contains(FOUND), "{ready:?}");
    let waits =
        |value| http::get(http, "/metrics").body.contains(&format!("\nredlatch_cluster_restored {value}\n"));
    assert!(waits(1), "{:?}", http::get(http, "/metrics"));
    let (_, status) = cluster(&["status", "--url", &format!("redis://{}", standby.address())]);
    assert!(status.contains(FOUND) && status.contains("accept-restored"), "{status}");

    accept(&etcd, &[]);
    let (token, granted) = acquire_at_last(&standby, "late");
    assert!(waits(0), "a node leads");
    assert!(granted - asked >= LEASE, "the lock was held");
    assert!(token > late, "{token} after {late}");
    // The quarantine does not come again.
    let (first, second) =
        if leader.leads() { (&mut leader, &mut standby) } else { (&mut standby, &mut leader) };
    first.signal(Signal::SIGTERM);
    assert_eq!(first.end(), Some(0));
    second.wait_for("This node leads");
    assert!(acquire(second, "another lock", "me").is_some_and(|later| later > token));
}

#[test]
fn the_chapter_on_backups_has_the_commands_that_are_run_here() {
    let chapter = include_str!("../../docs/replication.md");
    let chapter = chapter.split("## Back up and restore etcd").nth(1).expect("the chapter");
    for words in [
        "etcdctl snapshot save",
        "etcdctl snapshot restore snapshot.db --name m0 --data-dir",
        "--initial-cluster m0=",
        "--initial-cluster-token",
        "--initial-advertise-peer-urls",
        "redlatch cluster accept-restored --cluster-etcd",
        "--quarantine",
        FOUND,
    ] {
        assert!(chapter.contains(words), "{words}");
    }
}

#[test]
#[ignore = "needs etcd"]
fn locks_that_a_restored_etcd_does_not_know_are_not_granted_again() {
    go_through(Etcd::start_one(&[]));
}

#[test]
#[ignore = "needs etcd"]
fn three_members_may_be_restored_as_one() {
    go_through(Etcd::start(&[Host::local(), Host::local(), Host::local()], &[]));
}

/// All nodes end before the restore; the first of those that start then, and the token that was given out last.
fn start_after_restore(etcd: &mut Etcd, token: &str, settings: &[&str]) -> (Node, i64) {
    let mut node = Node::start(etcd, settings);
    node.wait_for("This node leads");
    let snapshot = etcd.save();
    let late = acquire(&node, "late", "me").expect("a lock that is free");
    node.signal(Signal::SIGTERM);
    assert_eq!(node.end(), Some(0));
    etcd.restore(&snapshot, token);
    (Node::start(etcd, settings), late)
}

#[test]
#[ignore = "needs etcd"]
fn the_command_that_the_log_has_accepts_the_logs_of_all_groups() {
    let mut etcd = Etcd::start_one(&[]);
    let prefix = ["--cluster-groups", "4", "--cluster-prefix", "/locks/"];
    let settings = [&SETTINGS[..], &prefix].concat();
    let mut node = Node::start(&etcd, &settings);
    let lines = |node: &mut Node, words: &str| -> Vec<String> {
        node.log().lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    };
    let leads = "This node leads";
    wait_until("each group is led", || lines(&mut node, leads).len() >= 4);
    let snapshot = etcd.save();
    node.signal(Signal::SIGTERM);
    assert_eq!(node.end(), Some(0));
    etcd.restore(&snapshot, "another-cluster");
    node = Node::start(&etcd, &settings);
    let found = format!("{FOUND}: no node leads");
    wait_until("each group finds that", || lines(&mut node, &found).len() >= 4);
    let command = "redlatch cluster accept-restored --cluster-etcd";
    let expected = format!("accept=\"{command} {} --cluster-prefix /locks/\"", etcd.endpoints());
    let lines_found = lines(&mut node, &found);
    assert!(lines_found.iter().all(|line| line.contains(&expected)), "{lines_found:?}");
    let led = lines(&mut node, leads).len();
    let words = expected.split('"').nth(1).into_iter().flat_map(str::split_whitespace).skip(2);
    let (is_done, said) = cluster(&words.collect::<Vec<_>>());
    assert!(is_done && said.starts_with("Accepted. "), "{said}");
    wait_until("each group is led again", || lines(&mut node, leads).len() >= led + 4);
}

#[test]
#[ignore = "needs etcd"]
fn nodes_that_are_started_later_know_by_their_directory_or_by_the_name_of_etcd() {
    let directory = Directory::new();
    let dir = directory.path("node");
    let with_dir = [&SETTINGS[..], &["--dir", &dir]].concat();
    for (token, settings) in [("etcd-cluster", &with_dir[..]), ("etcd-cluster-restored", &SETTINGS[..])] {
        let mut etcd = Etcd::start_one(&[]);
        let (mut node, late) = start_after_restore(&mut etcd, token, settings);
        node.wait_for(FOUND);
        accept(&etcd, &[]);
        node.wait_for("The restored log is accepted");
        node.wait_for("This node leads");
        let refused = node.ask(&["SET", "late", "another"]);
        assert!(
            matches!(&refused, Some(OwnedFrame::Error(text)) if text.starts_with("QUARANTINE")),
            "{refused:?}"
        );
        assert!(acquire_at_last(&node, "late").0 > late);
    }
}

#[test]
#[ignore = "needs etcd"]
fn an_operator_may_say_so_where_no_node_can_know() {
    let mut etcd = Etcd::start_one(&[]);
    let (mut node, late) = start_after_restore(&mut etcd, "etcd-cluster", &SETTINGS);
    node.wait_for("This node leads");
    let words = ["accept-restored", "--cluster-etcd", &etcd.endpoints(), "--quarantine", "100ms"];
    let (is_done, said) = cluster(&words);
    assert!(is_done && said.contains("no node has found"), "{said}");
    node.wait_for("does not lead any more");
    node.wait_for("This node leads");
    assert!(acquire_at_last(&node, "late").0 > late);
    let (is_done, said) = cluster(&[&words[..3], &["--cluster-prefix", "/other/"]].concat());
    assert!(!is_done && said.contains("there is no cluster"), "{said}");
}

#[test]
#[ignore = "needs etcd"]
fn a_cluster_may_begin_with_a_guard() {
    let etcd = Etcd::start_one(&[]);
    let mut node = Node::start(&etcd, &["--startup-guard", "600000"]);
    node.wait_for("This node leads");
    assert_eq!(node.acquire("lock", "me"), None);
    let said = node.ask(&["SET", "lock", "me"]);
    assert!(matches!(&said, Some(OwnedFrame::Error(text)) if text.starts_with("QUARANTINE")), "{said:?}");
    assert!(etcd.ctl(&["del", "--prefix", "/redlatch/"]).0);
    node.wait_for("does not lead any more");
    let mut next = Node::start(&etcd, &["--startup-guard", "100"]);
    next.wait_for("This node leads");
    acquire_at_last(&next, "lock");
    next.signal(Signal::SIGKILL);
    next.restart();
    next.wait_for("This node leads");
    assert!(next.acquire("another lock", "me").is_some(), "only a cluster that begins is guarded");
}

/// The longest lease of the clients of the live checker.
const LIVE_LEASE_MS: &str = "4000";
/// Longer than a restore and the quarantine that follows it take.
const WATCHED_FOR: Duration = Duration::from_secs(22);

/// Runs the clients of the live checker while etcd is restored from a snapshot, once, and that is accepted with these words.
/// Finds locks that were granted twice, and numbers that were.
fn check_through_a_restore(name: &str, words: &[&str]) -> Verdict {
    let mut etcd = Etcd::start_one(&[]);
    let settings = ["--horizon-max-lease", LIVE_LEASE_MS];
    let mut nodes = [(); 2].map(|()| Node::start(&etcd, &settings));
    wait_until("a leader", || nodes.iter_mut().any(Node::leads));
    let (mut strikes, mut snapshot) = (0, None);
    let (mut verdict, _) = check_while((name, WATCHED_FOR, Told::Late), &mut nodes, python(), |nodes| {
        strikes += 1;
        match strikes {
            1 => snapshot = Some(etcd.save()),
            // Locks are granted in between.
            3 => {
                etcd.restore(snapshot.as_ref().expect("a snapshot"), "etcd-cluster");
                nodes.iter_mut().for_each(|node| drop(node.wait_for(FOUND)));
                accept(&etcd, words);
            }
            _ => {}
        }
    });
    assert!(strikes > 3 && verdict.grants > 0, "{strikes} strikes, {verdict:?}");
    // What was granted after the snapshot is gone, which its holders see, and so are counters: one lock is numbered by one.
    verdict.broken.retain(|broken| match broken.law {
        Law::Exclusion => true,
        Law::Fencing => !broken.what.contains(FENCED),
        _ => false,
    });
    verdict
}

#[test]
#[ignore = "needs etcd"]
fn a_restored_etcd_gives_no_lock_twice_under_load() {
    let found = check_through_a_restore("cluster, etcd restored", &[]).broken;
    assert!(found.is_empty(), "{} violations, the first is {:?}", found.len(), found[0]);
}

// Breaks P-replicated-one-holder.
#[test]
#[ignore = "needs etcd"]
fn a_restored_log_that_is_accepted_without_a_quarantine_is_caught() {
    let words = ["--quarantine", "1ms"];
    must_be_caught("a restored log without a quarantine", || {
        check_through_a_restore("cluster without a quarantine", &words)
    });
}
