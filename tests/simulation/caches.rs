//! Clients with local caches, and every mode in which the server invalidates them.
//!
//! Law      once a client has read its messages, every cached copy equals a fresh GET.
//! Canaries clients that ignore some messages, and a server that expires nothing on time.

use std::collections::{BTreeMap, BTreeSet};

use redlatch_core::keyspace::Due;
use redlatch_core::state::session::Session;

use super::parts::{Fault, Machine};
use crate::support::rng::Rng;

/// The defect of the clients. All but the first are canaries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Carelessness {
    None,
    /// They ignore a message that invalidates all keys.
    IgnoresFlushes,
    /// They ignore one key in thirty.
    IgnoresSomeKeys,
    /// They cache reads without CLIENT CACHING YES.
    KeepsWhatItDidNotAnnounce,
    /// They keep copies of keys they changed themselves under NOLOOP.
    KeepsItsOwnChanges,
}

pub(crate) const CARELESS: &[Carelessness] = &[
    Carelessness::IgnoresFlushes,
    Carelessness::IgnoresSomeKeys,
    Carelessness::KeepsWhatItDidNotAnnounce,
    Carelessness::KeepsItsOwnChanges,
];

/// The tracking modes, one client for each.
const MODES: &[&str] =
    &["", "NOLOOP", "OPTIN", "OPTOUT", "BCAST PREFIX k", "BCAST NOLOOP", "REDIRECT", "OPTIN REDIRECT"];

/// Writes by any client; `k`, `v` and `ms` stand for any key, value and short time.
const WRITES: &[&str] = &[
    "SET k v", "SET k v PX ms", "SET k v NX PX ms", "SET k v XX KEEPTTL", "GETSET k v", "GETDEL k",
    "GETEX k PX ms", "APPEND k v", "DEL k k", "UNLINK k", "MSET k v k v", "PEXPIRE k ms", "PEXPIREAT k 1",
    "PERSIST k", "RENAME k k", "COPY k other REPLACE", "COPY other k REPLACE", "EVAL RELEASE 1 k v",
    "FLUSHDB", "FLUSHALL", "SWAPDB 0 1",
];

/// A release as clients send it.
const RELEASE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// A read as a script does it.
const LOOK: &str = "return redis.call('get', KEYS[1])";

const KEYS: u64 = 6;
const STEPS: u64 = 1_500;

type Cache = BTreeMap<String, Option<String>>;

struct Reader {
    mode: &'static str,
    session: Session,
    /// The connection that receives its invalidations instead.
    ears: Option<Session>,
    /// Messages received after its own replies, not yet read.
    unread: String,
    cache: Cache,
}

impl Reader {
    /// Sends a request and returns its reply; messages after it are kept unread.
    fn call(&mut self, machine: &Machine, words: &[&str]) -> String {
        let mut answer = call(machine, &mut self.session, words);
        if let Some(end) = answer.find("\r\n>2\r\n$10\r\ninvalidate\r\n") {
            self.unread += &answer.split_off(end + 2);
        }
        answer
    }
}

pub(crate) struct CacheSimulation {
    machine: Machine,
    rng: Rng,
    carelessness: Carelessness,
    readers: Vec<Reader>,
    observer: Session,
}

impl CacheSimulation {
    pub(crate) fn new(seed: u64, carelessness: Carelessness, fault: Fault) -> Self {
        let machine = Machine::new(seed, fault);
        let mut simulation = Self {
            observer: machine.connect(),
            machine,
            rng: Rng::new(seed),
            carelessness,
            readers: Vec::new(),
        };
        // The tracking table has room for fewer keys than there are, so some are evicted all the time.
        if seed % 2 == 1 {
            let limit = ["CONFIG", "SET", "tracking-table-max-keys", "3"];
            assert_eq!(call(&simulation.machine, &mut simulation.observer, &limit), "+OK\r\n");
        }
        simulation.readers = MODES.iter().map(|mode| simulation.reader(mode)).collect();
        simulation
    }

