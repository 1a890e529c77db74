//! A lock that outlives the process that took it: nothing renews it in the background, and its owner's name is all that
//! another process needs to renew or release it.

use std::time::Duration;

use tokio::time::Instant;

use super::acquire::Acquire;
use super::connection::{Connection, is_unknown};
use super::dialect::{Dialect, EXTEND, Grant, Terms, millis};
use super::error::Error;
use super::locks::Locks;
use super::lost::{Lost, is_of};
use crate::received::Reply;

/// A lock that was granted or renewed, and that nobody renews: it ends with its lease, unless [`Locks::renew`] begins that
/// anew or [`Locks::release`] ends it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Hold {
    /// The key. Of [one of several](Locks::any_of) it is the one that was got, of several locks the first one.
    pub key: Vec<u8>,
    /// The fencing token. `None` from a server without LOCK commands.
    pub token: Option<u64>,
    /// The lease that has begun. `None`: the lock is one of a session, and ends with the connection of that.
    pub lease: Option<Duration>,
    /// Whether the server has LOCK commands. Without them the lock is a string key, taken by SET NX.
    pub is_native: bool,
    deadline: Option<Instant>,
}

impl Hold {
    fn of_grant(grant: &Grant, terms: &Terms) -> Self {
        let is_native = grant.dialect == Dialect::Native;
        let lease = Some(terms.lease).filter(|_| terms.session.is_none());
        let deadline = terms.lasts().map(|lasts| grant.begun + lasts);
        let key = terms.keys.first().cloned().unwrap_or_default();
        Self { key, token: grant.token, lease, is_native, deadline }
    }

    /// For how long the lock is certainly held, if it is not broken by force. `None`: it has no lease.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

impl Acquire {
    /// Takes the lock without a [`Guard`](super::Guard): nothing renews it, and nothing releases it when this process ends.
    /// An owner that holds it already, on the same terms, is granted it again with the same token; its lease begins anew.
    ///
    /// # Errors
    /// [`Error::Held`] when the wait has ended, or the server refuses the terms or cannot be asked. [`Error::Usage`] for a
    /// reentrant lock and for a session, which need a guard.
    pub async fn hold(mut self) -> Result<Hold, Error> {
        self.check_guardless()?;
        let (grant, _) = self.grant(&mut self.retry()).await?;
        Ok(Hold::of_grant(&grant, &self.terms))
    }

    /// Like [`Acquire::hold`], and keeps the connection, which the server tells what happens to the lock.
    ///
    /// # Errors
    /// As [`Acquire::hold`].
    pub async fn hold_told(mut self) -> Result<(Hold, HoldEvents), Error> {
        self.check_guardless()?;
        self.is_told = true;
        let (grant, connection) = self.grant(&mut self.retry()).await?;
        let hold = Hold::of_grant(&grant, &self.terms);
        Ok((hold, HoldEvents { connection, keys: self.terms.keys, token: grant.token }))
    }
}

/// What happens to a lock while it is held.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HoldEvent {
    /// Somebody has begun to wait for it.
    Contended {
        /// The owner that is the first to wait. `None` if the server does not tell it.
        waiter: Option<Vec<u8>>,
        /// The priority of its request, 0 to 9. 0 if the server does not tell it.
        priority: u8,
    },
    /// It is held no longer.
    Lost(Lost),
}

/// The connection that took a lock, as [`Acquire::hold_told`] keeps it. A server without LOCK commands tells nothing on it.
#[derive(Debug)]
pub struct HoldEvents {
    connection: Connection,
    keys: Vec<Vec<u8>>,
    token: Option<u64>,
}

impl HoldEvents {
    /// Waits for the next event. It may be dropped at any point.
    ///
    /// # Errors
    /// The connection has ended: the lock is held as long as its lease, and nothing more is told.
    pub async fn next(&mut self) -> Result<HoldEvent, Error> {
        loop {
            let push = self.connection.next_push().await?;
            if let Some(lost) = Lost::read(&push, &self.keys, self.token) {
                return Ok(HoldEvent::Lost(lost));
            }
            if let [kind, key, of, told @ ..] = &push[..]
                && kind.is("lock-contended")
                && is_of(key, of, &self.keys, self.token)
            {
                let waiter = told.first().and_then(Reply::text).map(<[u8]>::to_vec);
                let priority =
                    told.get(1).and_then(Reply::integer).and_then(|level| u8::try_from(level).ok());
                return Ok(HoldEvent::Contended { waiter, priority: priority.unwrap_or(0) });
            }
        }
    }
}

