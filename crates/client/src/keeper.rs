//! The task that keeps one lock: its renewals, its session, its loss, its release.
//!
//! Owns    the connection of the lock, on which the server tells that it is lost.
//! Rule    requests about one hold go one after the other: they may name leases of different length.
//! Rule    what has been told as lost stays lost, whatever the server says later.

use std::future::pending;
use std::time::Duration;

use redlatch_proto::lock::ANSWER_MAX;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::connection::Connection;
use super::counts::Counted;
use super::dialect::{Dialect, Grant, Terms};
use super::error::Error;
use super::guard::{State, is_other};
use super::limits::{BEAT_MAX, LEASE_MIN, PAUSE_MIN, RENEWAL_PAUSE_MAX, STOP_BEFORE_FAULT};
use super::locks::{Locks, within};
use super::lost::Lost;
use super::retry::{Retry, passes};

/// What a guard asks its task for.
#[derive(Debug)]
pub(super) enum Order {
    /// Starts the lease anew, with another length if one is given.
    Extend { lease: Option<Duration>, done: oneshot::Sender<Result<(), Error>> },
    /// Leaves the lock held for so long, and ends.
    Leave { rest: Duration, done: oneshot::Sender<Result<bool, Error>> },
    /// Hands the lock over to another owner, which waits for it or has it for `lease`.
    Transfer { to: (Vec<u8>, Option<Duration>), done: oneshot::Sender<Result<Option<u64>, Error>> },
    /// Releases the lock, and ends.
    Release { done: oneshot::Sender<Result<bool, Error>> },
}

/// The task that keeps a lock.
pub(super) struct Keeper {
    /// The id of the process that took the lock.
    process: u32,
    locks: Locks,
    /// `None` after it has ended, until the next renewal.
    connection: Option<Connection>,
    terms: Terms,
    dialect: Dialect,
    token: Option<u64>,
    /// The id of the session.
    session: Option<Vec<u8>>,
    /// For how long the lock is certainly held after a sign of life; `None`: as long as its connection.
    lasts: Option<Duration>,
    renews: bool,
    /// When the last successful renewal was sent.
    renewed: Instant,
    /// When the next one is due.
    next: Option<Instant>,
    /// A release that has failed may have given it back: one of its keys was, or an answer was lost.
    may_be_released: bool,
    counted: Option<Counted>,
    state: watch::Sender<State>,
}

impl Keeper {
    pub(super) fn new(
        process: u32,
        locks: Locks,
        connection: Connection,
        (terms, grant, renews): (Terms, Grant, bool),
        state: watch::Sender<State>,
    ) -> Self {
        let (lasts, counted) = (terms.lasts(), locks.counts.add(&terms));
        let mut keeper = Self {
            process,
            locks,
            connection: Some(connection),
            terms,
            dialect: grant.dialect,
            token: grant.token,
            session: grant.session,
            lasts,
            renews,
            renewed: grant.begun,
            next: None,
            may_be_released: false,
            counted,
            state,
        };
        keeper.next = keeper.next_after(grant.begun, lasts);
        keeper
    }

