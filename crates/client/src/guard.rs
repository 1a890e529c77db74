//! A lock that is held: its renewal in the background, its loss, its release.
//!
//! Owns    the task that renews one lock, and its connection.
//! Time    the deadline counts from the moment the last successful renewal was sent. It lies before the end of the lease
//!         as the server counts it, whatever the network did to the request and its reply.

use std::fmt;
use std::future::pending;
use std::time::Duration;

use redlatch_proto::lock::{EndReason, GivenUp};
use redlatch_proto::log_name::LogName;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connection::Connection;
use super::connector::Connector;
use super::dialect::{Dialect, Grant, Terms};
use super::error::Error;
use super::locks::within;
use crate::received::Reply;

/// Why a lock is no longer held.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Lost {
    /// An operator has broken it.
    Broken(BrokenBy),
    /// Its key was deleted or overwritten by somebody else.
    Deleted,
    /// Its lease has ended on the server.
    Expired,
    /// Every key was removed: FLUSHDB or FLUSHALL.
    Flushed,
    /// The server no longer knows it, for a reason that it does not tell.
    NotHeld,
    /// The guard was copied into this process by a fork: the lock is that of the process that took it.
    OtherProcess,
    /// Its session has ended.
    Session,
    /// No renewal has succeeded in time. The server may still count it as held.
    Unrenewed,
}

/// Who has broken a lock, and why. Each text is escaped; `None`: the server has not told it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BrokenBy {
    /// The REASON of LOCK.BREAK.
    pub reason: Option<String>,
    /// The user of the server that has sent LOCK.BREAK.
    pub user: Option<String>,
    /// Where it connected from.
    pub address: Option<String>,
}

impl BrokenBy {
    /// What stands in the push behind `broken`: reason, user, address.
    fn read(told: &[Reply]) -> Self {
        let text = |at: usize| {
            let text = told.get(at).and_then(Reply::text).filter(|text| !text.is_empty());
            text.map(|text| LogName(text).to_string())
        };
        Self { reason: text(0), user: text(1), address: text(2) }
    }
}

impl fmt::Display for BrokenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EndReason::Broken.meaning())?;
        match (&self.user, &self.address) {
            (Some(user), Some(address)) => write!(f, " ({user}, {address})")?,
            (Some(one), None) | (None, Some(one)) => write!(f, " ({one})")?,
            (None, None) => {}
        }
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

impl Lost {
    /// The reason in a push that tells of the loss of a lock: `lock-lost`, key, token, reason, and who has broken it.
    /// `None` if the push tells something else.
    pub(super) fn read(push: &[Reply], keys: &[Vec<u8>], token: Option<u64>) -> Option<Self> {
        let [kind, key, of, reason, told @ ..] = push else { return None };
        (kind.is("lock-lost") && is_of(key, of, keys, token)).then(|| {
            match reason.text().and_then(EndReason::named) {
                Some(EndReason::Broken) => Self::Broken(BrokenBy::read(told)),
                Some(EndReason::Deleted) => Self::Deleted,
                Some(EndReason::Expired) => Self::Expired,
                Some(EndReason::Flushed) => Self::Flushed,
                Some(EndReason::Session) => Self::Session,
                Some(EndReason::Moved | EndReason::Released) | None => Self::NotHeld,
            }
        })
    }
}

/// Whether a push with this key and token tells of one of the keys, held with `token`.
pub(super) fn is_of(key: &Reply, of: &Reply, keys: &[Vec<u8>], token: Option<u64>) -> bool {
    keys.iter().any(|known| key.text() == Some(known))
        && of.integer().and_then(|of| u64::try_from(of).ok()) == token
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broken(by) => return by.fmt(f),
            Self::Deleted => EndReason::Deleted.meaning(),
            Self::Expired => EndReason::Expired.meaning(),
            Self::Flushed => EndReason::Flushed.meaning(),
            Self::NotHeld => GivenUp::NotHeld.meaning(),
            Self::OtherProcess => GivenUp::Forked.meaning(),
            Self::Session => EndReason::Session.meaning(),
            Self::Unrenewed => GivenUp::Unrenewed.meaning(),
        })
    }
}

/// A lock that is held. A task in the background renews it at each third of its lease; dropping the guard releases it
/// as far as possible: the task sends the release if the runtime still runs and the server can be reached. Else the lock
/// ends with its lease.
///
/// A guard belongs to the process that took the lock. In a child made by a fork it sends nothing, and says
/// [`Lost::OtherProcess`]. It has no copy:
///
/// ```compile_fail,E0599
/// # async fn copies(guard: redlatch::lock::Guard) {
/// let _copy: redlatch::lock::Guard = guard.clone();
/// # }
/// ```
#[derive(Debug)]
pub struct Guard {
    /// The id of the process that took the lock.
    process: u32,
    owner: Vec<u8>,
    token: Option<u64>,
    dialect: Dialect,
    state: watch::Receiver<State>,
    order: Option<oneshot::Sender<Order>>,
}

#[derive(Clone, Debug)]
struct State {
    deadline: Instant,
    lost: Option<Lost>,
}

