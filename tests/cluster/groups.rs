//! Groups of slots, each with a leader of its own: who leads what, what clients are told, and what the loss of a node moves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::{Range, RangeInclusive};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};
use redlatch_core::types::slot;

use super::clients::{Script, program};
use super::harness::{self, Etcd, Node, refusal, token_in, wait_until};
use crate::clients::process::run;
use crate::clients::table::{Client, clients};
use crate::support::binary::{Directory, redlatch};
use crate::support::http::get;
use crate::support::wire::Link;

/// Asks the server at a port of this machine. `None`: no answer.
fn ask(port: u16, words: &[&str]) -> Option<OwnedFrame> {
    harness::ask(([127, 0, 0, 1], port).into(), words)
}

/// The ports of the leaders of all groups, by their first slots, as CLUSTER SLOTS says at a port.
fn leaders(port: u16) -> BTreeMap<i64, u16> {
    let Some(OwnedFrame::Array(ranges)) = ask(port, &["CLUSTER", "SLOTS"]) else { return BTreeMap::new() };
    let leader = |range: &OwnedFrame| {
        let OwnedFrame::Array(range) = range else { panic!("a range of slots: {range:?}") };
        let (OwnedFrame::Integer(first), OwnedFrame::Array(node)) = (&range[0], &range[2]) else {
            panic!("a range of slots: {range:?}");
        };
        let OwnedFrame::Integer(port) = node[1] else { panic!("a port: {node:?}") };
        (*first, port as u16)
    };
    ranges.iter().map(leader).collect()
}

/// Nodes that share out so many groups, once each of them leads its part.
fn sharing(etcd: &Etcd, count: u16, groups: u16) -> Vec<Node> {
    let flags = ["--cluster-groups", &groups.to_string()];
    let nodes: Vec<Node> = (0..count).map(|_| Node::start(etcd, &flags)).collect();
    wait_until("a part for each node", || is_shared_out(&nodes, groups));
    nodes
}

/// The ports of a node, one for each group.
fn ports(node: &Node, groups: u16) -> Range<u16> {
    node.address().port()..node.address().port() + groups
}

/// Whether every group has a leader, as is said at a port, and none of them at the lost ones.
fn are_led_elsewhere(port: u16, groups: u16, lost: &Range<u16>) -> bool {
    let now = leaders(port);
    now.len() == usize::from(groups) && now.values().all(|port| !lost.contains(port))
}

/// Whether every group has a leader, and no node more than its part of them.
fn is_shared_out(nodes: &[Node], groups: u16) -> bool {
    let leaders: Vec<u16> = leaders(nodes[0].address().port()).into_values().collect();
    let led = |node: &Node| leaders.iter().filter(|port| ports(node, groups).contains(port)).count();
    let part = usize::from(groups).div_ceil(nodes.len());
    leaders.len() == usize::from(groups) && nodes.iter().all(|node| led(node) <= part)
}

/// Takes a lock as `me` where a client in cluster mode finds it. `None`: refused.
fn acquire(port: u16, lock: &str) -> Option<i64> {
    let words = ["LOCK.ACQUIRE", lock, "me", "LEASE", "60000"];
    let mut answer = ask(port, &words)?;
    if let Some(address) = answer.as_str().and_then(|text| text.strip_prefix("MOVED ")) {
        let port = address.rsplit_once(':')?.1.parse().ok()?;
        answer = ask(port, &words)?;
    }
    token_in(&answer)
}

/// The token of a lock that is free. A node that has just started may still hand its group over, and refuses for a moment.
fn taken(port: u16, lock: &str) -> i64 {
    let mut token = None;
    wait_until("a free lock", || {
        token = acquire(port, lock);
        token.is_some()
    });
    token.expect("waited for")
}

/// What CLUSTER INFO says at a port of the field of this name. Empty: nothing, or nobody is there.
fn info(port: u16, name: &str) -> String {
    let info = ask(port, &["CLUSTER", "INFO"]);
    let info = info.as_ref().and_then(|info| info.as_str()).unwrap_or_default();
    let field = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    field.unwrap_or_default().trim().to_owned()
}

/// The term of the leader at a port.
fn epoch(port: u16) -> String {
    info(port, "cluster_current_epoch")
}

