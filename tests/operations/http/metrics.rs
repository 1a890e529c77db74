//! `/metrics`: the format, the values after real traffic, and labels that are bounded.
//!
//! Belongs here  what the text of a scrape shows. That each kind of lock, each end and each refusal is counted: `lock_law`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redlatch::{Server, WallTime};
use redlatch_core::types::lock::LockKind;
use redlatch_proto::lock::PRIORITY_MAX;
use redlatch_testing::commands::table;

use super::server;
use crate::support::binary::Directory;
use crate::support::http::get;
use crate::support::stream::Peer;
use crate::support::waits::wait_until;

/// The samples of a scrape by their series: name and labels as they are written.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(server: &Server) -> Self {
        Self::read(&get(server.http_addr(), "/metrics").body)
    }

    fn read(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            (series.to_owned(), value.parse().expect("a number"))
        });
        Self(samples.collect())
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        *self.0.get(series).unwrap_or_else(|| panic!("no {series}"))
    }

    /// The samples of one family with the same labels, each by its value.
    #[track_caller]
    fn assert(&self, expected: &[(&str, f64)]) {
        for (series, value) in expected {
            assert_eq!(self.value(series), *value, "{series}");
        }
    }

    /// The count and the sum of a histogram.
    fn histogram(&self, name: &str, labels: &str) -> (f64, f64) {
        let value = |part: &str| self.value(&format!("{name}_{part}{labels}"));
        assert_eq!(
            value("count"),
            self.value(&match labels {
                "" => format!("{name}_bucket{{le=\"+Inf\"}}"),
                _ => format!("{name}_bucket{{le=\"+Inf\",{}", &labels[1..]),
            })
        );
        (value("count"), value("sum"))
    }
}

/// A server whose clock stands still, with these settings.
fn manual(settings: &[(&str, &str)]) -> Server {
    let builder = Server::builder().set("http-port", "auto");
    let builder = builder.manual_clock(WallTime::from_millis(1_700_000_000_000));
    let builder = settings.iter().fold(builder, |builder, (name, value)| builder.set(*name, *value));
    builder.start_blocking().expect("a server starts")
}

fn pass(server: &Server, millis: u64) {
    server.clock().advance_blocking(Duration::from_millis(millis));
}

/// Reads the answer to a request that is granted: token, lease and waited, with their numbers.
#[track_caller]
fn read_grant(peer: &mut Peer) {
    assert_eq!(peer.line(), "*6");
    for name in ["token", "lease", "waited"] {
        let [_, read, number] = [peer.line(), peer.line(), peer.line()];
        assert!(read == name && number.starts_with(':'), "{read} {number}");
    }
}

#[test]
fn the_text_is_that_of_openmetrics() {
    let server = server(&[]);
    let reply = get(server.http_addr(), "/metrics");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((reply.status, reply.header("content-type")), (200, Some(kind)));
    assert!(reply.body.ends_with("\n# EOF\n"), "{}", reply.body);
    let mut families = BTreeMap::new();
    for line in reply.body.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            assert_eq!(families.insert(name.to_owned(), kind.to_owned()), None, "{name}: twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let is_of = |(family, kind): (&String, &String)| match kind.as_str() {
                "counter" => name.strip_suffix("_total") == Some(family),
                "histogram" => name
                    .strip_prefix(family.as_str())
                    .is_some_and(|suffix| ["_bucket", "_count", "_sum"].contains(&suffix)),
                _ => name == family,
            };
            assert!(name.starts_with("redlatch_") && families.iter().any(is_of), "{line}");
        }
    }
    assert_eq!(families["redlatch_lock_wait_seconds"], "histogram");
    assert_eq!(families["redlatch_connections_received"], "counter");
    let embedded = server.metrics();
    for family in families.keys() {
        assert!(embedded.contains(&format!("# TYPE {family} ")), "{family}: not in Server::metrics");
    }
}

