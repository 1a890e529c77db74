//! A lock that is held: what its holder knows of it, and asks of the task that keeps it.
//!
//! Time    the deadline counts from the moment the last successful renewal was sent. It lies before the end of the lease
//!         as the server counts it, whatever the network did to the request and its reply.

use std::time::Duration;

use redlatch_proto::log_name::readable;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::connection::Connection;
use super::dialect::{Dialect, Grant, Terms};
use super::error::Error;
use super::keeper::{Keeper, Order, moment};
use super::limits::{LEASE_FAULT, OWNER_FAULT, is_lease, is_owner};
use super::locks::{Locks, within};
use super::lost::Lost;

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
    owner: Vec<u8>,
    token: Option<u64>,
    dialect: Dialect,
    is_session: bool,
    /// Whether it holds several keys.
    is_of_several: bool,
    /// Whether there is no lock, because no server has answered.
    is_open: bool,
    budget: Duration,
    watch: Watch,
    orders: mpsc::Sender<Order>,
}

/// What is known of a lock that a [`Guard`] holds, for other tasks: whether it is lost, and what is left of
/// it. It outlives the guard.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The id of the process that took the lock.
    process: u32,
    key: Vec<u8>,
    state: watch::Receiver<State>,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    /// `None`: it lasts as long as its connection.
    pub(super) deadline: Option<Instant>,
    /// When it is lost if no renewal has succeeded by then: some time before the deadline.
    pub(super) stop: Option<Instant>,
    pub(super) lost: Option<Lost>,
}

impl State {
    /// That of a lock that lasts as `terms` say, but for `lasts`, after a moment.
    pub(super) fn since(begun: Instant, lasts: Option<Duration>, terms: &Terms) -> Self {
        let deadline = lasts.map(|lasts| begun + lasts);
        let stop = lasts.map(|lasts| begun + lasts.saturating_sub(terms.margin(lasts)));
        Self { deadline, stop, lost: None }
    }

    /// Why the lock is held no longer. `None` while it is.
    pub(super) fn why_lost(&self) -> Option<Lost> {
        let has_passed = self.stop.is_some_and(|stop| stop <= Instant::now());
        self.lost.clone().or(has_passed.then_some(Lost::Unrenewed))
    }
}

impl Guard {
    /// Begins to keep a lock that was granted to this process. `renews`: whether it is renewed.
    pub(super) fn new(
        locks: Locks,
        connection: Connection,
        (terms, grant, renews): (Terms, Grant, bool),
    ) -> Self {
        Self::of_process(std::process::id(), locks, connection, (terms, grant, renews))
    }

    fn of_process(
        process: u32,
        locks: Locks,
        connection: Connection,
        (terms, grant, renews): (Terms, Grant, bool),
    ) -> Self {
        let (guard, state, orders) = Self::kept(process, &locks, &terms, Some(&grant));
        tokio::spawn(Keeper::new(process, locks, connection, (terms, grant, renews), state).run(orders));
        guard
    }

    /// What a call is given that no server has answered, where the program goes on without a lock.
    pub(super) fn open(locks: &Locks, terms: Terms, why: &str) -> Self {
        let (guard, state, orders) = Self::kept(std::process::id(), locks, &terms, None);
        locks.count_open();
        tracing::warn!(
            key = readable(&guard.watch.key),
            why,
            "No server has answered: the program goes on without the lock"
        );
        tokio::spawn(keep_open(state, orders));
        guard
    }

    /// A guard, and what the task that keeps it has. Without a grant it is open.
    fn kept(
        process: u32,
        locks: &Locks,
        terms: &Terms,
        grant: Option<&Grant>,
    ) -> (Self, watch::Sender<State>, mpsc::Receiver<Order>) {
        let begun = grant.map_or_else(Instant::now, |grant| grant.begun);
        let lasts = terms.lasts().filter(|_| grant.is_some());
        let (state, states) = watch::channel(State::since(begun, lasts, terms));
        let (sender, orders) = mpsc::channel(1);
        let key = terms.keys.first().cloned().unwrap_or_default();
        let guard = Self {
            owner: terms.owner.clone(),
            token: grant.and_then(|grant| grant.token),
            dialect: grant.map_or(Dialect::Plain, |grant| grant.dialect),
            is_session: terms.session.is_some(),
            is_of_several: terms.keys.len() > 1,
            is_open: grant.is_none(),
            budget: locks.budget,
            watch: Watch { process, key, state: states },
            orders: sender,
        };
        (guard, state, orders)
    }

