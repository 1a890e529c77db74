//! What a node refuses, and says: settings that do not fit, keys of others, credentials, an etcd that is full.

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;

use super::harness::{Etcd, Node, refusal, wait_until};
use crate::support::binary::{Directory, Running, redlatch};
use crate::support::certificates::Authority;
use crate::support::wire::Link;

#[test]
fn settings_that_exclude_a_cluster_are_refused() {
    let with = |more: &[&str]| refusal(&[&["--cluster-etcd", "127.0.0.1:1"], more].concat());
    for (more, name) in [
        (&["--enable-test-commands", "local"][..], "enable-test-commands 'local'"),
        (&["--nodes", "2"], "nodes '2'"),
        (&["--enable-debug-command", "local"], "enable-debug-command 'local'"),
        (&["--appendonly", "yes"], "appendonly, appendfsync"),
        (&["--cluster-prefix", ""], "cluster-prefix ''"),
        (&["--cluster-etcd-cert", "x"], "cluster-etcd-cert, cluster-etcd-key"),
        (&["--cluster-etcd-password", "x"], "cluster-etcd-password"),
        (&["--bind", "0.0.0.0"], "cluster-announce ''"),
        (&["--cluster-announce", "nowhere"], "cluster-announce 'nowhere'"),
        (&["--cluster-takeover", "10"], "cluster-takeover '10'"),
    ] {
        let said = with(more);
        assert!(said.contains(&format!("redlatch: {name}")), "{more:?}: {said}");
    }
    for etcd in ["ftp://x", "https://127.0.0.1:1", "a:b:c"] {
        let said = refusal(&["--cluster-etcd", etcd]);
        assert!(said.contains("redlatch: cluster-etcd"), "{etcd}: {said}");
    }
}

#[test]
fn a_directory_with_the_journal_of_a_server_by_itself_is_refused() {
    let directory = Directory::new();
    let dir = directory.path("journal");
    let server = Running::start(redlatch().args(["--port", "auto", "--dir", &dir]));
    server.ask("SET lock me NX PX 60000");
    drop(server);
    let said = refusal(&["--cluster-etcd", "127.0.0.1:1", "--dir", &dir]);
    assert!(said.contains(&format!("redlatch: dir '{dir}': has the journal")), "{said}");
}

#[test]
#[ignore = "needs etcd"]
fn a_prefix_that_is_used_for_something_else_is_refused() {
    let etcd = Etcd::start_one(&[]);
    let endpoints = etcd.endpoints();
    let with = |prefix: &str, more: &[&str]| {
        refusal(&[&["--cluster-etcd", &endpoints, "--cluster-prefix", prefix], more].concat())
    };
    for (prefix, key, value, words) in [
        ("/foreign/", "cluster", "hello", "used for something else"),
        ("/newer/", "cluster", "redlatch cluster 2\nid 0\n", "the cluster is of version 2"),
        ("/half/", "head", "7", "used for something else"),
    ] {
        assert!(etcd.ctl(&["put", &format!("{prefix}{key}"), value]).0);
        let said = with(prefix, &[]);
        assert!(said.contains(words) && said.contains(prefix), "{said}");
    }
    let mut node = Node::start(&etcd, &["--cluster-prefix", "/used/"]);
    node.wait_for("This node leads");
    let said = with("/used/", &["--cluster-takeover", "5000"]);
    assert!(said.contains("takeover 1000") && said.contains("5000"), "{said}");
    let said = with("/used/", &["--databases", "3"]);
    assert!(said.contains("databases 16"), "{said}");
}

#[test]
#[ignore = "needs etcd"]
fn clusters_of_other_prefixes_do_not_meet() {
    let etcd = Etcd::start_one(&[]);
    let nodes = ["/a/", "/b/"].map(|prefix| {
        let mut node = Node::start(&etcd, &["--cluster-prefix", prefix]);
        node.wait_for("This node leads");
        node
    });
    for node in &nodes {
        assert!(node.acquire("lock", "me").is_some());
    }
}

