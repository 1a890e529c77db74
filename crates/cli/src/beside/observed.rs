//! The observed server: one connection, whose requests have a rate, and on which the server may tell changes.
//!
//! Owns    [`Observed`], and which requests the server is sent.
//! Bounds  a string of [`OWNER_BYTES_MAX`] bytes, a hash of [`FIELDS_MAX`] fields, a sorted set of [`MEMBERS_MAX`] members;
//!         the last two in the compact encoding, which has short elements only.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redlatch_client::Error;
use redlatch_client::wire::{Connection, Reply, connect, is_unknown};
use redlatch_core::keyspace::LockValue;
use redlatch_core::state::beside::Beside;
use redlatch_proto::log_name::readable;
use tokio::time::{Instant, timeout_at};

use super::changes::Changes;
use super::login::Login;
use super::recognise::{Kind, is_lock};

/// A connection to the observed server.
pub(super) struct Observed {
    login: Login,
    connection: Connection,
    /// Between two requests.
    step: Duration,
    /// When the last request was sent.
    sent: Instant,
    pub(super) changes: Changes,
    pub(super) beside: Arc<Beside>,
    /// What the login may not do, and what the server lacks, in words.
    pub(super) forbidden: BTreeSet<String>,
    /// `master` or `slave`, as it said last.
    role: Option<String>,
}

/// A lock, as it was read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) value: LockValue,
    /// When its lease was asked for.
    pub(super) at: Instant,
    /// When its lease ends, at the earliest and at the latest; `None`: it has none.
    pub(super) ends: Option<(Instant, Instant)>,
}

/// Why a key has no reading.
#[derive(Debug)]
pub(super) enum NoReading {
    /// There is no such key, or it is no lock.
    Gone,
    /// The key has a value of another type.
    Other,
    /// The server did not say: the login forbids it, a command is missing, or the value is beyond the bounds.
    Unknown,
    /// The connection has failed, or the server refuses all readings.
    Failed(Error),
}

impl From<Error> for NoReading {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Bytes of an owner, as redlatch allows them.
const OWNER_BYTES_MAX: usize = 1024;
const FIELDS_MAX: usize = 16;
const MEMBERS_MAX: usize = 100;
/// Bytes of all elements of a value.
const VALUE_BYTES_MAX: usize = 8 * 1024;
/// How long before its end a lease must be read, for its end to be seen. A release in this time is taken for that end.
const NEAR_END: Duration = Duration::from_millis(250);
/// For how long a server may be sent nothing.
const QUIET_MAX: Duration = Duration::from_secs(1);
/// Keys that one SCAN looks at.
const KEYS_PER_SCAN: &[u8] = b"100";

impl Observed {
    /// Connects, and asks for changes; `rate` is how many requests may be sent in a second.
    ///
    /// # Errors
    /// The server cannot be reached or trusted, or refuses the login.
    pub(super) async fn connect(
        login: Login,
        rate: u32,
        beside: Arc<Beside>,
        changes: Changes,
    ) -> Result<Self, Error> {
        let connection = open(&login).await?;
        let (step, sent, forbidden) = (Duration::from_secs(1) / rate, Instant::now(), BTreeSet::new());
        let mut observed = Self { login, connection, step, sent, changes, beside, forbidden, role: None };
        observed.track().await?;
        Ok(observed)
    }

    /// Connects again.
    ///
    /// # Errors
    /// As [`Observed::connect`].
    pub(super) async fn reconnect(&mut self) -> Result<(), Error> {
        self.connection = open(&self.login).await?;
        self.track().await
    }

    /// Asks the server to say which keys change, if that is wanted. One that refuses it is read in rounds alone.
    async fn track(&mut self) -> Result<(), Error> {
        let Some(prefix) = self.changes.prefix().map(<[u8]>::to_vec) else { return Ok(()) };
        // In RESP2 servers agree, and tell nothing.
        let words: [&[u8]; 6] = [b"CLIENT", b"TRACKING", b"ON", b"BCAST", b"PREFIX", &prefix];
        let tells = self.connection.has_pushes() && !matches!(self.ask(&words).await?, Reply::Error(_));
        self.beside.is_tracking.store(tells, Relaxed);
        if !tells {
            self.note_refusal("CLIENT TRACKING".to_owned());
        }
        Ok(())
    }

