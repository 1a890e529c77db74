//! The clients of the crash simulation: what they ask for, and what they may believe.
//!
//! Belief  a client believes in a lock from the reply that grants it until the lease has passed on its own clock since it
//!         *sent* the request. The server counts the lease from the execution, which is later than the sending, and its
//!         lock time is never faster than the client's clock, so that this belief ends first. A belief that were
//!         measured from the reply would outlast the lease by the way of the reply.
//!         A client believes in a session for as long as its connection is open, and for the delay after that.
//! Laws    beliefs in one lock do not overlap; fencing tokens and counters are above every one that was acknowledged
//!         before the request was sent.

use std::collections::BTreeSet;

use super::parts::{State, Value};
use crate::support::bare::{EXTEND, RELEASE};
use crate::support::rng::Rng;

/// Locks of each kind.
const LOCKS: usize = 1;
/// Longer leases wait for the disk.
pub(super) const LEASE_MS_MAX: u64 = 12_000;
/// No client asks for a longer one.
pub(super) const LONGEST_LEASE_MS: u64 = LEASE_MS_MAX + 2_000;
const COUNTERS: usize = 2;
/// Keys that all clients of several servers use.
pub(super) const REGISTERS: usize = 2;

/// As Redisson takes a lock.
const HASH_ACQUIRE: &str = "if redis.call('exists', KEYS[1]) == 0 then redis.call('hincrby', KEYS[1], ARGV[2], 1) \
     redis.call('pexpire', KEYS[1], ARGV[1]) return nil end return redis.call('pttl', KEYS[1])";
const HASH_EXTEND: &str = "if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
     return redis.call('pexpire', KEYS[1], ARGV[1]) else return 0 end";
const HASH_RELEASE: &str = "if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then \
     return redis.call('del', KEYS[1]) else return 0 end";

/// How a lock is taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// SET NX PX, and scripts that compare.
    Plain,
    Hash,
    /// LOCK.ACQUIRE, with a fencing token.
    Native,
    /// The same lock, for as long as the connection is open.
    Session,
}

impl Kind {
    fn is_native(self) -> bool {
        matches!(self, Self::Native | Self::Session)
    }
}

/// A lock that a client has been granted.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) kind: Kind,
    pub(super) key: String,
    pub(super) owner: String,
    /// The last millisecond of the belief. That in a session ends with its connection.
    pub(super) until_ms: u64,
    /// For how long the client believes in a session without a connection.
    delay_ms: u64,
    /// Whether a loss of power has come between, after which the server may have forgotten it.
    pub(super) may_be_lost: bool,
    /// Whether its lease is above `horizon-max-lease`: a server in memory mode does not wait for its end.
    pub(super) is_long: bool,
}

/// What a request is for.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Acquire {
        kind: Kind,
        key: String,
        owner: String,
        lease_ms: u64,
    },
    Count {
        counter: usize,
    },
    Extend {
        lease_ms: u64,
    },
    Release,
    /// A key that all clients write: its new value; `None`: it is read.
    Share {
        register: usize,
        value: Option<u64>,
    },
    /// A key that only this client writes: its new value, and its lease.
    Write {
        value: Option<u64>,
        lease_ms: Option<u64>,
    },
}

/// A request without a reply.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) words: Vec<String>,
    pub(super) sent_ms: u64,
    /// The highest token or count that was acknowledged before.
    floor: u64,
    /// Whether the reply is on its way: the end of the server does not stop it.
    pub(super) is_answered: bool,
    /// Whether a loss of power has come between the request and the arrival of the reply.
    may_be_lost: bool,
    /// Whether the end of a server in memory mode has come between.
    loses_long: bool,
}

/// The key that only one client writes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Register {
    pub(super) value: Option<u64>,
    /// The last millisecond of its lease, in lock time.
    pub(super) until_ms: Option<u64>,
}

impl Register {
    /// What a server has of it.
    pub(super) fn found(state: &State, who: usize) -> Self {
        match state.get(&(0, format!("register:{who}").into_bytes())) {
            Some((Value::String(text), deadline)) => {
                let value = String::from_utf8_lossy(text).parse().ok();
                Self { value, until_ms: *deadline }
            }
            _ => Self::default(),
        }
    }

    /// Its value at this lock time.
    pub(super) fn at(self, now_ms: u64) -> Option<u64> {
        self.value.filter(|_| self.until_ms.is_none_or(|until_ms| until_ms >= now_ms))
    }
}

