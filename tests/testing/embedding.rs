//! The server inside another program's test: start, point, poke, time, end.
//!
//! Belongs here  the promises of the crate's public names to a program that embeds it.
//! Time          only manual clocks, moved by the test; nothing here waits for real time to pass.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlatch::Server;
use redlatch::WallTime;
use redlatch_core::journal::{Journal, Mutation, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::ports::free_port;
use crate::support::stream::{Peer, StreamClient};
use crate::support::waits::wait_until_async;

/// The start time of manual clocks: a moment in November 2023.
const START: WallTime = WallTime::from_millis(1_700_000_000_000);

async fn manual() -> Server {
    Server::builder().manual_clock(START).start().await.unwrap()
}

/// A journal that keeps its records.
#[derive(Debug, Default)]
struct Heard(Mutex<Vec<Vec<Mutation>>>);

impl Journal for Heard {
    fn append(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push(record.mutations.to_vec());
    }
}

impl Heard {
    /// The expired keys, in order of removal.
    fn expired(&self) -> Vec<String> {
        let records = self.0.lock().unwrap();
        let expired = records.iter().flatten().filter_map(|mutation| match mutation {
            Mutation::Remove { key, expired: true, .. } => Some(String::from_utf8_lossy(key).into_owned()),
            _ => None,
        });
        expired.collect()
    }
}

#[tokio::test]
async fn neither_a_builder_nor_a_server_shows_a_password() {
    let builder = Server::builder()
        .password("open sesame")
        .set("RequirePass", "close sesame")
        .user("worker", ["on", ">a sesame seed"])
        .user("mistaken >sesame", ["on"])
        .set("timeout", "77");
    let shown = format!("{builder:?}");
    assert!(!shown.contains("sesame") && shown.contains("77"), "{shown}");

    let server = Server::builder().password("open sesame").user("worker", ["on", ">a sesame seed"]);
    let shown = format!("{:#?}", server.start().await.unwrap());
    assert!(!shown.contains("sesame"), "{shown}");

    let refused =
        Server::builder().user("worker", [">sesame", ">", ">sesame seed", "nonsense"]).start().await;
    let refused = format!("{:?}", refused.unwrap_err());
    assert!(!refused.contains("sesame"), "{refused}");
}

#[tokio::test]
async fn a_client_of_a_server_on_a_free_port_takes_a_lock() {
    let server = Server::builder().start().await.unwrap();
    assert!(server.addr().ip().is_loopback() && server.addr().port() != 0);
    assert_eq!(server.url(), format!("redis://{}", server.addr()));
    let mut client = StreamClient::new(tokio::net::TcpStream::connect(server.addr()).await.unwrap());
    assert_eq!(client.ask_lines("SET lock me NX PX 30000\r\n", 1).await, ["+OK"]);
    assert_eq!(client.ask_lines("SET lock you NX PX 30000\r\n", 1).await, ["$-1"]);
    assert_eq!(server.keys().get("lock").as_deref(), Some(&b"me"[..]));
}

#[test]
fn a_test_without_a_runtime_starts_one_too_and_joins_it() {
    let server = Server::builder().manual_clock(START).start_blocking().unwrap();
    let mut client = Peer::to(server.addr());
    assert_eq!(client.ask(b"SET lock me PX 100\r\n"), "+OK");
    server.clock().advance_blocking(Duration::from_millis(100));
    assert!(server.keys().get("lock").is_some(), "a key lives through its last millisecond");
    server.clock().advance_blocking(Duration::from_millis(1));
    assert_eq!(server.keys().get("lock"), None);
    let address = server.addr();
    drop(client);
    server.stop();
    server.join();
    assert!(TcpStream::connect(address).is_err(), "the port is free again");
}

#[tokio::test]
async fn many_servers_of_one_process_do_not_meet() {
    let mut servers = Vec::new();
    for number in 0..50 {
        let server = manual().await;
        server.keys().set("who", number.to_string(), None);
        servers.push(server);
    }
    let mut ports: Vec<_> = servers.iter().map(|server| server.addr().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), servers.len());
    servers[7].clock().advance(Duration::from_secs(5)).await;
    for (number, server) in servers.iter().enumerate() {
        let moved = server.clock().now().as_millis() - START.as_millis();
        assert_eq!(moved, if number == 7 { 5_000 } else { 0 });
        assert_eq!(server.keys().get("who").unwrap(), number.to_string());
    }
}

