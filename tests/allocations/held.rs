//! Memory that clients make the server hold: it is in `used_memory` while it is held, and leaves it afterwards.
//!
//! Belongs here  a row for each resource that a client can register. What it costs is measured by the allocator.

use allocation_counter::measure;
use redlatch_core::state::ledger::Kind;
use redlatch_core::state::session::Session;

use super::support::bare::{Bare, RELEASE, request};

/// Resources of each row.
const MANY: usize = 10_000;
/// What is counted, in percent of what the allocator says.
const COUNTED_PERCENT: std::ops::RangeInclusive<i64> = 80..=125;
/// Bytes that may stay for the next ones: a few empty tables and buffers.
const REST_BYTES_MAX: i64 = 16 * 1024;

/// A resource that clients can make the server hold.
struct Row {
    name: &'static str,
    /// Where it is counted; `None`: with keys and values.
    kind: Option<Kind>,
    /// Clients that have a part of it, each by the next request.
    clients: usize,
    requests: usize,
    /// The request of that number before the measurement, by another client.
    before: fn(usize) -> Option<Vec<String>>,
    /// The request of that number.
    hold: fn(usize) -> Vec<String>,
    /// The request of each client that ends it; `None`: its connection ends.
    end: Option<&'static [&'static str]>,
}

impl Row {
    const fn of(name: &'static str, kind: Kind, hold: fn(usize) -> Vec<String>) -> Self {
        Self { name, kind: Some(kind), clients: 1, requests: MANY, before: |_| None, hold, end: None }
    }
}

/// The words of a request.
fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn rows() -> Vec<Row> {
    let held = |n| (n == 0).then(|| words("LOCK.ACQUIRE lock holder LEASE 900000"));
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
        Row {
            requests: 500,
            end: Some(&["FUNCTION", "FLUSH"]),
            ..Row::of("libraries of functions", Kind::Libraries, |n| {
                let text = format!(
                    "#!lua name=l{n}\n--{}\nredis.register_function('f{n}', function() end)",
                    "x".repeat(2_000)
                );
                ["FUNCTION", "LOAD", &text].map(str::to_owned).into()
            })
        },
        Row {
            requests: 100,
            end: Some(&["FUNCTION", "FLUSH"]),
            ..Row::of("values of libraries", Kind::Lua, |n| {
                let values = "local t = {} for i = 1, 1000 do t[i] = {i} end";
                let text = format!(
                    "#!lua name=l{n}\n{values} redis.register_function('f{n}', function() return t[1] end)"
                );
                ["FUNCTION", "LOAD", &text].map(str::to_owned).into()
            })
        },
        Row {
            requests: 990,
            end: Some(&["SCRIPT", "FLUSH"]),
            ..Row::of("scripts that Lua runs", Kind::Lua, |n| {
                let text = format!("local t = {{}} for i = 1, 10 do t[i] = i * {n} end return #t");
                ["SCRIPT", "LOAD", &text].map(str::to_owned).into()
            })
        },
        Row {
            requests: 1_000,
            end: Some(&["ACL", "DELUSER", "worker"]),
            ..Row::of("rules of a user", Kind::Users, |n| {
                words(&format!("ACL SETUSER worker ~orders:{n}:* &channel:{n} >password-{n}"))
            })
        },
        // The keys of the locks are there before: they are in pages that the allocator does not see one by one.
        Row {
            before: |n| Some(words(&format!("LOCK.ACQUIRE key-{n} owner-{n}"))),
            ..Row::of("locks of a session", Kind::LockSessions, |n| {
                words(&format!("LOCK.ACQUIRE key-{n} owner-{n} SESSION DELAY 0"))
            })
        },
        Row {
            end: Some(&["SCRIPT", "FLUSH"]),
            ..Row::of("scripts that release a lock", Kind::Scripts, |n| {
                ["SCRIPT", "LOAD", &format!("local n = '{n}' {RELEASE}")].map(str::to_owned).into()
            })
        },
        Row {
            end: Some(&["SCRIPT", "FLUSH"]),
            ..Row::of("scripts that take a lock of Redisson", Kind::Scripts, |n| {
                ["SCRIPT", "LOAD", &format!("local n = '{n}' {REDISSON}")].map(str::to_owned).into()
            })
        },
        Row { clients: MANY, ..Row::of("sessions", Kind::LockSessions, |_| words("LOCK.SESSION ID")) },
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
            before: |n| Some(words(&format!("LOCK.ACQUIRE lock-{n} owner-{n} LEASE 600000"))),
            end: Some(&["FLUSHALL"]),
            ..Row::of("meta of exclusive locks", Kind::Waits, |n| {
                words(&format!("LOCK.ACQUIRE lock-{n} owner-{n} LEASE 600000 META host host-{n} job {n}"))
            })
        },
    ]
}