#[test]
fn a_lock_is_counted_from_its_request_to_its_end() {
    let server = manual(&[]);
    let (mut holder, mut other) = (Peer::to(server.addr()), Peer::to(server.addr()));
    assert_eq!(holder.ask(b"SET lock:a me NX PX 30000\r\n"), "+OK");
    assert_eq!(other.ask(b"SET lock:a you NX PX 30000\r\n"), "$-1");
    assert_eq!(other.ask(b"LOCK.ACQUIRE lock:a you\r\n"), "*-1");
    Scrape::of(&server).assert(&[
        ("redlatch_locks_held{kind=\"exclusive\"}", 1.0),
        ("redlatch_lock_acquired_total{kind=\"exclusive\"}", 1.0),
        ("redlatch_lock_refused_total", 2.0),
    ]);

    pass(&server, 5_000);
    assert_eq!(holder.ask(b"DEL lock:a\r\n"), ":1");
    assert_eq!(holder.ask(b"SET lock:a me NX PX 3000\r\n"), "+OK");
    assert_eq!(other.ask(b"DEL lock:a\r\n"), ":1");
    assert_eq!(holder.ask(b"SET lock:a me NX PX 4096\r\n"), "+OK");
    pass(&server, 4_097);
    let scrape = Scrape::of(&server);
    scrape.assert(&[
        ("redlatch_locks_held{kind=\"exclusive\"}", 0.0),
        ("redlatch_lock_acquired_total{kind=\"exclusive\"}", 3.0),
        ("redlatch_locks_deleted_by_others_total", 1.0),
        ("redlatch_locks_expired_total", 1.0),
        ("redlatch_lock_hold_seconds_bucket{le=\"0.0\"}", 1.0),
        ("redlatch_lock_hold_seconds_bucket{le=\"2.048\"}", 1.0),
        ("redlatch_lock_hold_seconds_bucket{le=\"4.096\"}", 2.0),
        ("redlatch_lock_hold_seconds_bucket{le=\"8.192\"}", 3.0),
    ]);
    assert_eq!(
        scrape.histogram("redlatch_lock_hold_seconds", ""),
        (3.0, 9.096),
        "5 s, 0 s and a lease of 4,096 ms"
    );
}

#[test]
fn waits_and_hand_overs_are_timed() {
    let server = manual(&[]);
    let (mut holder, mut waiter) = (Peer::to(server.addr()), Peer::to(server.addr()));
    let queued = |count: f64| {
        wait_until("so many wait", || Scrape::of(&server).value("redlatch_lock_waiters") == count);
    };
    holder.send(b"LOCK.ACQUIRE a me\r\n");
    read_grant(&mut holder);
    waiter.send(b"LOCK.ACQUIRE a you WAIT 60000 PRIORITY 4\r\n");
    queued(1.0);
    Scrape::of(&server).assert(&[
        ("redlatch_lock_queue_longest", 1.0),
        ("redlatch_lock_waiting{priority=\"0\"}", 0.0),
        ("redlatch_lock_waiting{priority=\"4\"}", 1.0),
    ]);
    pass(&server, 3_000);
    assert_eq!(holder.ask(b"LOCK.RELEASE a me\r\n"), ":1");
    read_grant(&mut waiter);
    holder.send(b"LOCK.ACQUIRE a me WAIT 2000\r\n");
    queued(1.0);
    let waiting = ["4", "0"].map(|level| format!("redlatch_lock_waiting{{priority=\"{level}\"}}"));
    Scrape::of(&server).assert(&[(&waiting[0], 0.0), (&waiting[1], 1.0)]);
    pass(&server, 2_001);
    assert_eq!(holder.line(), "*-1");

    // Who goes while it waits was not refused.
    let gone = Peer::to(server.addr());
    gone.send(b"LOCK.ACQUIRE a gone WAIT 60000\r\n");
    queued(1.0);
    pass(&server, 500);
    drop(gone);
    queued(0.0);
    Scrape::of(&server).assert(&[("redlatch_lock_refused_total", 1.0)]);

    // A client that polls gets the lock 40 ms after its end.
    for _ in 0..3 {
        pass(&server, 100);
        assert_eq!(holder.ask(b"SET a me NX PX 1000\r\n"), "$-1");
    }
    assert_eq!(waiter.ask(b"LOCK.RELEASE a you\r\n"), ":1");
    pass(&server, 40);
    assert_eq!(holder.ask(b"SET a me NX PX 1000\r\n"), "+OK");
    // A client that has not polled it does not count.
    assert_eq!(holder.ask(b"DEL a\r\n"), ":1");
    assert_eq!(waiter.ask(b"SET a you NX PX 1000\r\n"), "+OK");

    let scrape = Scrape::of(&server);
    let waits =
        |outcome: &str| scrape.histogram("redlatch_lock_wait_seconds", &format!("{{outcome=\"{outcome}\"}}"));
    assert_eq!((waits("granted"), waits("refused")), ((1.0, 3.0), (1.0, 2.0)));
    assert_eq!(waits("abandoned"), (1.0, 0.5));
    assert_eq!(scrape.histogram("redlatch_lock_handover_seconds", ""), (2.0, 0.04));
}

