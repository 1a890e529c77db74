//! The live checker of mutual exclusion on a cluster whose leader is killed, or stopped, again and again.

use std::cell::RefCell;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::harness::{Etcd, Node};
use crate::mutex::{check_run, lasts};

/// Nodes of the cluster.
const NODES: usize = 3;
/// How long the cluster is watched at least.
const WATCHED_FOR: Duration = Duration::from_secs(12);

/// Runs the clients through the first node while `strike` harms the node that leads.
fn try_while(name: &str, mut strike: impl FnMut(&mut Node)) {
    let etcd = Etcd::start_one(&[]);
    let nodes: RefCell<Vec<Node>> = RefCell::default();
    for number in 0..NODES {
        let mut node = Node::start(&etcd, &[]);
        node.wait_for(if number == 0 { "This node leads" } else { "Another node leads" });
        nodes.borrow_mut().push(node);
    }
    let address = nodes.borrow()[0].address();
    let mut strikes = 0;
    let mut restart = || {
        let mut nodes = nodes.borrow_mut();
        // The last one that has said so.
        let leads = |node: &mut Node| node.leads();
        let Some(leader) = nodes.iter_mut().position(leads) else { return Ok(()) };
        strikes += 1;
        strike(&mut nodes[leader]);
        Ok(())
    };
    let verdict = check_run(name, address, lasts().max(WATCHED_FOR), &mut restart);
    let found = verdict.unsafe_findings();
    for node in nodes.borrow_mut().iter_mut().filter(|_| !found.is_empty()) {
        println!("The node at {}:\n{}", node.address(), node.log());
    }
    assert!(found.is_empty(), "{} violations, the first is {:?}", found.len(), found[0]);
    assert!(verdict.grants > 0 && verdict.extensions > 0 && verdict.tokens > 0, "{verdict:?}");
    assert!(strikes > 1, "{name}: {strikes} strikes");
    println!("{name}: {strikes} strikes");
}

#[test]
#[ignore = "needs etcd"]
fn a_kill_of_the_leader_gives_no_lock_twice() {
    try_while("cluster, leader killed", |leader| {
        leader.signal(Signal::SIGKILL);
        leader.restart();
    });
}

#[test]
#[ignore = "needs etcd"]
fn a_leader_that_is_stopped_and_continued_gives_no_lock_twice() {
    try_while("cluster, leader stopped", |leader| {
        leader.signal(Signal::SIGSTOP);
        // Longer than a takeover takes.
        std::thread::sleep(Duration::from_millis(1_500));
        leader.signal(Signal::SIGCONT);
    });
}

#[test]
#[ignore = "needs etcd"]
fn a_hand_over_gives_no_lock_twice() {
    try_while("cluster, leader handed over", |leader| {
        leader.signal(Signal::SIGTERM);
        assert_eq!(leader.end(), Some(0));
        leader.restart();
    });
}