/// One client, with one request at a time.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) request: Option<Request>,
    pub(super) hold: Option<Hold>,
    /// What was acknowledged of its register, and what may have happened since.
    pub(super) register: Register,
    pub(super) pending: Option<Register>,
    /// Its register before a removal that was answered while the disk took no writes: that may be forgotten.
    pub(super) removed: Option<Register>,
    written: u64,
    owners: u64,
    /// Whether it uses several servers, one after the other. They have clocks of different rates, and so it trusts a lease
    /// for 15 of 16 parts. It reads and writes keys of all clients, and none of its own.
    is_replicated: bool,
    /// Whether it only reads keys of all clients.
    pub(super) is_reader: bool,
    /// What the names of its keys end with.
    tag: String,
}

/// What all clients have been told.
#[derive(Debug, Default)]
pub(super) struct Told {
    token: u64,
    tokens: BTreeSet<u64>,
    counts: [u64; COUNTERS],
}

impl Told {
    /// A server in memory mode has forgotten its counters.
    pub(super) fn forget_counts(&mut self) {
        self.counts = [0; COUNTERS];
    }
}

impl Client {
    /// A client of several servers. The names of its keys end with `tag`.
    pub(super) fn of_replicas(is_reader: bool, tag: &str) -> Self {
        Self { is_replicated: true, is_reader, tag: tag.to_owned(), ..Self::default() }
    }

    /// For how long it believes in a lease.
    fn trusted_ms(&self, lease_ms: u64) -> u64 {
        if self.is_replicated { lease_ms / 16 * 15 } else { lease_ms }
    }

    /// Chooses and sends the next request, if there is one.
    pub(super) fn act(&mut self, who: usize, now_ms: u64, told: &Told, rng: &mut Rng) {
        let op = match &self.hold {
            Some(Hold { kind: Kind::Session, until_ms: u64::MAX, .. }) => match rng.below(30) {
                0 => Op::Release,
                1 => self.write(who, rng),
                _ => return,
            },
            Some(Hold { kind: Kind::Session, .. }) => {
                self.hold.take_if(|hold| hold.until_ms < now_ms);
                return;
            }
            Some(hold) => {
                let is_late = hold.until_ms < now_ms;
                match rng.below(8) {
                    0..3 => Op::Extend { lease_ms: lease(rng) },
                    // It has been away, and goes on as if nothing had happened.
                    3..6 if is_late => Op::Extend { lease_ms: lease(rng) },
                    3..5 if !is_late => Op::Release,
                    6 if is_late => {
                        self.hold = None;
                        return;
                    }
                    6 => self.write(who, rng),
                    _ => return,
                }
            }
            None if self.is_reader => Op::Share { register: rng.below(REGISTERS), value: None },
            None => match rng.below(8) {
                0 => self.write(who, rng),
                2..5 if self.is_replicated => self.write(who, rng),
                1 => Op::Count { counter: rng.below(COUNTERS) },
                _ => self.acquire(who, rng),
            },
        };
        let floor = match &op {
            Op::Acquire { .. } => told.token,
            Op::Count { counter } => told.counts[*counter],
            _ => 0,
        };
        let words = self.words(who, &op, rng);
        let trusted_ms = if let Op::Extend { lease_ms } = op { self.trusted_ms(lease_ms) } else { 0 };
        match (&op, &mut self.hold) {
            // A client that gives a lock back does not use it any more.
            (Op::Release, hold) => hold.as_mut().expect("it holds a lock").until_ms = 0,
            // A lease may become shorter, and the client does not know when.
            (Op::Extend { .. }, Some(hold)) => hold.until_ms = hold.until_ms.min(now_ms + trusted_ms),
            _ => {}
        }
        self.request = Some(Request {
            op,
            words,
            sent_ms: now_ms,
            floor,
            is_answered: false,
            may_be_lost: false,
            loses_long: false,
        });
    }

    fn acquire(&mut self, who: usize, rng: &mut Rng) -> Op {
        self.owners += 1;
        let also = if self.is_replicated { Kind::Session } else { Kind::Plain };
        let kind = rng.pick(&[Kind::Plain, Kind::Hash, Kind::Native, also]);
        let named = if kind == Kind::Session { Kind::Native } else { kind };
        let key = format!("{named:?}:{}{}", rng.below(LOCKS), self.tag);
        let lease_ms = if kind == Kind::Session { rng.pick(&[0, 0, 300, 2_000]) } else { lease(rng) };
        Op::Acquire { kind, key, owner: format!("{who}-{}", self.owners), lease_ms }
    }

