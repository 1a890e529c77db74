//! The state that all connections of one engine share: engine, clock, limits, shutdown.
//!
//! Owns    [`ServerContext`], one for each engine, and [`Process`], which all engines of a server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use redlatch_core::engine::Engine;
use redlatch_core::state::clients::{Client, ClientId};
use redlatch_core::state::log_limiter::LogLimiter;
use redlatch_core::state::settings;
use redlatch_proto::clock::Clock;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use super::clock::SystemClock;
use super::keeper::Keeper;
use super::testing::Membership;

/// Shared by the connections, the listeners and the ticker of one engine.
#[derive(Clone, Debug)]
pub(super) struct ServerContext {
    pub(super) engine: Engine,
    inner: Arc<Inner>,
}

/// What all engines of one server share. A server has one engine, unless tests have made more.
#[derive(Debug)]
pub(super) struct Process {
    /// Counts how often a connection was woken for its outbox.
    wakeups: Arc<AtomicU64>,
    /// Connections that are open or being opened.
    connections: AtomicU64,
    /// Limits the log lines about rejected connections.
    rejections: LogLimiter,
    stop: watch::Sender<bool>,
    has_stopped: AtomicBool,
    /// Whether the log says that connections have outlived `shutdown-timeout`.
    is_lateness_told: AtomicBool,
}

impl Process {
    pub(super) fn new() -> Self {
        Self {
            wakeups: Arc::default(),
            connections: AtomicU64::new(0),
            rejections: LogLimiter::default(),
            stop: watch::Sender::new(false),
            has_stopped: AtomicBool::new(false),
            is_lateness_told: AtomicBool::new(false),
        }
    }
}

#[derive(Debug)]
struct Inner {
    process: Arc<Process>,
    /// The clock of the engine, if that is the system's.
    system_clock: Option<Arc<SystemClock>>,
    /// The node of a namespace that the engine is, if its clock is a test's.
    membership: Option<Membership>,
    /// The keeper of the journal, if the server has a directory.
    keeper: Option<Arc<Keeper>>,
    /// Notified if the ticker must run before the time it sleeps until.
    ticker: Arc<Notify>,
    /// One connection at a time is on the script thread. A script that waits for further shards waits for no other script.
    script_thread: Arc<Semaphore>,
    /// Set when the engine accepts no more clients, although the server goes on: its namespace has been dropped.
    has_ended: AtomicBool,
}

/// One of the `maxclients` connections, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit(Arc<Process>);

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, SeqCst);
    }
}

impl ServerContext {
    pub(super) fn new(
        engine: Engine,
        system_clock: Option<Arc<SystemClock>>,
        ticker: Arc<Notify>,
        process: Arc<Process>,
        membership: Option<Membership>,
        keeper: Option<Arc<Keeper>>,
    ) -> Self {
        let inner = Inner {
            process,
            system_clock,
            membership,
            keeper,
            ticker,
            script_thread: Arc::new(Semaphore::new(1)),
            has_ended: AtomicBool::new(false),
        };
        Self { engine, inner: Arc::new(inner) }
    }

