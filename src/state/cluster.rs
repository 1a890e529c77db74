//! What commands say of a cluster: its name, its nodes, and the term of this one.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use parking_lot::Mutex;

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
}

/// What a node that leads says of its cluster.
#[derive(Debug)]
pub struct ClusterFacts {
    /// The name of the cluster.
    pub name: String,
    /// This node, which leads if somebody asks it.
    pub me: ClusterNode,
    others: Mutex<Vec<ClusterNode>>,
    epoch: AtomicI64,
}

impl ClusterFacts {
    /// A cluster with one node.
    pub fn new(name: String, me: ClusterNode) -> Self {
        Self { name, me, others: Mutex::default(), epoch: AtomicI64::new(0) }
    }

    /// The other nodes, by their ids.
    pub fn others(&self) -> Vec<ClusterNode> {
        self.others.lock().clone()
    }

    /// Notes the other nodes.
    pub fn set_others(&self, mut others: Vec<ClusterNode>) {
        others.sort_by(|a, b| a.id.cmp(&b.id));
        *self.others.lock() = others;
    }

    /// The epoch of the term.
    pub fn epoch(&self) -> i64 {
        self.epoch.load(SeqCst)
    }

    /// A term begins.
    pub fn set_epoch(&self, epoch: i64) {
        self.epoch.store(epoch, SeqCst);
    }
}
