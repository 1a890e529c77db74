//! The client roles of a soak. Each runs until a given moment, as fast as it can.
//!
//! Owns    the roles. Every answer other than the ones named here is an error.
//! Rule    every key has a lease and every connection ends, so nothing may remain afterwards.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::OwnedFrame;

use crate::support::bare::{EXTEND, RELEASE};
use crate::support::rng::Rng;
use crate::support::wire::{Link, bulks};

/// The work of one client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    /// The longest wait for a reply, or for all replies of a pipeline.
    pub(crate) longest: Duration,
}

/// Runs a client on the server with its rng until a moment; returns its work.
pub(crate) type Role = fn(SocketAddr, &mut Rng, Instant) -> io::Result<Done>;

/// Every role and its number of clients.
pub(crate) const ROLES: &[(&str, usize, Role)] = &[
    ("locks, 16 requests at a time", 3, locks),
    ("connections", 2, connections),
    ("connections that finish first", 4, finishers),
    ("killed clients", 2, killed),
    ("scripts", 1, scripts),
    ("scripts that take long", 2, long_scripts),
    ("values", 1, values),
    ("waits", 2, waits),
    ("subscribers", 2, subscribers),
    ("numbered messages", 2, numbered),
];

/// The channel of the subscribers; every role publishes to it now and then.
const CHANNEL: &str = "soak:news";

struct Client {
    server: SocketAddr,
    link: Link,
    done: Done,
}

impl Client {
    fn to(server: SocketAddr) -> io::Result<Self> {
        Ok(Self { server, link: Link::to(server)?, done: Done::default() })
    }

    /// Replaces the connection by a new one.
    fn reconnect(&mut self) -> io::Result<()> {
        self.link = Link::to(self.server)?;
        Ok(())
    }

    fn ask(&mut self, words: &[&str]) -> io::Result<OwnedFrame> {
        let mut answers = self.ask_all(&[words.to_vec()])?;
        Ok(answers.remove(0))
    }

    /// Sends all requests, then waits for all replies.
    fn ask_all(&mut self, requests: &[Vec<&str>]) -> io::Result<Vec<OwnedFrame>> {
        let start = self.send_all(requests)?;
        self.answer_all(requests, start)
    }

    /// Sends all requests; returns when it started.
    fn send_all(&mut self, requests: &[Vec<&str>]) -> io::Result<Instant> {
        let start = Instant::now();
        for words in requests {
            self.link.send(words)?;
        }
        Ok(start)
    }

    /// Waits for the replies to all requests sent since `start`.
    fn answer_all(&mut self, requests: &[Vec<&str>], start: Instant) -> io::Result<Vec<OwnedFrame>> {
        let answers = requests.iter().map(|words| self.answer(words)).collect();
        self.done.requests += requests.len() as u64;
        self.done.longest = self.done.longest.max(start.elapsed());
        answers
    }

    /// Sends one request, whose only correct reply is `expected`.
    fn expect(&mut self, words: &[&str], expected: &OwnedFrame) -> io::Result<()> {
        let answer = self.ask(words)?;
        is_right(words, &answer, expected)
    }

    /// Waits for a reply without sending; it must be `expected`.
    fn expect_next(&mut self, words: &[&str], expected: &OwnedFrame) -> io::Result<()> {
        let answer = self.answer(words)?;
        is_right(words, &answer, expected)
    }