#[test]
fn who_takes_several_locks_at_once_may_have_polled_any_of_them() {
    let server = manual(&[]);
    let (mut holder, mut other) = (Peer::to(server.addr()), Peer::to(server.addr()));
    assert_eq!(holder.ask(b"SET second me NX PX 30000\r\n"), "+OK");
    for _ in 0..3 {
        pass(&server, 100);
        assert_eq!(other.ask(b"SET second you NX PX 30000\r\n"), "$-1");
    }
    assert_eq!(holder.ask(b"DEL second\r\n"), ":1");
    pass(&server, 40);
    assert_eq!(other.ask(b"MSETNX first you second you\r\n"), ":1");
    let handover = Scrape::of(&server).histogram("redlatch_lock_handover_seconds", "");
    assert_eq!(handover, (1.0, 0.04));
}

#[test]
fn keys_are_grouped_by_the_listed_prefixes() {
    let server = manual(&[("lock-metrics-prefix", "stock: order: order:eu:")]);
    let mut peer = Peer::to(server.addr());
    for key in ["stock:1", "order:1", "order:eu:1", "order:eu:2", "user:1"] {
        assert_eq!(peer.ask(format!("SET {key} me NX PX 1000\r\n").as_bytes()), "+OK");
        assert_eq!(peer.ask(format!("SET {key} me NX PX 1000\r\n").as_bytes()), "$-1");
    }
    peer.send(b"LOCK.ACQUIRE stock:2 me SHARED\r\n");
    read_grant(&mut peer);
    assert_eq!(peer.ask(b"DEL order:eu:2\r\n"), ":1");
    let series = |what: &str, prefix: &str| format!("redlatch_lock_prefix_{what}{{prefix=\"{prefix}\"}}");
    let groups = [
        ("stock:", 2.0, 2.0, 1.0),
        ("order:", 1.0, 1.0, 1.0),
        ("order:eu:", 1.0, 2.0, 2.0),
        ("other", 1.0, 1.0, 1.0),
    ];
    let scrape = Scrape::of(&server);
    for (prefix, held, acquired, refused) in groups {
        scrape.assert(&[
            (&series("held", prefix), held),
            (&series("acquired_total", prefix), acquired),
            (&series("refused_total", prefix), refused),
        ]);
    }
    pass(&server, 1_001);
    let scrape = Scrape::of(&server);
    for (prefix, held, expired) in
        [("stock:", 1.0, 1.0), ("order:", 0.0, 1.0), ("order:eu:", 0.0, 1.0), ("other", 0.0, 1.0)]
    {
        scrape.assert(&[(&series("held", prefix), held), (&series("expired_total", prefix), expired)]);
    }
    assert_eq!(peer.ask(b"FLUSHALL\r\n"), "+OK");
    assert_eq!(Scrape::of(&server).value(&series("held", "stock:")), 0.0);
}

#[test]
fn locks_that_a_journal_has_restored_are_held_in_their_groups() {
    let directory = Directory::new();
    let path = directory.root().to_str().unwrap().to_owned();
    let start = || {
        let builder = Server::builder().set("http-port", "auto").set("dir", &path);
        builder.set("lock-metrics-prefix", "stock:").start_blocking().unwrap()
    };
    let held = |server: &Server| Scrape::of(server).value("redlatch_lock_prefix_held{prefix=\"stock:\"}");
    let server = start();
    let mut peer = Peer::to(server.addr());
    assert_eq!(peer.ask(b"SET stock:1 me NX PX 60000\r\n"), "+OK");
    peer.send(b"LOCK.ACQUIRE stock:2 me SHARED\r\n");
    read_grant(&mut peer);
    server.stop();
    server.join();
    let server = start();
    let mut peer = Peer::to(server.addr());
    assert_eq!(held(&server), 2.0);
    assert_eq!(peer.ask(b"DEL stock:1\r\n"), ":1");
    assert_eq!(peer.ask(b"LOCK.RELEASE stock:2 me\r\n"), ":1");
    assert_eq!(held(&server), 0.0);
}

