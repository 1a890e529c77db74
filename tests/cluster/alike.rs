//! Nodes that should be alike and are not: a standby with another password than the leader.

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use super::harness::{Etcd, Node, wait_until};
use crate::support::wire::Link;

const DIFFERS: &str = "Users, passwords or cluster-name differ";

/// A node with this password, which leads or knows who does.
fn node(etcd: &Etcd, password: &str, words: &str) -> Node {
    let mut node = Node::start(etcd, &["--requirepass", password, "--cluster-takeover", "500"]);
    node.wait_for(words);
    node
}

/// What a client with that password is answered.
fn ask(node: &Node, password: &str, words: &[&str]) -> Option<OwnedFrame> {
    let mut link = Link::to(node.address()).ok()?;
    link.ask(&["AUTH", password]).ok()?;
    link.ask(words).ok()
}

#[test]
#[ignore = "needs etcd"]
fn a_node_with_another_password_leads_only_if_no_other_can() {
    let etcd = Etcd::start_one(&[]);
    let mut leader = node(&etcd, "old", "This node leads");
    let mut other = node(&etcd, "new", DIFFERS);
    let alike = node(&etcd, "old", "Another node leads");
    wait_until("a line of the status", || {
        let info = ask(&alike, "old", &["CLUSTER", "INFO"]);
        let address = format!("cluster_standby_differs:{}", other.address());
        info.is_some_and(|info| info.to_string().is_some_and(|info| info.contains(&address)))
    });
    // It is killed, or hands over: the one that is alike leads.
    leader.signal(Signal::SIGKILL);
    wait_until("a leader", || matches!(ask(&alike, "old", &["PING"]), Some(OwnedFrame::SimpleString(_))));
    leader.restart();
    leader.wait_for("Another node leads");
    let mut alike = alike;
    assert!(alike.leads());
    alike.signal(Signal::SIGTERM);
    assert_eq!(alike.end(), Some(0));
    leader.wait_for("This node leads");
    // No other can: a password is changed on one node after the other.
    leader.signal(Signal::SIGTERM);
    assert_eq!(leader.end(), Some(0));
    other.wait_for("This node leads");
    let mut second = node(&etcd, "new", "Another node leads");
    assert!(matches!(ask(&second, "new", &["PING"]), Some(OwnedFrame::SimpleString(_))));
    assert!(!second.log().contains(DIFFERS), "they are alike");
}