    /// Reads until the server closes.
    fn expect_end(&mut self) -> io::Result<()> {
        loop {
            match self.link.next() {
                Ok(_) => {}
                // Input that the server had not read turns its close into a reset.
                Err(error)
                    if [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&error.kind()) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn answer(&mut self, words: &[&str]) -> io::Result<OwnedFrame> {
        match self.link.next()? {
            OwnedFrame::Error(error) => Err(io::Error::other(format!("{words:?} was refused: {error}"))),
            answer => Ok(answer),
        }
    }
}

fn is_right(words: &[&str], answer: &OwnedFrame, expected: &OwnedFrame) -> io::Result<()> {
    if answer == expected {
        return Ok(());
    }
    Err(io::Error::other(format!("{words:?} was answered {answer:?}, not {expected:?}")))
}

fn name(rng: &mut Rng, what: &str) -> String {
    format!("soak:{what}:{}", rng.below(50_000))
}

/// A random lease, mostly short.
fn lease(rng: &mut Rng) -> String {
    let most = rng.pick(&[20, 200, 1_000]);
    (1 + rng.below(most)).to_string()
}

/// Takes, extends and releases locks.
fn locks(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let names: Vec<String> = (0..4).map(|_| name(rng, "lock")).collect();
        let (px, more) = (lease(rng), lease(rng));
        let mut requests = Vec::new();
        for name in &names {
            requests.push(vec!["SET", name, "me", "NX", "PX", &px]);
            requests.push(vec!["EVAL", EXTEND, "1", name, "me", &more]);
            requests.push(vec!["PTTL", name]);
            if rng.one_in(2) {
                requests.push(vec!["EVAL", RELEASE, "1", name, "me"]);
            }
        }
        client.ask_all(&requests)?;
    }
    Ok(client.done)
}

/// Connects, sends little and disconnects: with QUIT, without it, or in the middle of a request.
fn connections(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let (name, px) = (name(rng, "brief"), lease(rng));
        client.ask(&["CLIENT", "SETNAME", "brief"])?;
        client.ask(&["SET", &name, "v", "PX", &px])?;
        match rng.below(3) {
            0 => drop(client.ask(&["QUIT"])?),
            1 => {}
            _ => {
                let link = std::mem::replace(&mut client.link, Link::to(server)?);
                link.ask_and_cut(&["SUBSCRIBE", CHANNEL])?;
                continue;
            }
        }
        client.reconnect()?;
    }
    Ok(client.done)
}

/// Sends all requests and closes its sending side: the server answers all of them, then closes.
fn finishers(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let requests = vec![vec!["PING"]; 1 + rng.below(200)];
        let start = client.send_all(&requests)?;
        client.link.finish()?;
        client.answer_all(&requests, start)?;
        client.expect_end()?;
        client.reconnect()?;
    }
    Ok(client.done)
}

/// Is killed by another connection, with or without pending requests.
fn killed(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    let (mut killer, mut victim) = (Client::to(server)?, Client::to(server)?);
    while Instant::now() < end {
        let OwnedFrame::Integer(id) = victim.ask(&["CLIENT", "ID"])? else {
            return Err(io::Error::other("CLIENT ID is no number"));
        };
        let (name, px) = (name(rng, "killed"), lease(rng));
        for _ in 0..rng.below(5) {
            victim.link.send(&["SET", &name, "v", "PX", &px])?;
        }
        killer.expect(&["CLIENT", "KILL", "ID", &id.to_string()], &OwnedFrame::Integer(1))?;
        victim.expect_end()?;
        victim.reconnect()?;
    }
    Ok(killer.done)
}

/// Sends scripts that the server has not seen and must interpret.
fn scripts(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    static TEXTS: AtomicU64 = AtomicU64::new(0);
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let number = TEXTS.fetch_add(1, Relaxed).to_string();
        let text = format!(
            "local t = {{}} for i = 1, 50 do t[i] = i .. ':{number}' end \
             redis.call('SET', KEYS[1], table.concat(t), 'PX', ARGV[1]) return t[50]"
        );
        let (name, px) = (name(rng, "script"), lease(rng));
        let expected = OwnedFrame::BulkString(format!("50:{number}").into_bytes());
        client.expect(&["EVAL", &text, "1", &name, &px], &expected)?;
    }
    Ok(client.done)
}

/// Sends scripts that are moved to the script thread; two clients may use one key.
fn long_scripts(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    const COUNT: &str = "local i, most = 0, tonumber(ARGV[1]) while i < most do i = i + 1 end \
         if KEYS[1] then redis.call('SET', KEYS[1], i, 'PX', ARGV[2]) end return i";
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let turns = rng.pick(&[10, 10_000, 3_000_000]);
        let (name, px) = (format!("soak:long:{}", rng.below(2)), lease(rng));
        let keys: &[&str] = if rng.one_in(2) { &["1", &name] } else { &["0"] };
        let count = turns.to_string();
        let words = [&["EVAL", COUNT], keys, &[&count, &px]].concat();
        client.expect(&words, &OwnedFrame::Integer(turns))?;
    }
    Ok(client.done)
}

