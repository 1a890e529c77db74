//! Locks move from one server with a journal to a cluster, and back: what was held is held, by the same token, and later
//! tokens are higher.
//!
//! The steps are tried one by one in `simulation::replicated_moves`.

use std::net::SocketAddr;

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::harness::{Etcd, Node, token_in, wait_until};
use super::restored::cluster;
use crate::support::binary::Directory;
use crate::support::wire::Link;

/// A server by itself, with a journal in `dir`.
fn server(dir: &str) -> Node {
    let mut server = Node::spawn(&["--dir", dir]);
    server.wait_for("Ready to accept connections");
    server
}

fn node(etcd: &Etcd) -> Node {
    let mut node = Node::start(etcd, &[]);
    node.wait_for("This node leads");
    node
}

fn stop(mut node: Node) {
    node.signal(Signal::SIGTERM);
    assert_eq!(node.end(), Some(0));
}

fn moves(way: &str, dir: &str, etcd: &Etcd) -> (bool, String) {
    cluster(&[way, "--dir", dir, "--cluster-etcd", &etcd.endpoints()])
}

fn ask(address: SocketAddr, words: &[&str]) -> OwnedFrame {
    Link::to(address).expect("a server").ask(words).expect("an answer")
}

fn number(reply: &OwnedFrame) -> i64 {
    match reply {
        OwnedFrame::Integer(number) => *number,
        other => panic!("no number: {other:?}"),
    }
}

/// Takes locks of several kinds, and writes keys of several kinds.
fn fill(address: SocketAddr) {
    for words in [
        &["LOCK.ACQUIRE", "lock", "me", "LEASE", "600000"][..],
        &["LOCK.ACQUIRE", "shared", "reader", "SHARED", "LEASE", "600000"],
        &["LOCK.ACQUIRE", "of a session", "me", "SESSION", "DELAY", "600000"],
        &["SET", "set nx", "mine", "NX", "PX", "600000"],
        &["INCR", "counter"],
        &["SET", "free", "soon", "PX", "1"],
        &["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"],
    ] {
        let reply = ask(address, words);
        assert!(!matches!(reply, OwnedFrame::Error(_) | OwnedFrame::Null), "{words:?}: {reply:?}");
    }
    // Else the journal may end before it does, and it is one key more.
    while number(&ask(address, &["EXISTS", "free"])) > 0 {}
}

/// Checks that all of [`fill`] is there, and that the locks are nobody else's. `token`: the highest that was given out.
/// Returns the highest that is given out now.
fn check(address: SocketAddr, token: i64) -> i64 {
    for key in ["lock", "shared", "of a session"] {
        let refused = ask(address, &["LOCK.ACQUIRE", key, "another", "LEASE", "1000"]);
        assert_eq!(refused, OwnedFrame::Null, "{key} is held");
    }
    assert_eq!(ask(address, &["SET", "set nx", "another", "NX"]), OwnedFrame::Null);
    assert_eq!(number(&ask(address, &["FCALL", "f", "0"])), 7);
    for key in ["lock", "set nx"] {
        let left = number(&ask(address, &["PTTL", key]));
        assert!((500_000..=610_000).contains(&left), "{key} has {left} ms left");
    }
    let same = ask(address, &["LOCK.ACQUIRE", "lock", "me", "LEASE", "600000"]);
    assert!(token_in(&same).is_some_and(|same| same <= token), "its holder has its token still: {same:?}");
    let later = ask(address, &["LOCK.ACQUIRE", "free", "me", "LEASE", "600000"]);
    let later = token_in(&later).expect("a lock that is free");
    assert!(later > token, "{later} after {token}");
    assert_eq!(number(&ask(address, &["LOCK.RELEASE", "free", "me"])), 1);
    later
}

#[test]
#[ignore = "needs etcd"]
fn locks_move_to_a_cluster_and_back_and_to_a_cluster_again() {
    let (etcd, files) = (Etcd::start_one(&[]), Directory::new());
    let (first, second) = (files.path("first"), files.path("second"));
    let alone = server(&first);
    fill(alone.address());
    let mut token = token_in(&ask(alone.address(), &["LOCK.ACQUIRE", "last", "me", "LEASE", "600000"]))
        .expect("a lock that is free");
    stop(alone);
    for (from, to) in [(&first, &second), (&second, &files.path("third"))] {
        let (is_done, said) = moves("import", from, &etcd);
        assert!(is_done && said.contains("6 keys") && !said.contains("granted"), "{said}");
        let nodes = [node(&etcd), Node::start(&etcd, &[])];
        assert_eq!(number(&ask(nodes[1].address(), &["INCRBY", "counter", "0"])), 1);
        token = check(nodes[1].address(), token);
        nodes.into_iter().rev().for_each(stop);

        let (is_done, said) = moves("export", to, &etcd);
        assert!(is_done && said.contains("6 keys"), "{said}");
        let alone = server(to);
        token = check(alone.address(), token);
        stop(alone);
    }
}

