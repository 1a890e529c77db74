//! A leader that clients do not reach, an address of another node, and a leader that is asked to hand over.

use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
use std::io::Read;
use std::net::SocketAddr;

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::harness::{Etcd, Host, Node, wait_until};
use super::partitions::{LEADER, STANDBY, World};
use super::takeover::pair;
use crate::support::binary::{Directory, redlatch};
use crate::support::http::{HttpClient, get};
use crate::support::wire::Link;
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

/// Threads serve the terms of all groups, and outlive them: what a term has served ends with it nevertheless.
#[test]
#[ignore = "needs etcd"]
fn connections_end_with_the_term_of_their_leader() {
    let (etcd, directory) = (Etcd::start_one(&[]), Directory::new());
    let file = directory.path("http-port");
    let mut leader = Node::start(&etcd, &["--http-port", "auto", "--http-port-file", &file]);
    leader.wait_for("This node leads");
    let mut standby = Node::start(&etcd, &[]);
    let port = std::fs::read_to_string(&file).expect("the port of its page").trim().parse().expect("a port");
    let http = SocketAddr::from(([127, 0, 0, 1], port));
    let mut page = HttpClient::to(http);
    page.send(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut waits = Link::to(leader.address()).expect("a leader");
    waits.send(&["BLPOP", "nothing", "0"]).expect("a leader that reads");

    wait_until("a node to hand over to", || {
        leader.ask(&["SENTINEL", "FAILOVER", "mymaster"]) == Some(OwnedFrame::SimpleString(b"OK".to_vec()))
    });
    standby.wait_for("This node leads");
    leader.wait_for("This node has handed over");
    // Its events would go on for ever.
    let mut events = Vec::new();
    let ended = page.0.read_to_end(&mut events);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ConnectionReset));
    assert!(events.starts_with(b"HTTP/1.1 200 OK"));
    let end = std::iter::repeat_with(|| waits.next()).find_map(Result::err).expect("an end");
    assert!(matches!(end.kind(), UnexpectedEof | ConnectionReset), "{end}");
    assert_eq!(get(http, "/readyz").status, 503, "a standby answers now");
}