#[test]
fn each_kind_has_a_row() {
    // Ends of locks come with every row that has locks. Namespaces are those of a whole server: `hostile::memory`.
    let is_apart = |kind: &Kind| matches!(kind, Kind::LockHistory | Kind::Namespaces);
    let has_row = |kind: &Kind| rows().iter().any(|row| row.kind == Some(*kind));
    let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !is_apart(kind) && !has_row(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Bytes of keys, values and scripts, and of what is held for clients.
fn used(bare: &Bare) -> [i64; 2] {
    let keyspace = &bare.shared().keyspace;
    let scripts = bare.shared().scripts.cache.bytes() as u64;
    [keyspace.used_bytes() + scripts, keyspace.ledger().total()].map(|bytes| bytes as i64)
}

#[test]
fn what_clients_hold_is_counted_while_they_hold_it() {
    for row in rows() {
        let mut bare = Bare::new();
        let (name, mut other) = (row.name, bare.connect());
        // A search for circles makes lists of its own.
        bare.say(&mut other, &request(&["CONFIG", "SET", "lock-deadlock", "off"]));
        let text = |words: Vec<String>| request(&words);
        let empty = used(&bare);
        let prepared = measure(|| {
            (0..MANY).filter_map(row.before).for_each(|words| _ = bare.say(&mut other, &text(words)))
        });
        let mut sessions: Vec<Session> = (0..row.clients).map(|_| bare.connect()).collect();
        let requests: Vec<Vec<u8>> = (0..row.requests).map(|n| text((row.hold)(n))).collect();
        let before = used(&bare);

        let heap = measure(|| {
            for (n, request) in requests.iter().enumerate() {
                let answer = bare.say(&mut sessions[n % row.clients], request);
                assert!(!answer.starts_with(b"-"), "{name}: {}", String::from_utf8_lossy(answer));
            }
        });
        let moved = used(&bare);
        let ended = measure(|| {
            for session in &mut sessions {
                match row.end {
                    Some(line) => _ = bare.say(session, &request(line)),
                    None => bare.disconnect(session),
                }
            }
            // Gives back the buffer of a long answer.
            assert_eq!(bare.say(&mut other, &request(&["PING"])), b"+PONG\r\n");
        });
        let left = used(&bare);

        let counted: i64 = moved.iter().sum::<i64>() - before.iter().sum::<i64>();
        let percent = 100 * counted / heap.bytes_current;
        assert!(COUNTED_PERCENT.contains(&percent), "{name}: {percent} % of {} bytes", heap.bytes_current);
        if let Some(kind) = row.kind {
            let of_kind = bare.shared().keyspace.ledger().bytes(kind) as i64;
            assert!((0..=before[1] + REST_BYTES_MAX).contains(&of_kind), "{name}: {of_kind} bytes are left");
        }
        // What is left on the heap is counted, too: shards keep a page, and the history its places. From the empty server on:
        // pages that are mappings come and go without the allocator.
        let heap_left = prepared.bytes_current + heap.bytes_current + ended.bytes_current;
        let rest = heap_left - (left.iter().sum::<i64>() - empty.iter().sum::<i64>());
        let rest_max = REST_BYTES_MAX.max(heap.bytes_current / 20);
        assert!(rest <= rest_max, "{name}: {rest} of {} bytes are left", heap.bytes_current);
        assert!(left[1] - before[1] <= HISTORY_BYTES, "{name}: {left:?} after {before:?}");
    }
}

/// As Redisson sends it.
const REDISSON: &str = "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; \
    return redis.call('pttl', KEYS[1]);";

/// The places of the history of all shards, once it has its first record.
const HISTORY_BYTES: i64 = 1_000 * 256;