impl Locks {
    /// Begins the lease of a lock anew, of any process that knows the owner. `token`: only the hold with this token.
    /// `lease`: its new length, or `None` for the one it had. `None` if the owner does not hold the lock, or not with this
    /// token.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses. [`Error::Usage`] without a `lease` for a lock that has none, and
    /// [`Error::Unsupported`] for a token, or without a `lease`, on a server without LOCK commands.
    pub async fn renew(
        &self,
        key: impl AsRef<[u8]>,
        owner: impl AsRef<[u8]>,
        token: Option<u64>,
        lease: Option<Duration>,
    ) -> Result<Option<Hold>, Error> {
        let hold = (key.as_ref(), owner.as_ref());
        match self.renew_natively(hold, token, lease).await {
            Err(Error::Refused(text)) if is_unknown(&text) => self.renew_plainly(hold, token, lease).await,
            renewed => renewed,
        }
    }

    async fn renew_natively(
        &self,
        (key, owner): (&[u8], &[u8]),
        token: Option<u64>,
        lease: Option<Duration>,
    ) -> Result<Option<Hold>, Error> {
        let (lease, token) = (lease.map(millis), token.map(|token| token.to_string()));
        let mut words = vec![b"LOCK.EXTEND", key, owner];
        match &lease {
            Some(lease) => words.extend([&b"LEASE"[..], lease]),
            None => words.push(b"SAME"),
        }
        words.extend(token.iter().flat_map(|token| [&b"TOKEN"[..], token.as_bytes()]));
        match self.ask(key, &words).await {
            Err(Error::Refused(text)) if text.starts_with("NOLEASE ") => {
                Err(Error::Usage("the lock has no lease: say how long it is to last"))
            }
            asked => asked.map(|asked| renewed(key, &asked.reply, asked.sent)),
        }
    }

    async fn renew_plainly(
        &self,
        (key, owner): (&[u8], &[u8]),
        token: Option<u64>,
        lease: Option<Duration>,
    ) -> Result<Option<Hold>, Error> {
        if token.is_some() {
            return Err(Error::Unsupported(TOKEN));
        }
        let lease = lease.ok_or(Error::Unsupported("a renewal without a length"))?;
        let words: [&[u8]; 6] = [b"EVAL", EXTEND.as_bytes(), b"1", key, owner, &millis(lease)];
        let asked = self.ask(key, &words).await?;
        let deadline = Some(asked.sent + lease);
        let key = key.to_vec();
        let hold = Hold { key, token: None, lease: Some(lease), is_native: false, deadline };
        Ok((asked.reply.integer() == Some(1)).then_some(hold))
    }

    /// Like [`Locks::release`], of one key and only the hold with this token.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses. [`Error::Unsupported`] on a server without LOCK commands.
    pub async fn release_token(
        &self,
        key: impl AsRef<[u8]>,
        owner: impl AsRef<[u8]>,
        token: u64,
    ) -> Result<bool, Error> {
        let token = token.to_string();
        let words = [&b"LOCK.RELEASE"[..], key.as_ref(), owner.as_ref(), b"TOKEN", token.as_bytes()];
        match self.ask(key.as_ref(), &words).await {
            Err(Error::Refused(text)) if is_unknown(&text) => Err(Error::Unsupported(TOKEN)),
            asked => Ok(asked?.is_done()),
        }
    }
}

/// What an answer of LOCK.EXTEND says; `None` if the owner does not hold the lock.
fn renewed(key: &[u8], answer: &Reply, sent: Instant) -> Option<Hold> {
    let number = |field: &Reply| field.integer().and_then(|number| u64::try_from(number).ok());
    // The key of a string that was not taken as a lock has the token 0.
    let token = number(answer.field("token")?).filter(|token| *token > 0);
    let lease = answer.field("lease").and_then(number).map(Duration::from_millis);
    let key = key.to_vec();
    Some(Hold { key, token, lease, is_native: true, deadline: lease.map(|lease| sent + lease) })
}

/// What a server without LOCK commands lacks.
const TOKEN: &str = "a token";
