//! Clients that make the server hold memory in every way there is: `maxmemory` ends it, and nothing of it stays.

use super::fixture::{Fixture, MIB, PATIENCE, Peer, costs_at_most};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

/// A way to make the server hold memory.
struct Way {
    name: &'static str,
    /// The requests of one client, by its number, until it is refused. One that waits is its last.
    request: fn(usize, usize) -> String,
    /// Lines of the answer; 0: it waits, and the next client goes on.
    lines: usize,
    /// Its field in INFO.
    field: &'static str,
}

fn ways() -> [Way; 8] {
    let waits = "used_memory_waits";
    [
        Way {
            name: "requests for a thousand locks",
            request: |client, _| {
                let keys = (0..999).map(|n| format!(" lock:{n}")).collect::<String>();
                format!("LOCK.MACQUIRE 1000 held{keys} owner-{client} WAIT 60000\r\n")
            },
            lines: 0,
            field: waits,
        },
        Way {
            name: "requests with meta",
            request: |client, _| {
                format!("LOCK.ACQUIRE held owner-{client} WAIT 60000 META m {}\r\n", "m".repeat(4_000))
            },
            lines: 0,
            field: waits,
        },
        Way {
            name: "requests for lists",
            request: |client, _| {
                let keys = (0..1_000).map(|n| format!(" list:{client}:{n}")).collect::<String>();
                format!("BLPOP{keys} 0\r\n")
            },
            lines: 0,
            field: waits,
        },
        Way {
            name: "watched keys",
            request: |client, n| format!("WATCH {client}:{n}:{}\r\n", "k".repeat(1_000)),
            lines: 1,
            field: "used_memory_watches",
        },
        Way {
            name: "channels",
            request: |client, n| format!("SUBSCRIBE {client}:{n}:{}\r\n", "c".repeat(1_000)),
            lines: 6,
            field: "used_memory_subscriptions",
        },
        Way {
            name: "prefixes",
            request: |client, n| {
                let prefix = "p".repeat(60_000);
                format!("CLIENT TRACKING ON BCAST PREFIX {client}:{n}:{prefix}\r\n")
            },
            lines: 1,
            field: "used_memory_tracking",
        },
        Way {
            name: "queued requests",
            request: |client, n| match n {
                0 => "MULTI\r\n".to_owned(),
                _ => format!("GET {client}:{n}:{}\r\n", "k".repeat(1_000)),
            },
            lines: 1,
            field: "used_memory_transactions",
        },
        Way {
            name: "locks of a session",
            request: |client, n| format!("LOCK.ACQUIRE {client}:{n}:{} owner SESSION\r\n", "k".repeat(1_000)),
            lines: 9,
            field: "used_memory_lock_sessions",
        },
    ]
}

/// Clients that hold memory until one of them is refused.
fn fill(fixture: &mut Fixture, way: &Way) -> Vec<Peer> {
    let mut peers = Vec::new();
    for client in 0..10_000 {
        let mut peer = fixture.peer();
        for n in 0.. {
            peer.send((way.request)(client, n).as_bytes());
            if way.lines == 0 {
                break;
            }
            let answer = peer.line();
            if answer == OOM {
                peers.push(peer);
                return peers;
            }
            assert!(!answer.starts_with('-'), "{}: {answer}", way.name);
            (1..way.lines).for_each(|_| drop(peer.line()));
        }
        peers.push(peer);
        if way.lines == 0 && !waits(fixture, peers.len() as u64) {
            assert_eq!(peers[client].line(), OOM, "{}", way.name);
            return peers;
        }
    }
    panic!("{}: never refused", way.name)
}

/// Whether so many clients wait. Otherwise the last of them has been refused.
fn waits(fixture: &mut Fixture, clients: u64) -> bool {
    let started = std::time::Instant::now();
    while started.elapsed() < PATIENCE {
        if fixture.info("blocked_clients") == clients {
            return true;
        }
        if fixture.info("total_error_replies") > 0 {
            return false;
        }
    }
    panic!("a request neither waits nor is answered")
}

/// Sends requests of increasing numbers, each of which a client of its own may send, until one is refused. Returns how many
/// were not.
fn until_refused(fixture: &Fixture, request: impl Fn(usize) -> String) -> usize {
    for n in 0..10_000 {
        let mut peer = fixture.peer();
        let answers: Vec<String> =
            request(n).lines().map(|line| peer.ask(format!("{line}\r\n").as_bytes())).collect();
        if answers.iter().any(|answer| answer == OOM) {
            return n;
        }
        assert!(!answers.iter().any(|answer| answer.starts_with('-')), "{answers:?}");
    }
    panic!("never refused")
}

