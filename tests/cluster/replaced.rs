//! Members of etcd and nodes are replaced one after the other, as for an upgrade or for new machines: locks stay.

use nix::sys::signal::Signal;

use super::harness::{Etcd, Host, Node, wait_until};

/// Ends a node as its supervisor does, once the others serve.
fn stop(mut node: Node) {
    node.signal(Signal::SIGTERM);
    assert_eq!(node.end(), Some(0));
}

/// Waits until the node serves; `token`: that of the lock that `me` has, and nobody else.
fn still_held(node: &Node, token: i64) {
    wait_until("the lock, for its holder", || node.acquire("lock", "me") == Some(token));
    assert_eq!(node.acquire("lock", "another"), None);
}

#[test]
#[ignore = "needs etcd"]
fn all_nodes_are_replaced_one_after_the_other() {
    let etcd = Etcd::start_one(&[]);
    let mut first = Node::start(&etcd, &[]);
    first.wait_for("This node leads");
    let mut nodes = [first, Node::start(&etcd, &[])];
    let token = nodes[1].acquire("lock", "me").expect("a lock that is free");
    // The leader goes first.
    for number in 0..nodes.len() {
        let new = Node::start(&etcd, &[]);
        stop(std::mem::replace(&mut nodes[number], new));
        nodes.iter().for_each(|node| still_held(node, token));
    }
    assert!(nodes[0].acquire("another lock", "me").is_some_and(|later| later > token));
}

#[test]
#[ignore = "needs etcd"]
fn a_member_of_etcd_is_replaced_while_nodes_serve() {
    let mut etcd = Etcd::start(&[Host::local(), Host::local(), Host::local()], &[]);
    let mut old = Node::start(&etcd, &[]);
    old.wait_for("This node leads");
    let token = old.acquire("lock", "me").expect("a lock that is free");
    etcd.replace(0);
    still_held(&old, token);
    // Nodes get to know the new member one after the other.
    let new = Node::start(&etcd, &[]);
    stop(old);
    still_held(&new, token);
    // Without the new one, most would be gone now.
    etcd.wait();
    etcd.signal(1, Signal::SIGKILL);
    still_held(&new, token);
    assert!(new.acquire("another lock", "me").is_some_and(|later| later > token));
}
