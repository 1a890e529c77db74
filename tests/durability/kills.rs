//! Kills under load: what was acknowledged is there after the restart.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use super::*;
use crate::support::rng::{Rng, number};
use crate::support::waits::wait_until;

const CLIENTS: u64 = 20;
/// Replies before each kill, up to twice as many.
const REPLIES: u64 = 300;

/// What a client knows of its keys: the value and the token that were acknowledged, or `None` for a release that was.
/// A request without a reply has left its key unknown.
type Known = BTreeMap<String, Option<(String, u64)>>;

/// A client that takes, extends, releases and counts until the connection ends.
fn client(
    stream: TcpStream,
    (round, id): (u64, u64),
    replies: Arc<AtomicU64>,
    tick: mpsc::Sender<()>,
) -> Known {
    let mut known = Known::new();
    let mut rng = Rng::new(round * CLIENTS + id);
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    for turn in 0.. {
        let key = format!("lock:{round}:{id}:{}", rng.below(10));
        let held = known.remove(&key).flatten();
        let owner = format!("owner-{turn}");
        let request = match (&held, rng.below(3)) {
            (Some((owner, _)), 0) => format!("LOCK.RELEASE {key} {owner}"),
            (Some((owner, _)), _) => format!("LOCK.EXTEND {key} {owner} LEASE 60000"),
            (None, 0) => format!("SET {key} {owner} NX PX 60000"),
            (None, _) => format!("LOCK.ACQUIRE {key} {owner} LEASE 60000"),
        };
        if reader.get_mut().write_all(format!("{request}\r\n").as_bytes()).is_err() {
            break;
        }
        let Some(reply) = reply(&mut reader) else { break };
        let token = reply.get(2).and_then(|token| token.strip_prefix(':')?.parse().ok());
        let now = match (held, reply[0].as_str()) {
            // The server is about to end, and the request has changed nothing.
            (held, error) if error.starts_with("-SHUTDOWN ") => held,
            (Some(_), ":1") => None,
            (Some((owner, token)), _) => Some((owner, token)),
            (None, "+OK") => Some((owner, 0)),
            (None, _) => Some((owner, token.unwrap())),
        };
        known.insert(key, now);
        replies.fetch_add(1, SeqCst);
        let _ = tick.send(());
    }
    known
}

/// The lines of a reply: one, or those of an array. `None`: the connection has ended.
pub(super) fn reply(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = vec![line(reader)?];
    if let Some(count) = lines[0].strip_prefix('*') {
        for _ in 0..count.parse().unwrap_or(0) {
            let head = line(reader)?;
            let is_bulk = head.starts_with('$') && head != "$-1";
            lines.push(if is_bulk { line(reader)? } else { head });
        }
    }
    Some(lines)
}

fn line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(_) if line.ends_with('\n') => Some(line.trim_end().to_owned()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("a client waits in vain"),
        _ => None,
    }
}

/// Runs clients on the server until they have got that many replies.
fn load(server: &Running, round: u64, replies_min: u64) -> Vec<JoinHandle<Known>> {
    let (replies, (tick, ticks)) = (Arc::new(AtomicU64::new(0)), mpsc::channel());
    let address = address(server);
    let clients = (0..CLIENTS).map(|id| {
        let (replies, tick) = (Arc::clone(&replies), tick.clone());
        // Before the server can be killed, however late the thread begins.
        let stream = TcpStream::connect(address).unwrap();
        std::thread::spawn(move || client(stream, (round, id), replies, tick))
    });
    let clients: Vec<_> = clients.collect();
    while replies.load(SeqCst) < replies_min {
        ticks.recv().unwrap();
    }
    clients
}

