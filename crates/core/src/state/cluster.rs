//! What commands say of a cluster: its name, its nodes, and the term of this one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;

use super::node_key::NodeKey;
use super::slot_groups::SlotGroup;

/// A node, as clients see it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClusterNode {
    /// Its id: forty hexadecimal digits.
    pub id: String,
    /// Where it is reached without TLS, or else with it.
    pub host: String,
    /// The port that belongs to it.
    pub port: u16,
    /// Its port for TLS; 0: none.
    pub tls_port: u16,
    /// Its port for HTTP; 0: none, or unknown, because the node is of an older version.
    pub http_port: u16,
    /// Whether its users, passwords or cluster-name are others than those of this node.
    pub differs: bool,
    /// The epoch of the leader that it has not reached for a while.
    pub unreached: Option<i64>,
}

/// What a node that leads says of its cluster.
#[derive(Debug, Default)]
pub struct ClusterFacts {
    /// The name of the cluster.
    pub name: String,
    /// This node, which leads if somebody asks it.
    pub me: ClusterNode,
    /// The slots that it leads, of those that several groups share out; `None`: all keys, for clients without slots.
    pub group: Option<SlotGroup>,
    others: Mutex<Vec<ClusterNode>>,
    node_key: OnceLock<NodeKey>,
    epoch: AtomicI64,
    head: AtomicU64,
    commits: AtomicU64,
    commit_micros: AtomicU64,
    is_late: AtomicBool,
    is_restored: AtomicBool,
    is_asked_to_hand_over: AtomicBool,
    is_slow: AtomicBool,
}

impl ClusterFacts {
    /// A cluster with one node.
    pub fn new(name: String, me: ClusterNode) -> Self {
        Self { name, me, ..Self::default() }
    }

    /// Its clients are in cluster mode, and find these slots here.
    #[must_use]
    pub fn with_group(self, group: Option<SlotGroup>) -> Self {
        Self { group, ..self }
    }

    /// The key of the cluster, once this node has joined it.
    pub fn node_key(&self) -> Option<NodeKey> {
        self.node_key.get().copied()
    }

    /// Notes the key of the cluster. It never changes.
    pub fn set_node_key(&self, key: NodeKey) {
        let _ = self.node_key.set(key);
    }

    /// The other nodes, by their ids.
    pub fn others(&self) -> Vec<ClusterNode> {
        self.others.lock().clone()
    }

    pub fn set_others(&self, mut others: Vec<ClusterNode>) {
        others.sort_by(|a, b| a.id.cmp(&b.id));
        *self.others.lock() = others;
    }

    /// The epoch of the term.
    pub fn epoch(&self) -> i64 {
        self.epoch.load(SeqCst)
    }

    /// The sequence number of the next entry of the log, a moment ago.
    pub fn head(&self) -> u64 {
        self.head.load(SeqCst)
    }

    /// Notes the epoch, and how far the log is.
    pub fn set_term(&self, epoch: i64, head: u64) {
        self.epoch.store(epoch, SeqCst);
        self.head.store(head, SeqCst);
    }

    /// Whether etcd does not take the log, so that nothing is answered.
    pub fn is_late(&self) -> bool {
        self.is_late.load(Relaxed)
    }

    /// Notes whether etcd takes the log. Returns what it was before.
    pub fn set_late(&self, is_late: bool) -> bool {
        self.is_late.swap(is_late, Relaxed)
    }

    /// Whether no node leads, because the log is an older state of itself, which nobody has accepted.
    pub fn is_restored(&self) -> bool {
        self.is_restored.load(Relaxed)
    }

    /// Notes whether the log waits to be accepted.
    pub fn set_restored(&self, is_restored: bool) {
        self.is_restored.store(is_restored, Relaxed);
    }

    /// How many of the others do not reach this node.
    pub fn unreached_by(&self) -> usize {
        let epoch = Some(self.epoch());
        self.others.lock().iter().filter(|node| node.unreached == epoch).count()
    }

    /// Whether this node, which leads, serves its clients, as far as the others tell: half of them reach it at least, and
    /// most nodes have the users and passwords that it has. A node that is cut off itself, or set otherwise, makes no
    /// leader fail.
    pub fn is_served(&self) -> bool {
        let unreached_by = self.unreached_by();
        let others = self.others.lock();
        let differing = others.iter().filter(|node| node.differs).count();
        2 * unreached_by <= others.len() && 2 * differing <= others.len() + 1
    }

    /// Another node is to lead, if there is one. Returns false if there is none.
    pub(crate) fn ask_to_hand_over(&self) -> bool {
        let is_possible = !self.others.lock().is_empty();
        self.is_asked_to_hand_over.fetch_or(is_possible, Relaxed);
        is_possible
    }

    /// Whether another node is to lead. The answer is given once.
    pub fn takes_hand_over(&self) -> bool {
        self.is_asked_to_hand_over.swap(false, Relaxed)
    }

    /// Notes whether commits take so long that another node may take over. Returns what it was before.
    pub fn set_slow(&self, is_slow: bool) -> bool {
        self.is_slow.swap(is_slow, Relaxed)
    }

    /// A commit has succeeded, and has taken so long.
    pub fn note_commit(&self, took: Duration) {
        self.commits.fetch_add(1, Relaxed);
        self.commit_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many commits there were since the start of this node, and how many microseconds they took together.
    pub fn commits(&self) -> (u64, u64) {
        (self.commits.load(Relaxed), self.commit_micros.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_serves_unless_most_nodes_do_not_reach_it_or_differ() {
        let facts = ClusterFacts::default();
        facts.set_term(5, 1);
        let fine = ClusterNode::default();
        let astray = ClusterNode { unreached: Some(5), ..fine.clone() };
        let before = ClusterNode { unreached: Some(4), ..fine.clone() };
        let other = ClusterNode { differs: true, ..fine.clone() };
        let is_served = |others: &[&ClusterNode]| {
            facts.set_others(others.iter().map(|node| (*node).clone()).collect());
            facts.is_served()
        };
        assert!(is_served(&[]) && is_served(&[&fine, &fine]) && is_served(&[&before]));
        assert!(is_served(&[&fine, &astray]) && is_served(&[&fine, &other]) && is_served(&[&other]));
        assert!(!is_served(&[&astray]) && !is_served(&[&astray, &astray, &fine]));
        assert!(!is_served(&[&other, &other]));
    }
}
