//! The requests that take, extend and release a lock: as LOCK commands, and for other servers as SET and two scripts.
//!
//! Source  the scripts are the usual ones of lock clients: compare and delete, compare and pexpire.

use std::collections::BTreeMap;
use std::time::Duration;

use redlatch_proto::lock::{ANSWER_MAX, WAIT_MAX};
use redlatch_proto::options::{Kind, Options};
use tokio::time::{Instant, sleep_until};

use super::connection::{Connection, is_ending, is_unknown};
use super::error::Error;
use super::limits::{POLL_MAX, POLL_MIN, STOP_BEFORE_MAX, STOP_BEFORE_PART};
use super::locks::random;
use super::retry::Retry;
use super::views::Held;
use crate::received::Reply;

/// What a holder asks for.
#[derive(Clone, Debug)]
pub struct Terms {
    pub keys: Vec<Vec<u8>>,
    /// Whether one of the keys is enough. A grant leaves that key alone in `keys`.
    pub any: bool,
    /// How to take the keys that are not taken as `options` say.
    pub modes: BTreeMap<Vec<u8>, Kind>,
    pub owner: Vec<u8>,
    pub lease: Duration,
    /// Instead of a lease: how long the lock lasts after its connection has ended.
    pub session: Option<Duration>,
    /// How long to wait; `None` without a limit.
    pub wait: Option<Duration>,
    pub options: Options,
    /// How long before its deadline the hold is lost; `None`: the default.
    pub stop_before: Option<Duration>,
    /// Whether a server that keeps no META grants without it.
    pub may_drop_meta: bool,
}

/// How a server is asked for locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dialect {
    /// By LOCK commands.
    Native,
    /// By SET and scripts.
    Plain,
}

/// A lock that was granted.
#[derive(Clone, Debug)]
pub struct Grant {
    pub dialect: Dialect,
    /// The key that was got, of a request for one of several.
    pub key: Option<Vec<u8>>,
    pub token: Option<u64>,
    /// A moment at which the lease had not begun.
    pub begun: Instant,
    /// The id of the session that the lock ends with.
    pub session: Option<Vec<u8>>,
}

/// The answer of LOCK.ACQUIRE that grants a lock.
#[derive(Clone, Copy, Debug)]
pub struct GrantAnswer {
    pub token: Option<u64>,
    /// How long the request has waited, in milliseconds.
    pub waited_ms: u64,
}

impl GrantAnswer {
    /// Reads an answer, also one that is the token alone. `None` if it grants nothing.
    pub fn read(reply: &Reply) -> Option<Self> {
        if let Reply::Integer(token) = reply {
            return Some(Self { token: u64::try_from(*token).ok(), waited_ms: 0 });
        }
        let number = |name| reply.field(name)?.integer().and_then(|number| u64::try_from(number).ok());
        Some(Self { token: number("token"), waited_ms: number("waited")? })
    }

    /// A moment at which the lease had not begun. It began when the wait ended, which is later than the request was sent by
    /// at least what it waited.
    pub fn lease_from(self, sent: Instant) -> Instant {
        let waited = Duration::from_millis(self.waited_ms.saturating_sub(1));
        (sent + waited).min(Instant::now())
    }
}

impl Terms {
    /// Takes the lock, waiting for it as long as the call does. `may_be_ours`: this owner may have it already, by
    /// a request whose answer was lost or by another process.
    ///
    /// # Errors
    /// The lock is held when the wait has ended, or the server refuses the terms or cannot be asked.
    pub async fn acquire(
        &self,
        connection: &mut Connection,
        retry: &mut Retry,
        may_be_ours: bool,
    ) -> Result<Grant, Error> {
        match self.acquire_natively(connection, retry).await {
            Err(Error::Refused(text)) if is_unknown(&text) => {
                self.acquire_plainly(connection, retry, may_be_ours).await
            }
            answer => answer,
        }
    }