/// Every acknowledged lock is there with its owner and lease, every acknowledged release as well. Returns the locks and the
/// highest token.
fn check(server: &Running, clients: Vec<JoinHandle<Known>>) -> (usize, u64) {
    let mut peer = peer(server);
    let (mut locks, mut highest) = (0, 0);
    for client in clients {
        for (key, known) in client.join().unwrap() {
            let value = match peer.ask(format!("GET {key}\r\n").as_bytes()).as_str() {
                "$-1" => None,
                _ => Some(peer.line()),
            };
            assert_eq!(value, known.as_ref().map(|(owner, _)| owner.clone()), "{key}");
            let left = peer.ask(format!("PTTL {key}\r\n").as_bytes());
            let left: i64 = left.strip_prefix(':').unwrap().parse().unwrap();
            let Some((_, token)) = known else { continue };
            assert!((1..=60_000).contains(&left), "{key}: {left} ms");
            (locks, highest) = (locks + 1, highest.max(token));
        }
    }
    (locks, highest)
}

/// The token of a new lock.
fn next_token(server: &Running, round: u64) -> u64 {
    let mut peer = peer(server);
    peer.send(format!("LOCK.ACQUIRE token:{round} me LEASE 1000\r\n").as_bytes());
    reply(&mut peer.0).unwrap()[2].strip_prefix(':').unwrap().parse().unwrap()
}

// Shows P-always-keeps-all, P-everysec-one-holder.
#[test]
fn kills_under_load_lose_no_acknowledged_lock() {
    let directory = Directory::new();
    let mut rng = Rng::new(7);
    let (mut locks, mut highest) = (0, 0);
    let mut server = start(&directory);
    for round in 0..number("KILL_ROUNDS").unwrap_or(10) {
        let clients = load(&server, round, REPLIES + rng.below_u64(REPLIES));
        server.process.kill().unwrap();
        server.end();
        server = start(&directory);
        assert_eq!(info(&server, "quarantine_active"), 0, "nobody waits after a kill");
        let (held, token) = check(&server, clients);
        let next = next_token(&server, round);
        assert!(next > highest.max(token), "{next} is not above {token} and {highest}");
        (locks, highest) = (locks + held, next);
    }
    assert!(locks > 100, "{locks} locks were checked");
}

#[test]
fn a_session_outlives_a_kill_for_its_delay() {
    let directory = Directory::new();
    let mut server = start(&directory);
    let mut holder = peer(&server);
    for (key, delay_ms) in [("long", 60_000), ("short", 0)] {
        holder.send(format!("LOCK.ACQUIRE {key} me SESSION DELAY {delay_ms}\r\n").as_bytes());
        assert_eq!(reply(&mut holder.0).unwrap()[1], "token");
    }
    assert!(holder.ask(b"LOCK.SESSION ID\r\n").starts_with('$'));
    let id = holder.line();
    server.process.kill().unwrap();
    server.end();
    let server = start(&directory);
    let mut holder = peer(&server);
    assert_eq!(holder.ask(b"EXISTS long short\r\n"), ":1", "the lock with a delay is there");
    assert_eq!(holder.ask(format!("LOCK.SESSION ATTACH {id}\r\n").as_bytes()), ":1");
    assert_eq!(holder.ask(b"PTTL long\r\n"), ":-1", "it lasts as long as its connection again");
    assert_eq!(holder.ask(b"LOCK.TOKEN long me\r\n"), ":1");
    assert_eq!(holder.ask(b"LOCK.RELEASE long me\r\n"), ":1");
}

