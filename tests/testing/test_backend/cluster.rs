//! A cluster of several nodes in one process: namespaces, and requests on several threads while a slot moves.
//!
//! Belongs here  what needs real connections. Replies and bad input are transcripts: `cluster_nodes*`, `cluster_slot_moves`.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use crate::support::stream::Peer;
use crate::support::waits::wait_until;
use crate::support::words::request;

use super::*;

/// A client that follows redirections, as cluster clients do.
struct ClusterClient {
    addresses: Vec<SocketAddr>,
    peers: Vec<Peer>,
    /// Where it sends its next request.
    node: usize,
}

impl ClusterClient {
    fn new(server: &Server, node: usize) -> Self {
        let addresses = server.node_addrs();
        let peers = addresses.iter().map(|address| Peer::to(*address)).collect();
        Self { addresses, peers, node: node - 1 }
    }

    /// Sends a request where it is served, and returns the first line of the reply.
    fn ask(&mut self, words: &[&str]) -> String {
        let mut line = self.peers[self.node].ask(&request(words));
        loop {
            let said: Vec<&str> = line.split(' ').collect();
            line = match said[0] {
                "-MOVED" => {
                    self.node = self.node_at(said[2]);
                    self.peers[self.node].ask(&request(words))
                }
                "-ASK" => {
                    self.node = self.node_at(said[2]);
                    assert_eq!(self.peers[self.node].ask(&request(&["ASKING"])), "+OK");
                    self.peers[self.node].ask(&request(words))
                }
                _ => return line,
            };
        }
    }

    fn node_at(&self, address: &str) -> usize {
        let address: SocketAddr = address.parse().unwrap();
        self.addresses.iter().position(|other| *other == address).unwrap()
    }

    /// The token of a lock; `None` if somebody else has it.
    fn acquire(&mut self, key: &str, owner: &str) -> Option<u64> {
        let head = self.ask(&["LOCK.ACQUIRE", key, owner, "LEASE", "60000"]);
        if matches!(head.as_str(), "$-1" | "*-1") {
            return None;
        }
        assert_eq!(head, "*6");
        let lines: Vec<String> = (0..9).map(|_| self.peers[self.node].line()).collect();
        Some(lines[2][1..].parse().unwrap())
    }
}

#[test]
fn a_lock_is_taken_through_every_node() {
    let server = Server::builder().cluster(3).start_on_threads(1).unwrap();
    // The slots of these keys are on nodes 1, 2 and 3.
    for (owner, key) in [(1, "b"), (2, "c"), (3, "a")] {
        let token = ClusterClient::new(&server, 1).acquire(key, "me").unwrap();
        for node in 1..=3 {
            let mut other = ClusterClient::new(&server, node);
            assert_eq!(other.acquire(key, "you"), None, "{key} through node {node}");
            assert_eq!(other.node, owner - 1, "{key} through node {node}");
        }
        assert_eq!(ClusterClient::new(&server, 2).ask(&["LOCK.RELEASE", key, "me"]), ":1");
        assert_eq!(ClusterClient::new(&server, 3).acquire(key, "you"), Some(token + 1));
    }
}

#[tokio::test]
async fn every_namespace_has_slots_of_its_own() {
    let server = Server::builder().cluster(2).start().await.unwrap();
    let (mut test, mut other) = (client(&server, 1).await, client_in(&server, "x").await);
    let moved = format!("-MOVED 15495 {}", server.node_addrs()[1]);
    assert_eq!(test.ask(&["GET", "a"]).await, moved);
    assert_eq!(other.ask(&["TEST.SLOT", "MOVE", "15495", "TO", "1"]).await, ":0");
    assert_eq!(other.ask(&["SET", "a", "1"]).await, "+OK");
    assert_eq!(test.ask(&["GET", "a"]).await, moved);
    // So are the failures of its nodes.
    number(&mut other, &["TEST.CLOCK", "FREEZE"]).await;
    assert_eq!(other.ask(&["TEST.NODE", "CRASH", "2"]).await, "+OK");
    number(&mut other, &["TEST.CLOCK", "ADVANCE", "15001"]).await;
    assert_eq!(other.ask(&["GET", "a"]).await, "-CLUSTERDOWN The cluster is down");
    assert_eq!(test.ask(&["GET", "b"]).await, "$-1");
}

/// Ends a wait for further turns of a client, when the client has ended.
struct Ended<'t>(&'t AtomicU64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, SeqCst);
    }
}

