//! The state that all connections of one server share: engine, clock, limits, shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::clock::{ManualClock, SystemClock};
use crate::clock::{Clock, Now};
use crate::engine::Engine;
use crate::state::log_limiter::LogLimiter;

/// How long connections may take to write their last replies when the server ends.
const GRACE: Duration = Duration::from_millis(500);

/// Shared by the connections, the listeners and the ticker of one server.
#[derive(Clone, Debug)]
pub(super) struct ServerContext {
    pub(super) engine: Engine,
    inner: Arc<Inner>,
}

/// The clock of a server.
#[derive(Clone, Debug)]
pub(super) enum AnyClock {
    System(Arc<SystemClock>),
    Manual(Arc<ManualClock>),
}

#[derive(Debug)]
struct Inner {
    clock: AnyClock,
    /// Counts the steps of a manual clock; see [`ServerContext::clock_step`].
    clock_step: AtomicU64,
    /// Notified whenever a connection has done all work of a step of a manual clock.
    clock_step_done: Notify,
    /// Notified if the ticker must run before the time it sleeps until.
    ticker: Arc<Notify>,
    /// Counts how often a connection was woken for its outbox.
    wakeups: Arc<AtomicU64>,
    /// One connection at a time is on the script thread, because scripts exclude each other anyway.
    script_thread: Arc<Semaphore>,
    /// Connections that are open or being opened.
    connections: AtomicU64,
    /// Limits the log lines about rejected connections.
    rejections: LogLimiter,
    stop: watch::Sender<bool>,
    has_stopped: AtomicBool,
}

/// One of the `maxclients` connections, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit(ServerContext);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.inner.connections.fetch_sub(1, SeqCst);
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

impl ServerContext {
    pub(super) fn new(engine: Engine, clock: AnyClock, ticker: Arc<Notify>) -> Self {
        let inner = Inner {
            clock,
            clock_step: AtomicU64::new(0),
            clock_step_done: Notify::new(),
            ticker,
            wakeups: Arc::default(),
            script_thread: Arc::new(Semaphore::new(1)),
            connections: AtomicU64::new(0),
            rejections: LogLimiter::default(),
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

    /// A place among the `maxclients` connections, taken before memory is spent on the peer. `None` if all places are
    /// taken or the server has ended.
    pub(super) fn connection_permit(&self) -> Option<ConnectionPermit> {
        let most = self.engine.shared().settings.integer("maxclients") as u64;
        let connections = &self.inner.connections;
        if connections.fetch_update(SeqCst, SeqCst, |open| (open < most).then_some(open + 1)).is_err() {
            self.reject("all maxclients connections are taken");
            return None;
        }
        let permit = ConnectionPermit(self.clone());
        (!self.has_stopped()).then_some(permit)
    }

    /// Counts a rejected connection, and logs it at a limited rate.
    pub(super) fn reject(&self, reason: &'static str) {
        self.engine.shared().metrics.rejected_connections.add(1);
        if let Some(times) = self.inner.rejections.happened(self.clock().now().lock) {
            tracing::warn!(times, reason, "connections rejected");
        }
    }

    /// The number of the last step of a manual clock.
    pub(super) fn clock_step(&self) -> u64 {
        if self.is_manual() { self.inner.clock_step.load(SeqCst) } else { 0 }
    }

    /// Reports that a connection has done all work of the last step of a manual clock.
    pub(super) fn clock_step_done(&self) {
        if self.is_manual() {
            self.inner.clock_step_done.notify_waiters();
        }
    }

    /// Begins a step of a manual clock: wakes every connection, and waits until each has written all its output, or
    /// cannot write because its client does not read.
    pub(super) async fn wait_for_clock_step(&self) {
        let step = self.inner.clock_step.fetch_add(1, SeqCst) + 1;
        let clients = self.engine.shared().registries.clients.all();
        for client in &clients {
            client.wake();
        }
        for client in clients {
            loop {
                let done = self.inner.clock_step_done.notified();
                tokio::pin!(done);
                // Registered before the check, so that no notification is missed.
                done.as_mut().enable();
                let is_gone = self.engine.shared().registries.clients.get(client.id).is_none();
                if is_gone || client.settled.load(SeqCst) >= step {
                    break;
                }
                done.await;
            }
        }
    }

    /// Resolves when the caller may use the script thread. Callers are served in order.
    pub(super) fn offload_permit(&self) -> impl Future<Output = OwnedSemaphorePermit> + Send + use<> {
        let script_thread = Arc::clone(&self.inner.script_thread);
        async move { script_thread.acquire_owned().await.expect("this semaphore is never closed") }
    }

    /// Counts how often a connection was woken for its outbox.
    pub(super) fn wakeups(&self) -> &Arc<AtomicU64> {
        &self.inner.wakeups
    }

    /// Notified if the ticker must run before the time it sleeps until.
    pub(super) fn ticker(&self) -> &Notify {
        &self.inner.ticker
    }

    /// Ends the server: listeners close, and connections close once their replies are written.
    pub(super) fn stop(&self) {
        self.inner.has_stopped.store(true, SeqCst);
        self.engine.shared().running.end_all();
        self.inner.stop.send_replace(true);
        for client in self.engine.shared().registries.clients.all() {
            client.close();
        }
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.inner.has_stopped.load(SeqCst)
    }

    /// Resolves when the server ends.
    pub(super) async fn stopped(&self) {
        // The channel cannot close, because its sender lives in `self`.
        let _ = self.inner.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Resolves when the server has ended and every connection is closed, or [`GRACE`] later.
    pub(super) async fn finished(&self) {
        self.stopped().await;
        let drained = async {
            while !self.engine.shared().registries.clients.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(GRACE, drained).await;
        self.engine.shared().is_stopping.store(true, SeqCst);
    }
}
