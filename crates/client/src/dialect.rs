//! The requests that take, extend and release a lock: as LOCK commands, and for other servers as SET and two scripts.
//!
//! Source  the scripts are the usual ones of lock clients: compare and delete, compare and pexpire.

use std::time::Duration;

use redlatch_proto::lock::{ANSWER_MAX, WAIT_MAX};
use tokio::time::{Instant, sleep_until};

use super::connection::{Connection, is_ending, is_unknown};
use super::error::Error;
use super::locks::random;
use super::views::Held;
use crate::received::Reply;

/// What a holder asks for.
#[derive(Clone, Debug)]
pub struct Terms {
    pub keys: Vec<Vec<u8>>,
    pub owner: Vec<u8>,
    pub kind: Kind,
    pub lease: Duration,
    /// How long to wait; `None` without a limit.
    pub wait: Option<Duration>,
    pub meta: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Exclusive,
    Permits { count: u64, limit: u64 },
    Shared,
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
    pub token: Option<u64>,
    /// The server does not grant the lock to anybody else before this.
    pub deadline: Instant,
}

/// The answer of LOCK.ACQUIRE that grants a lock.
#[derive(Clone, Copy, Debug)]
pub struct GrantAnswer {
    pub token: Option<u64>,
    /// How long the request has waited, in milliseconds.
    pub waited_ms: u64,
}

impl GrantAnswer {
    /// Reads an answer. `None` if it grants nothing.
    pub fn read(reply: &Reply) -> Option<Self> {
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
    /// Takes the lock, waiting for it as long as the terms say.
    ///
    /// # Errors
    /// The lock is held when the wait has ended, or the server refuses the terms or cannot be asked.
    pub async fn acquire(&self, connection: &mut Connection) -> Result<Grant, Error> {
        match self.acquire_natively(connection).await {
            Err(Error::Refused(text)) if is_unknown(&text) => self.acquire_plainly(connection).await,
            answer => answer,
        }
    }

    async fn acquire_natively(&self, connection: &mut Connection) -> Result<Grant, Error> {
        let until = self.wait.map(|wait| Instant::now() + wait);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let wait = left.unwrap_or(WAIT_MAX).min(WAIT_MAX);
            let (sent, request) = (Instant::now(), self.acquire_request(wait, true));
            let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            let asked = connection.ask_and_wait(&words);
            let reply = tokio::time::timeout(wait + ANSWER_MAX, asked).await;
            let reply = reply.map_err(|_| Error::Unreachable("the server does not answer".to_owned()))??;
            if let Reply::Error(text) = reply {
                return Err(if is_ending(&text) { Error::Unreachable(text) } else { Error::Refused(text) });
            }
            if let Some(answer) = GrantAnswer::read(&reply) {
                let deadline = answer.lease_from(sent) + self.lease;
                return Ok(Grant { dialect: Dialect::Native, token: answer.token, deadline });
            }
            if until.is_some_and(|until| Instant::now() + wait >= until) || wait < WAIT_MAX {
                return Err(Error::Held(self.held(connection, reply.field("refused")).await));
            }
        }
    }

    /// The words of LOCK.ACQUIRE, or of LOCK.MACQUIRE for several keys. `says_why`: a refusal tells who holds the lock.
    pub fn acquire_request(&self, wait: Duration, says_why: bool) -> Vec<Vec<u8>> {
        let mut words = match &self.keys[..] {
            [key] => vec![b"LOCK.ACQUIRE".to_vec(), key.clone()],
            keys => {
                let mut words = vec![b"LOCK.MACQUIRE".to_vec(), text(keys.len())];
                words.extend(keys.iter().cloned());
                words
            }
        };
        words.extend([self.owner.clone(), b"LEASE".to_vec(), millis(self.lease)]);
        words.extend([b"WAIT".to_vec(), millis(wait)]);
        words.extend(says_why.then(|| b"WHY".to_vec()));
        words.extend(self.kind_and_meta());
        words
    }