/// Grows hashes, lists, sets and sorted sets, and lets them expire.
fn values(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    let long = "x".repeat(200);
    while Instant::now() < end {
        let names = ["hash", "list", "set", "sorted"].map(|what| name(rng, what));
        let [hash, list, set, sorted] = names.each_ref().map(String::as_str);
        let (field, px) = (rng.below(500).to_string(), lease(rng));
        let mut requests = vec![
            vec!["HSET", hash, &field, &long, "other", "v"],
            vec!["PEXPIRE", hash, &px],
            vec!["RPUSH", list, &long, &field],
            vec!["SADD", set, &field, &long],
            vec!["ZADD", sorted, &field, &long, "1", &field],
            vec!["MULTI"],
            vec!["LLEN", list],
            vec!["ZRANGE", sorted, "0", "-1"],
            vec!["EXEC"],
        ];
        requests.extend([hash, list, set, sorted].map(|name| vec!["PEXPIRE", name, &px]));
        requests.push(vec!["PUBLISH", CHANNEL, &long]);
        client.ask_all(&requests)?;
    }
    Ok(client.done)
}

/// Waits for elements that other clients push, sometimes in vain; one in twenty disconnects while it waits.
fn waits(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        let queue = format!("soak:queue:{}", rng.below(4));
        match rng.below(20) {
            0 => {
                let link = std::mem::replace(&mut client.link, Link::to(server)?);
                link.ask_and_cut(&["BLPOP", &queue, "0"])?;
            }
            1..=9 => drop(client.ask(&["BLPOP", &queue, "0.02"])?),
            _ => {
                let requests = vec![vec!["RPUSH", &queue, "job"], vec!["PEXPIRE", &queue, "100"]];
                client.ask_all(&requests)?;
            }
        }
    }
    Ok(client.done)
}

/// Subscribes, receives messages for a while, and unsubscribes.
fn subscribers(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    let mut client = Client::to(server)?;
    while Instant::now() < end {
        client.ask(&["SUBSCRIBE", CHANNEL])?;
        // A message, or the reply to its own PING, so that it never waits for others in vain.
        for _ in 0..rng.below(30) {
            client.ask(&["PING"])?;
        }
        client.reconnect()?;
    }
    Ok(client.done)
}

/// Subscribes to its own channel, to which another connection publishes numbers by command or script. It receives every
/// number that was reported as delivered, in order, and none after the reply to UNSUBSCRIBE.
fn numbered(server: SocketAddr, rng: &mut Rng, end: Instant) -> io::Result<Done> {
    const PUBLISH: &str = "return redis.call('PUBLISH', KEYS[1], ARGV[1])";
    let (mut client, mut sender) = (Client::to(server)?, Client::to(server)?);
    let channel = format!("soak:numbers:{}", rng.below(usize::MAX));
    let confirmed = |what: &str, count| {
        OwnedFrame::Array([bulks(&[what, &channel]), vec![OwnedFrame::Integer(count)]].concat())
    };
    let mut number = 0;
    while Instant::now() < end {
        client.expect(&["SUBSCRIBE", &channel], &confirmed("subscribe", 1))?;
        let (count, leaves_at) = (1 + rng.below(20), rng.below(20));
        let numbers: Vec<String> = (number..number + count).map(|number| number.to_string()).collect();
        number += count;
        for (at, number) in numbers.iter().enumerate() {
            if rng.one_in(2) {
                sender.link.send(&["PUBLISH", &channel, number])?;
            } else {
                sender.link.send(&["EVAL", PUBLISH, "1", &channel, number])?;
            }
            if at == leaves_at {
                client.link.send(&["UNSUBSCRIBE", &channel])?;
            }
        }
        if leaves_at >= count {
            client.link.send(&["UNSUBSCRIBE", &channel])?;
        }
        for number in &numbers {
            if sender.answer(&["PUBLISH"])? == OwnedFrame::Integer(1) {
                let message = OwnedFrame::Array(bulks(&["message", &channel, number]));
                client.expect_next(&["a number"], &message)?;
            }
        }
        client.expect_next(&["UNSUBSCRIBE"], &confirmed("unsubscribe", 0))?;
        client.done.requests += count as u64;
    }
    Ok(client.done)
}
