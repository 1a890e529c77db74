//! The state that all commands of one server share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use redlatch_proto::clock::{Clock, LockTime, Probe, Process};
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Request;
use sha1::{Digest, Sha1};

use crate::commands::lock::slow;
use crate::commands::lock::watch::LockWatch;
use crate::commands::redact::redacted;
use crate::commands::row::{Flags, Group};
use crate::commands::script::cache::ScriptCache;
use crate::commands::script::interpreter::InterpreterSlot;
use crate::commands::script::library::Libraries;
use crate::commands::{Command, table};
use crate::journal::log::Log;
use crate::keyspace::{Keyspace, ShardSet, View};
use crate::locks::LockGroups;
use crate::locks::{Linter, LockLint, LockWaits};
use crate::scripts::interpreter::NewInterpreter;
use crate::state::acl::file::Store;
use crate::state::acl::{self, Account, Acl, Terms};
use crate::state::audit::Audit;
use crate::state::clients::Client;
use crate::state::cluster::ClusterFacts;
use crate::state::latency::{Latency, Spike};
use crate::state::log_limiter::LogLimiter;
use crate::state::login_delays::{LoginDelays, Origin};
use crate::state::metrics::{CommandStats, Metrics};
use crate::state::monitors::Monitors;
use crate::state::quarantine::Quarantine;
use crate::state::registries::Registries;
use crate::state::running::Running;
use crate::state::settings::{Events, Settings};
use crate::state::settings_file;
use crate::state::slowlog::{SlowCall, Slowlog, shortened};
use crate::testing::Testing;

/// The version of Redis whose replies these are. Clients read it before they use a command.
pub const VERSION: &str = "7.0.15";

