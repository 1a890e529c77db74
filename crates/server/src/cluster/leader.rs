//! Who leads, as a node knows it, and the addresses of nodes as they are written in etcd.

use redlatch_core::journal::recovery::Promised;
use redlatch_core::replication::cluster::Member;
use redlatch_core::replication::restored::Values;
use redlatch_core::state::cluster::ClusterNode;

use super::reach::Report;
use super::splice::Door;

/// Who leads, as a node knows it. Default: nobody.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Leader {
    /// The epoch; 0: unknown.
    pub(super) epoch: i64,
    /// The addresses of the leader; none: nobody leads.
    pub(super) addresses: Vec<String>,
    /// Why nobody leads, if this node knows.
    pub(super) trouble: Option<String>,
}

impl Leader {
    /// The epoch and the address behind this door. `None` if nobody leads, or the leader has no such port.
    pub(super) fn address(&self, door: Door) -> Option<(i64, String)> {
        let address = address_in(&self.addresses, door)?;
        Some((self.epoch, address.to_owned()))
    }

    /// Whether it takes the addresses of clients from other nodes. An older version does not.
    pub(super) fn takes_clients(&self) -> bool {
        self.addresses.iter().any(|address| address.starts_with(VIA))
    }
}

/// The addresses of a node for [`Member`]: without TLS, and with.
pub(super) fn addresses(tcp: Option<&str>, tls: Option<&str>) -> Vec<String> {
    let written = |door: Door, address: &str| format!("{}{address}", word(door));
    let tcp = tcp.map(|address| written(Door::Plain, address));
    tcp.into_iter().chain(tls.map(|address| written(Door::Tls, address))).collect()
}

/// The addresses of a node of this version: it takes the addresses of clients from other nodes.
pub(super) fn own_addresses(tcp: Option<&str>, tls: Option<&str>) -> Vec<String> {
    let via = tcp.or(tls).map(via_address);
    addresses(tcp, tls).into_iter().chain(via).collect()
}

/// The port for HTTP as it stands among the addresses of a [`Member`].
pub(super) fn http_address(host: &str, port: u16) -> String {
    format!("{HTTP}{host}:{port}")
}

/// What stands among the addresses of a [`Member`] that takes the addresses of clients from other nodes. It has an address,
/// so that no two nodes have it alike.
pub(super) fn via_address(address: &str) -> String {
    format!("{VIA}{address}")
}

/// The address behind a door among those of a [`Member`].
pub(super) fn address_in(addresses: &[String], door: Door) -> Option<&str> {
    addresses.iter().find_map(|address| address.strip_prefix(word(door)))
}

/// What `node/<id>` says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct NodeEntry {
    pub(super) addresses: Vec<String>,
    /// That of its users; none: it is of an older version.
    pub(super) digest: Option<String>,
    /// What it knows of the way to the leader.
    pub(super) report: Report,
    /// The groups that it has given up lately.
    pub(super) rests: Vec<u16>,
    /// What it knows of the promises of leaders.
    pub(super) promised: Promised,
}

/// The text of `node/<id>`. `beat` changes with each time that it is written: a text that stays is that of a node that has
/// ended.
pub(super) fn node_text(entry: &NodeEntry, beat: u64) -> String {
    let NodeEntry { addresses, digest, report, rests, promised } = entry;
    let addresses: String = addresses.iter().map(|address| format!("address {address}\n")).collect();
    let digest = digest.as_ref().map_or(String::new(), |digest| format!("digest {digest}\n"));
    let unreached = report.unreached.map_or(String::new(), |epoch| format!("unreached {epoch}\n"));
    let clients = if report.has_clients { "clients yes\n" } else { "" };
    let rests: String = rests.iter().map(|group| format!("rests {group}\n")).collect();
    format!("{addresses}beat {beat}\n{digest}{unreached}{clients}{rests}{}", Values::of_promised(promised))
}

/// What a text of `node/<id>` says.
pub(super) fn in_node(text: &[u8]) -> NodeEntry {
    let text = String::from_utf8_lossy(text);
    let values = |name| text.lines().filter_map(move |line| line.strip_prefix(name));
    let report = Report {
        unreached: values("unreached ").next().and_then(|epoch| epoch.parse().ok()),
        has_clients: values("clients ").next() == Some("yes"),
    };
    NodeEntry {
        addresses: values("address ").map(str::to_owned).collect(),
        digest: values("digest ").next().map(str::to_owned),
        report,
        rests: values("rests ").filter_map(|group| group.parse().ok()).collect(),
        promised: Values::read(&text).promised(),
    }
}

pub(super) fn node(member: &Member) -> ClusterNode {
    let parts = |door| {
        let (host, port) = address_in(&member.addresses, door)?.rsplit_once(':')?;
        Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
    };
    let (plain, tls) = (parts(Door::Plain), parts(Door::Tls));
    let tls_port = tls.as_ref().map_or(0, |(_, port)| *port);
    let (host, port) = plain.or(tls).unwrap_or_default();
    let http = member.addresses.iter().find_map(|address| address.strip_prefix(HTTP));
    let http_port = http.and_then(|http| http.rsplit_once(':')?.1.parse().ok()).unwrap_or_default();
    ClusterNode { id: member.id.clone(), host, port, tls_port, http_port, ..ClusterNode::default() }
}

const HTTP: &str = "http ";
const VIA: &str = "via ";

fn word(door: Door) -> &'static str {
    match door {
        Door::Plain => "tcp ",
        Door::Tls => "tls ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_door_has_an_address_of_its_own() {
        let both = addresses(Some("a:1"), Some("a:2"));
        assert_eq!(
            (address_in(&both, Door::Plain), address_in(&both, Door::Tls)),
            (Some("a:1"), Some("a:2"))
        );
        let member = Member { id: "x".to_owned(), addresses: addresses(None, Some("a:2")) };
        let promised = Promised { token: 5, ..Promised::default() };
        let report = Report { unreached: Some(9), has_clients: true };
        let digest = Some("0a".to_owned());
        let (addresses, rests) = (member.addresses.clone(), vec![0, 3]);
        let entry = NodeEntry { addresses, digest, report, rests, promised };
        assert_eq!(in_node(node_text(&entry, 7).as_bytes()), entry);
        let addresses = vec!["tcp a:1".to_owned(), http_address("a", 9_121)];
        let serving = Member { addresses, ..member.clone() };
        assert_eq!((node(&member).http_port, node(&serving).http_port), (0, 9_121));
        let leader = Leader { epoch: 3, addresses: entry.addresses, trouble: None };
        assert_eq!(leader.address(Door::Tls), Some((3, "a:2".to_owned())));
        assert_eq!(leader.address(Door::Plain), None);
        assert_eq!(Leader::default().address(Door::Plain), None);
    }
}
