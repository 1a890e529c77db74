//! The keeper of the journal: a task that syncs the disk, copies the live keys to a new file, and ends the server if the disk
//! cannot be trusted.
//!
//! Owns    the clients whose replies wait for the disk.
//! Rule    while another node may lead, no connection is open whose session has a lock: the other node ends the sessions that
//!         it knows from the log, later than that.
//! Rule    a sync and a copy run on threads for blocking work, which last as long as there is something to do. While one sync
//!         runs, replies gather for the next one. On a slow disk the next one waits a while for the clients that the last one
//!         has answered, since they are about to send again: otherwise every other sync would serve few of them.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redlatch_core::journal::Mode;
use redlatch_core::journal::log::{Log, SyncError};
use redlatch_core::state::clients::Client;
use redlatch_core::state::cluster::ClusterFacts;
use redlatch_platform::boot;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use super::context::ServerContext;
use super::journal;

/// How often the disk is synced while leases run, and how often a failed write is tried again.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How many syncs there are in the time for which one proves that no other node leads. Each of them tells the others that
/// this node lives, and how far lock time is.
const HEARTBEATS: u32 = 4;
/// The time after a commit that etcd has not taken, until it is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// How often a server that another node may have replaced looks for connections of sessions: a reply that was on its way may
/// have granted a lock.
const DOUBT_EVERY: Duration = Duration::from_millis(20);
/// A sync that takes longer than this waits for the clients that the last one has answered, for half its time at most.
const SLOW_SYNC: Duration = Duration::from_millis(2);