/// What a guard asks its task for, before it goes.
#[derive(Debug)]
struct Order {
    /// For how long the lock stays held; `None` releases it.
    leave: Option<Duration>,
    done: oneshot::Sender<Result<bool, Error>>,
}

impl Guard {
    /// Begins to renew a lock that was granted to this process.
    pub(super) fn new(
        connector: (Connector, Duration),
        connection: Connection,
        terms: Terms,
        grant: Grant,
    ) -> Self {
        Self::of_process(std::process::id(), connector, connection, (terms, grant))
    }

    fn of_process(
        process: u32,
        (connector, budget): (Connector, Duration),
        connection: Connection,
        (terms, grant): (Terms, Grant),
    ) -> Self {
        let (state, states) = watch::channel(State { deadline: grant.deadline, lost: None });
        let (order, orders) = oneshot::channel();
        let owner = terms.owner.clone();
        let keeper = Keeper {
            process,
            connector,
            budget,
            connection: Some(connection),
            dialect: grant.dialect,
            token: grant.token,
            deadline: grant.deadline,
            next: grant.deadline - terms.lease + terms.lease / 3,
            terms,
            state,
        };
        tokio::spawn(keeper.run(orders));
        Self { process, owner, token: grant.token, dialect: grant.dialect, state: states, order: Some(order) }
    }

    /// The fencing token. `None` from a server without LOCK commands.
    pub fn token(&self) -> Option<u64> {
        self.token
    }

    /// The owner that the lock was taken for.
    pub fn owner(&self) -> &[u8] {
        &self.owner
    }

    /// Whether the server has LOCK commands. Without them the lock is a string key, taken by SET NX.
    pub fn is_native(&self) -> bool {
        self.dialect == Dialect::Native
    }

    /// For how long the lock is certainly held, if it is not broken by force. Zero once it is lost.
    pub fn remaining(&self) -> Duration {
        let state = self.state.borrow();
        if is_other(self.process) || state.lost.is_some() {
            return Duration::ZERO;
        }
        state.deadline.saturating_duration_since(Instant::now())
    }

    /// Resolves when the lock is lost.
    pub async fn lost(&self) -> Lost {
        self.lost_within(Duration::ZERO).await
    }

    /// Resolves when the lock is lost, or when no more than `margin` is left and no renewal has succeeded. What the lock
    /// protects can be ended in this time, before the server grants it to anybody else.
    pub async fn lost_within(&self, margin: Duration) -> Lost {
        if is_other(self.process) {
            return Lost::OtherProcess;
        }
        let mut states = self.state.clone();
        loop {
            let State { deadline, lost } = states.borrow_and_update().clone();
            if let Some(lost) = lost {
                return lost;
            }
            let at = deadline.checked_sub(margin).unwrap_or(deadline);
            tokio::select! {
                changed = states.changed() => if changed.is_err() { return Lost::Unrenewed },
                () = sleep_until(at) => return Lost::Unrenewed,
            }
        }
    }

    /// Releases the lock. Returns whether it was still held, by this process.
    ///
    /// # Errors
    /// The server cannot be asked: the lock ends with its lease.
    pub async fn release(mut self) -> Result<bool, Error> {
        self.finish(None).await
    }

    /// Leaves the lock held for another `rest`, and renews it no more. Returns whether it was still held. A server with LOCK
    /// commands counts its end as that of a session, and not as a lease that has expired.
    ///
    /// # Errors
    /// The server cannot be asked: the lock ends with its last lease.
    pub async fn leave(mut self, rest: Duration) -> Result<bool, Error> {
        self.finish(Some(rest)).await
    }

    async fn finish(&mut self, leave: Option<Duration>) -> Result<bool, Error> {
        if is_other(self.process) {
            return Ok(false);
        }
        let (done, answer) = oneshot::channel();
        let sent = self.order.take().is_some_and(|order| order.send(Order { leave, done }).is_ok());
        match (sent, answer.await) {
            (true, Ok(answer)) => answer,
            _ => Err(Error::Unreachable("the task that renews the lock has ended".to_owned())),
        }
    }
}

/// The task that renews a lock.
struct Keeper {
    /// The id of the process that took the lock.
    process: u32,
    connector: Connector,
    /// How long the release may take.
    budget: Duration,
    /// `None` after it failed, until the next renewal.
    connection: Option<Connection>,
    terms: Terms,
    dialect: Dialect,
    token: Option<u64>,
    deadline: Instant,
    next: Instant,
    state: watch::Sender<State>,
}

impl Keeper {
    async fn run(mut self, mut orders: oneshot::Receiver<Order>) {
        let order = tokio::select! {
            order = &mut orders => order,
            lost = self.renew() => {
                self.state.send_replace(State { deadline: self.deadline, lost: Some(lost) });
                orders.await
            }
        };
        let order = order.ok();
        let result = self.finish(order.as_ref().and_then(|order| order.leave)).await;
        if let Some(order) = order {
            // The guard may be gone.
            let _ = order.done.send(result);
        }
    }