    /// Keeps the lock, and does what its guard asks for, until it is released, left, or the guard is gone.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        loop {
            let is_held = self.state.borrow().lost.is_none();
            let order = tokio::select! {
                order = orders.recv() => order,
                lost = self.keep(), if is_held => {
                    self.lose(lost);
                    continue;
                }
            };
            let is_over = match order {
                Some(Order::Extend { lease, done }) => {
                    answer(done, self.extend_now(lease).await);
                    false
                }
                Some(Order::Leave { rest, done }) => answer(done, self.leave(rest).await),
                Some(Order::Transfer { to, done }) => {
                    answer(done, self.transfer(to).await);
                    false
                }
                Some(Order::Release { done }) => return self.end(Some(done)).await,
                None => return self.end(None).await,
            };
            if is_over {
                return;
            }
        }
    }

    /// Releases the lock. What the server does not release is held until its deadline, and its loss told.
    async fn end(mut self, done: Option<oneshot::Sender<Result<bool, Error>>>) {
        let released = self.release().await;
        if let Some(done) = done {
            answer(done, released);
        }
        if self.state.borrow().lost.is_none() {
            let lost = self.keep().await;
            self.lose(lost);
        }
    }

    /// Renews the lock until it is lost.
    async fn keep(&mut self) -> Lost {
        loop {
            let (stop, next) = (self.stop(), self.next);
            tokio::select! {
                biased;
                () = moment(stop) => return Lost::Unrenewed,
                told = self.told() => match told {
                    Some(lost) => return lost,
                    None => {
                        if let Some(lost) = self.disconnected() {
                            return lost;
                        }
                        continue;
                    }
                },
                () = moment(next) => {}
            }
            let renewed = match self.terms.session {
                Some(_) => self.beat().await,
                None => self.renew().await,
            };
            if let Some(lost) = renewed {
                return lost;
            }
        }
    }

    /// Resolves when the server says that the lock is lost, or with `None` when the connection has ended.
    async fn told(&mut self) -> Option<Lost> {
        loop {
            let Some(connection) = &mut self.connection else { return pending().await };
            match connection.next_push().await {
                Ok(push) => {
                    if let Some(lost) = Lost::read(&push, &self.terms.keys, self.token) {
                        return Some(lost);
                    }
                }
                Err(_) => {
                    self.connection = None;
                    return None;
                }
            }
        }
    }

    /// The connection has ended: a session with it, if it has no delay. A loss may have been missed, which
    /// the next renewal finds: it is due now, but not at once after the last one.
    fn disconnected(&mut self) -> Option<Lost> {
        self.connection = None;
        match (&self.session, self.lasts) {
            (Some(_), None) => return Some(Lost::Session),
            (Some(_), Some(_)) => self.next = Some(Instant::now()),
            (None, Some(lease)) if self.dialect == Dialect::Native => {
                let soon = Instant::now().max(self.renewed + pause(lease));
                self.next = self.next.map(|next| next.min(soon));
            }
            (None, _) => {}
        }
        None
    }

    /// One renewal of a lease. What fails is tried again until that is too late. Returns why the lock is lost, if
    /// it is.
    async fn renew(&mut self) -> Option<Lost> {
        let lease = self.lasts.unwrap_or_default();
        let limit = Instant::now() + (lease / 6).min(ANSWER_MAX);
        let limit = self.stop().map_or(limit, |stop| stop.min(limit));
        match timeout_at(limit, self.extend(Some(lease))).await {
            Ok(Ok(true)) => return None,
            Ok(Ok(false)) => return Some(Lost::NotHeld),
            Ok(Err(error)) if error.is_refusal() => {}
            Ok(Err(_)) | Err(_) => self.connection = None,
        }
        self.next = Some(Instant::now() + pause(lease));
        None
    }

    /// Looks whether a session still has its connection, and attaches it to another one if it has not.
    /// Returns why the lock is lost, if it is.
    async fn beat(&mut self) -> Option<Lost> {
        let limit = Instant::now() + ANSWER_MAX;
        let limit = self.stop().map_or(limit, |stop| stop.min(limit));
        let looked = async {
            self.attach().await?;
            self.extend(None).await
        };
        match timeout_at(limit, looked).await {
            Ok(Ok(true)) => None,
            Ok(Ok(false)) => Some(Lost::NotHeld),
            Ok(Err(error)) if error.is_refusal() && passes(&error) && self.connection.is_some() => {
                self.next = Some(Instant::now() + PAUSE_MIN);
                None
            }
            Ok(Err(error)) if error.is_refusal() && !passes(&error) => Some(Lost::Session),
            Ok(Err(_)) | Err(_) => {
                let lost = self.disconnected();
                self.next = Some(Instant::now() + PAUSE_MIN);
                lost
            }
        }
    }

    /// Has a session go on over another connection, if it has none.
    async fn attach(&mut self) -> Result<(), Error> {
        if self.connection.is_none() {
            let id = self.session.clone().unwrap_or_default();
            let (connection, _) = self.connected().await?;
            if let Err(error) = connection.call(&[b"LOCK.SESSION", b"ATTACH", &id]).await {
                self.connection = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Extends the lock. `lease`: the length from now on; `None` for a session. False if it is not held.
    async fn extend(&mut self, lease: Option<Duration>) -> Result<bool, Error> {
        let (dialect, token, sent) = (self.dialect, self.token, Instant::now());
        let (connection, terms) = self.connected().await?;
        if !terms.extend(connection, dialect, (token, lease)).await? {
            return Ok(false);
        }
        let before = self.lasts;
        self.lasts = lease.or(before);
        self.renewed = sent;
        // An earlier request may still be on its way, with a shorter lease, which the next one then puts
        // right in time.
        self.next = self.next_after(sent, self.lasts.min(before));
        let renewed = State::since(sent, self.lasts, &self.terms);
        self.state.send_if_modified(|state| {
            let is_held = state.why_lost().is_none();
            if is_held {
                *state = renewed;
            }
            is_held
        });
        Ok(true)
    }

    /// When the lock is to be renewed next.
    fn next_after(&self, sent: Instant, lasts: Option<Duration>) -> Option<Instant> {
        match (&self.session, lasts) {
            (Some(_), lasts) => {
                Some(sent + lasts.map_or(BEAT_MAX, |delay| self.renewed_after(delay).min(BEAT_MAX)))
            }
            (None, lasts) => lasts.filter(|_| self.renews).map(|lease| sent + self.renewed_after(lease)),
        }
    }

    /// How long after a sign of life the next one is due: in time for another try before the lock is lost.
    fn renewed_after(&self, lasts: Duration) -> Duration {
        (lasts / 3).min(lasts.saturating_sub(self.terms.margin(lasts)) / 2)
    }

    /// Extends the lock for a caller that waits; again while the server does not serve.
    async fn extend_now(&mut self, lease: Option<Duration>) -> Result<(), Error> {
        if lease.is_some() && lease <= self.terms.stop_before {
            return Err(Error::Usage(STOP_BEFORE_FAULT));
        }
        let (budget, mut retry) = (self.locks.budget, self.locks.retry(Some(Duration::ZERO)));
        let extended = async {
            loop {
                self.check()?;
                let lease = lease.or(self.lasts);
                match self.extend(lease).await {
                    Ok(true) => return self.check(),
                    Ok(false) => self.lose(Lost::NotHeld),
                    Err(error) => self.again(&mut retry, error).await?,
                }
            }
        };
        within(budget, extended).await
    }

    /// Leaves the lock held for so long. False if it was not held.
    async fn leave(&mut self, rest: Duration) -> Result<bool, Error> {
        let (rest, token) = (rest.max(LEASE_MIN), self.token);
        (self.renews, self.terms.stop_before) = (false, None);
        match self.extend_now(Some(rest)).await {
            Err(Error::Lost { .. }) => return Ok(false),
            answer => answer?,
        }
        let mut is_held = true;
        if self.dialect == Dialect::Native {
            let budget = self.locks.budget;
            let handed = async {
                let (connection, terms) = self.connected().await?;
                terms.leave(connection, (token, rest)).await
            };
            // If it fails, the new lease keeps the lock just as long.
            is_held = within(budget, handed).await.unwrap_or(true);
        }
        self.lose(Lost::Released);
        Ok(is_held)
    }

    /// Hands the lock over. It is asked once: after a lost answer the next renewal finds whether the lock is still held.
    async fn transfer(&mut self, (owner, lease): (Vec<u8>, Option<Duration>)) -> Result<Option<u64>, Error> {
        self.check()?;
        if self.dialect != Dialect::Native {
            return Err(Error::Unsupported("a hand-over"));
        }
        let (budget, token) = (self.locks.budget, self.token);
        let asked = async {
            let (connection, terms) = self.connected().await?;
            terms.transfer(connection, token, (&owner, lease)).await
        };
        let handed = within(budget, asked).await;
        match &handed {
            Ok(_) => self.lose(Lost::Transferred),
            Err(Error::Refused(text)) if text.starts_with("NOTHELD ") => {
                self.lose(Lost::NotHeld);
                self.check()?;
            }
            Err(error) if error.is_refusal() => {}
            Err(_) => self.connection = None,
        }
        handed
    }

    /// Releases every key. False if not all of them were held.
    async fn release(&mut self) -> Result<bool, Error> {
        let (budget, mut retry) = (self.locks.budget, self.locks.retry(Some(Duration::ZERO)));
        let was_lost = self.check().is_err();
        if was_lost {
            // It ends by itself.
            retry = retry.once();
            self.drop_if_ended().await;
        }
        (self.renews, self.next, self.counted) = (false, None, None);
        if self.session.is_none() && self.connection.as_ref().is_some_and(Connection::is_waiting) {
            // A renewal that is not answered must not keep the release waiting.
            self.connection = None;
        }
        let released = within(budget, self.release_keys(&mut retry, was_lost)).await;
        match &released {
            Ok(_) => self.lose(Lost::Released),
            Err(_) if self.session.is_some() => {
                self.connection = None;
                self.lose(Lost::Session);
            }
            Err(error) if self.may_be_released || !error.is_refusal() => self.lose(Lost::NotHeld),
            Err(_) => self.counted = self.locks.counts.add(&self.terms).filter(|_| !was_lost),
        }
        released
    }

    /// One try alone is not to be spent on a connection that has ended.
    async fn drop_if_ended(&mut self) {
        if let Some(connection) = &mut self.connection
            && !connection.is_open().await
        {
            self.connection = None;
        }
    }

    async fn release_keys(&mut self, retry: &mut Retry, was_lost: bool) -> Result<bool, Error> {
        let mut was_held = true;
        for at in 0..self.terms.keys.len() {
            let mut may_be_done = false;
            loop {
                match self.release_key(at).await {
                    Ok(is_released) => {
                        // A request whose answer was lost may have released it.
                        was_held &= is_released || may_be_done && !was_lost;
                        break;
                    }
                    Err(error) => {
                        may_be_done |= !error.is_refusal();
                        self.may_be_released |= may_be_done;
                        self.again(retry, error).await?;
                    }
                }
            }
            self.may_be_released = true;
        }
        Ok(was_held)
    }

    async fn release_key(&mut self, at: usize) -> Result<bool, Error> {
        let (dialect, token, may_be_released) = (self.dialect, self.token, self.may_be_released);
        let others = self.locks.counts.of(&self.terms);
        let (connection, terms) = self.connected().await?;
        if terms.is_reentrant() && may_be_released && terms.times_held(connection).await? <= others {
            return Ok(true);
        }
        terms.release_key(connection, dialect, (&terms.keys[at], token)).await
    }

    /// Waits for the next try. The connection is kept if the server has answered.
    async fn again(&mut self, retry: &mut Retry, error: Error) -> Result<(), Error> {
        if !error.is_refusal() {
            self.connection = None;
        }
        retry.again(error).await
    }

    /// A connection for a request about the lock, with the terms of that. None in a process that has not
    /// taken the lock: the connection is that of another process, too.
    async fn connected(&mut self) -> Result<(&mut Connection, &Terms), Error> {
        if is_other(self.process) {
            return Err(Error::Usage("the lock belongs to the process that took it"));
        }
        let open = match self.connection.take() {
            Some(open) => open,
            None => self.locks.connector.connect_for(&self.terms.keys[0]).await?,
        };
        Ok((self.connection.insert(open), &self.terms))
    }

    fn stop(&self) -> Option<Instant> {
        self.state.borrow().stop
    }

    /// # Errors
    /// The lock is lost.
    fn check(&mut self) -> Result<(), Error> {
        let lost = self.state.borrow().why_lost();
        match lost {
            Some(reason) => {
                self.lose(reason.clone());
                Err(Error::Lost { key: self.terms.keys[0].clone(), reason })
            }
            None => Ok(()),
        }
    }

    /// Tells that the lock is lost, unless that has been told.
    fn lose(&mut self, lost: Lost) {
        self.counted = None;
        self.state.send_if_modified(|state| {
            let is_first = state.lost.is_none();
            state.lost.get_or_insert(lost);
            is_first
        });
    }
}

/// Answers the one who asks, which may be gone. Returns whether what it asked for has succeeded.
fn answer<T>(done: oneshot::Sender<Result<T, Error>>, outcome: Result<T, Error>) -> bool {
    let has_succeeded = outcome.is_ok();
    let _ = done.send(outcome);
    has_succeeded
}

/// The pause after a renewal that failed.
fn pause(lease: Duration) -> Duration {
    (lease / 30).min(RENEWAL_PAUSE_MAX)
}

/// Resolves at that moment; never without one.
pub(super) async fn moment(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