    /// The clock of the engine.
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.engine.shared().clock
    }

    /// The clock of the engine, if that is the system's.
    pub(super) fn system_clock(&self) -> Option<&SystemClock> {
        self.inner.system_clock.as_deref()
    }

    /// The node of a namespace that the engine is, if its clock is a test's.
    pub(super) fn membership(&self) -> Option<&Membership> {
        self.inner.membership.as_ref()
    }

    /// The keeper of the journal, if the server has a directory.
    #[inline]
    pub(super) fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.inner.keeper.as_ref()
    }

    /// Whether time stands still, so that no timer has to wait for it.
    pub(super) fn is_frozen(&self) -> bool {
        self.membership().is_some_and(Membership::is_frozen)
    }

    /// A place among the `maxclients` connections, taken before memory is spent on the peer; a peer on this machine may have
    /// one of `maxclients-reserved` more. `None` if all places are taken or the server has ended.
    pub(super) fn connection_permit(&self, is_local: bool) -> Option<ConnectionPermit> {
        let settings = &self.engine.shared().settings;
        let reserved = if is_local { settings.get(settings::MAXCLIENTS_RESERVED) } else { 0 };
        let most = settings.get(settings::MAXCLIENTS) + reserved;
        let process = &self.inner.process;
        let connections = &process.connections;
        if connections.fetch_update(SeqCst, SeqCst, |open| (open < most).then_some(open + 1)).is_err() {
            self.reject("all maxclients connections are taken");
            return None;
        }
        let permit = ConnectionPermit(Arc::clone(process));
        (!self.has_stopped()).then_some(permit)
    }

    /// Counts a rejected connection, and logs it at a limited rate.
    pub(super) fn reject(&self, reason: &'static str) {
        self.engine.shared().stats.metrics.rejected_connections.add(1);
        if let Some(times) = self.inner.process.rejections.happened(self.clock().now().lock) {
            tracing::warn!(times, reason, "connections rejected");
        }
    }

    /// The number of the last step of a test's clock; 0 without one.
    pub(super) fn clock_step(&self) -> u64 {
        self.membership().map_or(0, Membership::clock_step)
    }

    /// Reports that the connection of a client has done all work of this step of a test's clock.
    pub(super) fn finish_clock_step(&self, client: ClientId, step: u64) {
        if let Some(membership) = self.membership() {
            membership.finish_clock_step(client, step);
        }
    }

    /// Reports that a client has gone, for which no step of a test's clock waits any more.
    pub(super) fn leave_clock_steps(&self, client: ClientId) {
        if let Some(membership) = self.membership() {
            membership.leave_clock_steps(client);
        }
    }

    /// Resolves when the caller may use the script thread. Callers are served in order.
    pub(super) fn offload_permit(&self) -> impl Future<Output = OwnedSemaphorePermit> + Send + use<> {
        let script_thread = Arc::clone(&self.inner.script_thread);
        async move { script_thread.acquire_owned().await.expect("this semaphore is never closed") }
    }

    /// Counts how often a connection was woken for its outbox.
    pub(super) fn wakeups(&self) -> &Arc<AtomicU64> {
        &self.inner.process.wakeups
    }

    /// Notified if the ticker must run before the time it sleeps until.
    pub(super) fn ticker(&self) -> &Notify {
        &self.inner.ticker
    }

    /// Ends the server: listeners close, and connections close once the requests that have arrived are answered.
    pub(super) fn stop(&self) {
        self.inner.process.has_stopped.store(true, SeqCst);
        self.inner.process.stop.send_replace(true);
        self.stop_engine();
    }

    /// Ends this engine with the server. Requests that have arrived are answered: nothing is granted or extended, and
    /// waiting calls get an error.
    pub(super) fn stop_engine(&self) {
        self.engine.shared().begin_stop();
        // Each connection ends its own wait, so that none begins to wait after it was told.
        self.end_with(Client::wake);
    }

    /// Ends this engine: it accepts no more clients, and `tell` ends those that it has.
    pub(super) fn end_with(&self, tell: impl Fn(&Client)) {
        self.inner.has_ended.store(true, SeqCst);
        for client in self.engine.shared().registries.clients.all() {
            tell(&client);
        }
        self.inner.ticker.notify_one();
    }

    /// Whether the server ends, and this engine with it.
    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.inner.process.has_stopped.load(SeqCst)
    }

    /// Whether the engine, or the whole server, has ended.
    pub(super) fn has_stopped(&self) -> bool {
        self.has_ended() || self.is_stopping()
    }

    /// Whether the engine has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.inner.has_ended.load(SeqCst)
    }

    /// Resolves when the server ends.
    pub(super) async fn stopped(&self) {
        // The channel cannot close, because its sender lives in `self`.
        let _ = self.inner.process.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Resolves when the server has ended, its connections have too as in [`Self::drained`], and the journal is synced.
    pub(super) async fn finished(&self) {
        self.drained().await;
        if let Some(keeper) = self.keeper() {
            keeper.ended().await;
        }
    }

    /// Resolves when the server has ended and every connection is closed, or after `shutdown-timeout`; SHUTDOWN NOW does not
    /// wait.
    pub(super) async fn drained(&self) {
        self.stopped().await;
        let drained = async {
            while self.inner.process.connections.load(SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let shared = self.engine.shared();
        let stops_now = shared.stop.is_immediate.load(Relaxed);
        let seconds = match stops_now {
            true => 0,
            false => shared.settings.get(settings::SHUTDOWN_TIMEOUT),
        };
        let is_late = tokio::time::timeout(Duration::from_secs(seconds), drained).await.is_err();
        // Several threads wait for the end, and one of them says so.
        if is_late && !stops_now && !self.inner.process.is_lateness_told.swap(true, SeqCst) {
            let connections = self.inner.process.connections.load(SeqCst);
            tracing::warn!(
                connections,
                "Connections have not read their last replies within shutdown-timeout"
            );
        }
    }
}
