//! What every connection of one server shares with the shell: the engine, the clock, the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::clock::{ManualClock, SystemClock};
use crate::clock::{Clock, Now};
use crate::engine::Engine;
use crate::state::log_limiter::LogLimiter;

/// Shared by the connections, the listeners and the ticker of one server.
#[derive(Clone, Debug)]
pub(super) struct House {
    pub(super) engine: Engine,
    inner: Arc<Inner>,
}

/// Which clock a server runs on.
#[derive(Clone, Debug)]
pub(super) enum AnyClock {
    System(Arc<SystemClock>),
    Manual(Arc<ManualClock>),
}

#[derive(Debug)]
struct Inner {
    clock: AnyClock,
    /// Counts the steps of a manual clock; see [`House::turn`].
    turn: AtomicU64,
    /// Told whenever a connection has seen to everything there was.
    settled: Notify,
    /// Rung when the ticker is needed sooner than it thought.
    bell: Arc<Notify>,
    /// One desk at a time is on a thread that may be held: scripts are alone anyway.
    aside: Arc<Semaphore>,
    /// Connections that are served, or about to be.
    seats: AtomicU64,
    /// Newcomers turned away, as the log tells of them.
    turned_away: LogLimiter,
    stop: watch::Sender<bool>,
    has_stopped: AtomicBool,
}

/// One place among the `maxclients` connections, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat(House);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.inner.seats.fetch_sub(1, SeqCst);
    }
}

impl AnyClock {
    pub(super) fn shared(&self) -> Arc<dyn Clock> {
        match self {
            Self::System(clock) => Arc::clone(clock) as Arc<dyn Clock>,
            Self::Manual(clock) => Arc::clone(clock) as Arc<dyn Clock>,
        }
    }

    pub(super) fn now(&self) -> Now {
        match self {
            Self::System(clock) => clock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }
}

impl House {
    pub(super) fn new(engine: Engine, clock: AnyClock, bell: Arc<Notify>) -> Self {
        let inner = Inner {
            clock,
            turn: AtomicU64::new(0),
            settled: Notify::new(),
            bell,
            aside: Arc::new(Semaphore::new(1)),
            seats: AtomicU64::new(0),
            turned_away: LogLimiter::default(),
            stop: watch::Sender::new(false),
            has_stopped: AtomicBool::new(false),
        };
        Self { engine, inner: Arc::new(inner) }
    }

    pub(super) fn clock(&self) -> &AnyClock {
        &self.inner.clock
    }

    pub(super) fn is_manual(&self) -> bool {
        matches!(self.inner.clock, AnyClock::Manual(_))
    }

    /// A place among the `maxclients` connections, taken before anything is spent on a newcomer; `None` when all are taken
    /// or the server has ended.
    pub(super) fn seat(&self) -> Option<Seat> {
        let most = self.engine.shared().settings.integer("maxclients") as u64;
        let taken =
            self.inner.seats.fetch_update(SeqCst, SeqCst, |seats| (seats < most).then_some(seats + 1));
        if taken.is_err() {
            self.turn_away("all maxclients connections are taken");
        }
        let seat = taken.is_ok().then(|| Seat(self.clone()))?;
        (!self.has_stopped()).then_some(seat)
    }

    /// A newcomer is not served: counted, and now and then logged.
    pub(super) fn turn_away(&self, reason: &'static str) {
        self.engine.shared().metrics.rejected_connections.add(1);
        if let Some(times) = self.inner.turned_away.happened(self.clock().now().lock) {
            tracing::warn!(times, reason, "connections turned away");
        }
    }

    /// The number of the clock step whose consequences are being seen to.
    pub(super) fn turn(&self) -> u64 {
        if self.is_manual() { self.inner.turn.load(SeqCst) } else { 0 }
    }

    /// A connection has seen to everything of its turn.
    pub(super) fn settled(&self) {
        if self.is_manual() {
            self.inner.settled.notify_waiters();
        }
    }

    /// Has every connection look around, and waits until each has sent what it has to say, or cannot because its client
    /// does not read.
    pub(super) async fn settle(&self) {
        let turn = self.inner.turn.fetch_add(1, SeqCst) + 1;
        let clients = self.engine.shared().audience.clients.all();
        for client in &clients {
            client.wake();
        }
        for client in clients {
            loop {
                let settled = self.inner.settled.notified();
                tokio::pin!(settled);
                // Registered before the look, so that no notice is missed.
                settled.as_mut().enable();
                let is_gone = self.engine.shared().audience.clients.get(client.id).is_none();
                if is_gone || client.settled.load(SeqCst) >= turn {
                    break;
                }
                settled.await;
            }
        }
    }

    /// Resolves when the caller may have a thread to hold; those who ask are served in order.
    pub(super) fn permit(&self) -> impl Future<Output = OwnedSemaphorePermit> + Send + use<> {
        let aside = Arc::clone(&self.inner.aside);
        async move { aside.acquire_owned().await.expect("nobody closes this semaphore") }
    }

    pub(super) fn bell(&self) -> &Notify {
        &self.inner.bell
    }

    /// Ends the server: no more connections, and those there are close once their answers are sent.
    pub(super) fn stop(&self) {
        self.inner.has_stopped.store(true, SeqCst);
        self.engine.shared().running.end_all();
        self.inner.stop.send_replace(true);
        for client in self.engine.shared().audience.clients.all() {
            client.close();
        }
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.inner.has_stopped.load(SeqCst)
    }

    /// Resolves when the server ends.
    pub(super) async fn stopped(&self) {
        // The sender lives in `self`, so that the channel cannot close.
        let _ = self.inner.stop.subscribe().wait_for(|stop| *stop).await;
    }
}