#[test]
fn libraries_end_at_maxmemory_and_their_memory_comes_back() {
    costs_at_most(64, |look| {
        let mut fixture = Fixture::with(&[("maxmemory", "16mb")]);
        let library = |n: usize, code: &str| {
            format!(
                "FUNCTION LOAD \"#!lua name=l{n}\\n{code} redis.register_function('f{n}', function() return t end)\""
            )
        };
        let text = format!("-- {}\\n", "x".repeat(60_000));
        let values = "local t = {} for i = 1, 1000 do t[i] = {i} end";
        for (code, field) in [(text.as_str(), "used_memory_libraries"), (values, "used_memory_lua")] {
            let loaded = until_refused(&fixture, |n| library(n, code));
            look();
            assert!((50..300).contains(&loaded), "{field}: {loaded} were loaded");
            assert!(fixture.info(field) > 10 * MIB as u64, "{field}");
            assert_eq!(fixture.bystander.ask(b"FUNCTION FLUSH\r\n"), "+OK");
            assert_eq!(fixture.info(field), 0);
        }
        fixture.goes_on();
    });
}

#[cfg(feature = "testing")]
#[test]
fn namespaces_end_at_maxmemory_together() {
    costs_at_most(64, |look| {
        let mut fixture = Fixture::with(&[("maxmemory", "16mb"), ("enable-test-commands", "yes")]);
        let value = "v".repeat(60_000);
        let ways: [&dyn Fn(usize) -> String; 2] = [&|n| format!("AUTH namespace:{n}"), &|n| {
            format!("AUTH namespace:{}\nSET key:{n} {value}", n % 9)
        }];
        for (way, request) in ways.iter().enumerate() {
            let sent = until_refused(&fixture, request);
            look();
            assert!((50..500).contains(&sent), "way {way}: {sent} requests were taken");
            assert!(fixture.info("used_memory_namespaces") > 15 * MIB as u64, "way {way}");
            for n in 0..sent {
                fixture.bystander.ask(format!("TEST.NAMESPACE DROP {n}\r\n").as_bytes());
            }
            fixture.until("used_memory", |bytes| bytes < 4 * MIB as u64);
        }

        // A history does not grow any more. The requests that fill it only read, and are answered.
        let (mut peer, word) = (fixture.peer(), "w".repeat(4_000));
        for n in 0..4_000 {
            if n % 400 == 0 {
                assert_eq!(peer.ask(format!("AUTH namespace:{}\r\n", n / 400 % 4).as_bytes()), "+OK");
            }
            assert_eq!(peer.ask(format!("SISMEMBER {word} {word}\r\n").as_bytes()), ":0");
        }
        look();
        let held = fixture.info("used_memory_namespaces");
        assert!((15 * MIB as u64..17 * MIB as u64).contains(&held), "{held} bytes");
        drop(peer);
        (0..4).for_each(|n| drop(fixture.bystander.ask(format!("TEST.NAMESPACE DROP {n}\r\n").as_bytes())));
        fixture.until("used_memory", |bytes| bytes < 4 * MIB as u64);
        fixture.goes_on();
    });
}

#[test]
fn whatever_clients_hold_ends_at_maxmemory_and_comes_back_when_they_leave() {
    costs_at_most(64, |look| {
        for way in ways() {
            let mut fixture = Fixture::with(&[("maxmemory", "16mb"), ("timeout", "0")]);
            assert_eq!(fixture.bystander.ask(b"LOCK.ACQUIRE held bystander LEASE 600000\r\n"), "*6");
            (0..9).for_each(|_| drop(fixture.bystander.line()));
            let before = fixture.info(way.field);
            let peers = fill(&mut fixture, &way);
            look();
            let held = fixture.info(way.field);
            assert!(held > 2 * MIB as u64, "{}: {held} bytes by {} clients", way.name, peers.len());

            // Others are refused what needs memory. What exists can be extended and released.
            let mut other = fixture.peer();
            for request in ["SET k v", "WATCH k", "SUBSCRIBE c", "CLIENT TRACKING ON", "BLPOP none 0"] {
                assert_eq!(other.ask(format!("{request}\r\n").as_bytes()), OOM, "{}: {request}", way.name);
            }
            assert_eq!(other.ask(b"CLIENT TRACKING OFF\r\n"), "+OK");
            assert_eq!(other.ask(b"UNWATCH\r\n"), "+OK");
            assert!(fixture.peer().ask(b"LOCK.EXTEND held bystander\r\n").starts_with('*'), "{}", way.name);
            drop(peers);
            fixture.until(way.field, |bytes| bytes <= before);
            fixture.until("connected_clients", |clients| clients <= 2);
            // What a client has left in the keyspace goes after it.
            fixture.until("used_memory", |bytes| bytes < 8 * MIB as u64);
            assert_eq!(fixture.bystander.ask(b"LOCK.RELEASE held bystander\r\n"), ":1", "{}", way.name);
            drop(other);
            fixture.goes_on();
        }
    });
}
