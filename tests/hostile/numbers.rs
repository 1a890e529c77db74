//! Numbers at the edges of integer and float ranges, in every argument of every command. In a test build an arithmetic
//! overflow panics, and a command that panics sends no reply.

use std::io::Read;

use redlatch::internals::commands::table;

use super::fixture::{Fixture, Peer};

/// The smallest, the largest, one beyond each, and malformed numbers.
const EDGES: &[&str] = &[
    "9223372036854775807", "-9223372036854775808", "-9223372036854775807", "18446744073709551615",
    "2147483648", "-1", "0", "1e308", "-inf", "nan",
];
/// Commands that reply late, not at all, or close the connection.
const OTHERWISE: &[&str] = &["shutdown", "quit", "monitor", "subscribe", "pause", "reply", "debug", "wait"];
/// One key of each type, and a missing one.
const KEYS: &[&str] = &["string", "hash", "list", "set", "sorted", "none"];

fn fill(peer: &mut Peer) {
    for request in [
        "SET string 9223372036854775807",
        "HSET hash 0 9223372036854775807 -1 1e308",
        "RPUSH list 0 -1 9223372036854775807",
        "SADD set 0 -1 9223372036854775807",
        "ZADD sorted inf 0 -inf -1 1e308 9223372036854775807",
    ] {
        assert!(peer.ask(format!("{request}\r\n").as_bytes()).starts_with([':', '+', '-']), "{request}");
    }
}

/// Sends all requests at once, and reads all replies.
fn is_answered(peer: &mut Peer, requests: &str) {
    peer.send(format!("{requests}ECHO this-is-the-end\r\n").as_bytes());
    let end = b"$15\r\nthis-is-the-end\r\n";
    let mut heard = Vec::new();
    while !heard.ends_with(end) {
        let mut byte = [0];
        peer.0.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after:\n{requests}"));
        heard.push(byte[0]);
    }
}

#[test]
fn no_number_at_the_edge_breaks_a_command() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    for command in table().all() {
        let name = command.name.replace('|', " ");
        if name.starts_with('b') || OTHERWISE.iter().any(|other| name.contains(other)) {
            continue;
        }
        fill(&mut peer);
        for edge in EDGES {
            let mut requests = String::new();
            for key in KEYS {
                for words in 0..4 {
                    let same = format!(" {edge}").repeat(words);
                    requests += &format!("{name} {key}{same}\r\n");
                    requests += &format!("{name} {key} {key}{same}\r\n");
                }
            }
            is_answered(&mut peer, &requests);
        }
        // Clears the state that this command has left for the next.
        is_answered(&mut peer, "DISCARD\r\nSELECT 0\r\n");
    }
    assert_eq!(peer.ask(b"FLUSHALL\r\n"), "+OK");
    fixture.goes_on();
}