/// A slot does not move on before every client has followed the redirections of the step before: as in Redis, a client that
/// asks a node for a key because of an older move would be believed.
#[test]
fn no_lock_has_two_holders_and_its_tokens_rise_while_its_slot_moves() {
    const KEY: &str = "{a}lock";
    const ROUNDS: usize = 60;
    let server = Server::builder().cluster(3).start_on_threads(3).unwrap();
    let (is_over, is_held, highest) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let turns = [const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        for (number, turns) in (1..).zip(&turns) {
            let (server, is_over, is_held, highest) = (&server, &is_over, &is_held, &highest);
            scope.spawn(move || {
                let (mut client, owner) = (ClusterClient::new(server, number), number.to_string());
                let _ended = Ended(turns);
                while !is_over.load(SeqCst) {
                    turns.fetch_add(1, SeqCst);
                    let Some(token) = client.acquire(KEY, &owner) else { continue };
                    assert!(!is_held.swap(true, SeqCst), "two holders");
                    let before = highest.swap(token, SeqCst);
                    assert!(before < token, "{token} follows {before}");
                    is_held.store(false, SeqCst);
                    assert_eq!(client.ask(&["LOCK.RELEASE", KEY, &owner]), ":1");
                }
            });
        }
        let mut test = Peer::to(server.node_addrs()[0]);
        for to in ["1", "2", "3"].into_iter().cycle().take(ROUNDS) {
            for more in [&["STEPS", "0"][..], &["STEPS", "1"], &[]] {
                let words = [&["TEST.SLOT", "MOVE", "15495", "TO", to], more].concat();
                let moved = test.ask(&request(&words));
                assert!(moved.starts_with(':'), "{words:?}: {moved}");
                for turns in &turns {
                    let enough = turns.load(SeqCst).saturating_add(2);
                    wait_until("clients go on", || turns.load(SeqCst) >= enough);
                }
            }
        }
        is_over.store(true, SeqCst);
    });
    assert!(highest.load(SeqCst) > ROUNDS as u64, "the lock was taken all the time");
}

/// A client of a cluster with replicas, which connects again after a crash, until the counter has a new value.
fn increment(addresses: &[SocketAddr], node: &mut usize, key: &str) -> u64 {
    loop {
        let reply = std::net::TcpStream::connect(addresses[*node]).and_then(|stream| {
            let mut line = String::new();
            (&stream).write_all(&request(&["INCR", key]))?;
            BufReader::new(&stream).read_line(&mut line)?;
            Ok(line)
        });
        let line = reply.unwrap_or_default();
        let moved = line.trim_end().strip_prefix("-MOVED ").and_then(|rest| rest.split(' ').nth(1));
        match (line.strip_prefix(':'), moved) {
            (Some(number), _) => return number.trim_end().parse().unwrap(),
            (_, Some(address)) => {
                let address: SocketAddr = address.parse().unwrap();
                *node = addresses.iter().position(|other| *other == address).unwrap();
            }
            // It has crashed: another node knows who takes over.
            _ => *node = (*node + 1) % addresses.len(),
        }
    }
}

#[test]
fn what_a_master_has_acknowledged_outlives_its_crashes() {
    const KEY: &str = "{a}count";
    const CRASHES: usize = 20;
    let cluster = Server::builder().cluster(6).replicas(1).set("cluster-node-timeout", "1");
    let server = cluster.start_on_threads(3).unwrap();
    let (is_over, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for first in 0..2 {
            let (addresses, is_over, turns) = (server.node_addrs(), &is_over, &turns);
            scope.spawn(move || {
                let (mut node, mut before) = (first, 0);
                let _ended = Ended(turns);
                while !is_over.load(SeqCst) {
                    let count = increment(&addresses, &mut node, KEY);
                    assert!(before < count, "{count} follows {before}: an acknowledged write is lost");
                    before = count;
                    turns.fetch_add(1, SeqCst);
                }
            });
        }
        let mut test = Peer::to(server.node_addrs()[0]);
        for master in ["3", "6"].into_iter().cycle().take(CRASHES) {
            for change in ["CRASH", "START"] {
                let enough = turns.load(SeqCst).saturating_add(4);
                wait_until("clients go on", || turns.load(SeqCst) >= enough);
                assert_eq!(test.ask(&request(&["TEST.NODE", change, master])), "+OK");
            }
        }
        is_over.store(true, SeqCst);
    });
    assert!(turns.load(SeqCst) > CRASHES as u64);
}