#[test]
fn too_many_prefixes_and_the_name_of_the_rest_are_refused() {
    let start = |prefixes: &str| Server::builder().set("lock-metrics-prefix", prefixes).start_blocking();
    let many = |count: usize| (0..count).map(|n| format!("p{n}:")).collect::<Vec<_>>().join(" ");
    assert!(start(&many(64)).is_ok());
    for refused in [many(65), "a: other".to_owned()] {
        let error = start(&refused).expect_err("a refusal").to_string();
        assert!(error.contains("at most 64 words, and 'other' none of them"), "{error}");
    }
}

#[test]
fn every_value_of_a_label_comes_from_a_fixed_set() {
    const REASONS: [&str; 7] = ["stopping", "journal", "etcd", "script", "quarantine", "memory", "pause"];
    let prefix = "we\"ird\\:";
    let server = manual(&[("lock-metrics-prefix", prefix)]);
    let mut peer = Peer::to(server.addr());
    for n in 0..50 {
        let key = format!("key-{n}\\x22,evil=\\x221");
        peer.send(format!("CLIENT SETNAME client-{n}\r\nSET \"{key}\" owner-{n} NX PX 9000\r\n").as_bytes());
        assert_eq!((peer.line(), peer.line()), ("+OK".to_owned(), "+OK".to_owned()));
        assert!(peer.ask(format!("NONSENSE{n} \"{key}\"\r\n").as_bytes()).starts_with("-ERR unknown"));
        assert!(
            peer.ask(format!("EVAL 'return redis.error_reply(\"CODE{n} x\")' 0\r\n").as_bytes())
                .starts_with('-')
        );
    }
    let text = get(server.http_addr(), "/metrics").body;
    let commands: BTreeSet<&str> = table().all().map(|command| &*command.name).collect();
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && line.contains('{')) {
        let labels = line.split_once('{').unwrap().1.rsplit_once('}').unwrap().0;
        for (name, value) in labels_of(labels) {
            seen.insert(name.clone());
            let is_known = match name.as_str() {
                "command" => commands.contains(value.as_str()),
                "kind" => LockKind::NAMES.contains(&value.as_str()),
                "le" => value == "+Inf" || value.parse::<f64>().is_ok(),
                "outcome" => ["granted", "refused", "abandoned"].contains(&value.as_str()),
                "priority" => value.parse().is_ok_and(|level: u8| level <= PRIORITY_MAX),
                "prefix" => ["other", prefix].contains(&value.as_str()),
                "reason" => REASONS.contains(&value.as_str()),
                "version" => value == env!("CARGO_PKG_VERSION"),
                "worker" => value == "0",
                _ => false,
            };
            assert!(is_known, "{line}");
        }
    }
    let all = ["command", "kind", "le", "outcome", "prefix", "priority", "reason", "version", "worker"];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

/// The labels of a series, with their values unescaped.
fn labels_of(mut text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let (mut value, mut letters) = (String::new(), rest.char_indices());
        let end = loop {
            match letters.next().expect("a quote at the end") {
                (at, '"') => break at,
                (_, '\\') => value.push(letters.next().expect("an escaped letter").1),
                (_, letter) => value.push(letter),
            }
        };
        labels.push((name.trim_start_matches(',').to_owned(), value));
        text = &rest[end + 1..];
    }
    labels
}

#[test]
fn commands_are_counted_and_timed() {
    let server = server(&[]);
    let mut peer = Peer::to(server.addr());
    for _ in 0..3 {
        assert_eq!(peer.ask(b"PING\r\n"), "+PONG");
    }
    assert!(peer.ask(b"GET\r\n").starts_with("-ERR"));
    let scrape = Scrape::of(&server);
    scrape.assert(&[
        ("redlatch_command_calls_total{command=\"ping\"}", 3.0),
        ("redlatch_command_failed_total{command=\"get\"}", 1.0),
        ("redlatch_connected_clients", 1.0),
    ]);
    assert!(scrape.value("redlatch_command_seconds_total{command=\"ping\"}") >= 0.0);
    assert!(scrape.value("redlatch_worker_tasks{worker=\"0\"}") >= 1.0);
    #[cfg(target_os = "linux")]
    assert!(scrape.value("redlatch_process_threads") >= 2.0);
}