/// The log of a server, and the clients that wait for it.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) log: Arc<Log>,
    sync_every: Duration,
    /// Whether other nodes may take the place of this server.
    is_watched: bool,
    waiting: Mutex<Waiting>,
    /// A reply waits for the disk.
    pub(super) wanted: Notify,
    has_failed: AtomicBool,
    /// Whether the commands know of an error of the log.
    is_error_shown: AtomicBool,
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
        let believed = log.believed_ms().map(Duration::from_millis);
        Self {
            log,
            sync_every: believed.map_or(SYNC_EVERY, |believed| believed / HEARTBEATS),
            is_watched: believed.is_some(),
            waiting: Mutex::new(Waiting { clients: Vec::new(), round: 1 }),
            wanted: Notify::new(),
            has_failed: AtomicBool::new(false),
            is_error_shown: AtomicBool::new(false),
            has_ended: watch::Sender::new(false),
        }
    }

    /// Writes what was appended. The task is told if the newest file has grown enough, and of an error.
    pub(super) fn write(&self) {
        self.log.write();
        if self.log.has_grown() || self.log.has_error() != self.is_error_shown.load(SeqCst) {
            self.wanted.notify_one();
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
        let mut copying = None;
        let kept = tokio::select! {
            kept = self.keep(&context, &mut copying) => kept,
            () = self.close_doubtful_sessions(&context), if self.is_watched => Ok(()),
        };
        if kept.is_err() {
            context.stop();
            context.drained().await;
        }
        if let Some(task) = copying {
            // It ends with the server. The last entry of the journal is not one of the copy.
            let _ = task.await;
        }
        let (keeper, ended) = (Arc::clone(&self), context.clone());
        if !self.has_failed()
            && let Ok(Err(error)) = spawn_blocking(move || keeper.end(&ended)).await
        {
            tracing::warn!(%error, "Cannot mark the journal as cleanly closed: the next start treats this as a crash");
        }
        if !self.is_watched {
            // The last writes may have met one.
            self.show_error(&context);
        }
        self.has_ended.send_replace(true);
    }

    /// Says in the journal that the server ends in good order. If files are gone, all live keys are written again before.
    fn end(&self, context: &ServerContext) -> io::Result<()> {
        let (log, shared) = (&self.log, context.engine.shared());
        let now = || context.clock().now().lock;
        // A copy that began because files are gone may have been interrupted by the end.
        if !log.has_all_files() {
            self.tell_of_missing_files();
            let write = || {
                log.begin_again(now(), boot::millis())?;
                if !journal::copy_all(&shared.keyspace, &*shared.clock, log, || false) {
                    return Err(io::Error::other(log.error().unwrap_or_default()));
                }
                log.end_copy();
                log.sync(now(), boot::millis()).map_err(io::Error::other)?;
                log.remove_older()
            };
            if let Err(error) = write() {
                self.has_failed.store(true, SeqCst);
                return Err(error);
            }
        }
        log.stop(now(), boot::millis())
    }

    fn tell_of_missing_files(&self) {
        tracing::error!("Files of the journal are gone: all live keys are written to a new one");
    }

    /// Looks whether the files of the journal are still there, and begins a new one if they are not. The copy of the live
    /// keys follows.
    ///
    /// # Errors
    /// It cannot be begun.
    fn look_after_files(&self, context: &ServerContext) -> Result<(), Failed> {
        if self.log.is_in_place() {
            return Ok(());
        }
        self.tell_of_missing_files();
        self.log.begin_again(context.clock().now().lock, boot::millis()).map_err(|error| {
            tracing::error!(%error, "The journal is gone: the server ends");
            self.has_failed.store(true, SeqCst);
            Failed
        })
    }

    /// Syncs, copies, and tries failed writes again, until the last connection is closed: it may wait with its last replies.
    ///
    /// # Errors
    /// A sync has failed: the server must end.
    async fn keep(
        self: &Arc<Self>,
        context: &ServerContext,
        copying: &mut Option<JoinHandle<bool>>,
    ) -> Result<(), Failed> {
        let (mut synced, mut last) = (Instant::now(), LastSync::default());
        let mut drained = pin!(context.drained());
        loop {
            tokio::select! {
                () = &mut drained => return Ok(()),
                // While writes fail, they are tried again once a second, and not for each client that waits.
                () = self.wanted.notified(), if !self.log.is_failing() => {}
                () = tokio::time::sleep(self.sync_every.saturating_sub(synced.elapsed())) => {}
                is_whole = ended(copying) => if is_whole { *copying = self.end_copy(context).await? },
            }
            let is_late = synced.elapsed() >= self.sync_every;
            if is_late {
                self.log.retry();
            }
            self.show_error(context);
            if is_late {
                self.end_if_stuck()?;
                self.look_after_files(context)?;
            }
            if copying.is_none() && (is_late || self.log.has_grown()) {
                *copying = self.begin_copy(context);
            }
            let now = context.clock().now().lock;
            let is_due = is_late && (self.is_watched || self.log.is_sync_due(now));
            // A read may wait for the proof that this server still leads.
            let is_read_waiting = self.is_watched && !self.waiting.lock().clients.is_empty();
            let mut started = Instant::now();
            if is_due || is_read_waiting || self.log.needs_sync() {
                self.gather(last).await;
                started = Instant::now();
                if !self.sync(context).await? && self.is_watched {
                    // What waits goes on waiting: etcd is not asked again at once.
                    tokio::time::sleep(TRY_AGAIN.min(self.sync_every)).await;
                    continue;
                }
                last = LastSync { took: started.elapsed(), released: self.waiting.lock().clients.len() };
            }
            if is_late {
                // Other nodes count from the commits: a slow one is followed by the next at once.
                synced = if self.is_watched { started } else { Instant::now() };
            }
            self.wake();
        }
    }

    /// Closes the connections of sessions with locks whenever another node may have taken the place of this server, for ever.
    async fn close_doubtful_sessions(&self, context: &ServerContext) {
        let registries = &context.engine.shared().registries;
        loop {
            let believed = Duration::from_millis(self.log.believed_for_ms(boot::millis()));
            if !believed.is_zero() {
                tokio::time::sleep(believed).await;
                continue;
            }
            let holders = registries.lock_sessions.holders().into_iter();
            let holders: Vec<_> = holders.filter_map(|holder| registries.clients.get(holder)).collect();
            if !holders.is_empty() {
                tracing::warn!(connections = holders.len(), "Sessions end, because another node may lead");
            }
            holders.iter().for_each(|client| client.cut("another node may lead"));
            tokio::time::sleep(DOUBT_EVERY).await;
        }
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
            // Other nodes see that the log goes on.
            let longest = if self.is_watched { self.sync_every / 2 } else { Duration::MAX };
            let _ = tokio::time::timeout(longest.min(last.took / 2), all).await;
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

    /// Says when commits become so slow that the next ones may be too late, and when they are quick again.
    fn show_speed(&self, cluster: &ClusterFacts, took: Duration) {
        let (commit_ms, half) = (took.as_millis() as u64, self.sync_every * HEARTBEATS * 5 / 8);
        if took >= half && !cluster.set_slow(true) {
            tracing::warn!(
                commit_ms,
                "etcd is slow: a commit takes more than half of cluster-takeover, and after four fifths another node may lead"
            );
        } else if took < half / 2 && cluster.set_slow(false) {
            tracing::info!(commit_ms, "etcd is fast again");
        }
    }

    /// Syncs the disk once. Returns false if the journal cannot be written, which a later sync tries again.
    ///
    /// # Errors
    /// What was written may be lost: the server must end.
    async fn sync(&self, context: &ServerContext) -> Result<bool, Failed> {
        let (log, now) = (Arc::clone(&self.log), context.clock().now().lock);
        let begun = Instant::now();
        match spawn_blocking(move || log.sync(now, boot::millis())).await {
            Ok(Ok(())) => {
                if let Some(cluster) = &context.engine.shared().cluster {
                    if cluster.set_late(false) {
                        tracing::info!("etcd takes the log again");
                    }
                    cluster.note_commit(begun.elapsed());
                    self.show_speed(cluster, begun.elapsed());
                }
                Ok(true)
            }
            Ok(Err(SyncError::Write(_))) => {
                self.show_error(context);
                Ok(false)
            }
            Ok(Err(SyncError::Delayed(error))) => {
                // The sync may be done, and is tried again.
                let cluster = context.engine.shared().cluster.as_ref();
                if !cluster.is_some_and(|cluster| cluster.set_late(true)) {
                    tracing::warn!(%error, "etcd does not take the log: nothing is answered until it does");
                }
                Ok(false)
            }
            Ok(Err(error @ SyncError::Sync(_))) => {
                match self.is_watched {
                    true => tracing::warn!(%error, "Another node now owns the replication log"),
                    false => {
                        tracing::error!(%error, "The journal may have lost written data: the server ends");
                    }
                }
                self.has_failed.store(true, SeqCst);
                Err(Failed)
            }
            // The runtime is shutting down.
            Err(_) => Err(Failed),
        }
    }

    /// With `always`, no reply may tell of what is not on the disk. If more than releases could not be written, that would
    /// be every reply.
    ///
    /// # Errors
    /// The server must end.
    fn end_if_stuck(&self) -> Result<(), Failed> {
        if self.is_watched || self.log.mode() != Mode::Always || !self.log.is_stuck() {
            return Ok(());
        }
        tracing::error!(
            "With appendfsync always, nothing is answered that cannot be written: the server ends"
        );
        self.has_failed.store(true, SeqCst);
        Err(Failed)
    }

    /// Tells the commands whether the journal can be written, and the operator of each error.
    fn show_error(&self, context: &ServerContext) {
        let quarantine = &context.engine.shared().locks.quarantine;
        let (error, failure) = (self.log.error(), self.log.take_failure());
        self.is_error_shown.store(error.is_some(), SeqCst);
        match (error, quarantine.disk_error().is_some()) {
            (Some(error), false) => {
                tracing::error!(
                    error,
                    "The journal cannot be written: writes are refused, except for releases"
                );
                quarantine.set_disk_error(&error);
            }
            (None, true) => {
                tracing::info!("The journal can be written again");
                quarantine.clear_disk_error();
                context.ticker().notify_one();
            }
            (None, false) => {
                if let Some(error) = failure {
                    tracing::warn!(error, "A write to the journal failed and was repeated");
                }
            }
            (Some(_), true) => {}
        }
    }

    /// Begins to copy the live keys, if it is time: to a new file, or again to one whose copy was interrupted.
    fn begin_copy(self: &Arc<Self>, context: &ServerContext) -> Option<JoinHandle<bool>> {
        let (log, now) = (&self.log, context.clock().now().lock);
        if log.has_error() {
            // What is copied would stay in memory, or fill the reserve.
            return None;
        }
        if log.is_copy_due()
            && let Err(error) = log.begin_copy(now, boot::millis())
        {
            tracing::warn!(%error, "The journal cannot begin a new file");
        }
        log.is_copying().then(|| {
            let (context, log) = (context.clone(), Arc::clone(log));
            spawn_blocking(move || {
                let shared = context.engine.shared();
                journal::copy_all(&shared.keyspace, &*shared.clock, &log, || context.has_stopped())
            })
        })
    }

    /// All live keys have been copied: once they are on the disk, the older files go. Returns the task that removes them.
    ///
    /// # Errors
    /// A sync has failed.
    async fn end_copy(&self, context: &ServerContext) -> Result<Option<JoinHandle<bool>>, Failed> {
        self.log.end_copy();
        let log = Arc::clone(&self.log);
        let removed = self.sync(context).await?.then(|| {
            spawn_blocking(move || {
                if let Err(error) = log.remove_older() {
                    tracing::warn!(%error, "Older files of the journal cannot be removed");
                }
                false
            })
        });
        Ok(removed)
    }
}

#[derive(Debug)]
struct Failed;

/// Resolves when the copy has ended, if one runs: whether it is whole.
async fn ended(copying: &mut Option<JoinHandle<bool>>) -> bool {
    let Some(task) = copying else { return std::future::pending().await };
    let is_whole = task.await.unwrap_or(false);
    *copying = None;
    is_whole
}
