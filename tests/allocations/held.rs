//! Memory that clients make the server hold: it is in `used_memory` while it is held, and leaves it afterwards.
//!
//! Belongs here  a row for each resource that a client can register. What it costs is measured by the allocator.

use allocation_counter::measure;
use redlatch::internals::state::ledger::Kind;
use redlatch::internals::state::session::Session;

use super::support::bare::{Bare, request};

/// Resources of each row.
const MANY: usize = 10_000;
/// A sum may be that part of what the allocator says, in percent.
const COUNTED_PERCENT: std::ops::RangeInclusive<i64> = 80..=125;
/// Bytes that may stay for the next ones: empty tables, and buffers that are kept.
const REST_BYTES_MAX: i64 = 64 * 1024;

/// A resource that clients can make the server hold.
struct Row {
    name: &'static str,
    /// Where it is counted; `None`: with keys and values.
    kind: Option<Kind>,
    /// Clients that have a part of it, each by the next request.
    clients: usize,
    requests: usize,
    /// Requests before the measurement, by another client.
    before: &'static [&'static [&'static str]],
    /// The request of that number.
    hold: fn(usize) -> Vec<String>,
    /// The request of each client that ends it; `None`: its connection ends.
    end: Option<&'static [&'static str]>,
}

impl Row {
    const fn of(name: &'static str, kind: Kind, hold: fn(usize) -> Vec<String>) -> Self {
        Self { name, kind: Some(kind), clients: 1, requests: MANY, before: &[], hold, end: None }
    }
}

/// The words of a request.
fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn rows() -> Vec<Row> {
    let held: &[&[&str]] = &[&["LOCK.ACQUIRE", "lock", "holder", "LEASE", "900000"]];
    vec![
        Row {
            clients: MANY,
            before: held,
            ..Row::of("requests for one lock", Kind::Waits, |n| {
                words(&format!("LOCK.ACQUIRE lock owner-{n} WAIT 600000"))
            })
        },
        Row {
            clients: MANY,
            before: held,
            ..Row::of("requests with meta", Kind::Waits, |n| {
                words(&format!("LOCK.ACQUIRE lock owner-{n} WAIT 600000 META host host-{n} job {n}"))
            })
        },
        Row {
            clients: 1_000,
            requests: 1_000,
            before: held,
            ..Row::of("requests for ten locks each", Kind::Waits, |n| {
                let keys = (0..9).map(|key| format!("key-{n}-{key}")).collect::<Vec<_>>().join(" ");
                words(&format!("LOCK.MACQUIRE 10 lock {keys} owner-{n} WAIT 600000"))
            })
        },
        Row {
            clients: 20,
            requests: 20,
            before: held,
            ..Row::of("requests for the same thousand locks", Kind::Waits, |n| {
                let keys = (0..999).map(|key| format!("key-{key}")).collect::<Vec<_>>().join(" ");
                words(&format!("LOCK.MACQUIRE 1000 lock {keys} owner-{n} WAIT 600000"))
            })
        },
        Row {
            clients: MANY,
            ..Row::of("requests for the elements of lists", Kind::Waits, |n| {
                words(&format!("BLPOP list-{n} 0"))
            })
        },
        Row {
            clients: MANY,
            ..Row::of("requests for the elements of one list", Kind::Waits, |_| words("BLPOP list 0"))
        },
        Row::of("watched keys", Kind::Watches, |n| words(&format!("WATCH key-{n}"))),
        Row {
            end: Some(&["UNWATCH"]),
            ..Row::of("keys that are unwatched", Kind::Watches, |n| words(&format!("WATCH key-{n}")))
        },
        Row::of("channels", Kind::Subscriptions, |n| words(&format!("SUBSCRIBE channel-{n}"))),
        Row {
            end: Some(&["PUNSUBSCRIBE"]),
            ..Row::of("patterns", Kind::Subscriptions, |n| words(&format!("PSUBSCRIBE pattern-{n}*")))
        },
        Row::of("shard channels", Kind::Subscriptions, |n| words(&format!("SSUBSCRIBE channel-{n}"))),
        Row {
            clients: MANY,
            ..Row::of("subscribers of one channel", Kind::Subscriptions, |_| words("SUBSCRIBE channel"))
        },
        Row {
            end: Some(&["FLUSHALL"]),
            ..Row::of("keys that a client has read", Kind::Tracking, |n| match n {
                0 => words("CLIENT TRACKING ON"),
                n => words(&format!("GET key-{n}")),
            })
        },
        Row {
            requests: 20,
            ..Row::of("prefixes", Kind::Tracking, |n| {
                let prefixes = (0..500).map(|prefix| format!(" PREFIX prefix-{n}-{prefix}:"));
                words(&format!("CLIENT TRACKING ON BCAST{}", prefixes.collect::<String>()))
            })
        },
        Row {
            end: Some(&["DISCARD"]),
            ..Row::of("queued requests", Kind::Transactions, |n| match n {
                0 => words("MULTI"),
                n => words(&format!("SET key-{n} value PX 30000")),
            })
        },
        Row::of("locks of a session", Kind::LockSessions, |n| {
            words(&format!("LOCK.ACQUIRE key-{n} owner-{n} SESSION DELAY 0"))
        }),
        Row { clients: MANY, ..Row::of("sessions", Kind::LockSessions, |_| words("LOCK.SESSION ID")) },
        Row {
            kind: None,
            end: Some(&["FLUSHALL"]),
            ..Row::of("exclusive locks", Kind::Waits, |n| {
                words(&format!("LOCK.ACQUIRE lock-{n} owner-{n} LEASE 600000"))
            })
        },
        Row {
            kind: None,
            end: Some(&["FLUSHALL"]),
            ..Row::of("strings", Kind::Waits, |n| {
                words(&format!("SET lock-{n} owner-{n} PX 600000"))
            })
        },
        Row {
            kind: None,
            end: Some(&["DEL", "lock"]),
            ..Row::of("holders", Kind::Waits, |n| {
                words(&format!("LOCK.ACQUIRE lock owner-{n} SHARED LEASE 600000"))
            })
        },
        Row {
            kind: None,
            end: Some(&["DEL", "lock"]),
            ..Row::of("holders with meta", Kind::Waits, |n| {
                words(&format!("LOCK.ACQUIRE lock owner-{n} SHARED LEASE 600000 META host host-{n} job {n}"))
            })
        },
        Row {
            kind: None,
            end: Some(&["FLUSHALL"]),
            ..Row::of("meta of exclusive locks", Kind::Waits, |n| {
                words(&format!("LOCK.ACQUIRE lock-{n} owner-{n} LEASE 600000 META host host-{n} job {n}"))
            })
        },
    ]
}

