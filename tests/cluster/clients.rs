//! Unchanged clients that ask a Sentinel who leads: every node answers as one.
//!
//! Each is a program that gets the ports of the nodes. It says `holds`, waits for a line while the leader is killed, and
//! says `still` and the port of the new leader when it has found its lock there. It releases the lock, which is granted
//! again.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use super::harness::{Etcd, Node, wait_until};
use crate::clients::installer::{Closed, Installer};
use crate::support::wire::Link;

/// Starts a program of an installed project with the ports of three nodes, and kills the leader while it holds a lock.
fn try_with(project: &str, words: &[&str]) {
    let etcd = Etcd::start_one(&[]);
    let mut nodes = vec![Node::start(&etcd, &[])];
    nodes[0].wait_for("This node leads");
    nodes.extend((1..3).map(|_| Node::start(&etcd, &[])));
    nodes[1..].iter_mut().for_each(|node| drop(node.wait_for("Another node leads")));
    let others = || match nodes[1].ask(&["SENTINEL", "sentinels", "mymaster"]) {
        Some(OwnedFrame::Array(others)) => others.len(),
        answer => panic!("{answer:?}"),
    };
    wait_until("the list of nodes", || others() == 2);
    // The leader is the last one that the program would ask by itself.
    let ports = nodes.iter().rev().map(|node| node.address().port().to_string());
    let mut script = Script::start(program(project, words).args(ports));
    assert_eq!(script.said(), "holds");
    nodes[0].signal(Signal::SIGKILL);
    let killed = Instant::now();
    script.goes_on();
    let still = script.said();
    println!("{} {still} holds its lock {:?} after kill -9 of the leader", words.join(" "), killed.elapsed());
    let leader = nodes[1..].iter_mut().find_map(|node| node.leads().then_some(node.address().port()));
    assert_eq!(still, format!("still {}", leader.expect("a leader")));
    script.ends();
}

/// A program that says how far it is, and waits for a line before it goes on.
pub(super) struct Script {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Script {
    pub(super) fn start(program: &mut Command) -> Self {
        let child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
        Self { child, lines }
    }

    /// The next line that is no check which has passed.
    pub(super) fn said(&mut self) -> String {
        let mut lines = self.lines.by_ref().map(|line| line.expect("a line"));
        lines.find(|line| !line.starts_with("ok ")).expect("it says something")
    }

    /// What it has waited for has happened.
    pub(super) fn goes_on(&mut self) {
        let mut input = self.child.stdin.take().expect("it is told once");
        input.write_all(b"go on\n").expect("it reads");
    }

    pub(super) fn ends(mut self) {
        let rest: Vec<String> = self.lines.map(|line| line.expect("a line")).collect();
        assert!(rest.iter().all(|line| line.starts_with("ok ")), "{rest:?}");
        assert!(self.child.wait().expect("its end").success());
    }
}

/// A command of an installed project of `tests/clients`.
pub(super) fn program(project: &str, words: &[&str]) -> Command {
    /// Only one test installs at a time.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _guard = INSTALLING.lock();
    match Installer::open(project) {
        Ok(installer) => installer.command(words),
        Err(Closed::Broken(why) | Closed::Missing(why)) => panic!("{project}: {why}"),
    }
}

fn java(project: &str, words: &[&str]) {
    try_with(project, &[&["java", "-cp", "target/classes:target/lib/*"], words].concat());
}

#[test]
#[ignore = "needs etcd and the packages of tests/clients/python"]
fn redis_py_follows_the_leader_by_sentinel() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/sentinel.py");
    try_with("python", &["venv/bin/python", script]);
}

#[test]
#[ignore = "needs etcd and the packages of tests/clients/node"]
fn ioredis_follows_the_leader_by_sentinel() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/sentinel.cjs");
    try_with("node", &["node", script]);
}

#[test]
#[ignore = "needs etcd and Predis"]
fn predis_follows_the_leader_by_sentinel() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/sentinel.php");
    try_with("laravel", &["php", script]);
}

#[test]
#[ignore = "needs etcd and the packages of tests/clients/go"]
fn redsync_follows_the_leader_by_sentinel() {
    try_with("go", &["bin/locks", "sentinel"]);
}

#[test]
#[ignore = "needs etcd and the packages of tests/clients/java"]
fn jedis_follows_the_leader_by_sentinel() {
    java("java", &["JedisSentinel"]);
}

#[test]
#[ignore = "needs etcd and the packages of tests/clients/java"]
fn lettuce_follows_the_leader_by_sentinel() {
    java("java", &["LettuceSentinel", "plain"]);
}

#[test]
#[ignore = "needs etcd and the packages of tests/clients/java"]
fn lettuce_with_a_topology_is_told_who_leads() {
    java("java", &["LettuceSentinel", "topology"]);
}

#[test]
#[ignore = "needs etcd and the packages of tests/clients/redisson"]
fn redisson_follows_the_leader_by_sentinel() {
    java("redisson", &["RedissonSentinel"]);
}

#[test]
#[ignore = "needs etcd and the packages of tests/clients/redisson3"]
fn redisson_3_follows_the_leader_by_sentinel() {
    java("redisson3", &["RedissonSentinel"]);
}

#[test]
#[ignore = "needs etcd"]
fn subscribers_are_told_of_a_new_leader() {
    let etcd = Etcd::start_one(&[]);
    let mut old = Node::start(&etcd, &[]);
    old.wait_for("This node leads");
    let mut new = Node::start(&etcd, &[]);
    new.wait_for("Another node leads");
    old.signal(Signal::SIGKILL);
    // The node accepts them before it leads.
    let mut links = [(); 2].map(|()| Link::to(new.address()).expect("a node"));
    links[0].send(&["SUBSCRIBE", "+switch-master"]).expect("a socket");
    links[1].send(&["PSUBSCRIBE", "*"]).expect("a socket");
    let change = format!("mymaster 127.0.0.1 {} 127.0.0.1 {}", old.address().port(), new.address().port());
    for link in &mut links {
        link.next().expect("a confirmation");
        let OwnedFrame::Array(message) = link.next().expect("a message") else { panic!("a message") };
        let words: Vec<_> = message.iter().rev().take(2).map(|word| word.as_str()).collect();
        assert_eq!(words, [Some(change.as_str()), Some("+switch-master")]);
    }
}

#[test]
fn a_server_by_itself_has_no_sentinel() {
    let server = redlatch::Server::builder().start_blocking().expect("a server");
    let mut link = crate::support::wire::Link::to(server.addr()).expect("a server");
    let answer = link.ask(&["SENTINEL", "masters"]).expect("an answer");
    let text = "ERR unknown command 'SENTINEL', with args beginning with: 'masters' ";
    assert_eq!(answer, OwnedFrame::Error(text.into()));
    assert!(matches!(link.ask(&["CLUSTER", "INFO"]), Ok(OwnedFrame::Error(_))));
}