#[test]
#[ignore = "needs etcd"]
fn a_prefix_that_is_the_beginning_of_another_one_is_refused() {
    let etcd = Etcd::start_one(&[]);
    let endpoints = etcd.endpoints();
    let mut node = Node::start(&etcd, &["--cluster-prefix", "/a/b/"]);
    node.wait_for("This node leads");
    for prefix in ["/a/", "/a/b/c/", "/a/b/log/"] {
        let said = refusal(&["--cluster-etcd", &endpoints, "--cluster-prefix", prefix]);
        assert!(said.contains("another cluster has the prefix '/a/b/'"), "{prefix}: {said}");
    }
    let mut beside = Node::start(&etcd, &["--cluster-prefix", "/a/c/"]);
    beside.wait_for("This node leads");
    node.signal(Signal::SIGTERM);
    assert_eq!(node.end(), Some(0));
    node.restart();
    node.wait_for("This node leads");
}

#[test]
#[ignore = "needs etcd"]
fn keys_that_are_removed_end_the_term() {
    let etcd = Etcd::start_one(&[]);
    let mut node = Node::start(&etcd, &[]);
    node.wait_for("This node leads");
    assert!(node.acquire("lock", "me").is_some());
    assert!(etcd.ctl(&["del", "--prefix", "/redlatch/"]).0);
    node.wait_for("does not lead any more");
    let mut link = Link::to(node.address()).expect("a node");
    let answer = link.ask(&["PING"]);
    assert!(!matches!(answer, Ok(OwnedFrame::SimpleString(_))), "it serves nobody: {answer:?}");
}

#[test]
#[ignore = "needs etcd"]
fn etcd_may_ask_for_a_login() {
    let etcd = Etcd::start_one(&["--auth-token-ttl", "2"]);
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "locks:word"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "readwrite", "--prefix=true", "/redlatch/"],
        &["user", "grant-role", "locks", "locks"],
        &["auth", "enable"],
    ] {
        let (is_done, said) = etcd.ctl(words);
        assert!(is_done || words == ["user", "grant-role", "root", "root"], "{words:?}: {said}");
    }
    let endpoints = etcd.endpoints();
    let login = |user: &'static str, password: &'static str| {
        ["--cluster-etcd-user", user, "--cluster-etcd-password", password]
    };
    for (more, words) in [
        (&[][..], "user name is empty"),
        (&login("locks", "wrong"), "authentication failed"),
        (&[&login("locks", "word")[..], &["--cluster-prefix", "/other/"]].concat(), "permission denied"),
    ] {
        let said = refusal(&[&["--cluster-etcd", &endpoints], more].concat());
        assert!(said.contains(words), "{more:?}: {said}");
    }
    let mut leader = Node::start(&etcd, &login("locks", "word"));
    leader.wait_for("This node leads");
    let mut standby = Node::start(&etcd, &login("locks", "word"));
    standby.wait_for("Another node leads");
    let token = standby.acquire("lock", "me").expect("a lock that is free");
    let hidden = standby.ask(&["CONFIG", "GET", "cluster-etcd-password"]).expect("an answer");
    assert!(!format!("{hidden:?}").contains("word"), "{hidden:?}");
    // Its token is of no use to the member any more.
    leader.signal(Signal::SIGKILL);
    wait_until("a takeover", || standby.acquire("lock", "me") == Some(token));
}