// Shows P-always-keeps-all, P-hand-over.
#[test]
fn a_hand_over_outlives_a_kill_right_after_its_reply() {
    let directory = Directory::new();
    let start = || Running::start(command(&directory).args(["--appendfsync", "always"]));
    let mut server = start();
    let acquire = |key: &str| format!("LOCK.ACQUIRE {key} node-1 LEASE 60000 JUSTTOKEN");
    assert_eq!(server.ask(&acquire("waited")), ":1\r\n");
    assert_eq!(server.ask(&acquire("named")), ":2\r\n");
    let successor = peer(&server);
    successor.send(b"LOCK.ACQUIRE waited node-2 LEASE 50000 WAIT 60000\r\n");
    wait_until("the successor waits", || server.ask("LOCK.WAITERS waited").starts_with("*1\r\n"));
    let handed_over = |token: u64| format!("*4\r\n$5\r\ntoken\r\n:{token}\r\n$5\r\nlease\r\n:50000\r\n");
    assert_eq!(server.ask("LOCK.TRANSFER waited node-1 TO node-2 TOKEN 1"), handed_over(3));
    assert_eq!(server.ask("LOCK.TRANSFER named node-1 TO node-2 LEASE 50000"), handed_over(4));
    server.process.kill().unwrap();
    server.end();
    let server = start();
    for (key, token) in [("waited", 3), ("named", 4)] {
        assert_eq!(server.ask(&format!("LOCK.TOKEN {key} node-2")), format!(":{token}\r\n"));
        assert_eq!(server.ask(&format!("LOCK.TOKEN {key} node-1")), "$-1\r\n");
        assert_eq!(server.ask(&format!("LOCK.RELEASE {key} node-1")), ":0\r\n");
        let refused = server.ask(&format!("LOCK.TRANSFER {key} node-1 TO node-3 LEASE 1000"));
        assert!(refused.starts_with("-NOTHELD "), "{refused}");
        assert_eq!(server.ask(&acquire(key)), "*-1\r\n");
        assert_eq!(server.ask(&format!("LOCK.RELEASE {key} node-2 TOKEN {token}")), ":1\r\n");
        assert_eq!(server.ask(&acquire(key)), format!(":{}\r\n", token + 2));
    }
}

// Shows P-clean-stop.
#[test]
fn an_end_in_good_order_under_load_loses_nothing() {
    let directory = Directory::new();
    for mode in ["everysec", "always"] {
        let server = Running::start(command(&directory).args(["--appendfsync", mode]));
        let clients = load(&server, 0, REPLIES);
        server.signal("TERM");
        assert_eq!(server.end(), Some(0), "{mode}");
        let server = start(&directory);
        assert!(server.said.contains("ending=Stopped"), "{}", server.said);
        assert_eq!(info(&server, "quarantine_active"), 0);
        assert!(check(&server, clients).0 > 10);
        assert_eq!(server.ask("FLUSHALL"), "+OK\r\n");
    }
}

// Shows P-everysec-one-holder.
#[test]
fn counters_lists_and_functions_outlive_a_kill() {
    let directory = Directory::new();
    let server = start(&directory);
    let requests = "INCR n\r\nINCRBYFLOAT f 1.5\r\nRPUSH l a b c\r\nSADD s x\r\nZADD z 2 m\r\nXADD x 1-1 f v\r\n\
                    HSET h f v\r\nSELECT 3\r\nSET elsewhere 1\r\nSWAPDB 3 4\r\nFLUSHDB";
    server.ask(requests);
    let mut server = server;
    server.process.kill().unwrap();
    server.end();
    let server = start(&directory);
    let questions = "GET n\r\nGET f\r\nLRANGE l 0 -1\r\nSMEMBERS s\r\nZSCORE z m\r\nXTRIM x MAXLEN 0\r\nHGET h f\r\n\
                     SELECT 4\r\nGET elsewhere";
    let answers = "$1\r\n1\r\n$3\r\n1.5\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n*1\r\n$1\r\nx\r\n$1\r\n2\r\n:1\r\n\
                   $1\r\nv\r\n+OK\r\n$1\r\n1\r\n";
    assert_eq!(server.ask(questions), answers);
}

#[test]
fn the_locks_of_a_session_end_with_the_server_after_their_delay() {
    let directory = Directory::new();
    let mut server = start(&directory);
    let mut holder = peer(&server);
    holder.send(b"LOCK.ACQUIRE now a SESSION\r\nLOCK.ACQUIRE later b SESSION DELAY 60000\r\n");
    assert!(reply(&mut holder.0).unwrap().len() == 7 && reply(&mut holder.0).unwrap().len() == 7);
    server.process.kill().unwrap();
    server.end();
    let server = start(&directory);
    let left: i64 = server.ask("PTTL later").trim().strip_prefix(':').unwrap().parse().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    wait_until("the lease is over", || server.ask("EXISTS now") == ":0\r\n");
}