#[tokio::test]
async fn a_stream_needs_no_socket() {
    let server = Server::builder().port(0).manual_clock(START).start().await.unwrap();
    let mut client = StreamClient::new(server.stream());
    assert_eq!(client.ask_lines("EXISTS k\r\n", 1).await, [":0"]);
    assert_eq!(client.ask_lines("SET k v\r\nGET k\r\n", 3).await, ["+OK", "$1", "v"]);
    assert_eq!(server.keys().len(), 1);
}

#[tokio::test]
async fn keys_are_read_written_and_removed_past_every_connection() {
    let server = manual().await;
    let keys = server.keys();
    assert!(keys.is_empty());
    keys.set("forever", "a", None);
    keys.set("leased", "b", Some(Duration::from_millis(50)));
    assert_eq!(keys.lease("nobody"), None);
    assert_eq!(keys.lease("forever"), Some(None));
    assert_eq!(keys.lease("leased"), Some(Some(Duration::from_millis(50))));
    assert_eq!(keys.database(3).get("leased"), None);
    let mut client = StreamClient::new(server.stream());
    assert_eq!(client.ask_lines("PTTL leased\r\n", 1).await, [":50"]);
    server.clock().advance(Duration::from_millis(51)).await;
    assert_eq!(keys.get("leased"), None);
    assert_eq!(keys.len(), 1, "the memory of an expired key is released without anybody asking for it");
    assert!(keys.remove("forever") && !keys.remove("forever"));
    server.assert_laws();
}

#[tokio::test]
async fn a_lock_that_a_test_takes_is_one_for_everybody_who_asks() {
    let server = manual().await;
    let (keys, locks) = (server.keys(), server.locks());
    let mut client = StreamClient::new(server.stream());
    keys.set("lock", "me", Some(Duration::from_secs(30)));
    keys.set("endless", "me", None);
    let listed = locks.list("*").await.unwrap();
    let shown: Vec<_> = listed.iter().map(|held| (&held.key[..], held.holders[0].token)).collect();
    assert_eq!(shown, [(&b"endless"[..], Some(2)), (b"lock", Some(1))]);
    let held = locks.who("lock").await.unwrap().unwrap();
    let holder = &held.holders[0];
    assert_eq!((held.kind.as_str(), &held.value_type, &holder.client), ("exclusive", &None, &None));
    assert_eq!((holder.held_ms, holder.lease_ms, holder.renewals), (Some(0), Some(30_000), 0));
    assert_eq!(client.ask(&["LOCK.RELEASE", "endless", "me"]).await, ":1");
    let info = client.ask_lines("INFO locks\r\n", 7).await;
    assert!(
        info.contains(&"locks_granted:2".to_owned()) && info.contains(&"locks_held:1".to_owned()),
        "{info:?}"
    );
    client.received().await;

    // The owner again renews its lease; another one overwrites the lock, and has a token of its own.
    keys.set("lock", "me", Some(Duration::from_secs(60)));
    let renewed = locks.who("lock").await.unwrap().unwrap().holders.remove(0);
    assert_eq!((renewed.token, renewed.lease_ms, renewed.renewals), (Some(1), Some(60_000), 1));
    assert_eq!(client.ask(&["LOCK.HISTORY"]).await, "*0");
    keys.set("lock", "other", Some(Duration::from_millis(10)));
    assert_eq!(client.ask(&["LOCK.TOKEN", "lock", "other"]).await, ":3");
    server.clock().advance(Duration::from_millis(11)).await;
    let told = client.ask_lines("LOCK.EXPLAIN lock\r\n", 7).await;
    assert_eq!(told[2], "free: nobody holds it");
    assert!(
        told[4].starts_with("lost: the lease of 10 ms of other (an unknown client) ended at"),
        "{told:?}"
    );
    assert!(told[6].starts_with("released by me at"), "{told:?}");
    keys.set("list", "me", None);
    assert!(keys.remove("list"));
    assert_eq!(locks.who("list").await.unwrap(), None);
    server.assert_laws();
}