    /// Whether there is no lock, because no server has answered: see
    /// [`OnUnavailable::Open`](super::OnUnavailable::Open). It has no token and no deadline, is never lost, and sends
    /// nothing.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The key of the lock. Of [one of several](Locks::any_of) it is the one that was got, of several locks the first one.
    pub fn key(&self) -> &[u8] {
        &self.watch.key
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

    /// The same knowledge of the lock for other tasks.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// As [`Watch::remaining`].
    pub fn remaining(&self) -> Duration {
        self.watch.remaining()
    }

    /// As [`Watch::check`].
    ///
    /// # Errors
    /// [`Error::Lost`] once the lock is lost.
    pub fn check(&self) -> Result<(), Error> {
        self.watch.check()
    }

    /// As [`Watch::lost`].
    pub async fn lost(&self) -> Lost {
        self.watch.lost().await
    }

    /// Starts the lease anew. `lease`: its length from now on, or `None` for the one that it has.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is held no longer, [`Error::Usage`] for a session and for a lease that no
    /// server grants, or that is not longer than the `stop_before` of the lock; or the server cannot be asked, or refuses.
    pub async fn extend(&self, lease: Option<Duration>) -> Result<(), Error> {
        self.check()?;
        self.check_lease()?;
        if lease.is_some_and(|lease| !is_lease(lease)) {
            return Err(Error::Usage(LEASE_FAULT));
        }
        self.order(|done| Order::Extend { lease, done }).await
    }

    /// Releases the lock. Returns whether it was still held, by this process.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses: the lock ends with its lease, or as a session with its connection, which is
    /// closed.
    pub async fn release(self) -> Result<bool, Error> {
        if is_other(self.watch.process) {
            return Ok(false);
        }
        self.order(|done| Order::Release { done }).await
    }

    /// Leaves the lock held for another `rest`, at least a millisecond, and renews it no more. Returns
    /// whether it was still held. The guard has nothing to release then. A server with LOCK commands counts
    /// its end as that of a session, and not as a lease that has expired.
    ///
    /// # Errors
    /// [`Error::Usage`] for a session, which has no lease to be left with: it is kept on. Or the server cannot be asked, or
    /// refuses: the lock ends with its last lease.
    pub async fn leave(&self, rest: Duration) -> Result<bool, Error> {
        if is_other(self.watch.process) {
            return Ok(false);
        }
        self.check_lease()?;
        self.order(|done| Order::Leave { rest, done }).await
    }

    /// Hands the lock over to another owner: `owner` has it in the same instant, with a new token, and this one is lost as
    /// [`Lost::Transferred`]. If `owner` waits for this lock alone, its wait is answered, before all others. Else it has the
    /// lock for `lease`, and asks for it again under its name. Returns the new token; `None` if the session of that owner
    /// has ended in the same instant.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is held no longer. [`Error::Refused`] if the server refuses, as with `NOLEASE` if `owner`
    /// does not wait and `lease` is `None`: the lock is kept on. [`Error::Usage`] for several keys at once, for an owner that
    /// no server takes or that has the lock, and for a lease that no server grants. [`Error::Unsupported`] on a server
    /// without LOCK commands. [`Error::Unreachable`] if the server does not answer, and for an open guard: if the server has
    /// handed the lock over, the next renewal finds that.
    pub async fn transfer_to(
        &self,
        owner: impl Into<Vec<u8>>,
        lease: Option<Duration>,
    ) -> Result<Option<u64>, Error> {
        self.check()?;
        if self.is_open {
            return Err(Error::unreachable(NO_LOCK));
        }
        let owner = owner.into();
        let faults = [
            (self.is_of_several, "several keys at once cannot be handed over"),
            (!is_owner(&owner), OWNER_FAULT),
            (owner == self.owner, "the owner has the lock already"),
            (lease.is_some_and(|lease| !is_lease(lease)), LEASE_FAULT),
        ];
        if let Some((_, fault)) = faults.iter().find(|(is_fault, _)| *is_fault) {
            return Err(Error::Usage(fault));
        }
        let to = (owner, lease);
        self.order(|done| Order::Transfer { to, done }).await
    }

    /// # Errors
    /// The lock was taken by another process.
    pub(super) fn check_process(&self) -> Result<(), Error> {
        match is_other(self.watch.process) {
            true => self.check(),
            false => Ok(()),
        }
    }

    fn check_lease(&self) -> Result<(), Error> {
        match self.is_session {
            true => Err(Error::Usage("a session has no lease: it ends with its connection")),
            false => Ok(()),
        }
    }

    /// Has the task do something, within the budget.
    async fn order<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Order,
    ) -> Result<T, Error> {
        let (done, answer) = oneshot::channel();
        let ended = || Error::unreachable("the task that keeps the lock has ended");
        let answered = async {
            self.orders.send(order(done)).await.map_err(|_| ended())?;
            answer.await.unwrap_or_else(|_| Err(ended()))
        };
        within(self.budget, answered).await
    }
}