/// The state that all commands of one server share.
pub struct Shared {
    pub keyspace: Keyspace,
    /// Clients, channels and key tracking.
    pub registries: Registries,
    pub settings: Settings,
    /// Counters of the whole server.
    pub metrics: Metrics,
    /// Calls of each command, by [`crate::commands::Command::index`].
    pub stats: Vec<CommandStats>,
    /// Scripts that have been loaded.
    pub scripts: ScriptCache,
    /// Runs the scripts that are not native.
    pub interpreter: InterpreterSlot,
    /// The interpreted script that runs.
    pub running: Arc<Running>,
    /// Libraries of functions that have been loaded.
    pub libraries: Libraries,
    pub lock_waits: LockWaits,
    /// What clients do wrong with locks.
    pub lock_lint: Arc<LockLint>,
    /// Locks that are waited for or held for long.
    pub lock_watch: LockWatch,
    pub slowlog: Slowlog,
    pub latency: Latency,
    pub acl: Acl,
    /// Clients that MONITOR shows every command.
    pub monitors: Monitors,
    /// Who has logged in, broken a lock, or changed users, settings or statistics.
    pub audit: Audit,
    /// Limits the log lines about connections that sent HTTP.
    pub http_seen: LogLimiter,
    /// Addresses that have sent too many wrong passwords.
    pub login_delays: LoginDelays,
    /// Limits the log lines about failed logins.
    pub failed_logins_seen: LogLimiter,
    /// Limits the log lines about connections that the server has ended.
    pub drops_seen: LogLimiter,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Whether locks may be granted and extended.
    pub quarantine: Arc<Quarantine>,
    pub clock: Arc<dyn Clock>,
    pub started: LockTime,
    /// Identifies this run of the server: forty hexadecimal digits.
    pub run_id: String,
    /// The TCP port; 0 until it is bound.
    pub port: AtomicU64,
    /// The TLS port; 0 until it is bound.
    pub tls_port: AtomicU64,
    /// Set once the server begins to stop: by SHUTDOWN, a signal, or the end of its handle.
    pub is_stopping: AtomicBool,
    /// Whether the end waits for no client that does not read: SHUTDOWN NOW.
    pub stops_now: AtomicBool,
    /// Whether expired keys are removed on time, or only on access: DEBUG SET-ACTIVE-EXPIRE.
    pub expires_actively: AtomicBool,
    /// The log, if the server has a directory.
    pub log: Option<Arc<Log>>,
    /// The test backend, unless it is off.
    pub testing: Option<Testing>,
    /// The cluster that the server leads, if it does.
    pub cluster: Option<Arc<ClusterFacts>>,
    probe: Option<Arc<dyn Probe>>,
    acl_file: Option<Arc<dyn Store>>,
    config_file: Option<Arc<dyn Store>>,
    stop_hook: OnceLock<Box<dyn Fn() + Send + Sync>>,
    seed: u64,
    entropy: AtomicU64,
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

impl Shared {
    /// The state of a server that starts.
    pub fn new(mut keyspace: Keyspace, settings: Settings, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let started = clock.now().lock;
        if settings.text("appendonly") == "auto" {
            // A server with a directory has decided already.
            drop(settings.set("appendonly", "no"));
        }
        keyspace.keep_history(usize::try_from(settings.integer("lock-history-len")).unwrap_or(0));
        if let Some(groups) = LockGroups::new(settings.text("lock-metrics-prefix").split_whitespace()) {
            keyspace.group_locks(&groups);
        }
        let lock_lint = Arc::<LockLint>::default();
        keyspace.observe_locks(Box::new(Linter(Arc::clone(&lock_lint))));
        let acl = Acl::new(settings.text("requirepass").as_bytes(), terms(&settings));
        let running: Arc<Running> = Arc::default();
        let registries = Registries::new(seed, keyspace.ledger());
        let scripts = ScriptCache::new(seed, keyspace.ledger());
        let shared = Self {
            keyspace,
            registries,
            settings,
            metrics: Metrics::default(),
            stats: std::iter::repeat_with(CommandStats::default).take(table().total()).collect(),
            scripts,
            interpreter: InterpreterSlot::default(),
            running,
            libraries: Libraries::default(),
            lock_waits: LockWaits::default(),
            lock_lint,
            lock_watch: LockWatch::default(),
            slowlog: Slowlog::default(),
            latency: Latency::default(),
            acl,
            monitors: Monitors::default(),
            audit: Audit::default(),
            http_seen: LogLimiter::default(),
            login_delays: LoginDelays::default(),
            failed_logins_seen: LogLimiter::default(),
            drops_seen: LogLimiter::default(),
            pause: Pause::default(),
            quarantine: Arc::default(),
            clock,
            started,
            run_id: String::new(),
            port: AtomicU64::new(0),
            tls_port: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            stops_now: AtomicBool::new(false),
            expires_actively: AtomicBool::new(true),
            log: None,
            testing: None,
            cluster: None,
            probe: None,
            acl_file: None,
            config_file: None,
            stop_hook: OnceLock::new(),
            seed,
            entropy: AtomicU64::new(seed),
        };
        let run_id = shared.unguessable().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { run_id, ..shared }
    }

    /// Reads facts about the process from `probe`. Default: none.
    #[must_use]
    pub fn with_probe(self, probe: Arc<dyn Probe>) -> Self {
        Self { probe: Some(probe), ..self }
    }

    /// Has scripts that are not native run by an interpreter that is created so. Default: none, they are refused.
    #[must_use]
    pub fn with_interpreter(self, create: Option<NewInterpreter>) -> Self {
        Self { interpreter: InterpreterSlot::new(create), ..self }
    }

    /// Keeps the journal in this log. Default: none.
    #[must_use]
    pub fn with_log(self, log: Arc<Log>) -> Self {
        Self { log: Some(log), ..self }
    }

    /// When a login from this address is looked at, if not now: it has sent too many wrong passwords. The backend of a test
    /// delays nothing, because its clock may stand still.
    pub fn login_held(&self, peer: &str, now: LockTime) -> Option<LockTime> {
        let origin = Origin::of(peer).filter(|_| self.testing.is_none())?;
        self.login_delays.held(origin, now, self.login_delay_ms())
    }

    /// A password from this address was wrong.
    pub fn login_failed(&self, peer: &str, now: LockTime) {
        if let Some(origin) = Origin::of(peer) {
            self.login_delays.failed(origin, now, self.login_delay_ms());
        }
    }

    fn login_delay_ms(&self) -> u64 {
        self.settings.integer("login-delay").unsigned_abs()
    }

    /// Gives it the test backend. Default: none.
    #[must_use]
    pub fn with_testing(self, testing: Testing) -> Self {
        Self { testing: Some(testing), ..self }
    }