/// Bytes of keys, values, and of what is held for clients.
fn used(bare: &Bare) -> i64 {
    let keyspace = &bare.shared().keyspace;
    (keyspace.used_bytes() + keyspace.ledger().total()) as i64
}

fn kind_bytes(bare: &Bare, row: &Row) -> i64 {
    match row.kind {
        Some(kind) => bare.shared().keyspace.ledger().bytes(kind) as i64,
        None => bare.shared().keyspace.used_bytes() as i64,
    }
}

#[test]
fn what_clients_hold_is_counted_while_they_hold_it() {
    for row in rows() {
        let started = std::time::Instant::now();
        let mut bare = Bare::new();
        for line in row.before {
            bare.send(&request(line));
        }
        let mut sessions: Vec<Session> = (0..row.clients).map(|_| bare.connect()).collect();
        let count = row.requests;
        let requests: Vec<Vec<u8>> = (0..count)
            .map(|n| request(&(row.hold)(n).iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        // Tables and buffers that stay grow once.
        let warm = bare.say(&mut sessions[0], &request(&["EXISTS", "warm"])).to_vec();
        assert_eq!(warm, b":0\r\n");
        let (used_before, kind_before) = (used(&bare), kind_bytes(&bare, &row));

        let heap = measure(|| {
            for (n, request) in requests.iter().enumerate() {
                let answer = bare.say(&mut sessions[n % row.clients], request);
                assert!(!answer.starts_with(b"-"), "{}: {}", row.name, String::from_utf8_lossy(answer));
            }
        });
        let (used_moved, kind_moved) = (used(&bare) - used_before, kind_bytes(&bare, &row) - kind_before);
        let ended = measure(|| {
            for session in &mut sessions {
                match row.end {
                    Some(line) => _ = bare.say(session, &request(line)),
                    None => bare.disconnect(session),
                }
            }
        });
        let left = (heap.bytes_current + ended.bytes_current, used(&bare) - used_before);
        println!("{:?}", started.elapsed());
        println!(
            "{}: heap {} ({} each), used {used_moved}, kind {kind_moved} = {} %, left {left:?}",
            row.name,
            heap.bytes_current,
            heap.bytes_current / count as i64,
            100 * kind_moved / heap.bytes_current.max(1),
        );
    }
}
