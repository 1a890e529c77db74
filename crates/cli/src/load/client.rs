//! One client: it takes a lock, keeps it, releases it, and begins again.
//!
//! Owns    its connections and its draws; figures and schedule are those of its thread.
//! Rule    when the load is to stop, a client that waits gives up, and one that holds a lock releases it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::draws::Draws;
use super::figures::{Figures, record};
use super::ledger::{Grant, Ledger};
use super::live::Live;
use super::plan::{Dialect, Plan};
use super::schedule::Schedule;
use super::session::{Answer, Session};
use redlatch_platform::timer::Timer;

/// What the clients of one thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Arc<Plan>,
    /// The names of the locks.
    pub(super) keys: Arc<[String]>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) live: Arc<Live>,
    pub(super) figures: RefCell<Figures>,
    pub(super) schedule: RefCell<Schedule>,
    pub(super) timer: Timer,
    /// Keys and owners of requests that were given up: they may have been granted in that moment.
    pub(super) abandoned: RefCell<Vec<(usize, String)>>,
    pub(super) start: Instant,
}

#[derive(Debug)]
pub(super) struct Client {
    shared: Rc<Shared>,
    number: usize,
    session: Session,
    draws: Draws,
    stop: watch::Receiver<bool>,
    asked: u64,
}

impl Client {
    pub(super) fn new(shared: Rc<Shared>, number: usize, session: Session) -> Self {
        let (draws, stop) = (Draws::new(&shared.plan, number), shared.live.stopped());
        Self { shared, number, session, draws, stop, asked: 0 }
    }

