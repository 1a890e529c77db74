//! The nodes of a cluster, as CLUSTER SLOTS, SHARDS and NODES describe them to a client.
//!
//! Source  Redis 7.0 `cluster.c`: `addNodeToNodeReply`, `addNodeDetailsToShardReply`, `clusterGenNodeDescription`.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::resp::Reply;

use crate::commands::Shared;
use crate::scripts::{Sha, digest};
use crate::state::clients::Client;
use crate::state::cluster::ClusterNode;
use crate::state::settings;

/// A node, with the address that one client is told.
#[derive(Debug)]
pub(in crate::commands) struct SlotOwner {
    id: String,
    /// Empty if it is not known: the client uses a Unix socket.
    ip: String,
    /// Empty: none.
    hostname: String,
    preferred: Preferred,
    /// The port without TLS; 0: none.
    port: u16,
    /// The port with TLS; 0: none.
    tls_port: u16,
    /// Whether the client uses TLS.
    is_tls: bool,
    /// The port at which a Redis would have its cluster bus; 0: none is that high.
    bus_port: u16,
}

/// From the port of a Redis to that of its cluster bus.
const BUS_DISTANCE: u64 = 10_000;

/// `cluster-preferred-endpoint-type`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Preferred {
    Hostname,
    Ip,
    Unknown,
}

impl Preferred {
    fn of(asked: &Shared) -> Self {
        match asked.settings.get(settings::CLUSTER_PREFERRED_ENDPOINT_TYPE).as_str() {
            "hostname" => Self::Hostname,
            "unknown-endpoint" => Self::Unknown,
            _ => Self::Ip,
        }
    }
}

/// The address at which a client has reached this server; `None`: by a Unix socket.
fn reached(client: &Client) -> Option<SocketAddr> {
    client.address.local.parse().ok()
}

impl SlotOwner {
    /// A node as the node `asked` tells this client of it, with what its `cluster-announce-*` says.
    pub(in crate::commands) fn told_to(client: &Client, asked: &Shared, node: &Shared) -> Self {
        let (settings, instance) = (&node.settings, &node.instance);
        let reached = reached(client);
        let ip = match settings.get(settings::CLUSTER_ANNOUNCE_IP) {
            ip if ip.is_empty() => {
                reached.map_or_else(String::new, |address| address.ip().to_canonical().to_string())
            }
            ip => ip,
        };
        let [port, tls_port] = [&instance.port, &instance.tls_port].map(|port| port.load(Relaxed) as u16);
        let is_tls = tls_port != 0 && reached.is_some_and(|address| address.port() == tls_port);
        let announced = |setting, port: u16| match settings.get(setting) {
            0 => port,
            announced => announced,
        };
        Self {
            id: instance.run_id.clone(),
            ip,
            hostname: settings.get(settings::CLUSTER_ANNOUNCE_HOSTNAME),
            preferred: Preferred::of(asked),
            port: announced(settings::CLUSTER_ANNOUNCE_PORT, port),
            tls_port: if tls_port == 0 {
                0
            } else {
                announced(settings::CLUSTER_ANNOUNCE_TLS_PORT, tls_port)
            },
            is_tls,
            // No port is higher than 65535.
            bus_port: instance.main_port().saturating_add(BUS_DISTANCE).try_into().unwrap_or(0),
        }
    }

    /// The leader of a group, at the address that it has announced.
    pub(in crate::commands) fn of_leader(client: &Client, asked: &Shared, leader: &ClusterNode) -> Self {
        let tls_port = asked.instance.tls_port.load(Relaxed) as u16;
        let is_tls = tls_port != 0 && reached(client).is_some_and(|address| address.port() == tls_port);
        Self {
            id: leader.id.clone(),
            // It may be a name.
            ip: leader.host.clone(),
            hostname: String::new(),
            preferred: match Preferred::of(asked) {
                Preferred::Unknown => Preferred::Unknown,
                Preferred::Hostname | Preferred::Ip => Preferred::Ip,
            },
            // A node without a port besides that for TLS has announced that one.
            port: if leader.port == leader.tls_port { 0 } else { leader.port },
            tls_port: leader.tls_port,
            is_tls,
            bus_port: u64::from(leader.port).saturating_add(BUS_DISTANCE).try_into().unwrap_or(0),
        }
    }

