//! Links that are down, members of etcd that are stopped: three members and two nodes, each in a network namespace.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::harness::{Etcd, Network, Node, wait_until};
use crate::support::wire::Link;

/// Members of etcd, on the first hosts. The nodes are on the next two.
pub(super) const MEMBERS: usize = 3;

pub(super) struct World {
    pub(super) leader: Node,
    pub(super) standby: Node,
    etcd: Etcd,
    pub(super) network: Network,
}

/// The hosts of the nodes.
pub(super) const LEADER: usize = MEMBERS;
pub(super) const STANDBY: usize = MEMBERS + 1;

impl World {
    pub(super) fn new() -> Self {
        let network = Network::new(MEMBERS as u8 + 2);
        let etcd = Etcd::start(&network.hosts[..MEMBERS], &[]);
        let mut leader = Node::start_on(&network.hosts[LEADER], &etcd, &[]);
        leader.wait_for("This node leads");
        let mut standby = Node::start_on(&network.hosts[STANDBY], &etcd, &[]);
        standby.wait_for("Another node leads");
        Self { leader, standby, etcd, network }
    }
}

fn is_simple(reply: Option<OwnedFrame>) -> bool {
    matches!(reply, Some(OwnedFrame::SimpleString(_)))
}

#[test]
#[ignore = "needs etcd, ip and root"]
fn a_leader_that_is_cut_off_is_replaced_and_answers_no_client() {
    let mut world = World::new();
    let token = world.standby.acquire("lock", "me").expect("a lock that is free");
    world.network.set_link(LEADER, false);
    let cut = Instant::now();
    wait_until("a grant by the other node", || world.standby.acquire("other", "you").is_some());
    println!("a new grant {:?} after the link of the leader went down", cut.elapsed());
    assert!(cut.elapsed() < Duration::from_secs(5));
    world.network.set_link(LEADER, true);
    world.leader.wait_for("does not lead any more");
    world.leader.wait_for("Another node leads");
    assert_eq!(world.leader.acquire("lock", "me"), Some(token), "through the node that was cut off");
}

// Shows P-reads-linearizable.
#[test]
#[ignore = "needs etcd, ip and root"]
fn a_leader_without_etcd_answers_neither_reads_nor_writes() {
    let mut world = World::new();
    let mut client = Link::to(world.leader.address()).expect("a leader");
    client.ask(&["SET", "k", "old"]).expect("an answer");
    // All members are out of reach of the leader, and of each other; the leader's clients reach it.
    (0..MEMBERS).for_each(|member| world.network.set_link(member, false));
    world.leader.wait_for("etcd does not take the log");
    client.set_patience(Duration::from_secs(1));
    // The last commit may have begun a moment ago: reads are answered for four fifths of the time of a takeover.
    let cut = Instant::now();
    while client.ask(&["GET", "k"]).is_ok() {
        assert!(cut.elapsed() < Duration::from_secs(4), "reads go on");
    }
    let mut client = Link::to(world.leader.address()).expect("a leader");
    client.set_patience(Duration::from_secs(1));
    let early = client.ask(&["SET", "k", "new"]);
    assert!(early.is_err(), "{early:?}");
    (0..MEMBERS).for_each(|member| world.network.set_link(member, true));
    wait_until("a leader", || is_simple(world.standby.ask(&["SET", "k", "newer"])));
}

#[test]
#[ignore = "needs etcd, ip and root"]
fn a_standby_that_is_cut_off_changes_nothing() {
    let mut world = World::new();
    let token = world.leader.acquire("lock", "me").expect("a lock that is free");
    world.network.set_link(STANDBY, false);
    // Longer than it takes to take over.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(world.leader.acquire("lock", "me"), Some(token));
    }
    world.network.set_link(STANDBY, true);
    wait_until("an answer through it", || world.standby.acquire("lock", "me") == Some(token));
    assert!(world.leader.leads());
}

#[test]
#[ignore = "needs etcd, ip and root"]
fn nodes_that_are_cut_from_each_other_only_have_one_leader() {
    let world = World::new();
    let token = world.standby.acquire("lock", "me").expect("a lock that is free");
    world.network.part(LEADER, STANDBY, true);
    // Longer than it takes to take over.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(world.leader.acquire("lock", "me"), Some(token), "the leader goes on");
    }
    let refused = world.standby.ask(&["PING"]);
    assert!(!is_simple(refused.clone()), "a standby serves nobody by itself: {refused:?}");
    world.network.part(LEADER, STANDBY, false);
    wait_until("an answer through it", || world.standby.acquire("lock", "me") == Some(token));
}

#[test]
#[ignore = "needs etcd, ip and root"]
fn the_end_of_a_member_of_etcd_is_noticed_by_no_client_for_long() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let mut world = World::new();
        let token = world.standby.acquire("lock", "me").expect("a lock that is free");
        let member = world.etcd.leader();
        world.etcd.signal(member, signal);
        let took = wait_until("an answer", || world.standby.acquire("lock", "me") == Some(token));
        println!("{signal} of the leader of etcd: answered again after {took:?}");
        let took = wait_until("a grant", || world.standby.acquire("other", "me").is_some());
        println!("{signal} of the leader of etcd: granted after another {took:?}");
    }
}

#[test]
#[ignore = "needs etcd, ip and root"]
fn without_a_majority_of_etcd_nothing_is_granted() {
    let mut world = World::new();
    let token = world.standby.acquire("lock", "me").expect("a lock that is free");
    for member in 0..2 {
        world.etcd.signal(member, Signal::SIGSTOP);
    }
    let mut client = Link::to(world.leader.address()).expect("a leader");
    client.set_patience(Duration::from_secs(3));
    client.send(&["LOCK.ACQUIRE", "other", "me", "LEASE", "60000"]).expect("a socket");
    let early = client.next();
    assert!(early.is_err(), "{early:?}");
    for member in 0..2 {
        world.etcd.signal(member, Signal::SIGCONT);
    }
    wait_until("the lock as it was", || world.standby.acquire("lock", "me") == Some(token));
}
