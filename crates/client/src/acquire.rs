//! The builder of one acquisition, and its tries.

use std::collections::{BTreeMap, HashSet};
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use redlatch_proto::lock::{LEASE_DEFAULT, PERMITS_MAX, PRIORITY_MAX};
use redlatch_proto::options::{Kind, Options};
use tokio::time::Instant;

use super::connection::{Connection, is_unknown};
use super::dialect::{Dialect, Grant, Terms};
use super::error::Error;
use super::guard::Guard;
use super::limits::{LEASE_FAULT, OWNER_FAULT, STOP_BEFORE_FAULT, is_lease, is_owner};
use super::locks::{Locks, random, within};
use super::retry::Retry;

/// The lock of one key, those of several, or one of several.
#[derive(Clone, Debug)]
pub struct Lock<'l> {
    locks: &'l Locks,
    keys: Vec<Vec<u8>>,
    /// Whether one of the keys is enough.
    any: bool,
    /// The owner of reentrant acquisitions for which none is named.
    owner: Vec<u8>,
}

impl<'l> Lock<'l> {
    pub(super) fn of(locks: &'l Locks, keys: Vec<Vec<u8>>) -> Self {
        // Releasing a key twice would tell that it was lost.
        let mut known = HashSet::new();
        let keys = keys.into_iter().filter(|key| known.insert(key.clone())).collect();
        Self { locks, keys, any: false, owner: random_owner() }
    }

    pub(super) fn any(self) -> Self {
        Self { any: true, ..self }
    }

    /// Begins an acquisition, which `await` sends.
    pub fn acquire(&self) -> Acquire {
        Acquire {
            locks: self.locks.clone(),
            terms: Terms { any: self.any, ..Terms::new(self.keys.clone()) },
            reentrant_owner: self.owner.clone(),
            has_own_owner: false,
            has_lease: false,
            is_contradictory: false,
            is_told: false,
            renews: true,
        }
    }
}

/// An acquisition. `await` it for a [`Guard`].
///
/// A request whose answer is lost, or that the server refuses for a moment, is sent again for the same owner,
/// until the wait has passed, and three times at least, but not beyond the [budget](Locks::budget).
///
/// Dropping it while it waits leaves the queue. If the lock was granted in that moment, it ends with its
/// lease, or by [`Locks::release`].
#[derive(Debug)]
#[must_use = "an acquisition is sent when it is awaited"]
pub struct Acquire {
    locks: Locks,
    pub(super) terms: Terms,
    /// The owner of a reentrant lock, if the caller names none.
    reentrant_owner: Vec<u8>,
    /// Whether the caller has named the owner.
    has_own_owner: bool,
    /// Whether the caller has named the lease.
    has_lease: bool,
    /// Whether two kinds were asked for.
    is_contradictory: bool,
    /// Whether the server tells that somebody waits for the lock.
    pub(super) is_told: bool,
    /// Whether the guard renews the lock.
    renews: bool,
}