#[test]
#[ignore = "needs etcd"]
fn nodes_share_out_the_groups_and_the_loss_of_one_moves_its_own() {
    const GROUPS: u16 = 4;
    let etcd = Etcd::start_one(&[]);
    let mut nodes = sharing(&etcd, 2, GROUPS);
    let before = leaders(nodes[0].address().port());
    let all: Vec<String> = (0..40).map(|number| format!("lock:{number}")).collect();
    let any = nodes[0].address().port();
    let tokens: Vec<i64> = all.iter().map(|lock| taken(any, lock)).collect();

    let lost = ports(&nodes[1], GROUPS);
    let stays: Vec<u16> = before.values().copied().filter(|port| !lost.contains(port)).collect();
    assert_eq!(stays.len(), 2, "{before:?}");
    let epochs: Vec<String> = stays.iter().map(|port| epoch(*port)).collect();
    let mut beside = Link::to(([127, 0, 0, 1], stays[0]).into()).expect("a leader");
    nodes[1].signal(Signal::SIGKILL);
    wait_until("leaders for all groups", || are_led_elsewhere(any, GROUPS, &lost));
    // The groups of the other node have gone on, with their connections.
    assert_eq!(beside.ask(&["PING"]).expect("the same connection").as_str(), Some("PONG"));
    assert_eq!(stays.iter().map(|port| epoch(*port)).collect::<Vec<_>>(), epochs);
    for (lock, token) in all.iter().zip(&tokens) {
        assert_eq!(acquire(any, lock), Some(*token), "{lock} is held as before");
    }

    nodes[1].restart();
    wait_until("its part for the node that is back", || is_shared_out(&nodes, GROUPS));
    for (lock, token) in all.iter().zip(&tokens) {
        wait_until("the lock where it was moved", || acquire(any, lock) == Some(*token));
    }
}

/// A lock of each group, of which there are so many.
fn lock_of_each(groups: u16) -> Vec<String> {
    let names = || (0..).map(|number| format!("lock:{number}"));
    let of = |slots: RangeInclusive<u16>| names().find(|name| slots.contains(&slot::slot(name.as_bytes())));
    slot::ranges(groups).map(|slots| of(slots).expect("one of so many")).collect()
}

/// How many transactions etcd has been called for. Those that share a call are one.
fn calls(etcd: &Etcd) -> u64 {
    let mut metrics = String::new();
    let mut stream = TcpStream::connect(etcd.address()).expect("etcd");
    // In this version of HTTP, the answer ends with its connection.
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    stream.read_to_string(&mut metrics).expect("text");
    let of_transactions = |line: &&str| {
        line.starts_with("grpc_server_handled_total{") && line.contains("\"Txn\"") && line.contains("\"OK\"")
    };
    let count = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
    metrics.lines().filter(of_transactions).filter_map(count).sum()
}

/// How many commits the leaders at these ports count together.
fn commits(ports: &[u16]) -> u64 {
    ports.iter().map(|port| info(*port, "cluster_commits").parse::<u64>().expect("a number")).sum()
}

/// In one call of etcd, the commits of a group whose epoch is gone fail, and those of the others do not.
#[test]
#[ignore = "needs etcd"]
fn commits_of_groups_share_calls_and_a_group_that_is_deposed_keeps_none_from_its_own() {
    const GROUPS: u16 = 8;
    const LOCKS: usize = 400;
    let etcd = Etcd::start_one(&[]);
    let nodes = sharing(&etcd, 1, GROUPS);
    let ports: Vec<u16> = ports(&nodes[0], GROUPS).collect();
    let [deposed, others @ ..] = &ports[..] else { panic!("a port for each group") };
    let epochs = || others.iter().map(|port| epoch(*port)).collect::<Vec<_>>();
    let (before, was) = (epochs(), epoch(*deposed));
    let (calls_before, commits_before) = (calls(&etcd), commits(others));
    std::thread::scope(|scope| {
        for (port, lock) in ports.iter().zip(lock_of_each(GROUPS)) {
            let mut link = Link::to(([127, 0, 0, 1], *port).into()).expect("a leader");
            scope.spawn(move || {
                for number in 0..LOCKS {
                    let key = format!("{{{lock}}}:{number}");
                    let Ok(answer) = link.ask(&["LOCK.ACQUIRE", &key, "me", "LEASE", "60000"]) else {
                        assert_eq!(port, deposed, "the others go on");
                        return;
                    };
                    assert!(token_in(&answer).is_some() || port == deposed, "{answer:?}");
                }
            });
        }
        etcd.put(b"/redlatch/0/epoch", b"released");
    });
    assert_eq!(epochs(), before);
    wait_until("another term of the group", || ![&was, ""].contains(&epoch(*deposed).as_str()));
    let commits = commits(others) - commits_before;
    let calls = calls(&etcd) - calls_before;
    assert!(calls < commits, "{calls} calls for {commits} commits");
}

