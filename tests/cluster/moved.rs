//! Locks move from one server with a journal to a cluster, and back: what was held is held, by the same token, and later
//! tokens are higher.
//!
//! The steps are tried one by one in `simulation::replicated_moves`, and killed one by one in `simulation::moving`.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::harness::{Etcd, Node, token_in, wait_until};
use super::restored::cluster;
use crate::support::binary::{Directory, redlatch};
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
    wait_until("the lock is free", || number(&ask(address, &["EXISTS", "free"])) == 0);
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
    let (is_done, said) = moves("import", &dir, &etcd);
    assert!(is_done && said.contains("An earlier call has moved the locks"), "{said}");
    let elsewhere =
        ["import", "--dir", &dir, "--cluster-etcd", &etcd.endpoints(), "--cluster-prefix", "/other/"];
    let (is_done, said) = cluster(&elsewhere);
    assert!(!is_done && said.contains("moved to a cluster that is not under this prefix"), "{said}");
    let other = server(&files.path("other"));
    stop(other);
    refused("import", &files.path("other"), "there is a cluster under this prefix");

    // The directory may be that of a node now.
    let mut leader = Node::start(&etcd, &["--dir", &dir]);
    leader.wait_for("This node leads");
    refused("export", &back, &format!("a node leads: stop all nodes first (tcp {},", leader.address()));
    refused("export", &dir, "is in use, or was");
    leader.signal(Signal::SIGKILL);
    let (is_done, said) = moves("export", &back, &etcd);
    assert!(is_done, "a leader that is silent is none: {said}");
    starts_no(&["--cluster-etcd", &etcd.endpoints()], "its locks were moved away");
    refused("export", &files.path("again"), "its locks were moved away");
    let (is_done, said) = moves("export", &back, &etcd);
    assert!(is_done && said.contains("An earlier call has moved the locks"), "{said}");
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
    assert!(is_done && said.contains("No lock is granted for another"), "{said}");
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
fn nobody_starts_on_a_directory_that_an_export_has_begun_with() {
    let (etcd, files) = (Etcd::start_one(&[]), Directory::new());
    let dir = files.path("server");
    let leader = node(&etcd);
    ask(leader.address(), &["SET", "lock", "me", "PX", "600000"]);
    stop(leader);
    std::fs::create_dir_all(format!("{dir}/data")).expect("a directory");
    let mark = format!("{dir}/data/exporting");
    std::fs::write(&mark, format!("id {}\n", "ab".repeat(20))).expect("a file");
    std::fs::write(format!("{dir}/data/journal-1"), "half of it").expect("a file");
    for mode in [&["--appendonly", "no"][..], &["--appendfsync", "no"], &["--appendfsync", "always"], &[]] {
        let said = super::harness::refusal(&[&["--dir", &dir], mode].concat());
        assert!(said.contains("run 'redlatch cluster export' again"), "{mode:?}: {said}");
    }
    let said = super::harness::refusal(&["--cluster-etcd", &etcd.endpoints(), "--dir", &dir]);
    assert!(said.contains("run 'redlatch cluster export' again"), "{said}");
    let (is_done, said) = moves("import", &dir, &etcd);
    assert!(!is_done && said.contains("run 'redlatch cluster export' again"), "{said}");
    let (is_done, said) = moves("export", &dir, &etcd);
    assert!(is_done && said.contains("Moved 1 keys"), "{said}");
    let alone = server(&dir);
    assert_eq!(ask(alone.address(), &["SET", "lock", "another", "NX"]), OwnedFrame::Null);
}

#[test]
#[ignore = "needs etcd"]
fn an_export_from_several_groups_is_refused() {
    let (etcd, files) = (Etcd::start_one(&[]), Directory::new());
    let mut leader = Node::start(&etcd, &["--cluster-groups", "2"]);
    leader.wait_for("This node leads");
    stop(leader);
    let (is_done, said) = moves("export", &files.path("to"), &etcd);
    assert!(!is_done && said.contains("there is no cluster under this prefix"), "{said}");
    let alone = server(&files.path("from"));
    ask(alone.address(), &["SET", "lock", "me", "PX", "600000"]);
    stop(alone);
    let (is_done, said) = moves("import", &files.path("from"), &etcd);
    assert!(!is_done && said.contains("the cluster has cluster-groups 2, and this node 1"), "{said}");
}

#[test]
#[ignore = "needs etcd"]
fn an_export_that_is_killed_leaves_one_copy_and_the_next_one_ends_it() {
    Killed::new().kill_all("export");
}

#[test]
#[ignore = "needs etcd"]
fn an_import_that_is_killed_leaves_one_copy_and_the_next_one_ends_it() {
    Killed::new().kill_all("import");
}

/// How many moves are killed, each a little later than the one before.
const KILLS: u32 = 16;
/// Keys that are moved: they take a while.
const KEYS: &str = "50000";

/// Moves that are killed, each under a prefix of its own.
struct Killed {
    etcd: Etcd,
    files: Directory,
    /// The highest token in the directory `template`.
    token: i64,
}

/// Who has the locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Holder {
    Nobody,
    Nodes,
    Server,
}