impl Acquire {
    /// How long the lock lasts if it is not renewed. Whole milliseconds, at least one. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        (self.terms.lease, self.has_lease) = (lease, true);
        self
    }

    /// How long to wait for a lock that is held. Default: not at all.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms.wait = Some(wait);
        self
    }

    /// Waits without a limit, once the server has answered at all. One that has never answered is tried three
    /// times.
    pub fn wait_forever(mut self) -> Self {
        self.terms.wait = None;
        self
    }

    /// The owner: any bytes that nobody else uses, up to 1 KiB. Default: random.
    pub fn owner(mut self, owner: impl Into<Vec<u8>>) -> Self {
        (self.terms.owner, self.has_own_owner) = (owner.into(), true);
        self
    }

    /// Shares the lock with other readers.
    pub fn shared(self) -> Self {
        self.kind(Kind::Shared)
    }

    /// Takes `count` permits of a semaphore that has `limit`.
    pub fn permits(self, count: u64, limit: u64) -> Self {
        self.kind(Kind::Permits { count, limit })
    }

    /// Has the same owner be granted the lock again while it holds it: another acquisition of the same
    /// [`Lock`], or one that names the same owner. It is free after as many releases. Only one process at a
    /// time may use an owner.
    pub fn reentrant(self) -> Self {
        self.kind(Kind::Reentrant)
    }

    /// How to take this key of several: [`Kind::Shared`] or [`Kind::Permits`]. A key that is not named is exclusive.
    pub fn mode(mut self, key: impl Into<Vec<u8>>, kind: Kind) -> Self {
        self.is_contradictory |= self.terms.modes.insert(key.into(), kind).is_some();
        self
    }

    /// Has the lock end with its connection, and `delay` later, instead of with a lease. With a delay it goes
    /// on over another connection, if that is there in time; without one it is lost with the connection.
    pub fn session(mut self, delay: Duration) -> Self {
        self.terms.session = Some(delay);
        self
    }

    /// How long before its deadline the guard is lost, if no renewal has succeeded by then: the time that the caller has to
    /// stop. Less than the lease, or than the delay of a session. Default: a tenth of that, a second at most.
    pub fn stop_before(mut self, margin: Duration) -> Self {
        self.terms.stop_before = Some(margin);
        self
    }

    /// How far the request is moved forward in its queues: 0 to 9. Default: 0.
    pub fn priority(mut self, priority: u8) -> Self {
        self.terms.options.priority = priority.into();
        self
    }

    /// Whether the guard renews the lease, at each third of it. Default: true.
    pub fn renew(mut self, renews: bool) -> Self {
        self.renews = renews;
        self
    }

    fn kind(mut self, kind: Kind) -> Self {
        self.is_contradictory |= self.terms.options.kind != Kind::Exclusive;
        self.terms.options.kind = kind;
        self
    }

    /// Adds a field that those who ask for the holder see. 64 fields at most, and 4 KiB in all.
    pub fn meta(mut self, field: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.terms.options.meta.push((field.into(), value.into()));
        self
    }

    /// Other options than those named before. Their META is for people: a server that keeps none grants without it.
    #[doc(hidden)]
    pub fn options(mut self, options: Options) -> Self {
        self.terms.may_drop_meta = true;
        let before = std::mem::replace(&mut self.terms.options, options);
        self.is_contradictory |= before.kind != Kind::Exclusive;
        self
    }

    async fn granted(mut self) -> Result<Guard, Error> {
        let mut retry = self.retry();
        let granted = self.grant(&mut retry).await;
        let Self { locks, terms, renews, .. } = self;
        match granted {
            Ok((grant, connection)) => Ok(Guard::new(locks, connection, (terms, grant, renews))),
            Err(Error::Unreachable { reason, .. }) if locks.opens(&retry) => {
                Ok(Guard::open(&locks, terms, &reason))
            }
            Err(error) => Err(error),
        }
    }

    /// The tries of this call.
    pub(super) fn retry(&self) -> Retry {
        self.locks.retry(self.terms.wait)
    }

    /// Sends the request, and returns the connection beside the grant.
    pub(super) async fn grant(&mut self, retry: &mut Retry) -> Result<(Grant, Connection), Error> {
        self.check()?;
        if let [key] = &self.terms.keys[..] {
            self.terms.settle(key.clone());
        }
        if self.terms.is_reentrant() && !self.has_own_owner {
            self.terms.owner = std::mem::take(&mut self.reentrant_owner);
        }
        let Self { locks, terms, .. } = &*self;
        let whole = terms.wait.map_or(Duration::MAX, |wait| wait.saturating_add(locks.budget));
        let granted = async {
            loop {
                match self.attempt(retry).await {
                    Ok(granted) => return Ok(granted),
                    Err(error) => retry.again(error).await?,
                }
            }
        };
        let (mut grant, connection) = within(whole, granted).await?;
        if let Some(key) = grant.key.take() {
            self.terms.settle(key);
        }
        Ok((grant, connection))
    }

    /// One try.
    async fn attempt(&self, retry: &mut Retry) -> Result<(Grant, Connection), Error> {
        let Self { locks, terms, .. } = self;
        let mut connection = within(locks.budget, locks.connector.connect_for(&terms.keys[0])).await?;
        retry.connected();
        if self.is_told {
            // A server without LOCK commands refuses it, and a user may lack the right: then nothing is told.
            connection.ask(&[b"LOCK.SESSION", b"CONTENDED", b"YES"]).await?;
        }
        let session = match terms.session {
            Some(_) => Some(session_of(&mut connection).await?),
            None => None,
        };
        let is_repeated = retry.failures() > 0;
        if is_repeated
            && terms.is_reentrant()
            && let Some(grant) = self.counted_before(&mut connection).await?
        {
            return Ok((Grant { session, ..grant }, connection));
        }
        let may_be_ours = self.has_own_owner || is_repeated;
        let grant = terms.acquire(&mut connection, retry, may_be_ours).await?;
        Ok((Grant { session, ..grant }, connection))
    }

    /// The grant of a request for a reentrant lock whose answer was lost, if the server has counted it:
    /// another one would count twice.
    async fn counted_before(&self, connection: &mut Connection) -> Result<Option<Grant>, Error> {
        let Self { locks, terms, .. } = self;
        if terms.times_held(connection).await? <= locks.counts.of(terms) {
            return Ok(None);
        }
        let begun = Instant::now();
        let token = terms.taken_before(connection).await?;
        Ok(token.map(|_| Grant { dialect: Dialect::Native, key: None, token, begun, session: None }))
    }

    /// # Errors
    /// The lock needs a guard.
    pub(super) fn check_guardless(&self) -> Result<(), Error> {
        match (self.terms.options.kind, self.terms.session) {
            (Kind::Reentrant, _) => {
                Err(Error::Usage("a reentrant lock needs a guard, which counts its holds"))
            }
            (_, Some(_)) => Err(Error::Usage("a session needs a guard, which keeps its connection")),
            _ => Ok(()),
        }
    }

    /// # Errors
    /// No server would grant this.
    fn check(&self) -> Result<(), Error> {
        let Terms { keys, modes, owner, lease, options, .. } = &self.terms;
        let has_bad_permits = |kind: &Kind| {
            matches!(kind, Kind::Permits { count, limit }
                if !(1..=*limit).contains(count) || *limit > PERMITS_MAX.into())
        };
        let known: HashSet<&Vec<u8>> = keys.iter().collect();
        let faults = [
            (keys.is_empty() || keys.iter().any(Vec::is_empty), "a lock needs a key, which is not empty"),
            (
                self.has_lease && self.terms.session.is_some(),
                "a session has no lease: it ends with its connection",
            ),
            (
                modes.values().chain([&options.kind]).any(has_bad_permits),
                "permits are 1 at least, and at most as many as the semaphore has: 2,147,483,647 at most",
            ),
            (
                keys.len() > 1 && (options.kind != Kind::Exclusive || !options.meta.is_empty()),
                "several keys have no meta, and modes say which of them are shared or have permits",
            ),
            (
                self.is_contradictory || (options.kind != Kind::Exclusive && !modes.is_empty()),
                "a lock is one of shared, permits and reentrant",
            ),
            (modes.keys().any(|key| !known.contains(key)), "modes name a key that is not one of the keys"),
            (modes.values().any(|kind| *kind == Kind::Reentrant), "modes are exclusive, shared and permits"),
            (options.priority > PRIORITY_MAX.into(), "priority is 0 to 9"),
            (!is_owner(owner), OWNER_FAULT),
            (!is_lease(*lease), LEASE_FAULT),
            (self.terms.lasts().is_some_and(|lasts| self.terms.margin(lasts) >= lasts), STOP_BEFORE_FAULT),
            (options.check().is_err(), "meta has 64 fields and 4 KiB at most, each with a name of its own"),
        ];
        match faults.iter().find(|(is_fault, _)| *is_fault) {
            Some((_, fault)) => Err(Error::Usage(fault)),
            None => Ok(()),
        }
    }
}

/// The id of the session of a connection, with which it goes on over another one.
async fn session_of(connection: &mut Connection) -> Result<Vec<u8>, Error> {
    match connection.call(&[b"LOCK.SESSION", b"ID"]).await {
        Err(Error::Refused(text)) if is_unknown(&text) => Err(Error::Unsupported("a session")),
        answer => Ok(answer?.text().unwrap_or_default().to_vec()),
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.granted())
    }
}

impl Terms {
    pub(super) fn new(keys: Vec<Vec<u8>>) -> Self {
        Self {
            keys,
            owner: random_owner(),
            lease: LEASE_DEFAULT,
            any: false,
            modes: BTreeMap::new(),
            session: None,
            wait: Some(Duration::ZERO),
            options: Options::default(),
            stop_before: None,
            may_drop_meta: false,
        }
    }
}

fn random_owner() -> Vec<u8> {
    format!("{:016x}{:016x}", random(), random()).into_bytes()
}
