//! A server in cluster mode from outside: the address that clients are told, and starts that are refused.
//!
//! Belongs here  what depends on sockets, files and the start; replies are in `transcripts/cluster_*.txt`, clients in
//!               `tests/clients/`.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::support::binary::{Directory, Running, ask, ended, redlatch, refusal};

mod cluster_mode {
    use super::*;

    /// The field `endpoint` of CLUSTER SLOTS, and the port beside it.
    fn endpoint(slots: &str) -> (&str, &str) {
        let lines: Vec<&str> = slots.lines().collect();
        assert_eq!(lines[..5], ["*1", "*3", ":0", ":16383", "*4"], "{slots}");
        (lines[6], lines[7].trim_start_matches(':'))
    }

    fn start(more: &[&str]) -> Running {
        let always = ["--cluster-enabled", "yes", "--port", "auto"];
        Running::start(redlatch().args(always).args(more))
    }

    #[test]
    fn a_client_is_told_the_address_at_which_it_has_reached_the_server() {
        let directory = Directory::new();
        let socket = directory.path("socket");
        let server = start(&["--bind", "127.0.0.1 127.0.0.2", "--unixsocket", &socket]);
        let over_unix = |request| ask(UnixStream::connect(&socket).unwrap(), request);
        let port = over_unix("CLUSTER SLOTS");
        let (unknown, port) = endpoint(&port);
        assert_eq!(unknown, "", "a Unix socket has no address");
        for ip in ["127.0.0.1", "127.0.0.2"] {
            let connect = || TcpStream::connect(format!("{ip}:{port}")).unwrap();
            assert_eq!(endpoint(&ask(connect(), "CLUSTER SLOTS")), (ip, port));
            let nodes = ask(connect(), "CLUSTER NODES");
            assert!(nodes.contains(&format!(" {ip}:{port}@")), "{nodes}");
        }
        over_unix("CONFIG SET cluster-announce-ip 192.0.2.1 cluster-announce-port 7");
        assert_eq!(endpoint(&over_unix("CLUSTER SLOTS")), ("192.0.2.1", "7"));
        drop(server);
    }

    #[test]
    fn every_namespace_is_in_cluster_mode() {
        let server = start(&["--enable-test-commands", "local"]);
        for name in ["default", "orders"] {
            let said = server.ask(&format!("AUTH namespace:{name}\r\nMGET a b\r\nCLUSTER KEYSLOT a"));
            let refused = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
            assert_eq!(said, format!("+OK\r\n{refused}:15495\r\n"));
        }
    }

    #[test]
    fn of_several_nodes_each_is_told_with_a_port_of_its_own() {
        let server = start(&["--nodes", "3", "--cluster-announce-port", "7000"]);
        let nodes = server.ask("CLUSTER NODES");
        let told = |line: &str| line.split(['@', ' ']).nth(1).unwrap_or_default().to_owned();
        let addresses: Vec<String> = nodes.lines().filter(|line| line.contains("master")).map(told).collect();
        assert_eq!(addresses, ["127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"], "{nodes}");
        assert_eq!(server.ask("GET a"), "-MOVED 15495 127.0.0.1:7002\r\n");
        server.ask("CONFIG SET cluster-preferred-endpoint-type unknown-endpoint");
        assert_eq!(server.ask("GET a"), "-MOVED 15495 :7002\r\n");
        // What a node announces is its own setting; how it is told, is a setting of the node that tells.
        server.ask("CONFIG SET cluster-preferred-endpoint-type ip cluster-announce-ip 192.0.2.1");
        assert_eq!(server.ask("GET a"), "-MOVED 15495 127.0.0.1:7002\r\n");
    }

    /// The exit code, the output and what is said on the error stream of `redlatch ARGUMENTS`, asked of a server.
    fn asked(server: &Running, arguments: &[&str]) -> (Option<i32>, String, String) {
        ended(redlatch().args(arguments).env("REDLATCH_URL", server.url()))
    }

    /// The first words of the lines of a table, without its header.
    fn first_words(table: &str) -> Vec<&str> {
        table.lines().skip(1).filter_map(|line| line.split(' ').next()).collect()
    }