impl Killed {
    fn new() -> Self {
        let (etcd, files) = (Etcd::start_one(&[]), Directory::new());
        let alone = server(&files.path("template"));
        let script = "for i = 1, ARGV[1] do redis.call('SET', 'k' .. i, 'v', 'PX', 6000000) end";
        ask(alone.address(), &["EVAL", script, "0", KEYS]);
        let granted = ask(alone.address(), &["LOCK.ACQUIRE", "lock", "me", "LEASE", "6000000"]);
        let token = token_in(&granted).expect("a lock that is free");
        stop(alone);
        Self { etcd, files, token }
    }

    fn kill_all(&self, way: &str) {
        let (whole, _) = self.kill(way, 0, Duration::MAX);
        let kills = 1..=KILLS;
        let after: Vec<_> = kills.map(|number| self.kill(way, number, whole * number / KILLS).1).collect();
        println!("{way}, {} ms: {after:?}", whole.as_millis());
    }

    /// Kills one move; returns how long it took, and who had the locks then. `Duration::MAX`: it is only measured.
    fn kill(&self, way: &str, number: u32, after: Duration) -> (Duration, Holder) {
        let (from, to) =
            (self.files.path(&format!("from-{number}")), self.files.path(&format!("to-{number}")));
        let (endpoints, prefix) = (self.etcd.endpoints(), format!("/{number}/"));
        let nodes = ["--cluster-etcd", &endpoints, "--cluster-prefix", &prefix, "--cluster-takeover", "500"];
        std::fs::create_dir_all(format!("{from}/data")).expect("a directory");
        for file in std::fs::read_dir(self.files.path("template/data")).expect("a directory") {
            let file = file.expect("a file");
            let copy = format!("{from}/data/{}", file.file_name().to_string_lossy());
            std::fs::copy(file.path(), copy).expect("a copy");
        }
        let words = |way, dir| [&[way, "--dir", dir], &nodes[..]].concat();
        let dir = if way == "import" { &from } else { &to };
        if way == "export" {
            let (is_done, said) = cluster(&words("import", &from));
            assert!(is_done, "{said}");
        }
        let begun = Instant::now();
        let mut command = redlatch();
        command.arg("cluster").args(words(way, dir)).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().expect("redlatch starts");
        while begun.elapsed() < after && process.try_wait().expect("a process").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = begun.elapsed();
        process.kill().expect("a process of this test");
        process.wait().expect("a process");
        if after == Duration::MAX {
            return (took, Holder::Nobody);
        }
        let holder = self.holder(&nodes, dir);
        let (is_done, said) = cluster(&words(way, dir));
        assert!(is_done, "run again after {took:?}, when {holder:?} had the locks: {said}");
        let last = self.holder(&nodes, dir);
        assert_eq!(last, if way == "import" { Holder::Nodes } else { Holder::Server });
        (took, holder)
    }

    /// Checks that one of them has the locks, or that both say what to run.
    fn holder(&self, nodes: &[&str], dir: &str) -> Holder {
        let says_again = |args: &[&str]| {
            let said = super::harness::refusal(args);
            assert!(said.contains("again"), "{args:?}: {said}");
        };
        let (_, cluster) = self.etcd.ctl(&["get", &format!("{}cluster", nodes[3])]);
        // Before the mark is there, a server starts with nothing, as in any new directory.
        let is_new =
            |file: std::fs::DirEntry| ["lock", "mark.new"].iter().any(|name| file.file_name() == *name);
        let has_begun = std::fs::read_dir(format!("{dir}/data"))
            .is_ok_and(|mut files| files.any(|file| file.is_ok_and(|file| !is_new(file))));
        // A node would found a cluster.
        let node = Some(nodes).filter(|_| !cluster.is_empty());
        if let Some(node) = node.and_then(|nodes| Node::try_spawn(nodes, "This node leads")) {
            self.check(node.address());
            stop(node);
            if has_begun {
                says_again(&["--dir", dir]);
                says_again(&["--dir", dir, "--appendonly", "no"]);
            }
            return Holder::Nodes;
        }
        let Some(alone) = Node::try_spawn(&["--dir", dir], "Ready to accept connections") else {
            says_again(nodes);
            says_again(&["--dir", dir]);
            says_again(&["--dir", dir, "--appendonly", "no"]);
            return Holder::Nobody;
        };
        self.check(alone.address());
        stop(alone);
        Holder::Server
    }

    /// Checks that the lock is held, by its token, and that later tokens are higher.
    fn check(&self, address: SocketAddr) {
        let refused = ask(address, &["LOCK.ACQUIRE", "lock", "another", "LEASE", "1000"]);
        assert_eq!(refused, OwnedFrame::Null, "the lock is held");
        let same = ask(address, &["LOCK.ACQUIRE", "lock", "me", "LEASE", "6000000"]);
        assert_eq!(token_in(&same), Some(self.token), "{same:?}");
        let later = ask(address, &["LOCK.ACQUIRE", "free", "me", "LEASE", "6000000"]);
        assert!(token_in(&later).is_some_and(|later| later > self.token), "{later:?}");
        assert_eq!(number(&ask(address, &["LOCK.RELEASE", "free", "me"])), 1);
    }
}
