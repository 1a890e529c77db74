//! The keeper of the journal: a task that syncs the disk, copies the live keys to a new file, and ends the server if the disk
//! cannot be trusted.
//!
//! Owns    the clients whose replies wait for the disk.
//! Rule    a sync and a copy run on threads for blocking work, which last as long as there is something to do. While one sync
//!         runs, replies gather for the next one. On a slow disk the next one waits a while for the clients that the last one
//!         has answered, since they are about to send again: otherwise every other sync would serve few of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use super::context::ServerContext;
use super::{boot, journal};
use crate::journal::log::{Log, SyncError};
use crate::state::clients::Client;

/// How often the disk is synced while leases run, and how often a failed write is tried again.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// A sync that takes longer than this waits for the clients that the last one has answered, for half its time at most.
const SLOW_SYNC: Duration = Duration::from_millis(2);

/// The log of a server, and the clients that wait for it.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) log: Arc<Log>,
    waiting: Mutex<Waiting>,
    /// A reply waits for the disk.
    wanted: Notify,
    /// A sync has failed.
    has_failed: AtomicBool,
    /// The last sync is done.
    has_ended: watch::Sender<bool>,
}

/// The clients that wait for the next sync.
#[derive(Debug)]
struct Waiting {
    clients: Vec<Arc<Client>>,
    /// Rises whenever they are woken.
    round: u64,
}

/// What the last sync has shown.
#[derive(Clone, Copy, Debug, Default)]
struct LastSync {
    took: Duration,
    /// The replies that it has released.
    released: usize,
}

impl Keeper {
    pub(super) fn new(log: Arc<Log>) -> Self {
        Self {
            log,
            waiting: Mutex::new(Waiting { clients: Vec::new(), round: 1 }),
            wanted: Notify::new(),
            has_failed: AtomicBool::new(false),
            has_ended: watch::Sender::new(false),
        }
    }

    /// Wakes the client after the next sync, or when a failed write has been repeated. `round` is where the caller keeps
    /// for which round its client is in the list, 0 at first.
    pub(super) fn wait(&self, client: &Arc<Client>, round: &mut u64) {
        let mut waiting = self.waiting.lock();
        if *round != waiting.round {
            *round = waiting.round;
            waiting.clients.push(Arc::clone(client));
            self.wanted.notify_one();
        }
    }

    /// Whether a sync has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(SeqCst)
    }

    /// Resolves when the last sync is done.
    pub(super) async fn ended(&self) {
        // The channel cannot close, because its sender lives in `self`.
        let _ = self.has_ended.subscribe().wait_for(|has_ended| *has_ended).await;
    }

    /// Keeps the journal until the server has ended and its connections are closed.
    pub(super) async fn run(self: Arc<Self>, context: ServerContext) {
        let (mut synced, mut copying, mut last) = (Instant::now(), None, LastSync::default());
        loop {
            tokio::select! {
                () = context.stopped() => break,
                () = self.wanted.notified() => {}
                () = tokio::time::sleep(SYNC_EVERY.saturating_sub(synced.elapsed())) => {}
            }
            let is_late = synced.elapsed() >= SYNC_EVERY;
            self.show_error(&context);
            if is_late {
                self.repeat_write(&context);
                self.copy(&context, &mut copying).await;
            }
            let now = context.clock().now().lock;
            if self.log.needs_sync() || (is_late && self.log.is_sync_due(now)) {
                self.gather(last).await;
                let started = Instant::now();
                if self.sync(&context).await.is_err() {
                    context.stop();
                    break;
                }
                last = LastSync { took: started.elapsed(), released: self.waiting.lock().clients.len() };
            }
            if is_late {
                synced = Instant::now();
            }
            self.wake();
        }
        context.drained().await;
        let (log, now) = (Arc::clone(&self.log), context.clock().now().lock);
        if !self.has_failed()
            && let Ok(Err(error)) = spawn_blocking(move || log.stop(now, boot::millis())).await
        {
            tracing::warn!(%error, "The journal does not say that the server has ended in good order");
        }
        self.has_ended.send_replace(true);
    }

    /// Lets requests that have arrived, or will in a moment, take part in the next sync.
    async fn gather(&self, last: LastSync) {
        let waiting = || self.waiting.lock().clients.len();
        loop {
            let before = waiting();
            tokio::task::yield_now().await;
            if waiting() == before {
                break;
            }
        }
        if last.took >= SLOW_SYNC {
            let all = async {
                while waiting() < last.released {
                    self.wanted.notified().await;
                }
            };
            let _ = tokio::time::timeout(last.took / 2, all).await;
        }
    }

    /// Wakes the clients that wait. Those whose reply still waits come back.
    fn wake(&self) {
        let clients = {
            let mut waiting = self.waiting.lock();
            waiting.round += 1;
            std::mem::take(&mut waiting.clients)
        };
        clients.iter().for_each(|client| client.wake());
    }

    /// Syncs the disk once.
    ///
    /// # Errors
    /// What was written may be lost: the server must end.
    async fn sync(&self, context: &ServerContext) -> Result<(), ()> {
        let (log, now) = (Arc::clone(&self.log), context.clock().now().lock);
        match spawn_blocking(move || log.sync(now, boot::millis())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(SyncError::Write(_))) => {
                self.show_error(context);
                Ok(())
            }
            Ok(Err(error @ SyncError::Sync(_))) => {
                tracing::error!(%error, "The journal may have lost what it was given: the server ends");
                self.has_failed.store(true, SeqCst);
                Err(())
            }
            // The runtime is shutting down.
            Err(_) => Err(()),
        }
    }

    /// Tries a write again that has failed.
    fn repeat_write(&self, context: &ServerContext) {
        if self.log.error().is_some() {
            self.log.retry();
            self.show_error(context);
        }
    }

    /// Tells the commands whether the journal can be written.
    fn show_error(&self, context: &ServerContext) {
        let quarantine = &context.engine.shared().quarantine;
        match (self.log.error(), quarantine.disk_error().is_some()) {
            (Some(error), false) => {
                tracing::error!(error, "The journal cannot be written: no write is answered");
                quarantine.set_disk_error(&error);
            }
            (None, true) => {
                tracing::info!("The journal can be written again");
                quarantine.clear_disk_error();
                context.ticker().notify_one();
            }
            _ => {}
        }
    }

    /// Goes on with a copy of the live keys to a new file, or begins one.
    async fn copy(&self, context: &ServerContext, copying: &mut Option<JoinHandle<bool>>) {
        let log = &self.log;
        if let Some(task) = copying {
            if !task.is_finished() {
                return;
            }
            let is_whole = task.await.unwrap_or(false);
            *copying = None;
            if is_whole {
                log.end_copy();
                if self.sync(context).await.is_ok()
                    && let Err(error) = log.remove_older()
                {
                    tracing::warn!(%error, "Older files of the journal cannot be removed");
                }
            }
            return;
        }
        let now = context.clock().now().lock;
        if log.is_copy_due()
            && let Err(error) = log.begin_copy(now, boot::millis())
        {
            tracing::warn!(%error, "The journal cannot begin a new file");
        }
        if log.is_copying() {
            let (context, log) = (context.clone(), Arc::clone(log));
            *copying = Some(spawn_blocking(move || {
                let shared = context.engine.shared();
                journal::copy_all(&shared.keyspace, &*shared.clock, &log, || context.has_stopped())
            }));
        }
    }
}