    /// Whether it has a lock for as long as its connection is open.
    pub(super) fn has_session(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.kind == Kind::Session)
    }

    /// Its connection has ended.
    pub(super) fn lose_session(&mut self, now_ms: u64) {
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.kind == Kind::Session) {
            hold.until_ms = hold.until_ms.min((now_ms + hold.delay_ms).saturating_sub(1));
        }
    }

    /// Its server may not tell it in time that its session has ended: it does not count on it.
    pub(super) fn give_session_up(&mut self) {
        self.hold.take_if(|hold| hold.kind == Kind::Session);
    }

    fn write(&mut self, who: usize, rng: &mut Rng) -> Op {
        self.written += 1;
        if self.is_replicated {
            let value = rng.one_in(2).then_some(who as u64 * 1_000_000 + self.written);
            return Op::Share { register: rng.below(REGISTERS), value };
        }
        // To forget that a key with a lease was removed is safe, and so its removal does not wait for the disk.
        let may_remove = self.register.until_ms.is_none();
        let value = (!may_remove || !rng.one_in(4)).then_some(self.written);
        let is_leased = value.is_some() && rng.one_in(2);
        Op::Write { value, lease_ms: is_leased.then(|| LEASE_MS_MAX + 1 + rng.below_u64(20_000)) }
    }

    fn words(&self, who: usize, op: &Op, rng: &mut Rng) -> Vec<String> {
        let tag = &self.tag;
        let line = match op {
            Op::Acquire { kind: Kind::Plain, key, owner, lease_ms } => {
                format!("SET {key} {owner} NX PX {lease_ms}")
            }
            Op::Acquire { kind: Kind::Hash, key, owner, lease_ms } => {
                format!("EVAL SCRIPT 1 {key} {lease_ms} {owner}")
            }
            Op::Acquire { kind: Kind::Session, key, owner, lease_ms } => {
                format!("LOCK.ACQUIRE {key} {owner} SESSION DELAY {lease_ms} WAIT {}", 1 + rng.below(3_000))
            }
            Op::Acquire { kind: Kind::Native, key, owner, lease_ms } if rng.one_in(2) => {
                format!("LOCK.ACQUIRE {key} {owner} LEASE {lease_ms} WAIT {}", 1 + rng.below(3_000))
            }
            Op::Acquire { kind: Kind::Native, key, owner, lease_ms } => {
                format!("LOCK.ACQUIRE {key} {owner} LEASE {lease_ms}")
            }
            Op::Count { counter } => format!("INCR counter:{counter}{tag}"),
            Op::Share { register, value: None } => format!("GET shared:{register}{tag}"),
            Op::Share { register, value: Some(value) } => format!("SET shared:{register}{tag} {value}"),
            Op::Write { value: None, .. } => format!("DEL register:{who}"),
            Op::Write { value: Some(value), lease_ms: None } => format!("SET register:{who} {value}"),
            Op::Write { value: Some(value), lease_ms: Some(lease_ms) } => {
                format!("SET register:{who} {value} PX {lease_ms}")
            }
            Op::Extend { .. } | Op::Release => {
                let Hold { kind, key, owner, .. } = self.hold.as_ref().expect("it holds a lock");
                match (kind, op) {
                    (Kind::Plain, Op::Extend { lease_ms }) => {
                        format!("EVAL SCRIPT 1 {key} {owner} {lease_ms}")
                    }
                    (Kind::Hash, Op::Extend { lease_ms }) => {
                        format!("EVAL SCRIPT 1 {key} {lease_ms} {owner}")
                    }
                    (Kind::Native, Op::Extend { lease_ms }) => {
                        format!("LOCK.EXTEND {key} {owner} LEASE {lease_ms}")
                    }
                    (Kind::Native | Kind::Session, _) => format!("LOCK.RELEASE {key} {owner}"),
                    (_, _) => format!("EVAL SCRIPT 1 {key} {owner}"),
                }
            }
        };
        let kind = self.hold.as_ref().map(|hold| hold.kind);
        let script = match (op, kind) {
            (Op::Acquire { .. }, _) => HASH_ACQUIRE,
            (Op::Extend { .. }, Some(Kind::Hash)) => HASH_EXTEND,
            (Op::Extend { .. }, _) => EXTEND,
            (_, Some(Kind::Hash)) => HASH_RELEASE,
            _ => RELEASE,
        };
        line.split(' ').map(|word| if word == "SCRIPT" { script } else { word }.to_owned()).collect()
    }

    /// Reads the reply of its request. Returns the lock in which it believes from now on, if that is new.
    pub(super) fn hear(&mut self, reply: &str, now_ms: u64, told: &mut Told) -> Result<Option<Hold>, String> {
        let Some(request) = self.request.take() else { return Err("a reply without a request".to_owned()) };
        let Request { op, sent_ms, floor, may_be_lost, loses_long, .. } = request;
        match op {
            Op::Acquire { kind, key, owner, lease_ms } => {
                let is_granted = match kind {
                    Kind::Plain => reply == "+OK\r\n",
                    Kind::Hash => reply == "$-1\r\n",
                    Kind::Native | Kind::Session => reply.contains("$5\r\ntoken\r\n"),
                };
                if !is_granted {
                    return Ok(None);
                }
                if kind.is_native() {
                    told.token(token_in(reply)?, floor)?;
                }
                let (trusted_ms, is_long) = (self.trusted_ms(lease_ms), lease_ms > LEASE_MS_MAX);
                let (until_ms, delay_ms) = match kind {
                    Kind::Session => (u64::MAX, trusted_ms),
                    _ => (sent_ms + trusted_ms, 0),
                };
                self.hold = Some(Hold { kind, key, owner, until_ms, delay_ms, may_be_lost, is_long });
            }
            Op::Extend { lease_ms } => {
                let until_ms = sent_ms + self.trusted_ms(lease_ms);
                let Some(hold) = &mut self.hold else { return Ok(None) };
                if reply != ":1\r\n" && !reply.contains("$5\r\ntoken\r\n") {
                    if !reply.starts_with('-') {
                        self.hold = None;
                    }
                    return Ok(None);
                }
                (hold.until_ms, hold.may_be_lost) = (until_ms, may_be_lost);
                hold.is_long = lease_ms > LEASE_MS_MAX;
            }
            Op::Release => {
                self.hold = None;
                return Ok(None);
            }
            Op::Count { counter } => {
                if let Some(count) = integer_in(reply) {
                    if count <= floor {
                        return Err(format!("counter {counter} is {count} after {floor}"));
                    }
                    told.counts[counter] = told.counts[counter].max(count);
                }
                return Ok(None);
            }
            // The history of the key is checked in the end.
            Op::Share { .. } => return Ok(None),
            Op::Write { .. } => {
                if !reply.starts_with('-') {
                    // The server may have been started again since, and have shown what was executed.
                    self.register = self.pending.take().unwrap_or(self.register);
                }
                self.pending = None;
                return Ok(None);
            }
        }
        if loses_long {
            self.hold.take_if(|hold| hold.is_long);
        }
        Ok(self.hold.clone().filter(|hold| hold.until_ms >= now_ms))
    }

    /// A server in memory mode has ended: it does not wait for the end of long leases.
    pub(super) fn lose_long_lease(&mut self) {
        self.hold.take_if(|hold| hold.is_long);
        self.request.iter_mut().for_each(|request| request.loses_long = true);
    }

    /// The server may have forgotten what it has granted with a lease.
    pub(super) fn may_lose_lock(&mut self) {
        self.hold.iter_mut().for_each(|hold| hold.may_be_lost = true);
        self.request.iter_mut().for_each(|request| request.may_be_lost = true);
    }

    /// The server ends without a reply.
    pub(super) fn lose_request(&mut self) {
        self.request = self.request.take().filter(|request| request.is_answered);
    }
}