    /// Renews the lock until it is lost.
    async fn renew(&mut self) -> Lost {
        loop {
            let (deadline, next) = (self.deadline, self.next);
            tokio::select! {
                biased;
                () = sleep_until(deadline) => return Lost::Unrenewed,
                lost = self.told() => return lost,
                () = sleep_until(next) => {}
            }
            let sent = Instant::now();
            match timeout_at(deadline.min(sent + self.terms.lease / 6), self.extend(self.terms.lease)).await {
                Ok(Ok(true)) => {
                    self.deadline = sent + self.terms.lease;
                    self.next = sent + self.terms.lease / 3;
                    self.state.send_replace(State { deadline: self.deadline, lost: None });
                }
                Ok(Ok(false)) => return Lost::NotHeld,
                Ok(Err(_)) | Err(_) => {
                    self.connection = None;
                    self.next = Instant::now() + (self.terms.lease / 30).min(RETRY_MAX);
                }
            }
        }
    }

    /// Resolves when the server says that the lock is lost.
    async fn told(&mut self) -> Lost {
        loop {
            let Some(connection) = &mut self.connection else { return pending().await };
            match connection.next_push().await {
                Ok(push) => {
                    if let Some(lost) = Lost::read(&push, &self.terms.keys, self.token) {
                        return lost;
                    }
                }
                Err(_) => self.connection = None,
            }
        }
    }

    async fn extend(&mut self, lease: Duration) -> Result<bool, Error> {
        let (dialect, token) = (self.dialect, self.token);
        let (connection, terms) = self.connected().await?;
        terms.extend(connection, dialect, (token, lease)).await
    }

    async fn finish(&mut self, leave: Option<Duration>) -> Result<bool, Error> {
        let (budget, dialect, token) = (self.budget, self.dialect, self.token);
        let finished = async {
            let (connection, terms) = self.connected().await?;
            match leave {
                Some(rest) => terms.leave(connection, dialect, (token, rest)).await,
                None => terms.release(connection, dialect, token).await,
            }
        };
        within(budget, finished).await
    }

    /// A connection for a request about the lock, with the terms of that. None in a process that has not taken the lock: the
    /// connection is that of another process, too.
    async fn connected(&mut self) -> Result<(&mut Connection, &Terms), Error> {
        if is_other(self.process) {
            return Err(Error::Usage("the lock belongs to the process that took it"));
        }
        let open = match self.connection.take() {
            Some(open) => open,
            None => self.connector.connect_for(&self.terms.keys[0]).await?,
        };
        Ok((self.connection.insert(open), &self.terms))
    }
}

/// Whether this process is not the one with this id, but a child of it that was made by a fork.
fn is_other(process: u32) -> bool {
    process != std::process::id()
}

/// The longest pause after a renewal that failed.
const RETRY_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]
mod tests {
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;
    use crate::target::Target;

    const LEASE: Duration = Duration::from_secs(30);

    /// A guard as a child finds it after a fork, and the end of its connection at the server.
    fn copied() -> (Guard, DuplexStream) {
        let (client, server) = duplex(1024);
        let connector = Connector::over(
            || async { Err::<DuplexStream, _>(std::io::Error::other("no server")) },
            Target::default(),
        );
        let grant = Grant { dialect: Dialect::Native, token: Some(7), deadline: Instant::now() + LEASE };
        let terms = (Terms::new(vec![b"k".to_vec()]), grant);
        let parent = std::process::id() + 1;
        (
            Guard::of_process(parent, (connector, LEASE), Connection::over(Box::new(client), LEASE), terms),
            server,
        )
    }

    async fn everything_sent(mut server: DuplexStream) -> Vec<u8> {
        let mut sent = Vec::new();
        server.read_to_end(&mut sent).await.unwrap();
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_ends_at_its_budget() {
        let (client, _server) = duplex(1024);
        let connector = Connector::over(pending::<std::io::Result<DuplexStream>>, Target::default());
        let grant = Grant { dialect: Dialect::Native, token: Some(7), deadline: Instant::now() + LEASE };
        let connection = Connection::over(Box::new(client), LEASE);
        let budget = Duration::from_secs(2);
        let guard = Guard::new((connector, budget), connection, Terms::new(vec![b"k".to_vec()]), grant);
        let begun = Instant::now();
        assert!(matches!(guard.release().await, Err(Error::Unreachable(_))));
        assert!(begun.elapsed() < budget * 2, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_of_another_process_sends_nothing() {
        for way in 0..4 {
            let (guard, server) = copied();
            assert_eq!(guard.lost().await, Lost::OtherProcess);
            assert_eq!(guard.remaining(), Duration::ZERO);
            match way {
                0 => drop(guard),
                1 => assert!(!guard.release().await.unwrap()),
                2 => assert!(!guard.leave(LEASE).await.unwrap()),
                _ => {
                    // Time for its renewals.
                    tokio::time::advance(LEASE * 2).await;
                    drop(guard);
                }
            }
            assert_eq!(everything_sent(server).await, b"", "{way}");
        }
    }
}