    /// Makes it the server that leads this cluster. Default: it is a server by itself.
    #[must_use]
    pub fn with_cluster(self, cluster: Arc<ClusterFacts>) -> Self {
        Self { cluster: Some(cluster), ..self }
    }

    /// Whether the server has the commands of this group for this client. Those that it has not are unknown.
    #[inline]
    pub fn offers(&self, group: Group, client: &Client) -> bool {
        match group {
            Group::Sentinel => self.cluster.is_some(),
            Group::Test => self.is_open_to_tests_of(client),
            _ => true,
        }
    }

    /// Whether this client may use the test backend.
    pub fn is_open_to_tests_of(&self, client: &Client) -> bool {
        self.testing.as_ref().is_some_and(|testing| testing.is_open_to(client))
    }

    /// Keeps the users in this file. Default: no file.
    #[must_use]
    pub fn with_acl_file(self, file: Arc<dyn Store>) -> Self {
        Self { acl_file: Some(file), ..self }
    }

    /// Names the file that the settings were read from. Default: no file.
    #[must_use]
    pub fn with_config_file(self, file: Arc<dyn Store>) -> Self {
        Self { config_file: Some(file), ..self }
    }

    /// The name of the configuration file, if there is one.
    pub fn config_file(&self) -> Option<&str> {
        self.config_file.as_ref().map(|file| file.name())
    }

    /// Writes the settings to the configuration file, if there is one, and the users, unless they have their own
    /// file.
    ///
    /// # Errors
    /// The error of the system. The file is unchanged.
    pub fn save_config_file(&self) -> Result<(), String> {
        let Some(file) = &self.config_file else { return Ok(()) };
        self.settings.undisturbed(|settings| {
            let users = (!self.has_acl_file()).then(|| acl::file::lines(&self.acl));
            file.write(&settings_file::rewritten(&file.read()?, settings, users))
        })
    }

    /// The terms that rules for users are parsed with.
    pub fn acl_terms(&self) -> Terms<'static> {
        terms(&self.settings)
    }

    /// Whether there is an ACL file.
    pub fn has_acl_file(&self) -> bool {
        self.acl_file.is_some()
    }

    /// Replaces all users by those of the ACL file, if there is one. Returns the accounts that were removed.
    ///
    /// # Errors
    /// The mistakes in the file, in sentences. Nothing has changed.
    pub fn load_acl_file(&self) -> Result<Vec<Arc<Account>>, Vec<u8>> {
        let Some(file) = &self.acl_file else { return Ok(Vec::new()) };
        let cannot =
            |error| format!("Error loading ACLs, opening file '{}': {error}", file.name()).into_bytes();
        let text = file.read().map_err(cannot)?;
        let users = acl::file::parse(&text, file.name(), self.acl_terms())?;
        Ok(self.acl.replace(users, self.settings.text("requirepass").as_bytes(), self.acl_terms()))
    }

    /// Writes all users to the ACL file, if there is one.
    ///
    /// # Errors
    /// The error of the system. The file is unchanged.
    pub fn save_acl_file(&self) -> Result<(), String> {
        self.acl_file.as_ref().map_or(Ok(()), |file| file.write(&acl::file::text(&self.acl)))
    }

    /// Fills `bytes` with secure random bits of the system, or without a system with bits of the seed.
    ///
    /// # Errors
    /// The system has no source of randomness.
    pub fn fill_secret(&self, bytes: &mut [u8]) -> Result<(), Refusal> {
        let Some(probe) = &self.probe else {
            bytes.iter_mut().for_each(|byte| *byte = self.random() as u8);
            return Ok(());
        };
        let none = || Refusal::said("ERR the system has no randomness to give");
        if probe.draw_secret(bytes) { Ok(()) } else { Err(none()) }
    }

    /// The port in INFO: the plain one, or else the one for TLS.
    pub fn main_port(&self) -> u64 {
        match self.port.load(Relaxed) {
            0 => self.tls_port.load(Relaxed),
            port => port,
        }
    }

    /// Facts about the process, if they are known.
    pub fn process(&self) -> Process {
        self.probe.as_ref().map(|probe| probe.look()).unwrap_or_default()
    }