/// What is wrong, if the client believes in a lock that is not there.
pub(super) fn lost_hold(client: &Client, state: &State, now_ms: u64) -> Option<String> {
    let hold = client.hold.as_ref().filter(|hold| hold.until_ms >= now_ms && !hold.may_be_lost)?;
    let found = state.get(&(0, hold.key.clone().into_bytes())).map(|(value, _)| value);
    let is_there = match (found, hold.kind) {
        (Some(Value::String(owner)), _) => owner == hold.owner.as_bytes(),
        (Some(Value::Object(_)), Kind::Hash) => true,
        _ => false,
    };
    (!is_there).then(|| format!("{hold:?} is lost: {found:?}"))
}

impl Told {
    fn token(&mut self, token: u64, floor: u64) -> Result<(), String> {
        if token <= floor || !self.tokens.insert(token) {
            return Err(format!("token {token} is granted after {floor}"));
        }
        self.token = self.token.max(token);
        Ok(())
    }
}

/// Leases of usual and of unusual length: a horizon covers the next usual one.
fn lease(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0 => 1 + rng.below_u64(LONGEST_LEASE_MS),
        1 => 50 + rng.below_u64(300),
        _ => 1_500 + rng.below_u64(2_000),
    }
}

fn token_in(reply: &str) -> Result<u64, String> {
    let text = reply.split("$5\r\ntoken\r\n:").nth(1).and_then(|rest| rest.split('\r').next());
    text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("no token in {reply:?}"))
}

fn integer_in(reply: &str) -> Option<u64> {
    reply.strip_prefix(':')?.trim_end().parse().ok()
}
