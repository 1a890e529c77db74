//! Unchanged clients that ask a Sentinel who leads: every node answers as one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::harness::{Etcd, Node};

/// Starts a program with the ports of three nodes, kills the leader while it holds a lock, and waits for what it says then.
fn try_with(mut program: Command) {
    let etcd = Etcd::start_one(&[]);
    let mut nodes: Vec<_> = (0..3).map(|_| Node::start(&etcd, &[])).collect();
    nodes[0].wait_for("This node leads");
    nodes[1..].iter_mut().for_each(|node| drop(node.wait_for("Another node leads")));
    let others = || match nodes[1].ask(&["SENTINEL", "sentinels", "mymaster"]) {
        Some(OwnedFrame::Array(others)) => others.len(),
        answer => panic!("{answer:?}"),
    };
    super::harness::wait_until("the list of nodes", || others() == 2);
    // The leader is the last one that the program would ask by itself.
    let ports = nodes.iter().rev().map(|node| node.address().port().to_string());
    let child = program.args(ports).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
    let mut said = || lines.next().expect("it says something").expect("a line");
    assert_eq!(said(), "holds");
    nodes[0].signal(Signal::SIGKILL);
    let killed = Instant::now();
    child.stdin.take().expect("its input is piped").write_all(b"killed\n").expect("it reads");
    let still = said();
    println!("{still} holds its lock {:?} after kill -9 of the leader", killed.elapsed());
    let leader = nodes[1..].iter_mut().find_map(|node| node.leads().then_some(node.address().port()));
    assert_eq!(still, format!("still {}", leader.expect("a leader")));
    assert!(child.wait().expect("its end").success());
}

#[test]
#[ignore = "needs etcd, and REDLATCH_CLUSTER_PYTHON, a Python with redis"]
fn redis_py_follows_the_leader_by_sentinel() {
    let mut python =
        Command::new(std::env::var_os("REDLATCH_CLUSTER_PYTHON").expect("REDLATCH_CLUSTER_PYTHON"));
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/sentinel.py"));
    try_with(python);
}

#[test]
#[ignore = "needs etcd, and REDLATCH_CLUSTER_NODE_PATH, a node_modules with ioredis"]
fn ioredis_follows_the_leader_by_sentinel() {
    let modules = std::env::var_os("REDLATCH_CLUSTER_NODE_PATH").expect("REDLATCH_CLUSTER_NODE_PATH");
    let mut node = Command::new("node");
    node.env("NODE_PATH", modules).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/sentinel.cjs"));
    try_with(node);
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