#[tokio::test]
async fn the_history_has_the_lock_that_a_test_takes() {
    let server = Server::builder().manual_clock(START).tests(1).start().await.unwrap();
    server.keys().set("lock", "me", Some(Duration::from_millis(10)));
    server.clock().advance(Duration::from_millis(11)).await;
    let events = server.history().events();
    let told: Vec<_> = events.iter().filter(|event| event.key.is_some()).map(|event| event.what()).collect();
    assert_eq!(told, ["holds lock, token 1 for 10 ms", "the lease of lock has ended, token 1"]);
    assert!(server.history().check().is_empty(), "{:?}", server.history().check());
}

#[tokio::test]
async fn advance_delivers_everything_due_in_order_before_it_returns() {
    let heard = Arc::new(Heard::default());
    let journal = Arc::clone(&heard) as Arc<dyn Journal>;
    let server = Server::builder().manual_clock(START).journal(journal).start().await.unwrap();
    for lease in [30_u64, 10, 20, 40] {
        server.keys().set(format!("after-{lease}"), "x", Some(Duration::from_millis(lease)));
    }
    server.clock().advance(Duration::from_millis(35)).await;
    assert_eq!(heard.expired(), ["after-10", "after-20", "after-30"]);
    server.clock().advance(Duration::from_millis(6)).await;
    assert_eq!(heard.expired(), ["after-10", "after-20", "after-30", "after-40"]);
}

// Shows P-lease-never-early.
#[tokio::test]
async fn a_step_of_the_wall_clock_changes_no_lease() {
    let server = manual().await;
    server.keys().set("lock", "me", Some(Duration::from_secs(10)));
    for step in [3_600_000, -7_200_000] {
        server.clock().step_wall(step);
        assert_eq!(server.keys().lease("lock"), Some(Some(Duration::from_secs(10))));
    }
    server.clock().advance(Duration::from_millis(10_000)).await;
    assert!(server.keys().get("lock").is_some());
    server.clock().advance(Duration::from_millis(1)).await;
    assert_eq!(server.keys().get("lock"), None);
}

#[tokio::test]
async fn dropping_the_handle_ends_connections_and_frees_the_port() {
    let server = manual().await;
    let address = server.addr();
    let mut client = StreamClient::new(tokio::net::TcpStream::connect(address).await.unwrap());
    assert_eq!(client.ask_lines("EXISTS k\r\n", 1).await, [":0"]);
    drop(server);
    let mut rest = Vec::new();
    let end = client.0.read_to_end(&mut rest).await;
    assert!(end.is_err() || rest.is_empty(), "the connection is closed without another word");
    // The listener is closed by a task of the runtime; every attempt lets the task run.
    wait_until_async("the port is closed", async || tokio::net::TcpStream::connect(address).await.is_err())
        .await;
}

#[tokio::test]
async fn a_second_server_on_the_same_port_is_refused() {
    let server = manual().await;
    let again = Server::builder().port(server.addr().port()).start().await;
    assert!(again.unwrap_err().to_string().starts_with("cannot listen on 127.0.0.1:"));
    let odd = Server::builder().set("port", "seventy").start().await;
    assert!(odd.unwrap_err().to_string().contains("port"));
}

