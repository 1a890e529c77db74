//! Numbers at the edges of integer and float ranges, in every argument of every command. In a test build an arithmetic
//! overflow panics, and a command that panics sends no reply.

use redlatch_testing::commands::table;

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
    peer.answers(requests.as_bytes()).unwrap_or_else(|error| panic!("{error} after:\n{requests}"));
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

/// Commands after which something has a number at an edge of its range: `k` is the key, `N` the number.
const AT_THE_EDGE: &[&str] = &[
    "SET k v EX N",
    "SET k v PX N",
    "SET k v EXAT N",
    "SET k v PXAT N",
    "SET k N",
    "LOCK.ACQUIRE k o LEASE N",
    "LOCK.ACQUIRE k o LEASE N SHARED",
    "LOCK.ACQUIRE k o LEASE N PERMITS 1 OF 3",
    "LOCK.ACQUIRE k o LEASE N REENTRANT",
    "LOCK.ACQUIRE k o SESSION DELAY N",
    "LOCK.GUARD k N",
    "HSET k f N",
    "HSET k f v|HPEXPIRE k N FIELDS 1 f",
    "HSET k f v|HPEXPIREAT k N FIELDS 1 f",
    "HSET k f v|PEXPIREAT k N",
    "RPUSH k v|EXPIREAT k N",
    "ZADD k N m|PEXPIRE k N",
    "XADD k N-N f v|EXPIRE k N",
    "SET k v NX PX 5000|SET k w NX PX N|PEXPIRE k N",
    "CONFIG SET slowlog-log-slower-than N",
    "CONFIG SET latency-monitor-threshold N",
    "CONFIG SET maxmemory N",
    "CONFIG SET timeout N",
];
/// Numbers that a client may choose as a time.
const TIMES: &[&str] = &[
    "9223372036854775807", "9223372036854775", "4611686018427387904", "100000000000000000", "2147483647",
    "1", "0", "-1",
];
/// Commands that look at everything, or at `k`.
const LOOKS: &[&str] = &[
    "INFO", "INFO keyspace", "INFO all", "INFO everything", "MEMORY STATS", "MEMORY DOCTOR",
    "MEMORY USAGE k", "OBJECT ENCODING k", "OBJECT IDLETIME k", "PTTL k", "TTL k", "PEXPIRETIME k",
    "EXPIRETIME k", "HPTTL k FIELDS 1 f", "HTTL k FIELDS 1 f", "HPEXPIRETIME k FIELDS 1 f", "LOCK.LIST",
    "LOCK.WHO k", "LOCK.EXPLAIN k", "LOCK.HISTORY", "LOCK.WAITERS k", "LOCK.GRAPH", "LOCK.LINT",
    "CLIENT LIST", "CLIENT INFO", "SLOWLOG GET -1", "LATENCY LATEST", "LATENCY DOCTOR", "LATENCY HISTOGRAM",
    "LATENCY HISTORY command", "LATENCY GRAPH command", "DEBUG OBJECT k", "ACL LOG", "DBSIZE", "SCAN 0",
];

/// Undoes what [`AT_THE_EDGE`] sets.
const RESET: &str = "CONFIG SET maxmemory 0 timeout 0\r\nFLUSHALL\r\n";

/// Asks all that looks: by itself, in a transaction, and some in a script.
fn looks() -> String {
    let alone = LOOKS.iter().map(|look| format!("{look}\r\n"));
    let queued = LOOKS.iter().map(|look| format!("MULTI\r\n{look}\r\nEXEC\r\n"));
    let scripted = ["'INFO'", "'INFO','everything'", "'PTTL','k'", "'LOCK.LIST'"]
        .map(|words| format!("EVAL \"redis.call({words}) return 1\" 1 k\r\n"));
    alone.chain(queued).chain(scripted).collect()
}

#[test]
fn no_key_with_a_number_at_the_edge_breaks_what_looks_at_it() {
    let settings = [
        ("enable-debug-command", "yes"),
        ("lock-lint", "yes"),
        #[cfg(feature = "http")]
        ("http-port", "auto"),
    ];
    let mut fixture = Fixture::with(&settings);
    let mut peer = fixture.peer();
    let looks = looks();
    for requests in AT_THE_EDGE {
        for number in TIMES {
            is_answered(&mut peer, RESET);
            let requests = requests.replace('N', number).replace('|', "\r\n");
            // Sixteen keys of a kind, in several shards: one number alone may still fit a sum.
            let several = |at: usize| requests.replace(" k ", &format!(" k{at} ")) + "\r\n";
            is_answered(&mut peer, &(0..16).map(several).collect::<String>());
            is_answered(
                &mut peer,
                &format!("{requests}\r\n{looks}LOCK.RELEASE k o\r\nDEL k\r\nLOCK.HISTORY\r\n"),
            );
            #[cfg(feature = "http")]
            for path in
                ["/metrics", "/api/locks", "/api/lock?key=k", "/api/contention", "/api/clients", "/api/lint"]
            {
                let status = crate::support::http::get(fixture.server.http_addr(), path).status;
                assert!(status < 500, "{path}: {status} after:\n{requests}");
            }
        }
    }
    is_answered(&mut peer, RESET);
    fixture.goes_on();
}

#[test]
fn the_mean_of_far_deadlines_is_far() {
    let mut fixture = Fixture::set();
    for key in 0..100 {
        let request = format!("SET key:{key} x PX 9000000000000000000\r\n");
        assert_eq!(fixture.bystander.ask(request.as_bytes()), "+OK");
    }
    fixture.bystander.send(b"INFO keyspace\r\n");
    let lines = [(); 3].map(|()| fixture.bystander.line());
    let mean = lines[2].strip_prefix("db0:keys=100,expires=100,avg_ttl=").and_then(|mean| mean.parse().ok());
    assert!(
        mean.is_some_and(|mean: u64| (8_999_999_999_999_000_000..=9_000_000_000_000_000_000).contains(&mean)),
        "{lines:?}"
    );
}