    /// The port that the client is told.
    fn client_port(&self) -> u16 {
        if self.is_tls { self.tls_port } else { self.port }
    }

    /// The address without a host name, as other nodes know it.
    pub(super) fn ip_and_port(&self) -> (&str, u16) {
        (&self.ip, self.client_port())
    }

    /// What the client is told to connect to; `None`: the address that it has.
    fn endpoint(&self) -> Option<&str> {
        match self.preferred {
            Preferred::Hostname if self.hostname.is_empty() => Some("?"),
            Preferred::Hostname => Some(&self.hostname),
            Preferred::Ip => Some(&self.ip),
            Preferred::Unknown => None,
        }
    }

    /// The address in a redirection. Without a host, the client stays with the one it has.
    pub(in crate::commands) fn address(&self) -> String {
        format!("{}:{}", self.endpoint().unwrap_or_default(), self.client_port())
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Writes the node as CLUSTER SLOTS does.
    pub(super) fn put_endpoint(&self, reply: &mut Reply<'_>) {
        reply.array(4);
        match self.endpoint() {
            Some(endpoint) => reply.bulk(endpoint.as_bytes()),
            None => reply.null(),
        }
        reply.integer(i64::from(self.client_port()));
        reply.bulk(self.id.as_bytes());
        let others = [
            ("ip", &self.ip, self.preferred != Preferred::Ip),
            ("hostname", &self.hostname, self.preferred != Preferred::Hostname && !self.hostname.is_empty()),
        ];
        let others: Vec<_> = others.iter().filter(|(.., is_told)| *is_told).collect();
        reply.map(others.len());
        for (name, value, _) in others {
            reply.bulk(name.as_bytes());
            reply.bulk(value.as_bytes());
        }
    }

    /// Writes the node as CLUSTER SHARDS does.
    pub(super) fn put_fields(&self, reply: &mut Reply<'_>, (role, offset): (&str, u64), has_failed: bool) {
        let ports = [("port", self.port), ("tls-port", self.tls_port)];
        let ports: Vec<_> = ports.iter().filter(|(_, port)| *port != 0).collect();
        let hostname = Some(&self.hostname).filter(|hostname| !hostname.is_empty());
        let endpoint = self.endpoint().unwrap_or_default();
        let names = [("ip", self.ip.as_str()), ("endpoint", endpoint)].into_iter();
        let names: Vec<_> = names.chain(hostname.map(|hostname| ("hostname", hostname.as_str()))).collect();

        reply.map(4_usize.saturating_add(ports.len()).saturating_add(names.len()));
        put(reply, "id", &self.id);
        for (name, port) in ports {
            reply.bulk(name.as_bytes());
            reply.integer(i64::from(*port));
        }
        names.into_iter().for_each(|(name, value)| put(reply, name, value));
        put(reply, "role", role);
        reply.bulk(b"replication-offset");
        reply.integer(i64::try_from(offset).unwrap_or(i64::MAX));
        put(reply, "health", if has_failed { "fail" } else { "online" });
    }

    /// The id and the address in the line of CLUSTER NODES.
    pub(super) fn line_start(&self) -> String {
        let hostname = if self.hostname.is_empty() { String::new() } else { format!(",{}", self.hostname) };
        format!("{} {}:{}@{}{hostname}", self.id, self.ip, self.client_port(), self.bus_port)
    }
}

fn put(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

/// The id of the shard of the node with this id.
pub(super) fn shard_id(node: &str) -> Sha {
    digest(node.as_bytes())
}