#[tokio::test]
async fn a_journal_hears_of_every_effect_in_order() {
    let heard = Arc::new(Heard::default());
    let journal = Arc::clone(&heard) as Arc<dyn Journal>;
    let server = Server::builder().manual_clock(START).journal(journal).start().await.unwrap();
    server.keys().set("lock", "me", Some(Duration::from_millis(5)));
    assert_eq!(server.keys().get("lock").as_deref(), Some(&b"me"[..]));
    server.clock().advance(Duration::from_millis(6)).await;
    let heard = heard.0.lock().unwrap();
    assert_eq!(heard.len(), 2, "one record for the grant, one for its end, none for the look between");
    let [Mutation::Put { key, .. }, Mutation::Grant { grant, .. }] = &heard[0][..] else {
        panic!("{heard:?}")
    };
    assert_eq!((grant.token, grant.holder), (1, 0));
    assert_eq!(key, "lock");
    assert!(matches!(&heard[1][..], [Mutation::Remove { key, expired: true, .. }] if key == "lock"));
}

#[tokio::test]
async fn a_waiting_call_is_answered_in_its_time() {
    let server = manual().await;
    let mut client = StreamClient::new(server.stream());
    client.send("WAIT 1 100\r\n").await;
    server.clock().advance(Duration::from_millis(100)).await;
    assert_eq!(client.lines(1).await, [":0"]);
}

#[tokio::test]
async fn a_subscriber_gets_expiries_in_order_past_one_that_does_not_read() {
    let server = manual().await;
    let mut deaf = server.stream();
    let mut client = StreamClient::new(server.stream());
    client.send("CONFIG SET notify-keyspace-events Ex\r\n").await;
    assert_eq!(client.lines(1).await, ["+OK"]);
    deaf.write_all(b"PSUBSCRIBE *\r\n").await.unwrap();
    client.send("PSUBSCRIBE *\r\n").await;
    for n in [300_u64, 100, 200] {
        let payload = format!("{n:0>2000}");
        server.keys().set(payload, "", Some(Duration::from_millis(n)));
    }
    for n in 0..200 {
        server.keys().set(format!("{n:0>2000}x"), "", Some(Duration::from_millis(50)));
    }
    server.clock().advance(Duration::from_secs(1)).await;
    let heard = client.lines(6 + 203 * 9).await;
    let ended: Vec<&String> = heard.iter().filter(|line| line.len() == 2000).collect();
    assert_eq!(ended.len(), 3);
    assert!(ended[0].ends_with("100") && ended[1].ends_with("200") && ended[2].ends_with("300"));
}

#[tokio::test]
async fn a_server_with_a_startup_guard_grants_locks_once_it_is_over() {
    let builder = Server::builder().manual_clock(START).set("startup-guard", "5000");
    let server = builder.start().await.unwrap();
    let (mut client, mut waiting) = (StreamClient::new(server.stream()), StreamClient::new(server.stream()));
    assert_eq!(client.ask(&["SET", "lock", "me", "NX", "PX", "100"]).await, "$-1");
    assert_eq!(client.ask(&["PTTL", "lock"]).await, ":5000");
    waiting.say(&["LOCK.ACQUIRE", "lock", "you", "LEASE", "100", "WAIT", "60000"]).await;
    server.clock().advance(Duration::from_secs(5)).await;
    assert_eq!(client.ask(&["SET", "lock", "me", "NX", "PX", "100"]).await, "$-1");
    assert_eq!(waiting.received().await, "");
    server.clock().advance(Duration::from_millis(1)).await;
    assert_eq!(waiting.lines(10).await.last().map(String::as_str), Some(":5001"));
    assert_eq!(client.ask(&["GET", "lock"]).await, "$3");
}

/// A server that tells of expired keys, and a client that has subscribed to that.
async fn listened() -> (Server, StreamClient<tokio::io::DuplexStream>) {
    let builder = Server::builder().set("notify-keyspace-events", "Ex").manual_clock(START);
    let server = builder.start().await.unwrap();
    let mut listener = StreamClient::new(server.stream());
    listener.ask_lines("SUBSCRIBE __keyevent@0__:expired\r\n", 6).await;
    (server, listener)
}

