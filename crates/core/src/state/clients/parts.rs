//! The parts of a client, each about one subject.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use redlatch_proto::clock::LockTime;

use super::bounded;
use crate::state::acl::Account;
use crate::state::transaction::{Watch, Watching};
use crate::state::wait::Wait;

/// Where a client connected from and to.
#[derive(Debug)]
pub struct Address {
    /// Where it connected from: `127.0.0.1:50000`, a socket's path, or empty for an in-process stream.
    pub peer: String,
    pub local: String,
    /// Whether it came through a Unix socket.
    pub is_unix: bool,
}

impl Address {
    /// Whether it is on this machine: it uses a Unix socket, runs in this process, or has a loopback address.
    pub fn is_local(&self) -> bool {
        let is_loopback = self.peer.starts_with("127.") || self.peer.starts_with("[::1]");
        self.is_unix || self.peer.is_empty() || is_loopback
    }
}

/// Who a client has logged in as.
#[derive(Debug, Default)]
pub struct Login {
    /// The user it is authenticated as.
    account: Mutex<Option<Arc<Account>>>,
    is_authenticated: AtomicBool,
    /// Since when it is known that it has not authenticated, in milliseconds; zero: it has, or that is not known.
    outside_since_ms: AtomicU64,
}

impl Login {
    /// Shows whether it has authenticated, or need not.
    pub(crate) fn show_authenticated(&self, is_authenticated: bool) {
        self.is_authenticated.store(is_authenticated, Relaxed);
    }

    /// Whether it has not authenticated for longer than this. Measured between the calls of this function.
    pub fn is_late(&self, now: LockTime, ms_max: u64) -> bool {
        if self.is_authenticated.load(Relaxed) {
            self.outside_since_ms.store(0, Relaxed);
            return false;
        }
        match self.outside_since_ms.load(Relaxed) {
            0 => {
                self.outside_since_ms.store(now.as_millis().max(1), Relaxed);
                false
            }
            since_ms => now.millis_since(LockTime::from_millis(since_ms)) > ms_max,
        }
    }

    /// Sets the user it is authenticated as, as other connections see it.
    pub(crate) fn show_account(&self, account: &Arc<Account>) {
        *self.account.lock() = Some(Arc::clone(account));
    }

    /// The user it is authenticated as.
    pub fn account(&self) -> Option<Arc<Account>> {
        self.account.lock().clone()
    }

    /// Whether it is authenticated as this user.
    pub(crate) fn is_as(&self, account: &Arc<Account>) -> bool {
        self.account.lock().as_ref().is_some_and(|own| Arc::ptr_eq(own, account))
    }
}

/// What a client has chosen for its connection.
#[derive(Debug)]
pub struct Options {
    /// The version of RESP: 2 or 3.
    pub(super) protocol: AtomicU8,
    /// Whether CLIENT NO-EVICT is on.
    pub no_evict: AtomicBool,
    /// Whether CLIENT NO-TOUCH is on.
    pub no_touch: AtomicBool,
    /// Whether it is told when somebody waits for a lock of it.
    pub tells_contended: AtomicBool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            protocol: AtomicU8::new(2),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            tells_contended: AtomicBool::new(false),
        }
    }
}

/// What a client has done last.
#[derive(Debug)]
pub struct Activity {
    /// The database that it has selected.
    pub database: AtomicU16,
    /// When it last sent a request, in milliseconds of lock time.
    pub last_active_ms: AtomicU64,
    /// Index of the last command in the command table; `u16::MAX` before the first.
    pub last_command: AtomicU16,
}

impl Activity {
    pub(super) fn new(since: LockTime) -> Self {
        Self {
            database: AtomicU16::new(0),
            last_active_ms: AtomicU64::new(since.as_millis()),
            last_command: AtomicU16::new(u16::MAX),
        }
    }
}

