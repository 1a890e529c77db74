//! Keys that clients write, read and delete through all nodes, while the leader is harmed: Porcupine must find one order of
//! all that they were answered. The model is in Go: `tests/clients/porcupine/register.go`.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_protocol::resp2::types::OwnedFrame;
use serde_json::json;

use super::broken::{Fault, Proxy};
use super::harness::{Etcd, Host, Node};
use super::live::{start, stop_for_a_while, strike_leader};
use super::porcupine::{Outcome, check_lines};
use crate::locks::mutex::client::now_ns;
use crate::support::rng::{Rng, number, tally};
use crate::support::wire::Link;

const CLIENTS: usize = 4;
const KEYS: &[&str] = &["register:one", "register:two"];
/// How long a client waits for an answer, and after a connection that was lost.
const ANSWER_MAX: Duration = Duration::from_millis(700);
const RECONNECT: Duration = Duration::from_millis(2);
const STRIKE_EVERY: Duration = Duration::from_secs(1);
/// Runs of a broken cluster, of which one must be rejected.
const ROUNDS_MAX: usize = 20;

/// A client: its requests as lines of a history.
struct Client<'n> {
    nodes: &'n [SocketAddr],
    number: usize,
    link: Option<Link>,
    rng: Rng,
    requests: usize,
    lines: String,
}

impl Client<'_> {
    /// Asks once. A request whose connection ends, or that is answered with an error, has no answer that is known.
    fn act(&mut self) {
        let (key, value) = (self.rng.pick(KEYS), format!("{}-{}", self.number, self.requests));
        self.requests += 1;
        let (ask, words) = match self.rng.below(6) {
            0..2 => ("set", vec!["SET", key, &value]),
            2 => ("del", vec!["DEL", key]),
            _ => ("get", vec!["GET", key]),
        };
        let sent_ns = now_ns();
        let reply = self.ask(&words);
        let heard_ns = now_ns();
        let (answer, read) = match &reply {
            Ok(OwnedFrame::SimpleString(_) | OwnedFrame::Integer(1)) => ("yes", ""),
            Ok(OwnedFrame::Integer(0)) => ("no", ""),
            Ok(OwnedFrame::BulkString(read)) => {
                ("holder", std::str::from_utf8(read).expect("what was written"))
            }
            Ok(OwnedFrame::Null) => ("nobody", ""),
            _ => ("", ""),
        };
        let line = json!({
            "lock": key, "token": value, "ask": ask, "sent_ns": sent_ns, "heard_ns": heard_ns, "answer": answer,
            "holder": read,
        });
        let _ = writeln!(self.lines, "{line}");
        if answer.is_empty() {
            self.link = None;
            sleep(RECONNECT);
        }
    }

    fn ask(&mut self, words: &[&str]) -> io::Result<OwnedFrame> {
        let link = match &mut self.link {
            Some(link) => link,
            None => {
                let mut link = Link::to(self.rng.pick(self.nodes))?;
                link.set_patience(ANSWER_MAX);
                self.link.insert(link)
            }
        };
        link.ask(words)
    }
}

/// What Porcupine says of clients of these nodes, whose leader is struck so many times. `None`: it is not installed.
fn outcome_while(mut nodes: Vec<Node>, strikes: usize, mut strike: impl FnMut(&mut Node)) -> Option<Outcome> {
    let addresses: Vec<SocketAddr> = nodes.iter().map(Node::address).collect();
    let is_over = AtomicBool::new(false);
    let lines = scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let rng = Rng::new(number as u64);
                let (nodes, lines) = (&addresses[..], String::new());
                let mut client = Client { nodes, number, link: None, rng, requests: 0, lines };
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(SeqCst) {
                        client.act();
                    }
                    client.lines
                })
            })
            .collect();
        for _ in 0..strikes {
            sleep(STRIKE_EVERY);
            strike_leader(&mut nodes, |nodes, leader| strike(&mut nodes[leader]));
        }
        sleep(STRIKE_EVERY);
        is_over.store(true, SeqCst);
        clients
            .into_iter()
            .map(|client| client.join().expect("a client that does not panic"))
            .collect::<String>()
    });
    assert!(lines.contains("\"holder\",") && lines.contains("\"yes\""), "somebody was answered");
    tally(&[("operations", lines.lines().count() as u64)]);
    check_lines(&lines)
}

// Shows P-reads-linearizable.
#[test]
#[ignore = "needs etcd"]
fn what_clients_read_and_write_has_one_order_while_leaders_change() {
    let etcd = Etcd::start_one(&[]);
    let nodes = start(&etcd.endpoints(), &[Host::local(), Host::local(), Host::local()]);
    let mut strikes = 0;
    let outcome = outcome_while(nodes, number("REGISTER_STRIKES").unwrap_or(6) as usize, |leader| {
        strikes += 1;
        if strikes % 2 == 0 {
            stop_for_a_while(leader);
        } else {
            leader.signal(Signal::SIGKILL);
            leader.restart();
        }
    });
    assert!(matches!(outcome, None | Some(Outcome::Accepted)), "{outcome:?}");
    assert!(strikes > 1, "{strikes} strikes");
    tally(&[("faults", strikes)]);
}

// Breaks P-reads-linearizable.
#[test]
#[ignore = "needs etcd"]
fn writes_that_are_answered_before_the_commit_are_rejected() {
    for round in 1..=ROUNDS_MAX {
        let etcd = Etcd::start_one(&[]);
        let proxy = Proxy::before(etcd.address(), Fault::EarlyReplies);
        let nodes = start(&proxy.endpoint(), &[Host::local(), Host::local()]);
        let outcome = outcome_while(nodes, 2, |leader| {
            leader.signal(Signal::SIGKILL);
            proxy.lose_commits();
            leader.restart();
        });
        match outcome {
            Some(Outcome::Accepted) => {}
            rejected => return println!("round {round}: {rejected:?}"),
        }
    }
    panic!("no run was rejected");
}