    /// Begins a quarantine, in which nothing is granted or extended. `until` is its last millisecond.
    pub fn begin_quarantine(&self, until: LockTime, reason: &'static str) {
        let left_ms = until.millis_since(self.clock.now().lock);
        tracing::warn!(left_ms, reason, "Quarantine: no lock is granted or extended for so long");
        self.quarantine.begin(until, reason);
    }

    /// Forgets what a crash of the server would lose: scripts, libraries, and unless `keeps_keys` all keys.
    pub fn forget(&self, keeps_keys: bool) {
        self.scripts.flush();
        self.libraries.flush();
        if !keeps_keys {
            let mut view = View::lock(&self.keyspace, ShardSet::All, 0, self.clock.now(), self.events());
            view.clear_all();
            view.finish(&self.registries);
        }
    }

    /// Sets the function that SHUTDOWN calls. Only the first call has an effect.
    pub fn on_stop(&self, hook: impl Fn() + Send + Sync + 'static) {
        // A state belongs to one server, which sets the hook once.
        let _ = self.stop_hook.set(Box::new(hook));
    }

    /// The server begins to stop: nothing is granted or extended any more, and interpreted scripts end.
    pub fn begin_stop(&self) {
        self.is_stopping.store(true, SeqCst);
        self.quarantine.stop();
        self.running.end_all();
    }

    /// Ends the server: SHUTDOWN.
    pub fn stop(&self) {
        self.begin_stop();
        if let Some(hook) = self.stop_hook.get() {
            hook();
        }
    }

    /// Bytes in use beside keys and values. Those of the buffers of clients are as of the last sweep over them.
    pub fn other_bytes(&self) -> u64 {
        let clients = self.metrics.client_bytes.load(Relaxed);
        clients.saturating_add(self.scripts.bytes() as u64).saturating_add(self.keyspace.ledger().total())
    }

    /// True if more memory is in use than `maxmemory` allows. The caller has no shard locked.
    #[inline]
    pub fn is_short_of_memory(&self) -> bool {
        let limit = self.settings.memory_max();
        limit > 0 && self.keyspace.used_bytes().saturating_add(self.other_bytes()) > limit
    }

    /// The events that a call publishes.
    #[inline]
    pub fn events(&self) -> Events {
        self.settings.events().with_names(self.registries.tracking.broadcasts())
    }

    /// Records the duration of a call in the command's statistics, the slow log and the latency monitor. `view` has the
    /// shards of its keys locked.
    pub fn record_duration(
        &self,
        view: &mut View<'_>,
        client: &Client,
        command: &Command,
        request: Request<'_>,
        micros: u64,
    ) {
        let stats = &self.stats[usize::from(command.index)];
        stats.add_timed(micros);
        let unix_secs = || self.clock.wall_micros() / 1_000_000;
        let is_over = |limit: i64| u64::try_from(limit).is_ok_and(|limit| micros >= limit);
        let spike_millis = self.settings.spike_millis();
        if spike_millis > 0 && is_over(spike_millis.saturating_mul(1000)) {
            let event = if command.row.flags.has(Flags::FAST) { "fast-command" } else { "command" };
            self.latency.push(event, Spike { unix_secs: unix_secs(), millis: micros / 1000 });
        }
        if is_over(self.settings.slow_micros()) && !command.row.flags.has(Flags::SECRET) {
            let mut words = shortened(redacted(command, request).into_iter(), request.len());
            words.extend(slow::locks(view, command, request));
            let call = SlowCall {
                id: 0,
                unix_secs: unix_secs(),
                micros,
                words,
                peer: client.peer.clone(),
                client_name: client.names.lock().name.clone(),
            };
            self.slowlog.push(call, self.settings.integer("slowlog-max-len").max(0) as usize);
        }
    }

    /// Twenty bytes that do not tell which ones come next, and do not reveal the seed.
    pub fn unguessable(&self) -> [u8; 20] {
        let words = [self.seed, self.random()].map(u64::to_le_bytes);
        Sha1::digest(words.as_flattened()).into()
    }