/// The size of the transaction of a client, and the keys it watches.
#[derive(Debug)]
pub struct TransactionSize {
    /// Requests queued since MULTI; [`NO_TRANSACTION`] outside of a transaction.
    queued: AtomicU32,
    /// Bytes of these requests.
    pub queued_bytes: AtomicU64,
    /// The keys it watches, if it watches any.
    watching: Mutex<Option<Watched>>,
}

/// Watched keys, as CLIENT LIST shows them.
#[derive(Debug)]
struct Watched {
    keys: usize,
    watch: Arc<Watch>,
}

/// The value of `queued` outside of a transaction.
const NO_TRANSACTION: u32 = u32::MAX;

impl Default for TransactionSize {
    fn default() -> Self {
        Self {
            queued: AtomicU32::new(NO_TRANSACTION),
            queued_bytes: AtomicU64::new(0),
            watching: Mutex::default(),
        }
    }
}

impl TransactionSize {
    /// Sets the size of its transaction, as other connections see it; `None` outside of a transaction.
    pub(crate) fn show_queued(&self, requests: Option<usize>, bytes: usize) {
        self.queued_bytes.store(bytes as u64, Relaxed);
        self.queued
            .store(requests.map_or(NO_TRANSACTION, |count| bounded(count).min(NO_TRANSACTION - 1)), Relaxed);
    }

    /// How many requests it has queued since MULTI; `None` outside of a transaction.
    pub fn queued(&self) -> Option<u32> {
        Some(self.queued.load(Relaxed)).filter(|count| *count != NO_TRANSACTION)
    }

    /// Sets its watched keys, as other connections see them; `None`: it watches no key.
    pub(crate) fn show_watching(&self, watching: Option<&Watching>) {
        *self.watching.lock() = watching
            .map(|watching| Watched { keys: watching.keys.len(), watch: Arc::clone(&watching.watch) });
    }

    /// How many keys it watches, and whether a watched key has changed.
    pub fn watching(&self) -> (usize, bool) {
        self.watching.lock().as_ref().map_or((0, false), |watched| (watched.keys, watched.watch.is_broken()))
    }
}

/// What a client waits for.
#[derive(Debug, Default)]
pub struct Blocking {
    /// Whether a request waits: for its timeout, a key, the script thread or the end of a pause.
    pub is_held: AtomicBool,
    /// The command of this client that waits, if one does.
    pub(super) wait: Mutex<Option<Arc<Wait>>>,
}

/// The buffers of a connection.
#[derive(Debug)]
pub struct Buffers {
    /// Bytes received and not yet decoded.
    pub query_bytes: AtomicU64,
    /// Bytes that its buffer for requests has room for beyond these.
    pub query_room: AtomicU64,
    /// Bytes in which the places of the arguments of its request are kept.
    pub decoder_bytes: AtomicU64,
    /// Bytes of replies not yet sent.
    pub reply_bytes: AtomicU64,
    /// Whether its connection keeps buffers for the next request: [`KEPT`], [`RELEASE_ASKED`] or [`RELEASED`].
    pub(super) kept: AtomicU8,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            query_bytes: AtomicU64::new(0),
            query_room: AtomicU64::new(0),
            decoder_bytes: AtomicU64::new(0),
            reply_bytes: AtomicU64::new(0),
            kept: AtomicU8::new(RELEASED),
        }
    }
}

/// The connection keeps its buffers.
pub(super) const KEPT: u8 = 0;
/// The connection has been asked to release its buffers.
pub(super) const RELEASE_ASKED: u8 = 1;
/// The connection has released its buffers, or has not allocated any.
pub(super) const RELEASED: u8 = 2;

/// The end of a connection that the server wants.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Whether it must close once its replies and messages have been sent.
    pub is_asked: AtomicBool,
    /// Whether it must close at once.
    pub is_cut: AtomicBool,
    /// Why the server ends the connection, if it does.
    pub reason: OnceLock<&'static str>,
}