    fn reader(&self, mode: &'static str) -> Reader {
        let mut session = self.machine.connect();
        let mut words: Vec<&str> =
            ["CLIENT", "TRACKING", "ON"].into_iter().chain(mode.split_whitespace()).collect();
        let (mut ears, id);
        if words.last() == Some(&"REDIRECT") {
            let mut other = self.machine.connect();
            call(&self.machine, &mut other, &["SUBSCRIBE", "__redis__:invalidate"]);
            id = other.client.id.to_string();
            words.push(&id);
            ears = Some(other);
        } else {
            call(&self.machine, &mut session, &["HELLO", "3"]);
            ears = None;
        }
        assert_eq!(call(&self.machine, &mut session, &words), "+OK\r\n", "{mode}");
        // The confirmation of the subscription is not a message.
        ears.iter_mut().for_each(|ears| drop(messages(ears)));
        Reader { mode, session, ears, unread: String::new(), cache: Cache::new() }
    }

    /// Runs the simulation; `Err` names the stale copy.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for step in 0..STEPS {
            let at = self.rng.below(self.readers.len());
            let what = match self.rng.below_u64(8) {
                0 => self.pass_time(),
                1 => self.write(None),
                2 => self.write(Some(at)),
                3 | 4 => self.read(at),
                5 => self.read_in_transaction(at),
                _ => {
                    self.check(at).map_err(|copy| format!("step {step}: {}: {copy}", MODES[at]))?;
                    continue;
                }
            };
            assert!(!what.contains("-ERR"), "step {step}: {what}");
        }
        (0..self.readers.len())
            .try_for_each(|at| self.check(at).map_err(|copy| format!("{}: {copy}", MODES[at])))
    }

    fn pass_time(&mut self) -> String {
        self.machine.clock.advance(self.rng.below_u64(20));
        while self.machine.tick() == Due::More {}
        "time".to_owned()
    }

    /// One write, or two in a transaction, by the observer or by a reader itself.
    fn write(&mut self, author: Option<usize>) -> String {
        let mut lines: Vec<Vec<String>> = vec![self.fill()];
        if self.rng.below_u64(4) == 0 {
            lines = vec![vec!["MULTI".to_owned()], lines.remove(0), self.fill(), vec!["EXEC".to_owned()]];
        }
        let mut heard = String::new();
        for line in &lines {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            heard = match author {
                Some(at) => self.readers[at].call(&self.machine, &words),
                None => call(&self.machine, &mut self.observer, &words),
            };
        }
        let touched: BTreeSet<&String> = lines.iter().flatten().collect();
        if let Some(at) = author.filter(|_| self.carelessness != Carelessness::KeepsItsOwnChanges) {
            self.readers[at].cache.retain(|key, _| !touched.contains(key));
        }
        // RENAME of a missing key is refused, which is fine.
        format!("{lines:?} -> {}", heard.replace("-ERR no such key", "no such key"))
    }

    fn read(&mut self, at: usize) -> String {
        let is_announced = self.announce(at);
        let key = self.key();
        let reader = &mut self.readers[at];
        let answer = match self.rng.below_u64(3) {
            0 => reader.call(&self.machine, &["EVAL", LOOK, "1", &key]),
            _ => reader.call(&self.machine, &["GET", &key]),
        };
        if is_announced {
            reader.cache.insert(key, value(&mut answer.split("\r\n")));
        }
        answer
    }

    fn read_in_transaction(&mut self, at: usize) -> String {
        let is_announced = self.announce(at);
        let keys = [self.key(), self.key()];
        let reader = &mut self.readers[at];
        reader.call(&self.machine, &["MULTI"]);
        for key in &keys {
            reader.call(&self.machine, &["GET", key]);
        }
        let answer = reader.call(&self.machine, &["EXEC"]);
        let mut lines = answer.split("\r\n");
        assert_eq!(lines.next(), Some("*2"), "{answer}");
        for key in keys {
            let value = value(&mut lines);
            if is_announced {
                reader.cache.insert(key, value);
            }
        }
        answer
    }

    /// Sends CLIENT CACHING where the mode needs it; returns whether the next read is cached.
    fn announce(&mut self, at: usize) -> bool {
        let (keeps, reader) = (self.rng.below_u64(3) > 0, &mut self.readers[at]);
        let says = match (reader.mode.split_whitespace().next(), keeps) {
            (Some("OPTIN"), true) => Some("YES"),
            (Some("OPTOUT"), false) => Some("NO"),
            (Some("OPTIN"), false) => None,
            _ => return true,
        };
        if let Some(says) = says {
            assert_eq!(reader.call(&self.machine, &["CLIENT", "CACHING", says]), "+OK\r\n");
        }
        keeps || self.carelessness == Carelessness::KeepsWhatItDidNotAnnounce
    }

    /// Reads the messages of a client; then compares every copy.
    fn check(&mut self, at: usize) -> Result<(), String> {
        let Reader { session, ears, unread, cache, .. } = &mut self.readers[at];
        let messages = std::mem::take(unread) + &messages(ears.as_mut().unwrap_or(session));
        let mut lines = messages.split("\r\n");
        while let Some(line) = lines.next() {
            if !line.ends_with("invalidate") {
                continue;
            }
            match lines.next().expect("what is out of date") {
                "_" | "$-1" if self.carelessness == Carelessness::IgnoresFlushes => {}
                "_" | "$-1" => cache.clear(),
                count => {
                    let count = count
                        .strip_prefix('*')
                        .and_then(|count| count.parse().ok())
                        .expect("a count of keys");
                    for _ in 0..count {
                        let key = value(&mut lines).expect("a key");
                        let is_heeded =
                            self.carelessness != Carelessness::IgnoresSomeKeys || self.rng.below_u64(30) > 0;
                        if is_heeded {
                            cache.remove(&key);
                        }
                    }
                }
            }
        }
        for (key, copy) in cache {
            let fresh = value(&mut call(&self.machine, &mut self.observer, &["GET", key]).split("\r\n"));
            if fresh != *copy {
                return Err(format!("{key} is {fresh:?}, the copy says {copy:?}"));
            }
        }
        Ok(())
    }

    fn key(&mut self) -> String {
        format!("k{}", self.rng.below_u64(KEYS))
    }

    fn fill(&mut self) -> Vec<String> {
        let line = self.rng.pick(WRITES);
        // FLUSHALL is rare.
        if (line.starts_with("FLUSH") || line.starts_with("SWAP")) && self.rng.below_u64(3) > 0 {
            return self.fill();
        }
        let mut word = |word: &str| match word {
            "k" => self.key(),
            "v" => format!("v{}", self.rng.below_u64(3)),
            "ms" => (1 + self.rng.below_u64(40)).to_string(),
            "RELEASE" => RELEASE.to_owned(),
            other => other.to_owned(),
        };
        line.split(' ').map(&mut word).collect()
    }
}

fn call(machine: &Machine, session: &mut Session, words: &[&str]) -> String {
    let mut batch = machine.engine.batch();
    let answer = machine.call(session, &mut batch, words);
    machine.engine.end_batch(session, batch);
    answer
}

fn messages(session: &mut Session) -> String {
    let mut messages = Vec::new();
    session.client.collect(&mut messages);
    String::from_utf8(messages).expect("messages in ASCII")
}

/// The next bulk string or null.
fn value<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Option<String> {
    match lines.next().expect("a reply") {
        "_" | "$-1" => None,
        head => {
            assert!(head.starts_with('$'), "{head}");
            Some(lines.next().expect("a string").to_owned())
        }
    }
}