    /// The next 64 bits of splitmix64, seeded by the server's seed.
    pub fn random(&self) -> u64 {
        let mut bits =
            self.entropy.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

fn terms(settings: &Settings) -> Terms<'static> {
    Terms { catalog: table(), all_channels: settings.text("acl-pubsub-default") == "allchannels" }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(in crate::commands) mod tests {
    use super::*;
    use crate::keyspace::Layout;
    use redlatch_proto::clock::Now;

    struct StillClock;

    impl Clock for StillClock {
        fn now(&self) -> Now {
            Now { lock: LockTime::from_millis(5), wall_offset_ms: 0 }
        }

        fn micros(&self) -> u64 {
            5_000
        }

        fn wall_micros(&self) -> u64 {
            7_000_000
        }
    }

    /// The state of a server whose clock stands still.
    pub(in crate::commands) fn shared() -> Shared {
        let layout = Layout { shards: 1, databases: 1, seed: 1, journal: None };
        Shared::new(Keyspace::new(layout, || {}), Settings::default(), Arc::new(StillClock), 1)
    }

    fn record_duration(shared: &Shared, line: &[u8], micros: u64) {
        let trust = redlatch_proto::resp::RequestLimits {
            bulk_bytes_max: 1 << 20,
            request_bytes_max: 1 << 20,
            authenticated: true,
        };
        let mut decoder = redlatch_proto::resp::Decoder::new();
        decoder.next(line, trust).unwrap();
        let request = decoder.request(line);
        let found = table().find(request.word(0)).unwrap();
        let command = found.subcommand(request.word(1)).unwrap_or(found);
        let since = LockTime::from_millis(5);
        let client = Client::new(1, "127.0.0.1:9".to_owned(), String::new(), false, since);
        let (set, now) = (ShardSet::All, shared.clock.now());
        let mut view = View::lock(&shared.keyspace, set, 0, now, shared.events());
        shared.record_duration(&mut view, &client, command, request, micros);
    }

    #[test]
    fn a_slow_call_is_remembered_without_its_password() {
        let shared = shared();
        record_duration(&shared, b"GET k\r\n", 9_999);
        record_duration(&shared, b"CONFIG SET timeout 7 RequirePass secret\r\n", 10_000);
        let calls = shared.slowlog.newest(9);
        assert_eq!(calls.len(), 1, "10 ms are slow, less is not");
        assert_eq!(calls[0].words, ["CONFIG", "SET", "timeout", "7", "RequirePass", "(redacted)"]);
        assert_eq!((calls[0].unix_secs, calls[0].micros), (7, 10_000));
    }

    #[test]
    fn spikes_are_recorded_once_the_threshold_is_set() {
        let shared = shared();
        record_duration(&shared, b"KEYS *\r\n", 50_000);
        assert!(shared.latency.events().is_empty(), "the threshold is not set yet");
        shared.settings.set("latency-monitor-threshold", "20").unwrap();
        record_duration(&shared, b"KEYS *\r\n", 19_999);
        record_duration(&shared, b"KEYS *\r\n", 50_000);
        record_duration(&shared, b"GET k\r\n", 20_000);
        let seen: Vec<_> =
            shared.latency.events().iter().map(|(name, event)| (*name, event.longest_millis)).collect();
        assert_eq!(seen, [("command", 50), ("fast-command", 20)]);
    }

    #[test]
    fn a_frozen_server_delays_everything_until_the_given_time() {
        let (pause, at) = (Pause::default(), LockTime::from_millis);
        pause.begin(at(30), true, at(5));
        pause.freeze(at(20));
        assert_eq!(pause.holds(|| false, at(19)), Some(at(20)));
        assert_eq!(pause.is_frozen(at(20)), None);
        assert_eq!((pause.holds(|| false, at(20)), pause.holds(|| true, at(20))), (None, Some(at(30))));
    }

    #[test]
    fn the_stop_hook_is_called_after_the_flag_is_up() {
        let shared = Arc::new(shared());
        let (seen, state) = (Arc::new(AtomicBool::new(false)), Arc::downgrade(&shared));
        let note = Arc::clone(&seen);
        shared.on_stop(move || {
            let is_up = state.upgrade().is_some_and(|shared| shared.is_stopping.load(SeqCst));
            note.store(is_up, SeqCst);
        });
        shared.stop();
        assert!(seen.load(SeqCst));
    }
}