#[test]
#[ignore = "needs etcd"]
fn locks_are_in_one_place_at_a_time() {
    let (etcd, files) = (Etcd::start_one(&[]), Directory::new());
    let (dir, back) = (files.path("server"), files.path("back"));
    let alone = server(&dir);
    ask(alone.address(), &["SET", "lock", "me", "PX", "600000"]);
    let refused = |way: &str, dir: &str, why: &str| {
        let (is_done, said) = moves(way, dir, &etcd);
        assert!(!is_done && said.contains(why), "{way}: {said}");
    };
    let starts_no = |args: &[&str], why: &str| {
        let said = super::harness::refusal(args);
        assert!(said.contains(why), "{said}");
    };
    refused("import", &dir, "another server uses it");
    refused("import", &back, "has no journal");
    refused("export", &back, "there is no cluster under this prefix");
    stop(alone);
    assert!(moves("import", &dir, &etcd).0);
    starts_no(&["--dir", &dir], "its locks were moved to a cluster");
    refused("import", &dir, "there is a cluster under this prefix");

    // The directory may be that of a node now.
    let mut leader = Node::start(&etcd, &["--dir", &dir]);
    leader.wait_for("This node leads");
    refused("export", &back, &format!("a node leads: stop all nodes first (tcp {})", leader.address()));
    refused("export", &dir, "is in use, or was");
    leader.signal(Signal::SIGKILL);
    let (is_done, said) = moves("export", &back, &etcd);
    assert!(is_done, "a leader that is silent is none: {said}");
    starts_no(&["--cluster-etcd", &etcd.endpoints()], "its locks were moved away");
    refused("export", &files.path("again"), "there is no cluster under this prefix");
    let alone = server(&back);
    assert_eq!(ask(alone.address(), &["SET", "lock", "another", "NX"]), OwnedFrame::Null);
    stop(alone);
    assert!(moves("import", &back, &etcd).0);
    let (_, keys) = etcd.ctl(&["get", "--prefix", "/redlatch/", "--keys-only"]);
    assert!(keys.contains("/redlatch/cluster") && !keys.contains("/redlatch/node/"), "{keys}");
}

#[test]
#[ignore = "needs etcd"]
fn what_a_journal_may_lack_is_waited_for_by_the_cluster() {
    let (etcd, files) = (Etcd::start_one(&[]), Directory::new());
    let dir = files.path("server");
    let mut alone = server(&dir);
    // Each of these waits for the disk.
    for key in ["lock", "in-the-middle", "another", "the last"] {
        ask(alone.address(), &["SET", key, "me", "PX", "600000"]);
    }
    let journal = format!("{dir}/data/journal-1");
    alone.signal(Signal::SIGKILL);
    let mut bytes = std::fs::read(&journal).expect("a journal");
    let middle = bytes.windows(13).position(|bytes| bytes == b"in-the-middle").expect("the key");
    bytes[middle] ^= 1;
    std::fs::write(&journal, bytes).expect("a journal that is damaged");
    let (is_done, said) = moves("import", &dir, &etcd);
    assert!(!is_done && said.contains("is damaged") && said.contains("set startup-guard"), "{said}");
    let words = ["import", "--dir", &dir, "--cluster-etcd", &etcd.endpoints(), "--startup-guard", "600000"];
    let (is_done, said) = cluster(&words);
    assert!(is_done && said.contains("Nothing is granted for another"), "{said}");
    let leader = node(&etcd);
    let refused = ask(leader.address(), &["SET", "lock", "another"]);
    assert!(matches!(&refused, OwnedFrame::Error(text) if text.starts_with("QUARANTINE")), "{refused:?}");
}

#[test]
#[ignore = "needs etcd"]
fn an_import_that_was_interrupted_is_no_cluster_and_the_next_one_ends_it() {
    let (etcd, files) = (Etcd::start_one(&[]), Directory::new());
    let dir = files.path("server");
    let alone = server(&dir);
    ask(alone.address(), &["SET", "lock", "me", "PX", "600000"]);
    stop(alone);
    etcd.put(b"/redlatch/cluster", b"arriving 00");
    etcd.put(b"/redlatch/log/0000000000000000", b"of another import");
    let said = super::harness::refusal(&["--cluster-etcd", &etcd.endpoints()]);
    assert!(said.contains("'redlatch cluster import' has not ended"), "{said}");
    assert!(moves("import", &dir, &etcd).0);
    let leader = node(&etcd);
    wait_until("the lock", || ask(leader.address(), &["SET", "lock", "another", "NX"]) == OwnedFrame::Null);
}

#[test]
#[ignore = "needs etcd"]
fn an_export_that_was_interrupted_is_led_by_no_node_and_the_next_one_ends_it() {
    let (etcd, files) = (Etcd::start_one(&[]), Directory::new());
    let dir = files.path("server");
    let leader = node(&etcd);
    ask(leader.address(), &["SET", "lock", "me", "PX", "600000"]);
    stop(leader);
    let (_, text) = etcd.ctl(&["get", "/redlatch/cluster", "--print-value-only"]);
    let text = text.strip_suffix('\n').expect("etcdctl ends the line");
    etcd.put(b"/redlatch/cluster", format!("leaving {text}").as_bytes());
    std::fs::create_dir_all(format!("{dir}/moving/data")).expect("a directory");
    std::fs::write(format!("{dir}/moving/data/journal-1"), "half of it").expect("a file");
    let said = super::harness::refusal(&["--cluster-etcd", &etcd.endpoints()]);
    assert!(said.contains("its locks were moved away"), "{said}");
    let (is_done, said) = moves("import", &files.path("none"), &etcd);
    assert!(!is_done, "{said}");
    let (is_done, said) = moves("export", &dir, &etcd);
    assert!(is_done && said.contains(": 1 keys"), "{said}");
    let alone = server(&dir);
    assert_eq!(ask(alone.address(), &["SET", "lock", "another", "NX"]), OwnedFrame::Null);
}
