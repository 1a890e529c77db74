//! The only node of a cluster, as CLUSTER SLOTS, SHARDS and NODES describe it to a client.
//!
//! Source  Redis 7.0 `cluster.c`: `addNodeToNodeReply`, `addNodeDetailsToShardReply`, `clusterGenNodeDescription`.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::resp::Reply;

use crate::commands::Shared;
use crate::scripts::{Sha, digest};
use crate::state::clients::Client;
use crate::types::slot::SLOTS;

/// The node, with the address that one client is told.
#[derive(Debug)]
pub(super) struct SlotOwner<'s> {
    id: &'s str,
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

impl<'s> SlotOwner<'s> {
    /// The node as this client reaches it, with what `cluster-announce-*` says.
    pub(super) fn told_to(client: &Client, shared: &'s Shared) -> Self {
        let (settings, instance) = (&shared.settings, &shared.instance);
        let reached: Option<SocketAddr> = client.address.local.parse().ok();
        let ip = match settings.text("cluster-announce-ip") {
            ip if ip.is_empty() => {
                reached.map_or_else(String::new, |address| address.ip().to_canonical().to_string())
            }
            ip => ip,
        };
        let preferred = match settings.text("cluster-preferred-endpoint-type").as_str() {
            "hostname" => Preferred::Hostname,
            "unknown-endpoint" => Preferred::Unknown,
            _ => Preferred::Ip,
        };
        let [port, tls_port] = [&instance.port, &instance.tls_port].map(|port| port.load(Relaxed) as u16);
        let is_tls = tls_port != 0 && reached.is_some_and(|address| address.port() == tls_port);
        let announced = |name, port: u16| match settings.integer(name) as u16 {
            0 => port,
            announced => announced,
        };
        Self {
            id: &instance.run_id,
            ip,
            hostname: settings.text("cluster-announce-hostname"),
            preferred,
            port: announced("cluster-announce-port", port),
            tls_port: if tls_port == 0 { 0 } else { announced("cluster-announce-tls-port", tls_port) },
            is_tls,
            // No port is higher than 65535.
            bus_port: instance.main_port().saturating_add(BUS_DISTANCE).try_into().unwrap_or(0),
        }
    }

    /// The port that the client is told.
    fn client_port(&self) -> u16 {
        if self.is_tls { self.tls_port } else { self.port }
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
    pub(super) fn put_fields(&self, reply: &mut Reply<'_>) {
        let ports = [("port", self.port), ("tls-port", self.tls_port)];
        let ports: Vec<_> = ports.iter().filter(|(_, port)| *port != 0).collect();
        let hostname = Some(&self.hostname).filter(|hostname| !hostname.is_empty());
        let endpoint = self.endpoint().unwrap_or_default();
        let names = [("ip", self.ip.as_str()), ("endpoint", endpoint)].into_iter();
        let names: Vec<_> = names.chain(hostname.map(|hostname| ("hostname", hostname.as_str()))).collect();

        reply.map(4_usize.saturating_add(ports.len()).saturating_add(names.len()));
        put(reply, "id", self.id);
        for (name, port) in ports {
            reply.bulk(name.as_bytes());
            reply.integer(i64::from(*port));
        }
        names.into_iter().for_each(|(name, value)| put(reply, name, value));
        put(reply, "role", "master");
        reply.bulk(b"replication-offset");
        reply.integer(0);
        put(reply, "health", "online");
    }

    /// The line of CLUSTER NODES.
    pub(super) fn line(&self) -> String {
        let (port, last) = (self.client_port(), SLOTS - 1);
        let hostname = if self.hostname.is_empty() { String::new() } else { format!(",{}", self.hostname) };
        let (id, ip, bus_port) = (self.id, &self.ip, self.bus_port);
        format!("{id} {ip}:{port}@{bus_port}{hostname} myself,master - 0 0 0 connected 0-{last}\n")
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
