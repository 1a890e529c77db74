//! A process of lock clients: threads that take, extend, abandon and release locks, and one that only reads the holder.
//!
//! Owns    the behaviour of the clients, and the file of their history.
//! Knows   the server's address and a seed, from the environment; see [`Orders`].
//! Time    real: clients pause, and stall past their leases.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use redis_protocol::resp2::types::OwnedFrame;

use super::history::{Answer, Ask, got, sent};
use crate::support::rng::Rng;
use crate::support::wire::Link;

/// The parameters of the process.
pub(crate) struct Orders {
    pub(crate) server: SocketAddr,
    pub(crate) history: String,
    pub(crate) seed: u64,
    pub(crate) lasts: Duration,
}

impl Orders {
    /// Reads the parameters from the environment; `None` if the variables are not set.
    pub(crate) fn received() -> Option<Self> {
        let word = |name: &str| std::env::var(name).ok();
        Some(Self {
            server: word(SERVER)?.parse().expect("an address"),
            history: word(HISTORY)?,
            seed: word(SEED)?.parse().expect("a seed"),
            lasts: Duration::from_millis(word(MILLIS)?.parse().expect("milliseconds")),
        })
    }

    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        [
            (SERVER, self.server.to_string()),
            (HISTORY, self.history.clone()),
            (SEED, self.seed.to_string()),
            (MILLIS, self.lasts.as_millis().to_string()),
        ]
    }

    /// Runs the clients.
    ///
    /// # Errors
    /// When the server is unreachable, or closes a connection that no fault has cut.
    pub(crate) fn carry_out(&self) -> io::Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(&self.history)?;
        let (book, end) = (Mutex::new(file), Instant::now() + self.lasts);
        scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let mut client = Client::new(self, number, &book);
                    scope.spawn(move || {
                        while Instant::now() < end {
                            if number == 0 { client.watch()? } else { client.act()? }
                        }
                        Ok(())
                    })
                })
                .collect();
            clients.into_iter().try_for_each(|client| client.join().expect("a client that does not panic"))
        })
    }
}

/// A lease that a client believes it holds.
struct Held {
    lock: &'static str,
    token: String,
    until: Instant,
}

struct Client<'b> {
    server: SocketAddr,
    link: Option<Link>,
    rng: Rng,
    book: &'b Mutex<File>,
    /// Unique among all clients of the run.
    name: String,
    calls: u64,
    held: Option<Held>,
}

impl<'b> Client<'b> {
    fn new(orders: &Orders, number: usize, book: &'b Mutex<File>) -> Self {
        Self {
            server: orders.server,
            link: None,
            rng: Rng::new(orders.seed * CLIENTS as u64 + number as u64),
            book,
            name: format!("{}-{number}", std::process::id()),
            calls: 0,
            held: None,
        }
    }

    /// Reads the holder of a random lock, repeatedly.
    fn watch(&mut self) -> io::Result<()> {
        let lock = self.rng.pick(LOCKS);
        sleep(Duration::from_micros(self.rng.below(1_000) as u64));
        self.call(lock, Ask::Look, "-").map(drop)
    }

    fn act(&mut self) -> io::Result<()> {
        sleep(Duration::from_micros(self.rng.below(4_000) as u64));
        let Some(Held { lock, token, until }) = self.held.take() else { return self.acquire() };
        let ask = match self.rng.below(12) {
            0..=4 => Ask::Release,
            5 | 6 => Ask::Extend(self.lease_ms()),
            7 | 8 => Ask::Look,
            // It crashes: the lock stays held until its lease ends.
            9 => return Ok(()),
            // It stalls past its lease, and then still believes it holds the lock.
            10 => {
                let late = Duration::from_millis(self.rng.below(20) as u64);
                sleep(until.saturating_duration_since(Instant::now()) + late);
                if self.rng.one_in(2) { Ask::Release } else { Ask::Extend(self.lease_ms()) }
            }
            _ => {
                let ask = if self.rng.one_in(2) { Ask::Release } else { Ask::Extend(self.lease_ms()) };
                return self.cut(lock, ask, &token);
            }
        };
        let answer = self.call(lock, ask, &token)?;
        let until = match (ask, answer) {
            (Ask::Extend(lease_ms), Answer::Yes) => Instant::now() + Duration::from_millis(lease_ms),
            (Ask::Look, Answer::Holder(holder)) if holder == token => until,
            _ => return Ok(()),
        };
        self.held = Some(Held { lock, token, until });
        Ok(())
    }

    fn acquire(&mut self) -> io::Result<()> {
        let (lock, lease_ms) = (self.rng.pick(LOCKS), self.lease_ms());
        let token = format!("{}-{}", self.name, self.calls);
        let until = Instant::now() + Duration::from_millis(lease_ms);
        let is_granted = if self.rng.one_in(30) {
            self.cut(lock, Ask::Acquire(lease_ms), &token)?;
            self.call(lock, Ask::Look, "-")? == Answer::Holder(token.clone())
        } else {
            let answer = self.call(lock, Ask::Acquire(lease_ms), &token)?;
            matches!(answer, Answer::Yes | Answer::YesWithFence(_))
        };
        self.held = is_granted.then_some(Held { lock, token, until });
        Ok(())
    }