    async fn acquire_natively(&self, connection: &mut Connection, retry: &mut Retry) -> Result<Grant, Error> {
        loop {
            let wait = retry.left().unwrap_or(WAIT_MAX).min(WAIT_MAX);
            let (sent, request) = (Instant::now(), self.acquire_request(wait, true));
            let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            let asked = connection.ask_and_wait(&words);
            let reply = tokio::time::timeout(wait + ANSWER_MAX, asked).await;
            let reply = reply.map_err(|_| Error::unreachable("the server does not answer"))??;
            retry.told();
            if let Reply::Error(text) = reply {
                return Err(if is_ending(&text) { Error::unreachable(text) } else { Error::of_reply(text) });
            }
            if let Some(answer) = GrantAnswer::read(&reply) {
                let begun = answer.lease_from(sent);
                let (key, token) = match self.any {
                    true => self.got(&reply)?,
                    false => (None, answer.token),
                };
                return Ok(Grant { dialect: Dialect::Native, key, token, begun, session: None });
            }
            if wait < WAIT_MAX {
                return Err(Error::Held(self.held(connection, reply.field("refused")).await));
            }
        }
    }

    /// The words of LOCK.ACQUIRE, or of LOCK.MACQUIRE for several keys. `says_why`: a refusal tells who holds
    /// the lock, and a grant without a wait is answered with its token alone; of one of several, with its key, too.
    pub fn acquire_request(&self, wait: Duration, says_why: bool) -> Vec<Vec<u8>> {
        let mut words = match &self.keys[..] {
            [key] => vec![b"LOCK.ACQUIRE".to_vec(), key.clone()],
            keys => {
                let mut words = vec![b"LOCK.MACQUIRE".to_vec(), text(keys.len())];
                words.extend(keys.iter().cloned());
                words
            }
        };
        words.push(self.owner.clone());
        words.extend(match self.session {
            Some(delay) => vec![b"SESSION".to_vec(), b"DELAY".to_vec(), millis(delay)],
            None => vec![b"LEASE".to_vec(), millis(self.lease)],
        });
        match says_why && wait.is_zero() && !self.any {
            true => words.push(b"JUSTTOKEN".to_vec()),
            false => words.extend([b"WAIT".to_vec(), millis(wait)]),
        }
        words.extend(says_why.then(|| b"WHY".to_vec()));
        if self.any {
            words.extend([b"ANY".to_vec(), text(1)]);
        }
        for (at, key) in self.keys.iter().enumerate() {
            if let Some(kind) = self.modes.get(key).filter(|kind| **kind != Kind::Exclusive) {
                words.extend([b"MODE".to_vec(), text(at + 1)]);
                words.extend(kind.words());
            }
        }
        words.extend(self.options.words());
        words
    }

    /// The key that was got of several, and its token.
    ///
    /// # Errors
    /// The answer names none of the keys.
    fn got(&self, reply: &Reply) -> Result<(Option<Vec<u8>>, Option<u64>), Error> {
        let locks = reply.field("locks").map(Reply::pairs).unwrap_or_default();
        let got = locks.first().and_then(|(key, token)| {
            let key = self.keys.iter().find(|known| key.text() == Some(known))?;
            Some((Some(key.clone()), u64::try_from(token.integer()?).ok()))
        });
        got.ok_or_else(|| Error::Broken("LOCK.MACQUIRE: grants none of the keys".to_owned()))
    }

    /// The key that was got is the only one from now on.
    pub(super) fn settle(&mut self, key: Vec<u8>) {
        self.options.kind = self.modes.remove(&key).unwrap_or(self.options.kind);
        (self.keys, self.any, self.modes) = (vec![key], false, BTreeMap::new());
    }

    /// Who holds the lock that was refused: what LOCK.WHO says, or else the refusal itself.
    async fn held(&self, connection: &mut Connection, refusal: Option<&Reply>) -> Option<Box<Held>> {
        for key in &self.keys {
            if let Ok(reply) = connection.call(&[b"LOCK.WHO", key]).await
                && let Some(held) = Held::read(&reply)
            {
                return Some(Box::new(held));
            }
        }
        Held::of_refusal(&self.keys[0], refusal?).map(Box::new)
    }

