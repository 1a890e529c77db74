//! The servers of a run.

use std::time::Duration;

use redlatch_server::{Server, StartError};

/// What a command finds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Servers {
    /// So many, each with a store of its own: 1 to 64.
    Stores(u16),
    /// A Redis Cluster of three masters, with a replica of each.
    Cluster,
}

impl Servers {
    pub(super) async fn start(self) -> Result<Server, StartError> {
        let builder = match self {
            Self::Stores(count) => Server::builder().tests(count),
            Self::Cluster => Server::builder()
                .cluster(MASTERS + MASTERS)
                .replicas(1)
                .set("cluster-node-timeout", NODE_TIMEOUT.as_millis().to_string()),
        };
        builder.start().await
    }

    /// Whether a lock is held that so many nodes have granted.
    pub(super) fn is_held(self, nodes: usize) -> bool {
        match self {
            Self::Stores(count) => 2 * nodes > usize::from(count),
            Self::Cluster => nodes > 0,
        }
    }

    /// Whether one lock is taken on several stores.
    pub(super) fn are_apart(self) -> bool {
        matches!(self, Self::Stores(2..))
    }

    /// The options that ask for these; none for the default.
    pub(super) fn options(self) -> Vec<String> {
        match self {
            Self::Stores(1) => Vec::new(),
            Self::Stores(count) => vec!["--nodes".to_owned(), count.to_string()],
            Self::Cluster => vec!["--cluster".to_owned()],
        }
    }
}

/// Masters of the cluster: as few as may have replicas. They are its first nodes.
pub(super) const MASTERS: u16 = 3;
/// After this time without a node its replica takes over: far less than a lease.
pub(super) const NODE_TIMEOUT: Duration = Duration::from_millis(200);
