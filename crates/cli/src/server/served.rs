//! What the process serves: a server by itself, or a node of a cluster.

use std::net::SocketAddr;

use redlatch_core::state::settings::{self, Settings};
use redlatch_server::process::Node;
use redlatch_server::{Builder, Server};

use crate::common::{Fault, exit};

pub(super) enum Served {
    Alone(Box<Server>),
    /// A node of a cluster, which has a server while it leads.
    Node(Node),
}

#[derive(Debug, Default)]
pub(super) struct Listening {
    /// Without TLS.
    pub(super) tcp: Vec<SocketAddr>,
    /// Of each node that test commands have made; else as `tcp`.
    pub(super) nodes: Vec<SocketAddr>,
    /// With TLS.
    pub(super) tls: Vec<SocketAddr>,
    pub(super) http: Vec<SocketAddr>,
    /// The password that clients must send; empty if there is none.
    pub(super) password: String,
}

impl Served {
    /// Starts what the settings ask for. `threads` serve clients, the caller's among them; that of a node does not.
    /// `on_start` is called with each server that starts: a node has one in each term.
    ///
    /// # Errors
    /// The reason why it does not start.
    pub(super) async fn start(
        builder: Builder,
        settings: &Settings,
        threads: usize,
        on_start: impl Fn(&Server) + Send + Sync + 'static,
    ) -> Result<Self, Fault> {
        let started = if settings.get(settings::CLUSTER_ETCD).is_empty() {
            builder.start_here_and_on(threads - 1).map(|server| {
                on_start(&server);
                Self::Alone(Box::new(server))
            })
        } else {
            Node::start(builder, threads, Box::new(on_start)).await.map(Self::Node)
        };
        started.map_err(|refused| refused.to_string())
    }

    pub(super) fn listening(&self, settings: &Settings) -> Listening {
        match self {
            Self::Alone(server) => Listening {
                tcp: server.addrs().to_vec(),
                nodes: server.node_addrs(),
                tls: server.tls_addrs().to_vec(),
                http: server.http_addrs().to_vec(),
                password: server.password(),
            },
            Self::Node(node) => {
                let [tcp, tls, http] = node.addresses();
                let password = settings.get(settings::REQUIREPASS);
                Listening { nodes: tcp.first().copied().into_iter().collect(), tcp, tls, http, password }
            }
        }
    }

    /// Ends it: what has arrived is answered.
    pub(super) fn stop(&self) {
        match self {
            Self::Alone(server) => server.stop(),
            Self::Node(node) => node.stop(),
        }
    }

    /// Resolves when it has been ended.
    pub(super) async fn stopped(&self) {
        match self {
            Self::Alone(server) => server.stopped().await,
            Self::Node(node) => node.stopped().await,
        }
    }

    /// Resolves when it has been ended and is done.
    pub(super) async fn finished(&self) {
        match self {
            Self::Alone(server) => server.finished().await,
            Self::Node(node) => node.finished().await,
        }
    }

    /// Resolves when every thread that serves clients has run a task since the call.
    pub(super) async fn workers_answer(&self) {
        match self {
            Self::Alone(server) => server.workers_answer().await,
            Self::Node(node) => {
                for server in node.servers() {
                    server.workers_answer().await;
                }
            }
        }
    }

    /// Reads certificates again.
    ///
    /// # Errors
    /// Which setting cannot be used, and why.
    pub(super) fn reload_certificates(&self) -> Result<(), String> {
        match self {
            Self::Alone(server) => server.reload_certificates(),
            // A term that begins later reads them then.
            Self::Node(node) => node.servers().iter().try_for_each(|server| server.reload_certificates()),
        }
    }

    /// Asks other endpoints of etcd, if it is a node of a cluster.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn set_etcd(&self, endpoints: &str) -> Result<(), String> {
        match self {
            Self::Alone(_) => Ok(()),
            Self::Node(node) => node.set_endpoints(endpoints),
        }
    }

    /// Has the audit log leave a file that was renamed.
    pub(super) fn reopen_audit_log(&self) {
        match self {
            Self::Alone(server) => server.reopen_audit_log(),
            Self::Node(node) => node.servers().iter().for_each(|server| server.reopen_audit_log()),
        }
    }

    /// The status of the process if it has ended because a sync of its journal has failed, or because etcd does not let it
    /// take part in the cluster.
    pub(super) fn failure(&self) -> Option<u8> {
        match self {
            Self::Alone(server) => server.has_failed().then_some(exit::DISK_FAILED),
            // A node that does not lead any more goes on.
            Self::Node(node) => node.has_failed().then_some(exit::NO),
        }
    }

    /// Waits until the threads are done.
    pub(super) fn join(self) {
        match self {
            Self::Alone(server) => server.join(),
            // Threads of a node end with the handle.
            Self::Node(_) => {}
        }
    }
}
