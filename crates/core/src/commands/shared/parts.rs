//! The parts of the state that all commands share, each about one subject.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use redlatch_proto::clock::{LockTime, Probe, Process};
use sha1::{Digest, Sha1};

use crate::commands::lock::watch::LockWatch;
use crate::commands::script::cache::ScriptCache;
use crate::commands::script::interpreter::InterpreterSlot;
use crate::commands::script::library::Libraries;
use crate::keyspace::LockWaits;
use crate::locks::LockLint;
use crate::state::acl::Acl;
use crate::state::acl::file::Store;
use crate::state::audit::Audit;
use crate::state::latency::Latency;
use crate::state::ledger::Ledger;
use crate::state::log_limiter::LogLimiter;
use crate::state::login_delays::LoginDelays;
use crate::state::metrics::{CommandStats, Metrics};
use crate::state::quarantine::Quarantine;
use crate::state::running::Running;
use crate::state::slowlog::Slowlog;
use crate::state::wrong_passwords::WrongPasswords;

/// Scripts and functions that have been loaded, and what runs them.
pub struct Scripts {
    pub cache: ScriptCache,
    /// Libraries of functions.
    pub libraries: Libraries,
    /// Runs the scripts that are not native.
    pub interpreter: InterpreterSlot,
    /// The interpreted script that runs.
    pub running: Arc<Running>,
}

impl Scripts {
    pub(super) fn new(cache: ScriptCache, ledger: &Arc<Ledger>) -> Self {
        Self {
            cache,
            libraries: Libraries::default(),
            interpreter: InterpreterSlot::new(None, ledger),
            running: Arc::default(),
        }
    }
}

/// What concerns the locks of all keys together.
#[derive(Default)]
pub struct Locks {
    pub waits: LockWaits,
    /// What clients do wrong with locks.
    pub lint: Arc<LockLint>,
    /// Locks that are waited for or held for long.
    pub watch: Arc<LockWatch>,
    /// Whether locks may be granted and extended.
    pub quarantine: Arc<Quarantine>,
}

/// Who may log in and do what, and who has.
pub struct AccessControl {
    pub acl: Acl,
    /// The ACL file, if there is one.
    pub(super) file: Option<Arc<dyn Store>>,
    /// Addresses that have sent too many wrong passwords.
    pub login_delays: LoginDelays,
    /// What they have sent.
    pub(crate) wrong_passwords: WrongPasswords,
    /// Who has logged in, broken a lock, or changed users, settings or statistics.
    pub audit: Audit,
}

impl AccessControl {
    /// `key`: bytes that no client knows.
    pub(super) fn new(acl: Acl, key: [u8; 20]) -> Self {
        let wrong_passwords = WrongPasswords::new(key);
        let (file, login_delays, audit) = Default::default();
        Self { acl, file, login_delays, wrong_passwords, audit }
    }
}

/// What the server has counted and measured.
pub struct Statistics {
    /// Counters of the whole server.
    pub metrics: Metrics,
    /// Calls of each command, by [`crate::commands::Command::index`].
    pub commands: Vec<CommandStats>,
    pub slowlog: Slowlog,
    pub latency: Latency,
}

impl Statistics {
    pub(super) fn new(commands: usize) -> Self {
        Self {
            metrics: Metrics::default(),
            commands: std::iter::repeat_with(CommandStats::default).take(commands).collect(),
            slowlog: Slowlog::default(),
            latency: Latency::default(),
        }
    }
}

/// Limits of the lines that clients can cause in the server's log.
#[derive(Default)]
pub(crate) struct LogLimits {
    /// About connections that sent HTTP.
    pub http: LogLimiter,
    /// About logins that wait for their turn.
    pub delayed_logins: LogLimiter,
    /// About failed logins.
    pub failed_logins: LogLimiter,
    /// About connections that the server has ended.
    pub drops: LogLimiter,
}

/// This run of the server: its identity, its ports, its process.
pub struct Instance {
    pub started: LockTime,
    /// Identifies this run of the server: forty hexadecimal digits.
    pub run_id: String,
    /// The TCP port; 0 until it is bound.
    pub port: AtomicU64,
    /// The TLS port; 0 until it is bound.
    pub tls_port: AtomicU64,
    /// Until when the certificates of the TLS port are valid: seconds of Unix, 0 if that is not known. Absent without TLS.
    pub certificates_end: OnceLock<Arc<AtomicU64>>,
    pub(super) probe: Option<Arc<dyn Probe>>,
}