#[test]
#[ignore = "needs etcd"]
fn a_slot_of_another_group_is_where_moved_says() {
    let etcd = Etcd::start_one(&[]);
    let nodes = sharing(&etcd, 1, 3);
    let first = nodes[0].address().port();
    // The slot of `a` is 15495, in the last of three groups.
    let moved = format!("MOVED 15495 127.0.0.1:{}", first + 2);
    let refused = |words: &[&str]| ask(first, words).and_then(|answer| answer.as_str().map(str::to_owned));
    assert_eq!(refused(&["SET", "a", "1"]).as_deref(), Some(moved.as_str()));
    assert_eq!(refused(&["EVAL", "return redis.call('get', KEYS[1])", "1", "a"]), Some(moved));
    let script = refused(&["EVAL", "return redis.call('get', 'a')", "0"]).expect("an error");
    assert!(script.contains("attempted to access a non local key in a cluster node"), "{script}");
    let crossed = refused(&["MGET", "a", "b"]).expect("an error");
    assert!(crossed.starts_with("CROSSSLOT"), "{crossed}");
    assert_eq!(ask(first + 2, &["SET", "a", "1"]).expect("its leader").as_str(), Some("OK"));
    let refused = ask(first, &["SENTINEL", "masters"]).expect("an answer");
    assert!(refused.as_str().is_some_and(|text| text.starts_with("ERR unknown command")), "{refused:?}");
    let ids = [first, first + 1, first + 2].map(|port| ask(port, &["CLUSTER", "MYID"]).expect("an id"));
    let described = ask(first, &["CLUSTER", "NODES"]).expect("the nodes");
    let described = described.as_str().expect("text");
    for (id, port) in ids.iter().zip(first..) {
        let start = format!("{} 127.0.0.1:{port}@", id.as_str().expect("an id"));
        assert!(described.lines().any(|line| line.starts_with(&start)), "{start}: {described}");
    }
    assert_eq!(described.matches("myself").count(), 1, "{described}");
}

/// A client that does not know MOVED, and sends its requests again, is told so each time, and nothing happens.
#[test]
#[ignore = "needs etcd"]
fn a_client_that_ignores_moved_changes_nothing() {
    let etcd = Etcd::start_one(&[]);
    let nodes = sharing(&etcd, 1, 3);
    let first = nodes[0].address().port();
    let moved = format!("MOVED 15495 127.0.0.1:{}", first + 2);
    let mut link = Link::to(([127, 0, 0, 1], first).into()).expect("a leader");
    let mut said = |words: &[&str]| link.ask(words).expect("an answer");
    let is_moved = |answer: &OwnedFrame| answer.as_str() == Some(moved.as_str());
    for _ in 0..100 {
        for words in [
            &["LOCK.ACQUIRE", "a", "me", "LEASE", "60000"][..],
            &["LOCK.ACQUIRE", "a", "me", "LEASE", "60000", "WAIT", "1000"],
            &["SET", "a", "me", "NX", "PX", "60000"],
            &["LOCK.RELEASE", "a", "me"],
            &["BLPOP", "a", "0"],
        ] {
            let answer = said(words);
            assert!(is_moved(&answer), "{words:?}: {answer:?}");
        }
    }
    assert_eq!(said(&["MULTI"]).as_str(), Some("OK"));
    assert!(is_moved(&said(&["SET", "a", "me"])));
    let aborted = said(&["EXEC"]);
    assert!(aborted.as_str().is_some_and(|text| text.starts_with("EXECABORT")), "{aborted:?}");
    assert_eq!(said(&["PING"]).as_str(), Some("PONG"), "the connection stays");
    assert_eq!(ask(first + 2, &["EXISTS", "a"]), Some(OwnedFrame::Integer(0)));
    assert_eq!(acquire(first + 2, "a"), Some(1), "the first token of the group");
}

