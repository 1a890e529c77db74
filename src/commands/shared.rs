//! What all commands of one server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::script_cache::ScriptCache;
use super::table;
use crate::clock::{Clock, LockTime};
use crate::keyspace::Keyspace;
use crate::state::channels::Channels;
use crate::state::clients::Clients;
use crate::state::metrics::{CommandStats, Metrics};
use crate::state::settings::Settings;

/// What all commands of one server share.
pub struct Shared {
    /// Every key.
    pub keyspace: Keyspace,
    /// Every client.
    pub clients: Clients,
    /// Who listens to what.
    pub channels: Channels,
    /// How the server is set.
    pub settings: Settings,
    /// What it has counted.
    pub metrics: Metrics,
    /// Calls of each command, by [`super::Command::index`].
    pub stats: Vec<CommandStats>,
    /// Scripts that have been loaded.
    pub scripts: ScriptCache,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// When the server started.
    pub started: LockTime,
    /// Identifies this run of the server: forty hexadecimal digits.
    pub run_id: String,
    /// The TCP port, once there is one.
    pub port: AtomicU64,
    /// Set by SHUTDOWN; the shell looks at it when woken.
    pub is_stopping: AtomicBool,
    entropy: AtomicU64,
}

/// CLIENT PAUSE: until when which commands are held back.
#[derive(Debug, Default)]
pub struct Pause {
    until_ms: AtomicU64,
    writes_only: AtomicBool,
}

impl Pause {
    /// Holds commands back until `until`: all of them, or those that may write. A pause under way is never shortened,
    /// nor made milder.
    pub fn begin(&self, until: LockTime, writes_only: bool, now: LockTime) {
        let was_all = self.is_on(now) && !self.writes_only.load(Relaxed);
        self.writes_only.store(writes_only && !was_all, Relaxed);
        self.until_ms.fetch_max(until.as_millis(), Relaxed);
    }

    /// Lets everything go on.
    pub fn end(&self) {
        self.until_ms.store(0, Relaxed);
    }

    /// Until when a command is held back, if it is; `may_write` tells what kind it is.
    #[inline]
    pub fn holds(&self, may_write: bool, now: LockTime) -> Option<LockTime> {
        let until_ms = self.until_ms.load(Relaxed);
        if until_ms == 0 || !self.is_on(now) || (self.writes_only.load(Relaxed) && !may_write) {
            return None;
        }
        Some(LockTime::from_millis(until_ms))
    }

    fn is_on(&self, now: LockTime) -> bool {
        now.as_millis() < self.until_ms.load(Relaxed)
    }
}

impl Shared {
    /// A server's state at its start.
    pub fn new(keyspace: Keyspace, settings: Settings, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let started = clock.now().lock;
        let shared = Self {
            keyspace,
            clients: Clients::default(),
            channels: Channels::default(),
            settings,
            metrics: Metrics::default(),
            stats: std::iter::repeat_with(CommandStats::default).take(table().total()).collect(),
            scripts: ScriptCache::default(),
            pause: Pause::default(),
            clock,
            started,
            run_id: String::new(),
            port: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            entropy: AtomicU64::new(seed),
        };
        let [a, b, c] = [shared.random(), shared.random(), shared.random()];
        Self { run_id: format!("{a:016x}{b:016x}{:08x}", c as u32), ..shared }
    }

    /// Sixty-four bits that follow from the seed and from how often this was asked: splitmix64.
    pub fn random(&self) -> u64 {
        let mut bits =
            self.entropy.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}