#[tokio::test]
async fn a_subscriber_has_heard_of_every_end_in_order_when_advance_returns() {
    let (server, mut listener) = listened().await;
    for lease in [30_u64, 10, 20, 40] {
        server.keys().set(format!("after-{lease}"), "x", Some(Duration::from_millis(lease)));
    }
    server.clock().advance(Duration::from_millis(10)).await;
    assert_eq!(listener.received().await, "", "a key lives through its last millisecond");
    server.clock().advance(Duration::from_millis(25)).await;
    let heard = listener.received().await;
    let ended: Vec<_> = heard.lines().filter(|line| line.starts_with("after-")).collect();
    assert_eq!(ended, ["after-10", "after-20", "after-30"]);
}

#[tokio::test]
async fn a_client_that_reads_late_finds_everything_that_advance_did_not_wait_for() {
    const KEYS: usize = 5_000;
    let (server, listener) = listened().await;
    for number in 0..KEYS {
        server.keys().set(format!("key:{number}"), "x", Some(Duration::from_millis(5)));
    }
    server.clock().advance(Duration::from_millis(6)).await;
    assert_eq!(server.keys().len(), 0);
    let mut reader = StreamClient::new(server.stream());
    assert_eq!(reader.ask_lines("EXISTS key:1\r\n", 1).await, [":0"]);
    // It reads late, and everything has been delivered.
    let mut listener = listener;
    let heard = listener.lines(KEYS * 7).await;
    assert_eq!(heard.iter().filter(|line| line.starts_with("key:")).count(), KEYS);
}

#[tokio::test]
async fn a_command_held_back_runs_in_the_moment_that_its_pause_ends() {
    let server = manual().await;
    let mut client = StreamClient::new(server.stream());
    assert_eq!(client.ask_lines("CLIENT PAUSE 100\r\n", 1).await, ["+OK"]);
    client.send("SET lock me NX PX 50\r\nPTTL lock\r\n").await;
    server.clock().advance(Duration::from_millis(99)).await;
    assert_eq!(client.received().await, "");
    server.clock().advance(Duration::from_millis(11)).await;
    // It ran at 100, not at 110 where the step ended.
    assert_eq!(client.received().await, "+OK\r\n:50\r\n");
    assert_eq!(server.keys().lease("lock"), Some(Some(Duration::from_millis(40))));
}

#[tokio::test]
async fn a_client_may_end_the_server() {
    let server = manual().await;
    let mut client = server.stream();
    client.write_all(b"SHUTDOWN NOSAVE\r\n").await.unwrap();
    server.stopped().await;
    let mut rest = Vec::new();
    let end = client.read_to_end(&mut rest).await;
    assert!(end.is_err() || rest.is_empty());
}

#[test]
fn several_threads_serve_one_keyspace() {
    let server = Server::builder().manual_clock(START).start_on_threads(2).unwrap();
    let mut granted = 0;
    for client in 0..8 {
        let answer = Peer::to(server.addr()).ask(format!("SET lock {client} NX PX 1000\r\n").as_bytes());
        granted += usize::from(answer == "+OK");
    }
    assert_eq!(granted, 1);
    server.stop();
    server.join();
}

#[test]
fn a_password_is_in_the_url_and_asked_for() {
    let server = Server::builder().password("secret").start_blocking().unwrap();
    assert_eq!(server.url(), format!("redis://:secret@{}", server.addr()));
    let mut client = Peer::to(server.addr());
    assert_eq!(client.ask(b"GET k\r\n"), "-NOAUTH Authentication required.");
    assert_eq!(client.ask(b"AUTH secret\r\n"), "+OK");
}

#[test]
fn users_may_do_what_their_rules_say() {
    let builder = || Server::builder().user("alice", ["on", ">secret", "~lock:*", "+get", "+set"]);
    let server = builder().start_blocking().unwrap();
    let mut client = Peer::to(server.addr());
    client.send(b"AUTH alice secret\r\nSET lock:1 x\r\nSET other x\r\nDEL lock:1\r\n");
    for expected in ["+OK", "+OK", "-NOPERM", "-NOPERM"] {
        let line = client.line();
        assert_eq!(line.split_ascii_whitespace().next(), Some(expected), "{line}");
    }
    let refused = builder().user("bob", ["nonsense"]).start_blocking().unwrap_err();
    assert_eq!(refused.to_string(), "user 'bob': 'nonsense': Syntax error");
}