    async fn acquire_plainly(
        &self,
        connection: &mut Connection,
        retry: &mut Retry,
        mut may_be_ours: bool,
    ) -> Result<Grant, Error> {
        let until = retry.until();
        let key = match (self.lacking(), &self.keys[..]) {
            (None, [key]) => key,
            (lacking, _) => return Err(Error::Unsupported(lacking.unwrap_or("several keys at once"))),
        };
        let mut pause = POLL_MIN;
        loop {
            let sent = Instant::now();
            let set = [b"SET", &key[..], &self.owner, b"NX", b"PX", &millis(self.lease)];
            let is_set = connection.call(&set).await? != Reply::Null;
            retry.told();
            let is_ours = std::mem::take(&mut may_be_ours) && !is_set && self.is_ours(connection).await?;
            if is_set || is_ours {
                let dialect = Dialect::Plain;
                return Ok(Grant { dialect, key: None, token: None, begun: sent, session: None });
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(Error::Held(held_plainly(connection, key).await.map(Box::new)));
            }
            // Half of the pause is random, so that those who wait do not ask in step.
            let half = u64::try_from(pause.as_micros() / 2).unwrap_or(u64::MAX);
            let next = Instant::now() + Duration::from_micros(half + random() % half.max(1));
            sleep_until(until.map_or(next, |until| until.min(next))).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    pub(crate) fn is_reentrant(&self) -> bool {
        self.options.kind == Kind::Reentrant
    }

    /// What a server without LOCK commands cannot do of the terms.
    fn lacking(&self) -> Option<&'static str> {
        match self.options.kind {
            _ if self.any => Some("one of several keys"),
            _ if self.keys.len() > 1 => Some("several keys at once"),
            Kind::Permits { .. } => Some("permits"),
            Kind::Reentrant => Some("a reentrant lock"),
            Kind::Shared => Some("a shared lock"),
            Kind::Exclusive if self.session.is_some() => Some("a session"),
            Kind::Exclusive if self.options.priority > 0 => Some("a priority"),
            Kind::Exclusive if !self.options.meta.is_empty() && !self.may_drop_meta => Some("meta"),
            Kind::Exclusive => None,
        }
    }

    /// For how long the lock is certainly held after a sign of life; `None`: as long as its connection.
    pub(crate) fn lasts(&self) -> Option<Duration> {
        self.session.map_or(Some(self.lease), |delay| Some(delay).filter(|delay| !delay.is_zero()))
    }

    /// How long before its deadline a hold that lasts so long is lost.
    pub(crate) fn margin(&self, lasts: Duration) -> Duration {
        self.stop_before.unwrap_or_else(|| (lasts / STOP_BEFORE_PART).min(STOP_BEFORE_MAX))
    }

    /// How often the owner holds the first key.
    pub(crate) async fn times_held(&self, connection: &mut Connection) -> Result<u64, Error> {
        let held = Held::read(&connection.call(&[b"LOCK.WHO", &self.keys[0]]).await?);
        let holders = held.map(|held| held.holders).unwrap_or_default();
        Ok(holders.iter().filter(|holder| holder.owner == self.owner).map(|holder| holder.permits).sum())
    }

    /// Begins the lease of the first key anew, which the owner holds; returns its token.
    pub(crate) async fn taken_before(&self, connection: &mut Connection) -> Result<Option<u64>, Error> {
        let lease = millis(self.lease);
        let mut words = vec![&b"LOCK.EXTEND"[..], &self.keys[0], &self.owner];
        words.extend(self.session.is_none().then_some([&b"LEASE"[..], &lease]).into_iter().flatten());
        let token = connection.call(&words).await?.field("token").and_then(Reply::integer);
        Ok(token.and_then(|token| u64::try_from(token).ok()))
    }

    /// Whether this owner has the lock already, on a server without LOCK commands: its lease begins anew
    /// then.
    async fn is_ours(&self, connection: &mut Connection) -> Result<bool, Error> {
        match self.extend(connection, Dialect::Plain, (None, Some(self.lease))).await {
            // A key that is no lock refuses.
            Err(Error::Refused(text)) if text.contains("WRONGTYPE") => Ok(false),
            answer => answer,
        }
    }

    /// Renews the lease of every key, with another length; `None`: of a session, which has none. With a
    /// token, a later hold of the same owner is left alone. False if the owner does not hold every key with
    /// this token.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn extend(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        (token, lease): (Option<u64>, Option<Duration>),
    ) -> Result<bool, Error> {
        let (token, lease) = (token.map(text), lease.map(millis));
        for key in &self.keys {
            let is_held = match dialect {
                Dialect::Native => {
                    let mut words = vec![&b"LOCK.EXTEND"[..], key, &self.owner];
                    words.extend(lease.iter().flat_map(|lease| [&b"LEASE"[..], lease]));
                    words.extend(token.iter().flat_map(|token| [&b"TOKEN"[..], token]));
                    connection.call(&words).await? != Reply::Null
                }
                Dialect::Plain => {
                    let lease = lease.as_deref().unwrap_or_default();
                    let words = [b"EVAL", EXTEND.as_bytes(), b"1", key, &self.owner, lease];
                    connection.call(&words).await?.integer() == Some(1)
                }
            };
            if !is_held {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hands the lock over to another owner, which waits for it or has it for `lease`. Returns the new token; `None` if the
    /// session of that owner has ended in the same instant.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn transfer(
        &self,
        connection: &mut Connection,
        token: Option<u64>,
        (owner, lease): (&[u8], Option<Duration>),
    ) -> Result<Option<u64>, Error> {
        let (token, lease) = (token.map(text), lease.map(millis));
        let mut words = vec![&b"LOCK.TRANSFER"[..], &self.keys[0], &self.owner, b"TO", owner];
        words.extend(token.iter().flat_map(|token| [&b"TOKEN"[..], token]));
        words.extend(lease.iter().flat_map(|lease| [&b"LEASE"[..], lease]));
        let token = connection.call(&words).await?.field("token").and_then(Reply::integer);
        Ok(token.and_then(|token| u64::try_from(token).ok()))
    }

    /// Makes every key one of the session of this connection, which lasts for `rest` after its end: a lock
    /// that ends so has not expired in the hands of its holder, and the server does not count it so. The keys
    /// have been extended by `rest`. False if the owner does not hold every key with this token.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn leave(
        &self,
        connection: &mut Connection,
        (token, rest): (Option<u64>, Duration),
    ) -> Result<bool, Error> {
        for key in &self.keys {
            if !self.hand_to_session(connection, key, (token, rest)).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes a key one of the session of this connection. False if it is not held with this token. LOCK.ACQUIRE names no
    /// token: WATCH keeps it from a later grant to the same owner. If the key has changed, its lease stays.
    async fn hand_to_session(
        &self,
        connection: &mut Connection,
        key: &[u8],
        (token, rest): (Option<u64>, Duration),
    ) -> Result<bool, Error> {
        connection.call(&[b"WATCH", key]).await?;
        let held = connection.call(&[b"LOCK.TOKEN", key, &self.owner]).await?.integer();
        if held.and_then(|held| u64::try_from(held).ok()) != token {
            return Ok(false);
        }
        let mut words = vec![b"LOCK.ACQUIRE".to_vec(), key.to_vec(), self.owner.clone()];
        words.extend([b"SESSION".to_vec(), b"DELAY".to_vec(), millis(rest)]);
        let kind = self.modes.get(key).copied().unwrap_or(self.options.kind);
        words.extend(Options { kind, ..self.options.clone() }.words());
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        connection.call(&[b"MULTI"]).await?;
        connection.call(&words).await?;
        connection.call(&[b"EXEC"]).await?;
        Ok(true)
    }

    /// Releases a key. With a token, a later hold of the same owner is left alone. False if the owner did not
    /// hold it.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn release_key(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        (key, token): (&[u8], Option<u64>),
    ) -> Result<bool, Error> {
        let token = token.map(text);
        let mut words: Vec<&[u8]> = match dialect {
            Dialect::Native => vec![b"LOCK.RELEASE", key, &self.owner],
            Dialect::Plain => vec![b"EVAL", RELEASE.as_bytes(), b"1", key, &self.owner],
        };
        words.extend(token.iter().flat_map(|token| [&b"TOKEN"[..], token]));
        Ok(connection.call(&words).await?.integer() == Some(1))
    }
}

/// What a server without LOCK commands tells about a key: its value and its TTL, or the type of a value that is no string.
pub(crate) async fn held_plainly(connection: &mut Connection, key: &[u8]) -> Option<Held> {
    let value = match connection.ask(&[b"GET", key]).await.ok()? {
        Reply::Text(owner) => Ok(owner),
        Reply::Error(text) if text.starts_with("WRONGTYPE") => {
            let reply = connection.call(&[b"TYPE", key]).await.ok()?;
            Err(String::from_utf8_lossy(reply.text()?).into_owned())
        }
        _ => return None,
    };
    let left = connection.call(&[b"PTTL", key]).await.ok()?.integer();
    Some(Held::plain(key, value, left.and_then(|left| u64::try_from(left).ok())))
}

fn text(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(super) fn millis(duration: Duration) -> Vec<u8> {
    text(duration.as_millis())
}

/// Compare and delete: 1, or 0 if the owner does not hold the lock. KEYS: the lock. ARGV: the owner.
pub const RELEASE: &str = include_str!("release.lua");
/// Like [`RELEASE`]; the lease begins anew. ARGV: the owner, the lease in milliseconds.
pub(crate) const EXTEND: &str = include_str!("extend.lua");