#[test]
#[ignore = "needs etcd"]
fn an_etcd_without_room_answers_no_write_and_makes_no_second_leader() {
    let etcd = Etcd::start_one(&["--quota-backend-bytes", "16777216"]);
    let mut leader = Node::start(&etcd, &["--cluster-takeover", "3000"]);
    leader.wait_for("This node leads");
    let mut standby = Node::start(&etcd, &["--cluster-takeover", "3000"]);
    standby.wait_for("Another node leads");
    // The room is taken by somebody else.
    let value = "x".repeat(100_000);
    let mut written = 0;
    while etcd.ctl(&["put", &format!("/elsewhere/{written}"), &value]).0 {
        written += 1;
        assert!(written < 1000, "the quota is never reached");
    }
    leader.wait_for("database space exceeded");
    let mut link = Link::to(leader.address()).expect("a leader");
    link.send(&["SET", "k", "v"]).expect("a socket");
    // Room is made again, and the leader's commits go on, or a standby's.
    assert!(etcd.ctl(&["del", "--prefix", "/elsewhere/"]).0);
    let (_, status) = etcd.ctl(&["endpoint", "status", "--write-out", "json"]);
    let revision = status.split("\"revision\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    etcd.ctl(&["compact", revision.expect("a revision")]);
    etcd.ctl(&["defrag"]);
    assert!(etcd.ctl(&["alarm", "disarm"]).0);
    wait_until("a grant", || standby.acquire("lock", "me").is_some());
}

/// The sentence with which a node ends that etcd's TLS does not satisfy, or the line with which it says that it waits.
fn waits_for_etcd(args: &[&str]) -> String {
    let mut node = Node::spawn(args);
    let line = node.wait_for("The node waits for etcd");
    node.signal(Signal::SIGTERM);
    assert_eq!(node.end(), Some(0), "a node that waits ends by a signal");
    line
}

#[test]
#[ignore = "needs etcd"]
fn etcd_may_ask_for_tls_and_a_certificate() {
    let (files, authority) = (Directory::new(), Authority::new("of etcd"));
    let (server, client) = (authority.vouch("etcd"), authority.vouch("node"));
    let ca = files.write("ca.crt", &authority.pem);
    let (certificate, key) = (files.write("client.crt", &client.0), files.write("client.key", &client.1));
    let (of_server, its_key) = (files.write("server.crt", &server.0), files.write("server.key", &server.1));
    let etcd = Etcd::start_tls([&ca, &of_server, &its_key], [&certificate, &key]);
    let endpoints = etcd.endpoints();
    let all =
        ["--cluster-etcd-ca-cert", &ca, "--cluster-etcd-cert", &certificate, "--cluster-etcd-key", &key];
    let mut node = Node::start(&etcd, &all);
    node.wait_for("This node leads");
    assert!(node.acquire("lock", "me").is_some());
    // Neither a stranger's certificate nor none.
    let stranger = files.write("stranger.crt", &Authority::new("stranger").pem);
    let other = ["--cluster-etcd", &endpoints, "--cluster-etcd-ca-cert", &stranger];
    let said = waits_for_etcd(&[&other[..], &all[2..]].concat());
    assert!(said.to_lowercase().contains("certificate"), "{said}");
    let said = waits_for_etcd(&[&["--cluster-etcd", &endpoints], &all[..2]].concat());
    assert!(said.to_lowercase().contains("certificate"), "{said}");
}

#[test]
#[ignore = "needs etcd"]
fn the_common_name_of_a_certificate_is_a_login_where_etcd_asks_for_one() {
    let (files, authority) = (Directory::new(), Authority::new("of etcd"));
    let (server, client) = (authority.vouch("etcd"), authority.vouch("root"));
    let ca = files.write("ca.crt", &authority.pem);
    let (of_server, its_key) = (files.write("server.crt", &server.0), files.write("server.key", &server.1));
    let (named, its) = (files.write("named.crt", &client.0), files.write("named.key", &client.1));
    let nameless = authority.vouch_nameless();
    let (other, others) = (files.write("other.crt", &nameless.0), files.write("other.key", &nameless.1));
    let etcd = Etcd::start_tls([&ca, &of_server, &its_key], [&named, &its]);
    for words in
        [&["user", "add", "root:secret"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
    {
        etcd.ctl(words);
    }
    let endpoints = etcd.endpoints();
    let with = |certificate, key| {
        ["--cluster-etcd-ca-cert", &ca, "--cluster-etcd-cert", certificate, "--cluster-etcd-key", key]
    };
    let leads = |flags: &[&str]| {
        let mut node = Node::start(&etcd, flags);
        node.wait_for("This node leads");
        node.signal(Signal::SIGTERM);
        assert_eq!(node.end(), Some(0));
    };
    leads(&with(&named, &its));
    let (named, nameless) = (with(&named, &its), with(&other, &others));
    let said = refusal(&[&["--cluster-etcd", &endpoints], &nameless[..]].concat());
    assert!(said.contains("permission denied"), "{said}");
    // A password counts before a name.
    for certificate in [named, nameless] {
        let login = ["--cluster-etcd-user", "root", "--cluster-etcd-password", "secret"];
        leads(&[&certificate[..], &login].concat());
    }
}

#[test]
#[ignore = "needs etcd"]
fn a_member_needs_no_gateway() {
    let etcd = Etcd::start_one(&["--enable-grpc-gateway=false"]);
    let mut node = Node::start(&etcd, &[]);
    node.wait_for("This node leads");
    assert!(node.acquire("lock", "me").is_some());
}