    #[test]
    fn subcommands_ask_the_node_that_serves_a_key() {
        let server = start(&["--nodes", "3", "--enable-test-commands", "local"]);
        for key in ["a", "b", "c"] {
            let (code, _, told) = asked(&server, &["run", "--min-hold", "60s", key, "--", "true"]);
            assert_eq!((code, &*told), (Some(0), ""), "{key}");
            let (code, lock, _) = asked(&server, &["who", key, "--json"]);
            let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
            assert_eq!((code, lock["key"].as_str()), (Some(0), Some(key)), "{lock}");
            assert_eq!(asked(&server, &["wait", key, "--timeout", "0"]).0, Some(75), "{key} is held");
            let token = lock["holders"][0]["token"].to_string();
            let (code, said, _) = asked(&server, &["break", key, "--token", &token]);
            assert_eq!((code, said), (Some(0), format!("{key} is broken\n")));
            assert_eq!(asked(&server, &["wait", key]).0, Some(0), "{key} is free");
        }
    }

    #[test]
    fn a_list_is_that_of_all_nodes_and_names_one_that_does_not_answer() {
        let server = start(&["--nodes", "3", "--enable-test-commands", "local"]);
        for key in ["a", "b", "c"] {
            assert_eq!(asked(&server, &["run", "--min-hold", "60s", key, "--", "true"]).0, Some(0));
        }
        let (code, said, told) = asked(&server, &["ls"]);
        assert_eq!((code, first_words(&said), &*told), (Some(0), vec!["a", "b", "c"], ""), "{said}");
        let slots = server.ask("CLUSTER SLOTS");
        let ports: Vec<&str> = slots.lines().filter(|line| line.len() > 5 && line.starts_with(':')).collect();
        let last = ports.last().unwrap().trim_start_matches(':');
        server.ask("TEST.NODE CRASH 3");
        let (code, said, told) = asked(&server, &["ls"]);
        assert_eq!((code, first_words(&said)), (Some(69), vec!["b", "c"]), "{said}");
        let start = format!("redlatch: 127.0.0.1:{last}: ");
        assert!(told.starts_with(&start) && told.lines().count() == 1, "{told}");
    }

    #[test]
    fn what_several_nodes_cannot_have_is_refused() {
        let refused = |more: &[&str]| {
            let always = ["--cluster-enabled", "yes", "--nodes", "3", "--port", "auto"];
            refusal(&redlatch().args(always).args(more).output().unwrap())
        };
        let said = refused(&["--tls-port", "auto"]);
        assert_eq!(said, "redlatch: tls-port 'auto': a cluster of several nodes is without TLS");
        let said = refused(&["--cluster-announce-port", "65534"]);
        assert_eq!(said, "redlatch: cluster-announce-port '65534': must leave a port to each of 3 nodes");
    }

    #[test]
    fn a_name_that_is_no_host_is_refused() {
        for (name, value) in [("cluster-announce-hostname", "a:b"), ("cluster-announce-ip", "a b")] {
            let flag = format!("--{name}={value}");
            let said = refusal(&redlatch().args(["--cluster-enabled=yes", &flag]).output().unwrap());
            assert!(said.starts_with(&format!("redlatch: {name} '{value}': must be ")), "{said}");
        }
    }

    #[test]
    fn a_journal_with_keys_of_other_databases_is_refused_and_kept() {
        let directory = Directory::new();
        let dir = directory.path("journal");
        let keep = ["--dir", &dir, "--appendfsync", "always", "--port", "auto"];
        let alone = || Running::start(redlatch().args(keep));
        alone().ask("SET lock me NX PX 60000\r\nSELECT 1\r\nSET other me NX PX 60000");

        let refused = redlatch().args(keep).args(["--cluster-enabled", "yes"]).output().unwrap();
        let said = refusal(&refused);
        assert!(said.contains("cluster-enabled: the journal has keys in other databases than 0"), "{said}");

        assert_eq!(alone().ask("GET lock\r\nSELECT 1\r\nGETDEL other"), "$2\r\nme\r\n+OK\r\n$2\r\nme\r\n");
        assert_eq!(start(&keep[..4]).ask("GET lock\r\nGET {lock}"), "$2\r\nme\r\n$-1\r\n");
    }
}