    fn lease_ms(&mut self) -> u64 {
        let most = self.rng.pick(&[8, 40, 150]);
        1 + self.rng.below(most) as u64
    }

    fn call(&mut self, lock: &str, ask: Ask, token: &str) -> io::Result<Answer> {
        let id = self.announce(lock, ask, token)?;
        let tells_holder = self.rng.one_in(2);
        let frame = self.link()?.ask(&words(lock, ask, token, tells_holder, &lease_text(ask)))?;
        let answer = answer(ask, tells_holder, &frame)
            .ok_or_else(|| io::Error::other(format!("{ask:?} of {lock} was answered {frame:?}")))?;
        self.write(&got(&id, now_ns(), &answer))?;
        Ok(answer)
    }

    /// Sends a call and resets the connection at once.
    fn cut(&mut self, lock: &str, ask: Ask, token: &str) -> io::Result<()> {
        self.announce(lock, ask, token)?;
        self.link()?;
        let link = self.link.take().expect("it has just been opened");
        link.ask_and_cut(&words(lock, ask, token, false, &lease_text(ask)))
    }

    /// Records that a call is about to be sent; returns its id.
    fn announce(&mut self, lock: &str, ask: Ask, token: &str) -> io::Result<String> {
        let id = format!("{}-{}", self.name, self.calls);
        self.calls += 1;
        self.write(&sent(&id, now_ns(), lock, ask, token))?;
        Ok(id)
    }

    fn write(&self, line: &str) -> io::Result<()> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
    }

    fn link(&mut self) -> io::Result<&mut Link> {
        if self.link.is_none() {
            self.link = Some(Link::to(self.server)?);
        }
        Ok(self.link.as_mut().expect("it is open"))
    }
}

fn lease_text(ask: Ask) -> String {
    match ask {
        Ask::Acquire(lease_ms) | Ask::Extend(lease_ms) => lease_ms.to_string(),
        Ask::Look | Ask::Release => String::new(),
    }
}

fn words<'a>(lock: &'a str, ask: Ask, token: &'a str, tells_holder: bool, lease: &'a str) -> Vec<&'a str> {
    match ask {
        Ask::Acquire(_) if lock == FENCED => vec!["EVAL", ACQUIRE, "2", lock, FENCES, token, lease],
        Ask::Acquire(_) if tells_holder => vec!["SET", lock, token, "NX", "GET", "PX", lease],
        Ask::Acquire(_) => vec!["SET", lock, token, "NX", "PX", lease],
        Ask::Extend(_) => vec!["EVAL", EXTEND, "1", lock, token, lease],
        Ask::Look => vec!["GET", lock],
        Ask::Release => vec!["EVAL", RELEASE, "1", lock, token],
    }
}

fn answer(ask: Ask, tells_holder: bool, frame: &OwnedFrame) -> Option<Answer> {
    let holder = |token: &[u8]| String::from_utf8(token.to_vec()).ok().map(Answer::Holder);
    match (ask, frame) {
        (Ask::Acquire(_), OwnedFrame::SimpleString(text)) => (text == b"OK").then_some(Answer::Yes),
        (Ask::Acquire(_), OwnedFrame::Integer(0)) => Some(Answer::No),
        (Ask::Acquire(_), OwnedFrame::Integer(fence)) => (*fence).try_into().ok().map(Answer::YesWithFence),
        // With GET a refusal names the holder; a grant returns nil.
        (Ask::Acquire(_), OwnedFrame::Null) => Some(if tells_holder { Answer::Yes } else { Answer::No }),
        (Ask::Look, OwnedFrame::Null) => Some(Answer::Nobody),
        (Ask::Acquire(_) | Ask::Look, OwnedFrame::BulkString(token)) => holder(token),
        (Ask::Extend(_) | Ask::Release, OwnedFrame::Integer(0)) => Some(Answer::No),
        (Ask::Extend(_) | Ask::Release, OwnedFrame::Integer(1)) => Some(Answer::Yes),
        _ => None,
    }
}

fn now_ns() -> u64 {
    let time = ClockId::CLOCK_MONOTONIC.now().expect("the system has this clock");
    Duration::from(time).as_nanos() as u64
}

/// The lock whose grants are numbered.
const FENCED: &str = "lock:fenced";
pub(crate) const LOCKS: &[&str] = &["lock:one", "lock:two", "lock:three", FENCED];
const FENCES: &str = "fences";
/// Threads of a process; the first one only reads holders.
const CLIENTS: usize = 4;

pub(crate) const ACQUIRE: &str = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
     return redis.call('incr', KEYS[2]) else return 0 end";
pub(crate) const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
pub(crate) const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('del', KEYS[1]) else return 0 end";

const SERVER: &str = "REDLATCH_MUTEX_SERVER";
const HISTORY: &str = "REDLATCH_MUTEX_HISTORY";
const SEED: &str = "REDLATCH_MUTEX_SEED";
const MILLIS: &str = "REDLATCH_MUTEX_MILLIS";