impl Instance {
    pub(super) fn new(started: LockTime, random: &Random) -> Self {
        Self {
            started,
            run_id: random.unguessable().iter().map(|byte| format!("{byte:02x}")).collect(),
            port: AtomicU64::new(0),
            tls_port: AtomicU64::new(0),
            certificates_end: OnceLock::new(),
            probe: None,
        }
    }

    /// The port in INFO: the plain one, or else the one for TLS.
    pub fn main_port(&self) -> u64 {
        match self.port.load(Relaxed) {
            0 => self.tls_port.load(Relaxed),
            port => port,
        }
    }

    /// Until when the certificates of the TLS port are valid: seconds of Unix, 0 without TLS.
    pub fn certificates_end(&self) -> u64 {
        self.certificates_end.get().map_or(0, |ends| ends.load(Relaxed))
    }

    /// Facts about the process, if they are known.
    pub fn process(&self) -> Process {
        self.probe.as_ref().map(|probe| probe.look()).unwrap_or_default()
    }
}

/// The end of the server.
#[derive(Default)]
pub struct Stop {
    /// Set once the server begins to stop: by SHUTDOWN, a signal, or the end of its handle.
    pub has_begun: AtomicBool,
    /// Whether the end waits for no client that does not read: SHUTDOWN NOW.
    pub is_immediate: AtomicBool,
    pub(super) hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Random bits that a seed determines.
#[derive(Debug)]
pub struct Random {
    seed: u64,
    entropy: AtomicU64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, entropy: AtomicU64::new(seed) }
    }

    /// The next 64 bits of splitmix64.
    pub fn next(&self) -> u64 {
        let mut bits =
            self.entropy.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// Twenty bytes that do not tell which ones come next, and do not reveal the seed.
    pub(crate) fn unguessable(&self) -> [u8; 20] {
        let words = [self.seed, self.next()].map(u64::to_le_bytes);
        Sha1::digest(words.as_flattened()).into()
    }
}

/// CLIENT PAUSE, which delays all commands or only writes, and DEBUG SLEEP, which delays all commands.
#[derive(Debug, Default)]
pub struct Pause {
    frozen_until_ms: AtomicU64,
    until_ms: AtomicU64,
    writes_only: AtomicBool,
}

impl Pause {
    /// Delays all commands, or those that may write, until `until`. A current pause is never shortened or narrowed.
    pub fn begin(&self, until: LockTime, writes_only: bool, now: LockTime) {
        let was_all = self.is_on(now) && !self.writes_only.load(Relaxed);
        self.writes_only.store(writes_only && !was_all, Relaxed);
        self.until_ms.fetch_max(until.as_millis(), Relaxed);
    }

    /// Delays everything until `until`, as if the server slept.
    pub fn freeze(&self, until: LockTime) {
        self.frozen_until_ms.fetch_max(until.as_millis(), Relaxed);
    }

    /// The end of DEBUG SLEEP, if the server sleeps.
    #[inline]
    pub fn is_frozen(&self, now: LockTime) -> Option<LockTime> {
        let until_ms = self.frozen_until_ms.load(Relaxed);
        (until_ms > now.as_millis()).then(|| LockTime::from_millis(until_ms))
    }

    pub fn end(&self) {
        self.until_ms.store(0, Relaxed);
    }

    /// The moment until which a command is delayed, if it is. `may_write` is called only if a pause of writes is
    /// active.
    #[inline]
    pub fn holds(&self, may_write: impl FnOnce() -> bool, now: LockTime) -> Option<LockTime> {
        if let Some(until) = self.is_frozen(now) {
            return Some(until);
        }
        let until_ms = self.until_ms.load(Relaxed);
        if until_ms == 0 || !self.is_on(now) || (self.writes_only.load(Relaxed) && !may_write()) {
            return None;
        }
        Some(LockTime::from_millis(until_ms))
    }

    fn is_on(&self, now: LockTime) -> bool {
        now.as_millis() < self.until_ms.load(Relaxed)
    }
}
