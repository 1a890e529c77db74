//! The live checker of mutual exclusion on a cluster whose leader is killed, stopped or cut off, again and again.

use std::cell::RefCell;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::harness::{Etcd, Host, Network, Node};
use crate::mutex::{check_run, lasts};

/// Nodes of the cluster.
const NODES: usize = 3;
/// How long the cluster is watched at least.
const WATCHED_FOR: Duration = Duration::from_secs(12);
/// Longer than a takeover takes.
const HARM_LASTS: Duration = Duration::from_millis(1_500);

/// Nodes on these hosts, of which the first leads.
fn start(etcd: &Etcd, hosts: &[Host]) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for host in hosts {
        let mut node = Node::start_on(host, etcd, &[]);
        node.wait_for(if nodes.is_empty() { "This node leads" } else { "Another node leads" });
        nodes.push(node);
    }
    nodes
}

/// Runs the clients through the first node while `strike` harms what it likes: it is given the nodes, and the number of the
/// one that leads.
fn try_while(
    (name, lasts_min): (&str, Duration),
    nodes: Vec<Node>,
    mut strike: impl FnMut(&mut [Node], usize),
) {
    let address = nodes[0].address();
    let nodes = RefCell::new(nodes);
    let mut strikes = 0;
    let mut restart = || {
        let mut nodes = nodes.borrow_mut();
        let leaders: Vec<usize> = (0..NODES).filter(|number| nodes[*number].leads()).collect();
        // One that was cut off may not know yet that another one leads.
        if let [leader] = leaders[..] {
            strikes += 1;
            strike(&mut nodes, leader);
        }
        Ok(())
    };
    let verdict = check_run(name, address, lasts().max(lasts_min), &mut restart);
    let found = verdict.unsafe_findings();
    for node in nodes.borrow_mut().iter_mut().filter(|_| !found.is_empty()) {
        println!("The node at {}:\n{}", node.address(), node.log());
    }
    assert!(found.is_empty(), "{} violations, the first is {:?}", found.len(), found[0]);
    assert!(verdict.grants > 0 && verdict.extensions > 0 && verdict.tokens > 0, "{verdict:?}");
    assert!(strikes > 1, "{name}: {strikes} strikes");
    println!("{name}: {strikes} strikes");
}

/// Like [`try_while`], on one machine with one member of etcd, with harm to the leader.
fn try_while_leader(name: &str, mut strike: impl FnMut(&mut Node)) {
    let etcd = Etcd::start_one(&[]);
    let nodes = start(&etcd, &[Host::local(), Host::local(), Host::local()]);
    try_while((name, WATCHED_FOR), nodes, |nodes, leader| strike(&mut nodes[leader]));
}

#[test]
#[ignore = "needs etcd"]
fn a_kill_of_the_leader_gives_no_lock_twice() {
    try_while_leader("cluster, leader killed", |leader| {
        leader.signal(Signal::SIGKILL);
        leader.restart();
    });
}

#[test]
#[ignore = "needs etcd"]
fn a_leader_that_is_stopped_and_continued_gives_no_lock_twice() {
    try_while_leader("cluster, leader stopped", |leader| {
        leader.signal(Signal::SIGSTOP);
        sleep(HARM_LASTS);
        leader.signal(Signal::SIGCONT);
    });
}

#[test]
#[ignore = "needs etcd"]
fn a_hand_over_gives_no_lock_twice() {
    try_while_leader("cluster, leader handed over", |leader| {
        leader.signal(Signal::SIGTERM);
        assert_eq!(leader.end(), Some(0));
        leader.restart();
    });
}

#[test]
#[ignore = "needs etcd, ip and root"]
fn links_that_fail_and_members_that_stop_give_no_lock_twice() {
    const MEMBERS: usize = 3;
    const SLOW_ROUNDS: u32 = 15;
    let network = Network::new((MEMBERS + NODES) as u8);
    let mut etcd = Etcd::start(&network.hosts[..MEMBERS], &[]);
    let nodes = start(&etcd, &network.hosts[MEMBERS..]);
    let mut turn = 0;
    try_while(("cluster, links and members", 2 * WATCHED_FOR), nodes, |_, leader| {
        turn += 1;
        let (host, member) = (MEMBERS + leader, etcd.leader());
        let others = |are_parted| {
            let others = (MEMBERS..MEMBERS + NODES).filter(|other| *other != host);
            others.for_each(|other| network.part(host, other, are_parted));
        };
        match turn % 7 {
            0 => {
                // Its clients reach it still.
                (0..MEMBERS).for_each(|member| network.part(host, member, true));
                sleep(HARM_LASTS);
                (0..MEMBERS).for_each(|member| network.part(host, member, false));
            }
            1 => {
                network.set_link(host, false);
                sleep(HARM_LASTS);
                network.set_link(host, true);
            }
            2 => {
                etcd.signal(member, Signal::SIGKILL);
                etcd.restart(member);
            }
            3 => {
                others(true);
                sleep(HARM_LASTS);
                others(false);
            }
            4 => {
                let majority = [member, (member + 1) % MEMBERS];
                majority.iter().for_each(|member| etcd.signal(*member, Signal::SIGSTOP));
                sleep(HARM_LASTS);
                majority.iter().for_each(|member| etcd.signal(*member, Signal::SIGCONT));
            }
            5 => {
                etcd.signal(member, Signal::SIGSTOP);
                sleep(HARM_LASTS);
                etcd.signal(member, Signal::SIGCONT);
            }
            // A member that is slow, and that the others do not replace.
            _ => (0..SLOW_ROUNDS).for_each(|_| {
                etcd.signal(member, Signal::SIGSTOP);
                sleep(HARM_LASTS / SLOW_ROUNDS);
                etcd.signal(member, Signal::SIGCONT);
                sleep(HARM_LASTS / SLOW_ROUNDS / 10);
            }),
        }
    });
}