    /// Takes and releases locks until the plan is done or the load is to stop.
    pub(super) async fn run(mut self) {
        let mut made = 0;
        let plan = self.shared.plan.clone();
        while !self.is_stopped()
            && plan.count_each.is_none_or(|max| made < max)
            && self.shared.live.begin_one(plan.count)
        {
            let begin = self.shared.schedule.borrow_mut().next(Instant::now());
            if begin > Instant::now() && !self.rest_until(begin).await {
                break;
            }
            let (key, hold) = (self.draws.key(), self.draws.hold());
            if let Some(owner) = self.acquire(key, begin).await {
                made += 1;
                if !hold.is_zero() {
                    self.rest_until(Instant::now() + hold).await;
                }
                self.release(key, &owner).await;
            }
            self.settle();
        }
        self.settle();
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Returns at this time; earlier, and false, if the load is to stop.
    async fn rest_until(&mut self, end: Instant) -> bool {
        tokio::select! {
            () = self.shared.timer.sleep_until(end) => true,
            () = stopped(&mut self.stop) => false,
        }
    }

    /// Takes a lock; returns its owner. `None` if the wait has ended, or the load.
    async fn acquire(&mut self, key: usize, begin: Instant) -> Option<String> {
        let shared = self.shared.clone();
        let name = &shared.keys[key];
        self.asked += 1;
        let owner = format!("{:x}:{}:{}", shared.live.run_id(), self.number, self.asked);
        let asked = Instant::now();
        let mut was_held = shared.ledger.is_held(asked, key);
        let give_up = shared.plan.wait.map(|wait| asked + wait);
        while !self.is_stopped() {
            let left = give_up.map_or(WAIT_MAX, |end| end.saturating_duration_since(Instant::now()));
            let Some(answer) = self.ask(name, &owner, left).await else {
                shared.abandoned.borrow_mut().push((key, owner));
                break;
            };
            let received = Instant::now();
            match answer {
                Answer::Granted { lease_from, token, has_waited } => {
                    self.session.stop_listening().await;
                    let (client, lease) = (self.number, shared.plan.lease);
                    let grant = Grant { client, asked, received, lease_from, lease, token };
                    self.note(key, begin, was_held || has_waited, grant);
                    return Some(owner);
                }
                Answer::Held(lease_left) => {
                    was_held = true;
                    if give_up.is_some_and(|end| Instant::now() >= end) {
                        self.session.stop_listening().await;
                        shared.figures.borrow_mut().counts.given_up += 1;
                        return None;
                    }
                    self.wait(name, lease_left, give_up).await;
                }
                Answer::Failed => self.recover(name, &owner).await,
            }
        }
        shared.figures.borrow_mut().counts.unfinished += 1;
        None
    }

    /// Asks for a lock once. `None` if the load is to stop while the server lets the request wait.
    async fn ask(&mut self, name: &str, owner: &str, left: Duration) -> Option<Answer> {
        let Self { session, stop, shared, .. } = self;
        if !matches!(shared.plan.dialect, Dialect::List | Dialect::Native) {
            return Some(session.acquire(name, owner, left).await);
        }
        let answer = tokio::select! {
            answer = session.acquire(name, owner, left) => Some(answer),
            () = stopped(stop) => None,
        };
        if answer.is_none() {
            // Without its connection the request leaves the queue.
            session.abandon();
        }
        answer
    }

    /// Waits until a lock that is held should be asked for again.
    async fn wait(&mut self, name: &str, lease_left: Option<Duration>, give_up: Option<Instant>) {
        match self.shared.plan.dialect {
            // The server has waited already.
            Dialect::List | Dialect::Native => {}
            Dialect::Redisson => {
                let end = give_up.map_or(WAIT_MAX, |end| end.saturating_duration_since(Instant::now()));
                tokio::select! {
                    _ = self.session.listen(name, lease_left) => {}
                    () = tokio::time::sleep(end) => {}
                    () = stopped(&mut self.stop) => {}
                }
            }
            Dialect::Redlock | Dialect::String => {
                let next = Instant::now() + self.draws.pause();
                self.rest_until(give_up.map_or(next, |end| end.min(next))).await;
            }
        }
    }

    /// After a failure: opens lost connections again, and releases what may have been granted without an answer.
    async fn recover(&mut self, name: &str, owner: &str) {
        if self.session.is_ready() {
            // The server has answered with an error, or a minority of the nodes is away.
            let next = Instant::now() + self.draws.pause();
            self.rest_until(next).await;
            let Self { session, draws, .. } = self;
            session.reconnect(|pause| draws.around(pause)).await;
            return;
        }
        self.settle();
        while !self.is_stopped() {
            let Self { session, draws, .. } = self;
            let next = session.reconnect(|pause| draws.around(pause)).await;
            if session.is_ready() {
                // What a release adds to a list may be there already: then two clients would have the lock.
                if self.shared.plan.dialect != Dialect::List {
                    session.release(name, owner).await;
                }
                return;
            }
            if let Some(next) = next {
                self.rest_until(next).await;
            }
            self.settle();
        }
    }

    /// Adds a grant to the figures.
    fn note(&self, key: usize, begin: Instant, was_held: bool, grant: Grant) {
        let shared = &self.shared;
        let noted = shared.ledger.grant(key, grant, Instant::now);
        let mut figures = shared.figures.borrow_mut();
        let since = |earlier| grant.received.saturating_duration_since(earlier);
        figures.granted(self.number, since(shared.start));
        record(&mut figures.acquire, since(begin));
        if was_held || noted.hand_over.is_some() {
            record(&mut figures.wait, since(grant.asked));
        }
        if let Some(time) = noted.hand_over {
            record(&mut figures.hand_over, time);
        }
        figures.counts.overlaps_in_time += u64::from(noted.overlaps_in_time);
        figures.counts.falling_tokens += u64::from(noted.token_falls);
        shared.live.granted(noted.overlaps_in_time || noted.token_falls);
    }

    async fn release(&mut self, key: usize, owner: &str) {
        let shared = self.shared.clone();
        let sent = Instant::now();
        shared.ledger.release(sent, key, self.number);
        let release = self.session.release(&shared.keys[key], owner).await;
        {
            let mut figures = shared.figures.borrow_mut();
            if release.was_held.is_some() {
                record(&mut figures.release, release.at.saturating_duration_since(sent));
            }
            figures.counts.released += u64::from(release.was_held == Some(true));
            figures.counts.outlived += u64::from(release.was_held == Some(false));
        }
        if !self.session.is_ready() {
            self.recover(&shared.keys[key], owner).await;
        }
    }

    /// Moves what the session has counted to the figures of the thread.
    fn settle(&mut self) {
        let sent = std::mem::take(&mut self.session.counts);
        let mut figures = self.shared.figures.borrow_mut();
        for error in self.session.errors.drain(..) {
            figures.error(&error);
        }
        figures.counts.add(&sent);
    }
}

/// Returns when the load is to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error says that nobody can ask for it any more.
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How long one request waits at most. A longer wait asks again.
const WAIT_MAX: Duration = Duration::from_secs(60 * 60);