/// Of three nodes with two groups one leads nothing. Its ports are those of the leaders, and it may follow them.
#[test]
#[ignore = "needs etcd"]
fn a_node_more_than_groups_stands_by() {
    const GROUPS: u16 = 2;
    let etcd = Etcd::start_one(&[]);
    let mut nodes = sharing(&etcd, 3, GROUPS);
    let leads =
        |node: &Node| leaders(node.address().port()).values().any(|at| ports(node, GROUPS).contains(at));
    let idle = nodes.iter().find(|node| !leads(node)).expect("a node more than groups").address().port();
    let locks = ["lock:1", "lock:2", "lock:3"];
    let tokens = locks.map(|lock| taken(idle, lock));
    let lost = nodes.iter().position(leads).expect("a leader");
    nodes[lost].signal(Signal::SIGKILL);
    let lost = ports(&nodes[lost], GROUPS);
    wait_until("leaders for both groups", || are_led_elsewhere(idle, GROUPS, &lost));
    for (lock, token) in locks.iter().zip(tokens) {
        wait_until("the lock where it was moved", || acquire(idle, lock) == Some(token));
    }
}

/// How long what was taken over is watched: for longer than a node is listed that has ended.
const WATCHED: Duration = Duration::from_secs(12);

/// The list of the nodes still has the one that has ended, which was to lead these groups.
#[test]
#[ignore = "needs etcd"]
fn no_group_is_handed_over_to_a_node_that_has_ended() {
    const GROUPS: u16 = 2;
    let etcd = Etcd::start_one(&[]);
    let mut nodes = sharing(&etcd, 2, GROUPS);
    let (stays, ended) = (ports(&nodes[0], GROUPS), ports(&nodes[1], GROUPS));
    nodes[1].signal(Signal::SIGKILL);
    wait_until("the other node in its place", || are_led_elsewhere(stays.start, GROUPS, &ended));
    let epochs = || stays.clone().map(epoch).collect::<Vec<_>>();
    let (begun, before) = (Instant::now(), epochs());
    while begun.elapsed() < WATCHED {
        assert_eq!(epochs(), before, "after {:?}", begun.elapsed());
    }
}

/// A replica of Redis refuses reads before READONLY, and may be late after it. A standby has nothing to read.
#[test]
#[ignore = "needs etcd"]
fn a_node_that_nobody_reaches_gives_its_groups_up_and_is_not_asked_for_them_again() {
    // Each of three nodes leads two of five groups at most: none goes without.
    const GROUPS: u16 = 5;
    let etcd = Etcd::start_one(&[]);
    let nodes = sharing(&etcd, 2, GROUPS);
    let seen = nodes[0].address().port();
    // Nobody listens where it says that it is.
    let (nowhere, flags) = (1..1 + GROUPS, ["--cluster-groups", "5", "--cluster-announce", "127.0.0.1:1"]);
    let _astray = Node::start(&etcd, &flags);
    // A leader gives its groups up if standbys have clients that it keeps waiting. It writes that it rests.
    let come_to_all = || {
        thread::scope(|scope| {
            for port in nodes.iter().flat_map(|node| ports(node, GROUPS)) {
                scope.spawn(move || drop(ask(port, &["PING"])));
            }
        });
    };
    wait_until("the rest of the node astray", || {
        come_to_all();
        let (_, entries) = etcd.ctl(&["get", "--prefix", "/redlatch/"]);
        entries.lines().any(|line| line.starts_with("rests "))
    });
    wait_until("other leaders, and clients that reach these", || {
        come_to_all();
        are_led_elsewhere(seen, GROUPS, &nowhere)
    });
}