    fn kind_and_meta(&self) -> Vec<Vec<u8>> {
        let mut words = match self.kind {
            Kind::Exclusive => Vec::new(),
            Kind::Permits { count, limit } => {
                vec![b"PERMITS".to_vec(), text(count), b"OF".to_vec(), text(limit)]
            }
            Kind::Shared => vec![b"SHARED".to_vec()],
        };
        if !self.meta.is_empty() {
            words.push(b"META".to_vec());
            words.extend(self.meta.iter().flat_map(|(field, value)| [field.clone(), value.clone()]));
        }
        words
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

    async fn acquire_plainly(&self, connection: &mut Connection) -> Result<Grant, Error> {
        let [key] = &self.keys[..] else { return Err(Error::Unsupported("more than one key")) };
        if self.kind != Kind::Exclusive {
            return Err(Error::Unsupported("a shared lock"));
        }
        let until = self.wait.map(|wait| Instant::now() + wait);
        let (mut pause, mut is_first) = (POLL_MIN, true);
        loop {
            let sent = Instant::now();
            let set = [b"SET", &key[..], &self.owner, b"NX", b"PX", &millis(self.lease)];
            let is_set = connection.call(&set).await? != Reply::Null;
            // An earlier request of this owner may have been granted, and its reply lost. A key that is no lock refuses.
            let is_ours = std::mem::take(&mut is_first)
                && !is_set
                && matches!(self.extend(connection, Dialect::Plain, (None, self.lease)).await, Ok(true));
            if is_set || is_ours {
                return Ok(Grant { dialect: Dialect::Plain, token: None, deadline: sent + self.lease });
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

    /// Renews the lease of every key, with another length. With a token, a later hold of the same owner is left alone. False
    /// if the owner does not hold every key with this token.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn extend(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        (token, lease): (Option<u64>, Duration),
    ) -> Result<bool, Error> {
        let (token, lease) = (token.map(text), millis(lease));
        for key in &self.keys {
            let is_held = match dialect {
                Dialect::Native => {
                    let mut words = vec![&b"LOCK.EXTEND"[..], key, &self.owner, b"LEASE", &lease];
                    words.extend(token.iter().flat_map(|token| [&b"TOKEN"[..], token]));
                    connection.call(&words).await? != Reply::Null
                }
                Dialect::Plain => {
                    let reply = connection
                        .call(&[b"EVAL", EXTEND.as_bytes(), b"1", key, &self.owner, &lease])
                        .await?;
                    reply.integer() == Some(1)
                }
            };
            if !is_held {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Leaves every key held for another `rest`. False if the owner does not hold every key with this token.
    ///
    /// By LOCK commands, the keys belong to the session of this connection then, and last for `rest` after its end: a lock
    /// that ends so has not expired in the hands of its holder, and the server does not count it so.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn leave(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        (token, rest): (Option<u64>, Duration),
    ) -> Result<bool, Error> {
        if !self.extend(connection, dialect, (token, rest)).await? {
            return Ok(false);
        }
        if dialect == Dialect::Plain {
            return Ok(true);
        }
        for key in &self.keys {
            match self.hand_to_session(connection, key, (token, rest)).await {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                // The new lease keeps the lock just as long.
                Err(Error::Refused(_)) => return Ok(true),
                Err(error) => return Err(error),
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
        words.extend(self.kind_and_meta());
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        connection.call(&[b"MULTI"]).await?;
        connection.call(&words).await?;
        connection.call(&[b"EXEC"]).await?;
        Ok(true)
    }

    /// Releases every key. With a token, a later hold of the same owner is left alone. False if the owner did not hold all
    /// of them.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn release(
        &self,
        connection: &mut Connection,
        dialect: Dialect,
        token: Option<u64>,
    ) -> Result<bool, Error> {
        let token = token.map(text);
        let mut was_held = true;
        for key in &self.keys {
            let mut words: Vec<&[u8]> = match dialect {
                Dialect::Native => vec![b"LOCK.RELEASE", key, &self.owner],
                Dialect::Plain => vec![b"EVAL", RELEASE.as_bytes(), b"1", key, &self.owner],
            };
            words.extend(token.iter().flat_map(|token| [&b"TOKEN"[..], token]));
            was_held &= connection.call(&words).await?.integer() == Some(1);
        }
        Ok(was_held)
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
const EXTEND: &str = include_str!("extend.lua");
/// The pause between two requests of a wait for a lock of a plain server, at first and at most.
const POLL_MIN: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(500);
