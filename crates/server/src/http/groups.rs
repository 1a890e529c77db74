//! The groups of slots of a cluster: where the pages of their leaders are, so that the page of one shows the locks of all.
//!
//! Rule    a page asks the leaders of the other groups by itself, with what its reader has shown. So their answers let the
//!         pages of this cluster read them, and no others: those at a port for HTTP that a leader has.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, HOST, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};
use hyper::http::uri::Authority;
use hyper::{Response, StatusCode};
use redlatch_core::state::cluster::{ClusterFacts, ClusterNode};
use redlatch_core::state::slot_groups::SlotGroup;
use serde_json::{Value, json};

use super::responses::{Body, text};

/// The group of slots that is served here, and the leaders of the others; null if there is one group. The host of a page is
/// null where it is that of this one.
pub(super) fn groups(cluster: Option<&ClusterFacts>) -> Value {
    let Some((cluster, group)) = one_of_several(cluster) else { return Value::Null };
    let others = group.leaders().into_iter().filter(|(number, ..)| *number != group.number);
    let others = others.map(|(number, slots, leader)| {
        json!({
            "number": number,
            "slots": [slots.start(), slots.end()],
            "leader": format!("{}:{}", leader.host, leader.port),
            "http_host": (leader.host != cluster.me.host).then_some(&leader.host),
            "http_port": (leader.http_port != 0).then_some(leader.http_port),
        })
    });
    json!({
        "number": group.number,
        "count": group.count(),
        "slots": [group.slots().start(), group.slots().end()],
        "others": others.collect::<Vec<_>>(),
    })
}

/// A cluster whose slots several groups share out, and its group of this server.
fn one_of_several(cluster: Option<&ClusterFacts>) -> Option<(&ClusterFacts, &SlotGroup)> {
    let cluster = cluster?;
    let group = cluster.group.as_ref().filter(|group| group.count() > 1)?;
    Some((cluster, group))
}

/// The leaders of all groups that have a page.
fn pages(cluster: Option<&ClusterFacts>) -> Vec<ClusterNode> {
    let leaders = one_of_several(cluster).map_or_else(Vec::new, |(_, group)| group.leaders());
    leaders.into_iter().map(|(.., leader)| leader).filter(|leader| leader.http_port != 0).collect()
}

/// The hosts that a page may ask, beside this server: those of all nodes, and the one by which its reader has asked for it.
/// Groups move between nodes, and each has another port.
pub(super) fn hosts(cluster: Option<&ClusterFacts>, headers: &HeaderMap) -> Vec<String> {
    let (Some(cluster), pages) = (cluster, pages(cluster)) else { return Vec::new() };
    if pages.is_empty() {
        return Vec::new();
    }
    let nodes = cluster.others().into_iter().chain(pages).map(|node| node.host);
    let nodes = nodes.chain(asked(headers).map(|asked| asked.host().to_owned()));
    let mut hosts: Vec<String> = nodes.filter(|host| host.bytes().all(is_of_host)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte)
}

/// The origin of a request, if it is the page of a leader of this cluster: at the host that it is known by, or at the one by
/// which this server was asked.
pub(super) fn origin_of_page<'h>(
    headers: &'h HeaderMap,
    cluster: Option<&ClusterFacts>,
) -> Option<&'h HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let page: Authority = origin.to_str().ok()?.strip_prefix("http://")?.parse().ok()?;
    let is_known = |host: &str| page.host().eq_ignore_ascii_case(host);
    let is_asked = asked(headers).is_some_and(|asked| is_known(asked.host()));
    let is_page = |leader: &ClusterNode| {
        page.port_u16() == Some(leader.http_port) && (is_asked || is_known(&leader.host))
    };
    pages(cluster).iter().any(is_page).then_some(origin)
}

/// The host by which this server was asked.
fn asked(headers: &HeaderMap) -> Option<Authority> {
    headers.get(HOST)?.to_str().ok()?.parse().ok()
}

/// Lets the page of this origin read a response.
pub(super) fn let_read(response: &mut Response<Body>, origin: HeaderValue) {
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.headers_mut().insert(VARY, HeaderValue::from_static("Origin"));
}

/// The answer to a browser that asks whether a page may send a request with a login.
pub(super) fn may_ask() -> Response<Body> {
    let mut response = text(StatusCode::OK, "a page of this cluster may ask");
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16, http_port: u16) -> ClusterNode {
        ClusterNode { host: host.into(), port, http_port, ..ClusterNode::default() }
    }

    /// The facts of the second of four groups: two are led by this node, one by another, and one by nobody.
    fn facts() -> ClusterFacts {
        let groups = SlotGroup::all(4);
        let leaders = [node("a", 7_000, 9_121), node("a", 7_001, 9_122), node("b", 7_002, 0)];
        for (group, leader) in groups.iter().zip(leaders) {
            group.set_leader(Some(leader));
        }
        ClusterFacts::new("locks".into(), node("a", 7_001, 9_122)).with_group(Some(groups[1].clone()))
    }

    #[test]
    fn each_other_group_is_told_with_its_leader_and_the_port_of_its_page() {
        assert_eq!(groups(None), Value::Null);
        assert_eq!(groups(Some(&ClusterFacts::default())), Value::Null);
        let others = json!([
            { "number": 0, "slots": [0, 4095], "leader": "a:7000", "http_host": null, "http_port": 9121 },
            { "number": 2, "slots": [8192, 12_287], "leader": "b:7002", "http_host": "b", "http_port": null },
        ]);
        let expected = json!({ "number": 1, "count": 4, "slots": [4096, 8191], "others": others });
        assert_eq!(groups(Some(&facts())), expected);
    }

    #[test]
    fn pages_of_leaders_may_read_and_no_others() {
        let facts = facts();
        let may_read = |origin: &str, host: &str, cluster: Option<&ClusterFacts>| {
            let mut headers = HeaderMap::new();
            headers.insert(ORIGIN, origin.parse().unwrap());
            headers.insert(HOST, host.parse().unwrap());
            origin_of_page(&headers, cluster).is_some()
        };
        for origin in ["http://a:9121", "http://A:9122", "http://localhost:9121"] {
            assert!(may_read(origin, "localhost:9122", Some(&facts)), "{origin}");
            assert!(!may_read(origin, "localhost:9122", None), "{origin}, without a cluster");
        }
        for origin in [
            "http://a", "http://a:7000", "http://b:7002", "https://a:9121", "http://evil.example:9121",
            "null", "", "http://a.evil.example:9121", "http://evil.example@a:1",
        ] {
            assert!(!may_read(origin, "localhost:9122", Some(&facts)), "{origin}");
        }
    }

    #[test]
    fn a_page_may_ask_the_nodes_of_its_cluster() {
        let facts = facts();
        facts.set_others(vec![node("b", 7_001, 9_122), node("c; script-src *", 1, 9_122)]);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("localhost:9122"));
        assert_eq!(hosts(Some(&facts), &headers), ["a", "b", "localhost"], "no host changes the policy");
        assert_eq!(hosts(None, &headers), Vec::<String>::new());
    }
}