#[test]
#[ignore = "needs etcd"]
fn a_standby_is_not_told_as_a_replica_because_its_port_is_that_of_the_leader() {
    let etcd = Etcd::start_one(&[]);
    let nodes = sharing(&etcd, 2, 2);
    let leader = leaders(nodes[0].address().port())[&8192];
    let ports = nodes.iter().map(|node| node.address().port() + 1);
    let standby = ports.clone().find(|port| *port != leader).expect("a standby of the second group");
    assert_eq!(ask(leader, &["SET", "a", "1"]).expect("its leader").as_str(), Some("OK"));
    let mut link = Link::to(([127, 0, 0, 1], standby).into()).expect("its port");
    let mut said = |words: &[&str]| link.ask(words).expect("an answer").as_str().map(str::to_owned);
    assert_eq!(said(&["GET", "a"]).as_deref(), Some("1"));
    assert_eq!(said(&["READONLY"]).as_deref(), Some("OK"));
    assert_eq!(said(&["SET", "a", "2"]).as_deref(), Some("OK"));
    assert_eq!(ask(leader, &["GET", "a"]).expect("its leader").as_str(), Some("2"));
    let id = ask(leader, &["CLUSTER", "MYID"]).expect("an id");
    assert_eq!(said(&["CLUSTER", "MYID"]).as_deref(), id.as_str());
    let described = said(&["CLUSTER", "NODES"]).expect("text");
    assert!(described.lines().count() == 2 && !described.contains("slave"), "{described}");
    let Some(OwnedFrame::Array(ranges)) = ask(standby, &["CLUSTER", "SLOTS"]) else { panic!("ranges") };
    let lens: Vec<_> =
        ranges.iter().map(|range| matches!(range, OwnedFrame::Array(parts) if parts.len() == 3)).collect();
    assert_eq!(lens, [true, true], "{ranges:?}");
}

/// The exit code, the output and what is said on the error stream of `redlatch ARGUMENTS`, asked at a port.
fn asked(port: u16, arguments: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("redis://127.0.0.1:{port}");
    let output = redlatch().args(arguments).env("REDLATCH_URL", url).output().expect("redlatch starts");
    let [said, told] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.code(), said, told)
}

#[test]
#[ignore = "needs etcd"]
fn the_program_asks_the_leaders_of_all_groups() {
    const GROUPS: u16 = 4;
    let etcd = Etcd::start_one(&[]);
    let mut nodes = sharing(&etcd, 2, GROUPS);
    let all: Vec<String> = (0..12).map(|number| format!("lock:{number:02}")).collect();
    for (lock, port) in all.iter().zip((0..GROUPS).cycle().map(|group| nodes[1].address().port() + group)) {
        taken(port, lock);
        assert_eq!(asked(port, &["who", lock]).0, Some(0), "{lock}");
        assert_eq!(asked(port, &["wait", lock, "--timeout", "0"]).0, Some(75), "{lock} is held");
    }
    // A port of the node that stays, in a group that it leads: the others answer nobody until they have a leader again.
    let first = nodes[0].address().port();
    let stays = leaders(first).into_values().find(|port| (first..first + GROUPS).contains(port));
    let any = stays.expect("a group that the first node leads");
    let listed = || {
        let (code, said, told) = asked(any, &["ls"]);
        let keys = said.lines().skip(1).filter_map(|line| line.split(' ').next());
        (code, keys.map(str::to_owned).collect::<Vec<_>>(), told)
    };
    assert_eq!(listed(), (Some(0), all.clone(), String::new()));
    let (code, status, _) = asked(any, &["cluster", "status"]);
    assert_eq!((code, status.lines().count()), (Some(0), 1 + usize::from(GROUPS)), "{status}");
    for (line, (first, port)) in status.lines().skip(1).zip(leaders(any)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words[1].starts_with(&format!("{first}-")), "{status}");
        assert_eq!(words[2..4], ["ok", &format!("127.0.0.1:{port}")], "{status}");
    }
    let (code, _, told) = asked(any, &["cluster", "hand-over"]);
    assert!(code == Some(64) && told.contains("distribute the groups by themselves"), "{told}");

    nodes[1].signal(Signal::SIGKILL);
    let lost = ports(&nodes[1], GROUPS);
    let (code, some, told) = listed();
    assert_eq!(code, Some(69), "{told}");
    assert!(some.len() < all.len() && some.iter().all(|lock| all.contains(lock)), "{some:?}");
    assert!(lost.clone().any(|port| told.contains(&format!("redlatch: 127.0.0.1:{port}: "))), "{told}");
    wait_until("the locks of all groups", || listed() == (Some(0), all.clone(), String::new()));
}