impl Watch {
    /// For how long the lock is certainly held, if it is not broken by force. Zero once it is lost or
    /// released; [`Duration::MAX`] for a session without a delay, and for an open guard.
    pub fn remaining(&self) -> Duration {
        let state = self.state.borrow();
        if is_other(self.process) || state.why_lost().is_some() {
            return Duration::ZERO;
        }
        state.deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Says whether the lock is held. Put it before each step that needs the lock.
    ///
    /// # Errors
    /// [`Error::Lost`] once it is lost or released, and in a process that has not taken it.
    pub fn check(&self) -> Result<(), Error> {
        let lost = match is_other(self.process) {
            true => Some(Lost::OtherProcess),
            false => self.state.borrow().why_lost(),
        };
        match lost {
            Some(reason) => Err(Error::Lost { key: self.key.clone(), reason }),
            None => Ok(()),
        }
    }

    /// Resolves when the lock is lost or released. If no renewal succeeds, that is some time before the deadline, as
    /// [`Acquire::stop_before`](super::Acquire::stop_before) says: what the lock protects can be ended in this time, before
    /// the server grants it to anybody else.
    pub async fn lost(&self) -> Lost {
        if is_other(self.process) {
            return Lost::OtherProcess;
        }
        let (mut states, mut has_ended) = (self.state.clone(), false);
        loop {
            let State { stop, lost, .. } = states.borrow_and_update().clone();
            match (lost, stop) {
                (Some(lost), _) => return lost,
                // The connection has ended with the task that kept it.
                (None, None) if has_ended => return Lost::Session,
                (None, _) => {}
            }
            tokio::select! {
                changed = states.changed(), if !has_ended => has_ended = changed.is_err(),
                () = moment(stop) => return Lost::Unrenewed,
            }
        }
    }
}

/// Does what the guard of no lock asks for, until that is released, left or gone.
async fn keep_open(state: watch::Sender<State>, mut orders: mpsc::Receiver<Order>) {
    // Of those who ask, each may be gone when the answer is there.
    while let Some(order) = orders.recv().await {
        match order {
            Order::Extend { done, .. } => drop(done.send(Ok(()))),
            Order::Transfer { done, .. } => drop(done.send(Ok(None))),
            Order::Leave { done, .. } | Order::Release { done } => {
                let _ = done.send(Ok(false));
                break;
            }
        }
    }
    state.send_modify(|state| state.lost = Some(Lost::Released));
}

/// What an open guard has not.
pub(super) const NO_LOCK: &str = "no server has answered: there is no lock, and no token";

/// Whether this process is not the one with this id, but a child of it that was made by a fork.
pub(super) fn is_other(process: u32) -> bool {
    process != std::process::id()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]
mod tests {
    use std::future::pending;

    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn granted() -> (Terms, Grant, bool) {
        let grant = Grant {
            dialect: Dialect::Native,
            key: None,
            token: Some(7),
            begun: Instant::now(),
            session: None,
        };
        (Terms::new(vec![b"k".to_vec()]), grant, true)
    }

    /// A guard as a child finds it after a fork, and the end of its connection at the server.
    fn copied() -> (Guard, DuplexStream) {
        let (client, server) = duplex(1024);
        let locks = Locks::over(|| async { Err::<DuplexStream, _>(std::io::Error::other("no server")) });
        let parent = std::process::id() + 1;
        (Guard::of_process(parent, locks, Connection::over(Box::new(client), LEASE), granted()), server)
    }

    async fn everything_sent(mut server: DuplexStream) -> Vec<u8> {
        let mut sent = Vec::new();
        server.read_to_end(&mut sent).await.unwrap();
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_ends_at_its_budget() {
        let (client, _server) = duplex(1024);
        let budget = Duration::from_secs(2);
        let locks = Locks::over(pending::<std::io::Result<DuplexStream>>).budget(budget);
        let guard = Guard::new(locks, Connection::over(Box::new(client), LEASE), granted());
        let begun = Instant::now();
        assert!(matches!(guard.release().await, Err(Error::Unreachable { .. })));
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
