//! A leader that clients do not reach, an address of another node, and a leader that is asked to hand over.

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::harness::{Etcd, Host, Node, wait_until};
use super::partitions::{LEADER, STANDBY, World};
use super::takeover::pair;
use crate::support::binary::redlatch;
use crate::support::words::info_field;

fn info(node: &Node, field: &str) -> Option<u64> {
    match node.ask(&["CLUSTER", "INFO"])? {
        OwnedFrame::BulkString(text) => Some(info_field(&String::from_utf8_lossy(&text), field)),
        _ => None,
    }
}

#[test]
#[ignore = "needs etcd, ip and root"]
fn a_leader_that_reaches_etcd_but_no_client_hands_over_to_a_node_with_clients() {
    let mut world = World::new();
    let token = world.standby.acquire("lock", "me").expect("a lock that is free");
    world.network.part(LEADER, STANDBY, true);
    // The clients of this test come to the standby alone, as if nobody reached the leader.
    wait_until("a grant by the other node", || world.standby.acquire("other", "you").is_some());
    world.leader.wait_for("Neither clients nor standbys reach this node");
    world.leader.wait_for("This node has handed over");
    assert_eq!(world.standby.acquire("lock", "me"), Some(token), "the lock and its token are kept");
    world.network.part(LEADER, STANDBY, false);
    world.leader.wait_for("Another node leads");
    wait_until("an answer through it", || world.leader.acquire("lock", "me") == Some(token));
}

#[test]
#[ignore = "needs etcd, ip and root"]
fn a_leader_that_clients_reach_stays_and_says_that_a_standby_does_not() {
    let mut world = World::new();
    wait_until("a list of two nodes", || info(&world.leader, "cluster_known_nodes") == Some(2));
    assert_eq!(info(&world.leader, "cluster_unreached_by"), Some(0));
    world.network.part(LEADER, STANDBY, true);
    wait_until("the report of the standby", || {
        // Clients come to both.
        let _ = world.standby.ask(&["PING"]);
        info(&world.leader, "cluster_unreached_by") == Some(1)
    });
    assert!(world.leader.leads());
    world.network.part(LEADER, STANDBY, false);
    wait_until("the next report", || info(&world.leader, "cluster_unreached_by") == Some(0));
    assert!(world.leader.leads());
}

#[test]
#[ignore = "needs etcd"]
fn a_node_that_announces_the_address_of_another_ends() {
    let etcd = Etcd::start_one(&[]);
    let mut first = Node::start(&etcd, &[]);
    first.wait_for("This node leads");
    let address = first.address().to_string();
    let mut second = Node::start_with(&Host::local(), &etcd.endpoints(), &["--cluster-announce", &address]);
    second.wait_for("another node that runs announces an address of this one");
    assert_eq!(second.end(), Some(1));
    assert!(first.acquire("lock", "me").is_some());
    // A node that has ended leaves its address to the next one.
    first.signal(Signal::SIGKILL);
    first.restart();
    first.wait_for("This node leads");
    wait_until("two entries of its own", || first.acquire("lock", "me").is_some());
}

#[test]
#[ignore = "needs etcd"]
fn a_leader_hands_over_when_it_is_asked_to() {
    let etcd = Etcd::start_one(&[]);
    let mut alone = Node::start(&etcd, &["--cluster-prefix", "/alone/"]);
    alone.wait_for("This node leads");
    let refused = alone.ask(&["SENTINEL", "FAILOVER", "mymaster"]);
    assert_eq!(refused, Some(OwnedFrame::Error("NOGOODSLAVE No suitable replica to promote".into())));

    // Nobody waits for so long: only a hand-over gives the other node the log.
    let (mut leader, mut standby) = pair(&etcd, &["--cluster-takeover", "600000"]);
    let token = leader.acquire("lock", "me").expect("a lock that is free");
    let ask = |node: &Node| {
        let url = format!("redis://{}", node.address());
        redlatch().args(["cluster", "hand-over", "--url", &url]).output().expect("the program")
    };
    let mut said = String::new();
    wait_until("a list of two nodes", || {
        let output = ask(&standby);
        said = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success()
    });
    assert_eq!(said, format!("{} hands over\n", leader.address()));
    leader.wait_for("This node was asked to hand over");
    standby.wait_for("This node leads");
    leader.wait_for("Another node leads");
    assert_eq!(leader.acquire("lock", "me"), Some(token), "through the node that has led");
    wait_until("a list of two nodes", || ask(&leader).status.success());
    leader.wait_for("This node leads");
    assert_eq!(standby.acquire("lock", "me"), Some(token));
}