#[tokio::test]
#[should_panic(expected = "manual clock")]
async fn the_systems_clock_cannot_be_moved() {
    let server = Server::builder().start().await.unwrap();
    server.clock().advance(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_start_that_fails_says_so_even_inside_a_runtime() {
    let first = Server::builder().start().await.unwrap();
    let second = Server::builder().port(first.addr().port()).start_blocking();
    assert!(matches!(second, Err(redlatch::StartError::Listen { .. })));
}

#[test]
fn the_port_of_a_server_with_threads_of_its_own_is_closed_when_its_handle_is_dropped() {
    for threads in [1, 2] {
        let port = free_port().to_string();
        for _ in 0..50 {
            let server =
                Server::builder().set("port", &*port).start_on_threads(threads).expect("the port is free");
            let address = server.addr();
            // A client that does not read and stays keeps neither the port nor the caller.
            let client = TcpStream::connect(address).expect("the server accepts");
            drop(server);
            assert!(is_refused(address), "somebody listens at {address}");
            drop(client);
        }
    }
}

#[test]
#[cfg(feature = "http")]
fn the_http_port_of_a_server_with_threads_of_its_own_is_closed_when_its_handle_is_dropped() {
    let port = free_port().to_string();
    for _ in 0..50 {
        let server = Server::builder().set("http-port", &*port).start_blocking().expect("the port is free");
        let [address, clients] = [server.http_addr(), server.addr()];
        // A connection that asks for nothing and stays keeps neither the port nor the caller.
        let connections = [address, clients].map(TcpStream::connect);
        drop(server);
        assert!(connections.iter().all(Result::is_ok));
        assert!(is_refused(address), "somebody listens at {address}");
    }
}

/// Whether nobody listens there.
fn is_refused(address: std::net::SocketAddr) -> bool {
    let refused = TcpStream::connect(address);
    refused.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[tokio::test]
async fn clients_and_scripts_are_told_the_version_that_is_set() {
    let server = Server::builder().set("redis-version", "8.4.0").start().await.unwrap();
    let mut client = StreamClient::new(tokio::net::TcpStream::connect(server.addr()).await.unwrap());
    let info = client.ask_lines("INFO server\r\n", 3).await;
    assert!(info.contains(&"redis_version:8.4.0".to_owned()), "{info:?}");

    let mut client = StreamClient::new(tokio::net::TcpStream::connect(server.addr()).await.unwrap());
    let script = client.ask_lines("EVAL \"return redis.REDIS_VERSION\" 0\r\n", 2).await;
    assert_eq!(script, ["$5", "8.4.0"]);
    let hello = client.ask_lines("HELLO 2\r\n", 9).await;
    assert_eq!([&hello[6], &hello[8]], ["version", "8.4.0"], "{hello:?}");
    assert!(Server::builder().set("redis-version", "8.4").start().await.is_err());
}

#[tokio::test]
async fn clients_that_are_idle_for_a_while_are_found() {
    let server = manual().await;
    let (mut idle, mut other) = (StreamClient::new(server.stream()), StreamClient::new(server.stream()));
    assert_eq!(idle.ask_lines("CLIENT SETNAME idle\r\n", 1).await, ["+OK"]);
    server.clock().advance(Duration::from_millis(999)).await;
    assert_eq!(other.ask_lines("CLIENT LIST IDLE 1\r\n", 2).await, ["$0", ""]);
    server.clock().advance(Duration::from_millis(1)).await;
    let found = other.ask_lines("CLIENT LIST IDLE 1\r\n", 3).await;
    assert!(found[1].contains(" name=idle ") && found[2].is_empty(), "{found:?}");
    assert_eq!(other.ask_lines("CLIENT KILL IDLE 1\r\n", 1).await, [":1"]);
}