#[test]
#[ignore = "needs etcd"]
fn a_command_goes_on_under_its_lock_when_the_node_of_its_url_is_lost() {
    const GROUPS: u16 = 2;
    let etcd = Etcd::start_one(&[]);
    let mut nodes = sharing(&etcd, 2, GROUPS);
    let (any, lost) = (nodes[0].address().port(), nodes[1].address().port());
    let led = leaders(any);
    let is_lost = |lock: &String| {
        let Some(OwnedFrame::Integer(slot)) = ask(any, &["CLUSTER", "KEYSLOT", lock]) else {
            panic!("a slot")
        };
        led.range(..=slot).next_back().is_some_and(|(_, leader)| (lost..lost + GROUPS).contains(leader))
    };
    let lock = (0..).map(|number| format!("lock:{number}")).find(is_lost).expect("a lock of the lost node");
    let url = format!("redis://127.0.0.1:{lost}");
    let mut command = redlatch();
    command.args(["run", "--url", &url, "--lease", "12s", &lock, "--", "sh", "-c", "echo ready; cat"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("redlatch starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output is piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let renewals = || {
        let (_, held, _) = asked(any, &["who", &lock, "--json"]);
        let held: serde_json::Value = serde_json::from_str(&held).ok()?;
        held["holders"][0]["renewals"].as_u64()
    };
    let before = renewals().expect("a holder");
    nodes[1].signal(Signal::SIGKILL);
    wait_until("a renewal at the other node", || renewals().is_some_and(|now| now > before));
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("its end").code(), Some(0));
}

/// redis-py in cluster mode holds locks of all groups while the node that leads some of them is killed.
#[test]
#[ignore = "needs etcd and the packages of tests/clients/python"]
fn redis_py_in_cluster_mode_keeps_its_locks_over_the_loss_of_a_node() {
    let etcd = Etcd::start_one(&[]);
    let mut nodes = sharing(&etcd, 3, 8);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/groups.py");
    let ports = nodes.iter().map(|node| node.address().port().to_string());
    let mut script = Script::start(program("python", &["venv/bin/python", script]).args(ports));
    assert_eq!(script.said(), "holds");
    nodes[2].signal(Signal::SIGKILL);
    script.goes_on();
    assert_eq!(script.said(), "extended and released 32");
    script.ends();
}

#[test]
#[ignore = "needs etcd"]
fn the_leader_of_each_group_is_ready() {
    let (etcd, directory) = (Etcd::start_one(&[]), Directory::new());
    let file = directory.path("http-ports");
    let flags = ["--cluster-groups", "8", "--http-port", "auto", "--http-port-file", &file];
    let node = [Node::start(&etcd, &flags)];
    wait_until("leaders for all groups", || is_shared_out(&node, 8));
    let pages = std::fs::read_to_string(&file).expect("the ports for HTTP");
    assert_eq!(pages.lines().count(), 8, "{pages}");
    for port in pages.lines() {
        let address = ([127, 0, 0, 1], port.parse::<u16>().expect("a port")).into();
        assert_eq!(get(address, "/readyz").body.trim_end(), "ready", "the leader with the port {port}");
    }
}

#[test]
#[ignore = "needs etcd, Chromium and the packages of tests/clients/page"]
fn the_page_of_a_group_shows_the_locks_of_all_and_follows_their_leaders() {
    const GROUPS: u16 = 4;
    let (etcd, directory) = (Etcd::start_one(&[]), Directory::new());
    let file = directory.path("http-ports");
    let flags = ["--cluster-groups", "4", "--http-port", "auto", "--http-admin", "yes"];
    let first = Node::start(&etcd, &[&flags[..], &["--http-port-file", &file]].concat());
    let mut nodes = [first, Node::start(&etcd, &flags)];
    wait_until("a part for each node", || is_shared_out(&nodes, GROUPS));
    let (own, lost) = (ports(&nodes[0], GROUPS), ports(&nodes[1], GROUPS));
    let stays = leaders(own.start).into_values().find(|port| own.contains(port)).expect("its part");
    let pages = std::fs::read_to_string(&file).expect("the ports of its pages");
    let page = pages.lines().nth(usize::from(stays - own.start)).expect("one for each group");
    let locks: Vec<String> = (0..12).map(|number| format!("lock:{number}")).collect();
    locks.iter().for_each(|lock| assert!(acquire(own.start, lock).is_some(), "{lock} is free"));

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/page.py");
    let mut script = Script::start(program("page", &["venv/bin/python", script]).arg(page).args(&locks));
    assert_eq!(script.said(), "shows");
    nodes[1].signal(Signal::SIGKILL);
    wait_until("leaders for all groups", || are_led_elsewhere(own.start, GROUPS, &lost));
    script.goes_on();
    assert_eq!(script.said(), "follows and breaks");
    script.ends();
}

/// Clients that are tested in cluster mode pass the same checks at three nodes that share out eight groups.
#[test]
#[ignore = "needs etcd and the packages of tests/clients"]
fn clients_in_cluster_mode_find_their_locks_in_groups() {
    let etcd = Etcd::start_one(&[]);
    let nodes = sharing(&etcd, 3, 8);
    let led = || leaders(nodes[0].address().port());
    let mut failures = Vec::new();
    for client in clients().iter().filter(|client| client.has_slots && client.nodes == 1) {
        let before = led();
        let mut failure = checked(client, &before);
        // On a busy machine a node may hand a group over while a client counts the leaders.
        if failure.is_some() && before != led() {
            wait_until("a part for each node", || is_shared_out(&nodes, 8));
            failure = checked(client, &led());
        }
        failures.extend(failure);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Runs the checks of a client against these leaders. Returns how it has failed, if it has.
fn checked(client: &Client, leaders: &BTreeMap<i64, u16>) -> Option<String> {
    let mut ports: Vec<u16> = leaders.values().copied().collect();
    ports.sort_unstable();
    // Each program begins with an empty store.
    ports.iter().for_each(|port| drop(ask(*port, &["FLUSHALL"])));
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let words: Vec<&str> = client.command.iter().map(String::as_str).collect();
    let mut program = program(&client.project, &words);
    program.envs([
        ("REDLATCH_HOST", "127.0.0.1"),
        ("REDLATCH_PORT", &ports[0]),
        ("REDLATCH_PORTS", &ports.join(",")),
        ("REDLATCH_PIDS", "0"),
    ]);
    let finished = run(program, CLIENT_TIME_MAX).expect("the program starts");
    let failure = finished.failure()?;
    let last = finished.lines.iter().rev().take(20).rev().cloned().collect::<Vec<_>>().join("\n");
    Some(format!("{}: {failure}\n{last}", client.name))
}

/// How long the checks of one client may take.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(120);

#[test]
#[ignore = "needs etcd"]
fn the_number_of_groups_is_that_of_the_cluster() {
    let etcd = Etcd::start_one(&[]);
    let (endpoints, nodes) = (etcd.endpoints(), sharing(&etcd, 1, 4));
    let with = |more: &[&str]| refusal(&[&["--cluster-etcd", &endpoints], more].concat());
    let said = with(&["--cluster-groups", "2"]);
    assert!(said.contains("the cluster has cluster-groups 4, and this node 2"), "{said}");
    let said = with(&["--cluster-groups", "1"]);
    assert!(said.contains("the cluster has cluster-groups 4, and this node 1"), "{said}");
    let said = with(&["--cluster-groups", "1", "--cluster-prefix", "/redlatch/0/"]);
    assert!(said.contains("the cluster has cluster-groups 4, and this node 1"), "{said}");
    let said = with(&["--cluster-groups", "4", "--unixsocket", "/nowhere/socket"]);
    assert!(said.contains("cluster-groups '4': each group needs a port"), "{said}");
    drop(nodes);
    // A cluster of one group is not divided.
    let mut node = Node::start(&etcd, &["--cluster-prefix", "/one/"]);
    node.wait_for("This node leads");
    let said = with(&["--cluster-groups", "4", "--cluster-prefix", "/one/"]);
    assert!(said.contains("the cluster has cluster-groups 1, and this node 4"), "{said}");
}

#[test]
fn groups_without_etcd_are_refused() {
    let said = refusal(&["--cluster-groups", "8"]);
    assert!(said.contains("cluster-groups '8': takes cluster-etcd"), "{said}");
}

#[test]
fn ports_beyond_the_last_one_are_refused() {
    let flags = ["--cluster-etcd", "127.0.0.1:1", "--cluster-groups", "64", "--port", "65500"];
    let output = redlatch().args(flags).output().expect("redlatch starts");
    let said = crate::support::binary::refusal(&output);
    assert!(said.contains("port '65500': there are not"), "{said}");
}