    /// One step of SCAN: the next cursor, and keys of this kind.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub(super) async fn scan(
        &mut self,
        cursor: &[u8],
        kind: Kind,
        pattern: &[u8],
    ) -> Result<(Vec<u8>, Vec<Vec<u8>>), Error> {
        let (count, kind) = (KEYS_PER_SCAN, kind.name().as_bytes());
        let words: [&[u8]; 8] = [b"SCAN", cursor, b"MATCH", pattern, b"COUNT", count, b"TYPE", kind];
        match self.ask(&words).await? {
            Reply::Error(text) => Err(Error::Refused(text)),
            reply => {
                let [cursor, keys] = reply.items() else { return Err(unexpected("SCAN")) };
                let cursor = cursor.text().ok_or_else(|| unexpected("SCAN"))?;
                let keys = keys.items().iter().filter_map(Reply::text).map(<[u8]>::to_vec);
                Ok((cursor.to_vec(), keys.collect()))
            }
        }
    }

    /// The lock of a key.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(super) async fn lock(&mut self, key: &[u8], kind: Kind) -> Result<Reading, NoReading> {
        let value = self.value(key, kind).await?;
        if !is_within_bounds(&value) {
            return Err(NoReading::Unknown);
        }
        if !is_lock(&value) {
            return Err(NoReading::Gone);
        }
        let left = self.number(&[b"PTTL", key]).await?;
        let (at, received) = (self.sent, Instant::now());
        let ends = match left {
            -1 if kind != Kind::SortedSet => None,
            0.. => {
                let left = Duration::from_millis(left.unsigned_abs());
                at.checked_add(left).zip(received.checked_add(left))
            }
            _ => return Err(NoReading::Gone),
        };
        Ok(Reading { value, at, ends })
    }

    async fn value(&mut self, key: &[u8], kind: Kind) -> Result<LockValue, NoReading> {
        let (length, max): (&[u8], usize) = match kind {
            Kind::Hash => (b"HLEN", FIELDS_MAX),
            Kind::SortedSet => (b"ZCARD", MEMBERS_MAX),
            Kind::String => return self.owner(key).await,
        };
        match usize::try_from(self.number(&[length, key]).await?) {
            Ok(0) => return Err(NoReading::Gone),
            Ok(length) if length <= max => {}
            _ => return Err(NoReading::Unknown),
        }
        let encoding = self.answer(&[b"OBJECT", b"ENCODING", key]).await?;
        if !encoding.is("listpack") && !encoding.is("ziplist") {
            return Err(NoReading::Unknown);
        }
        Ok(match kind {
            Kind::Hash => LockValue::Hash(texts(&self.answer(&[b"HGETALL", key]).await?)),
            _ => {
                let members = self.answer(&[b"ZRANGE", key, b"0", b"99", b"WITHSCORES"]).await?;
                LockValue::SortedSet(scores(&members))
            }
        })
    }

    /// The owner that a string names: at most one byte more than an owner has. A missing key is an empty string.
    async fn owner(&mut self, key: &[u8]) -> Result<LockValue, NoReading> {
        let value = self.answer(&[b"GETRANGE", key, b"0", b"1024"]).await?;
        let owner = value.text().ok_or(NoReading::Unknown)?;
        // The owner that was shown is not the value any more.
        if owner.len() > OWNER_BYTES_MAX {
            return Err(NoReading::Gone);
        }
        Ok(LockValue::String(owner.to_vec()))
    }

    /// The number that a request about a key is answered with.
    async fn number(&mut self, words: &[&[u8]]) -> Result<i64, NoReading> {
        self.answer(words).await?.integer().ok_or(NoReading::Unknown)
    }

    /// The answer to a request; `None`: the login forbids it, or the server lacks it.
    ///
    /// # Errors
    /// As [`Observed::scan`].
    pub(super) async fn read(&mut self, words: &[&[u8]]) -> Result<Option<Reply>, Error> {
        match self.answer(words).await {
            Ok(reply) => Ok(Some(reply)),
            Err(NoReading::Failed(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// The answer to a request.
    async fn answer(&mut self, words: &[&[u8]]) -> Result<Reply, NoReading> {
        let text = match self.ask(words).await? {
            Reply::Error(text) => text,
            reply => return Ok(reply),
        };
        if text.starts_with("WRONGTYPE") {
            return Err(NoReading::Other);
        }
        // Managed servers lack CONFIG, for example.
        if !text.starts_with("NOPERM") && !is_unknown(&text) {
            return Err(Error::Refused(text).into());
        }
        let what = match text.starts_with("NOPERM") && text.contains("access") {
            true => "keys outside of its patterns".to_owned(),
            false => String::from_utf8_lossy(words[0]).into_owned(),
        };
        self.note_refusal(what);
        Err(NoReading::Unknown)
    }

    /// Names what the server refuses, once.
    fn note_refusal(&mut self, what: String) {
        if !self.forbidden.contains(&what) {
            tracing::warn!(what, "The observed server refuses a part of the reading");
            self.forbidden.insert(what);
        }
    }

    /// Sends a request as soon as the rate allows it. Changes that the server tells meanwhile are noted.
    async fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        let next = self.sent + self.step;
        while Instant::now() < next {
            self.hear(next).await?;
        }
        self.beside.requests.fetch_add(1, Relaxed);
        self.sent = Instant::now();
        let (changes, beside) = (&mut self.changes, &self.beside);
        self.connection.ask_hearing(words, |push| note_changes(changes, beside, push)).await
    }

    /// Waits for changes that the server tells: for one push, or until this moment.
    ///
    /// # Errors
    /// The connection fails.
    pub(super) async fn hear(&mut self, until: Instant) -> Result<(), Error> {
        if let Ok(push) = timeout_at(until, self.connection.next_push()).await {
            note_changes(&mut self.changes, &self.beside, &push?);
        }
        Ok(())
    }

    /// Like [`Observed::hear`]. A server that was sent nothing for a while is asked whether it is there: a dead connection
    /// says nothing.
    ///
    /// # Errors
    /// The connection fails.
    pub(super) async fn listen(&mut self, until: Instant) -> Result<(), Error> {
        let quiet = self.sent + QUIET_MAX;
        self.hear(until.min(quiet)).await?;
        if Instant::now() >= quiet {
            // A server that refuses it is there, too.
            self.ask(&[b"PING"]).await?;
        }
        Ok(())
    }

    /// How many microseconds the clock of the server is ahead of the time that has passed since `start` here, at least and
    /// at most; `None`: the login forbids the question.
    ///
    /// # Errors
    /// As [`Observed::scan`].
    pub(super) async fn clock_ahead(&mut self, start: Instant) -> Result<Option<(i64, i64)>, Error> {
        let Some(reply) = self.read(&[b"TIME"]).await? else { return Ok(None) };
        let [seconds, micros] = reply.items() else { return Err(unexpected("TIME")) };
        let micros = seconds
            .integer()
            .zip(micros.integer())
            .and_then(|(seconds, micros)| seconds.checked_mul(1_000_000)?.checked_add(micros));
        let micros = micros.ok_or_else(|| unexpected("TIME"))?;
        let since = |at: Instant| i64::try_from((at - start).as_micros()).unwrap_or(i64::MAX);
        Ok(Some((micros.saturating_sub(since(Instant::now())), micros.saturating_sub(since(self.sent)))))
    }

    /// A section of INFO, as names and values; empty if the login forbids it.
    ///
    /// # Errors
    /// As [`Observed::scan`].
    pub(super) async fn info(&mut self, section: &str) -> Result<Vec<(String, String)>, Error> {
        let reply = self.read(&[b"INFO", section.as_bytes()]).await?;
        let text = reply.as_ref().and_then(Reply::text).map(String::from_utf8_lossy).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        let shown = |text: &str| readable(text.trim().as_bytes());
        Ok(pairs.map(|(name, value)| (shown(name), shown(value))).collect())
    }

    /// Whether the server has become a replica, or a master, since it was asked last. False if the login forbids the
    /// question.
    ///
    /// # Errors
    /// As [`Observed::scan`].
    pub(super) async fn has_changed_role(&mut self) -> Result<bool, Error> {
        let replication = self.info("replication").await?;
        let Some((_, role)) = replication.into_iter().find(|(name, _)| name == "role") else {
            return Ok(false);
        };
        Ok(self.role.replace(role.clone()).is_some_and(|before| before != role))
    }

    /// Whether the server is a node of a cluster, as it said at the login.
    pub(super) fn is_in_cluster(&self) -> bool {
        self.connection.is_in_cluster()
    }

    /// How many keys the database has; `None`: the login forbids the question.
    ///
    /// # Errors
    /// As [`Observed::scan`].
    pub(super) async fn keys(&mut self) -> Result<Option<i64>, Error> {
        Ok(self.read(&[b"DBSIZE"]).await?.and_then(|reply| reply.integer()))
    }
}

impl Reading {
    /// Whether a lock that is not found any more has certainly been held until shortly before its lease has ended.
    pub(super) fn has_expired(&self) -> bool {
        self.is_near_end() && self.ends.is_some_and(|(end, _)| end <= Instant::now())
    }

    /// Whether the lease ends so soon that the lock is next read at that end.
    pub(super) fn is_near_end(&self) -> bool {
        self.ends.is_some_and(|(end, _)| end.saturating_duration_since(self.at) <= NEAR_END)
    }

    /// When to read the lock again: shortly before its lease ends, and at that end; `None`: in the next round.
    pub(super) fn due(&self) -> Option<Instant> {
        let (end, _) = self.ends?;
        if self.is_near_end() { Some(end) } else { end.checked_sub(NEAR_END) }
    }

    /// Whether a later reading found the lease that this one found. Between two readings clocks may drift by a thousandth.
    pub(super) fn has_lease_of(&self, later: &Self) -> bool {
        let slack = Duration::from_millis(1) + later.at.saturating_duration_since(self.at) / 1000;
        match (self.ends, later.ends) {
            (None, None) => true,
            (Some(before), Some(after)) => before.0 <= after.1 + slack && after.0 <= before.1 + slack,
            _ => false,
        }
    }
}

/// Connects; what is read then does not count as used, for servers that evict by use and know this.
async fn open(login: &Login) -> Result<Connection, Error> {
    let mut connection = connect(&login.target, &login.trust).await?;
    connection.ask(&[b"CLIENT", b"NO-TOUCH", b"ON"]).await?;
    Ok(connection)
}

/// Notes what a push says. Until a changed key is read again, its lock is inferred.
fn note_changes(changes: &mut Changes, beside: &Beside, push: &[Reply]) {
    changes.note(push, |key| {
        beside.changes.fetch_add(1, Relaxed);
        beside.set_unread(key, true);
    });
}

/// Whether a value has the size that the server said before: a server may lie, or the value has grown since.
fn is_within_bounds(value: &LockValue) -> bool {
    let (count, max, bytes) = match value {
        LockValue::String(owner) => (owner.len(), OWNER_BYTES_MAX, owner.len()),
        LockValue::Hash(fields) => {
            let bytes = fields.iter().map(|(field, holds)| field.len() + holds.len());
            (fields.len(), FIELDS_MAX, bytes.sum())
        }
        LockValue::SortedSet(members) => {
            (members.len(), MEMBERS_MAX, members.iter().map(|(member, _)| member.len()).sum())
        }
    };
    count <= max && bytes <= VALUE_BYTES_MAX
}

fn texts(reply: &Reply) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = reply.pairs().into_iter();
    pairs.filter_map(|(field, value)| Some((field.text()?.to_vec(), value.text()?.to_vec()))).collect()
}

/// Members and scores: RESP3 has a list of pairs, RESP2 a flat one.
fn scores(reply: &Reply) -> Vec<(Vec<u8>, f64)> {
    let pair = |member: &Reply, score: &Reply| {
        let score = std::str::from_utf8(score.text()?).ok()?.parse().ok()?;
        Some((member.text()?.to_vec(), score))
    };
    let nested = reply.items().iter().filter_map(|item| match item.items() {
        [member, score] => pair(member, score),
        _ => None,
    });
    let flat = reply.pairs().into_iter().filter_map(|(member, score)| pair(member, score));
    nested.chain(flat).collect()
}

fn unexpected(command: &str) -> Error {
    Error::Broken(format!("{command} has an unexpected reply"))
}
