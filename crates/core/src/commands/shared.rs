//! The state that all commands of one server share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

use redlatch_proto::clock::{Clock, LockTime, Probe};
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Request;

use self::parts::{AccessControl, Instance, Locks, LogLimits, Random, Scripts, Statistics, Stop};
use crate::commands::lock::session::Contended;
use crate::commands::lock::slow;
use crate::commands::lock::spans::Spans;
use crate::commands::lock::watch::WaitLog;
use crate::commands::redact::redacted;
use crate::commands::row::{Flags, Group};
use crate::commands::script::cache::ScriptCache;
use crate::commands::script::interpreter::InterpreterSlot;
use crate::commands::table::Table;
use crate::commands::{Command, Extension, Peers, table};
use crate::journal::log::Log;
use crate::keyspace::{AskingClient, Keyspace, Linter, ShardSet, View};
use crate::locks::LockGroups;
use crate::scripts::interpreter::NewInterpreter;
use crate::state::acl::file::Store;
use crate::state::acl::{self, Account, Acl, Terms};
use crate::state::beside::Beside;
use crate::state::clients::Client;
use crate::state::cluster::ClusterFacts;
use crate::state::latency::Spike;
use crate::state::ledger::{Charge, Kind, Ledger};
use crate::state::login_delays::Origin;
use crate::state::metrics::CommandStats;
use crate::state::monitors::Monitors;
use crate::state::registries::Registries;
use crate::state::session::Session;
use crate::state::settings::{self, Events, Settings};
use crate::state::settings_file;
use crate::state::slot_groups::SlotGroup;
use crate::state::slowlog::{SlowCall, shortened};
use crate::state::wrong_passwords::Login;

mod parts;

pub use self::parts::Pause;

/// The state that all commands of one server share.
pub struct Shared {
    /// The commands that it serves, as far as `Shared::offers` says so.
    pub commands: &'static Table,
    pub keyspace: Keyspace,
    /// Clients, channels and key tracking.
    pub registries: Registries,
    pub settings: Settings,
    /// Whether clients in cluster mode are served: keys have slots, and this server has all of them, unless it has peers.
    pub cluster_enabled: bool,
    pub clock: Arc<dyn Clock>,
    pub scripts: Scripts,
    pub locks: Locks,
    pub access: AccessControl,
    pub stats: Statistics,
    /// Clients that MONITOR shows every command.
    pub monitors: Monitors,
    pub(crate) log_limits: LogLimits,
    pub instance: Instance,
    pub stop: Stop,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Whether expired keys are removed on time, or only on access: DEBUG SET-ACTIVE-EXPIRE.
    pub expires_actively: AtomicBool,
    /// The log, if the server has a directory.
    pub log: Option<Arc<Log>>,
    /// The test backend, unless it is off.
    pub extension: Option<Arc<dyn Extension>>,
    /// What this server adds to the bytes of all namespaces of the test backend.
    namespace: Charge,
    /// The cluster that the server leads, if it does.
    pub cluster: Option<Arc<ClusterFacts>>,
    /// The server whose locks this one shows, if it has none of its own.
    pub beside: Option<Arc<Beside>>,
    /// The other nodes, if this is one of a cluster with several, which share out the slots.
    pub peers: Option<Peers>,
    pub random: Random,
    config_file: Option<Arc<dyn Store>>,
}

impl Shared {
    /// The state of a server that starts.
    pub fn new(mut keyspace: Keyspace, settings: Settings, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let started = clock.now().lock;
        if settings.get(settings::APPENDONLY) == "auto" {
            // A server with a directory has decided already.
            drop(settings.set("appendonly", "no"));
        }
        keyspace.keep_history(settings.get(settings::LOCK_HISTORY_LEN));
        if let Some(groups) = LockGroups::new(settings.get(settings::LOCK_METRICS_PREFIX).split_whitespace())
        {
            keyspace.group_locks(&groups);
        }
        let (locks, random) = (Locks::default(), Random::new(seed));
        keyspace.observe_locks(Box::new(Linter(Arc::clone(&locks.lint))));
        keyspace.observe_locks(Box::new(WaitLog(Arc::clone(&locks.watch))));
        keyspace.observe_locks(Box::new(Spans::default()));
        keyspace.observe_locks(Box::new(Contended));
        let (password, ledger) = (settings.get(settings::REQUIREPASS), keyspace.ledger());
        let acl = Acl::new(password.as_bytes(), terms(table(), &settings), ledger);
        Self {
            commands: table(),
            registries: Registries::new(seed, ledger),
            scripts: Scripts::new(ScriptCache::new(seed, ledger), ledger),
            keyspace,
            cluster_enabled: settings.get(settings::CLUSTER_ENABLED),
            settings,
            clock,
            locks,
            access: AccessControl::new(acl, random.unguessable()),
            stats: Statistics::new(table().total()),
            monitors: Monitors::default(),
            log_limits: LogLimits::default(),
            instance: Instance::new(started, &random),
            stop: Stop::default(),
            pause: Pause::default(),
            expires_actively: AtomicBool::new(true),
            log: None,
            extension: None,
            namespace: Arc::<Ledger>::default().open(Kind::Namespaces),
            cluster: None,
            beside: None,
            peers: None,
            random,
            config_file: None,
        }
    }

    /// Reads facts about the process from `probe`. Default: none.
    #[must_use]
    pub fn with_probe(mut self, probe: Arc<dyn Probe>) -> Self {
        self.instance.probe = Some(probe);
        self
    }

    /// Has scripts that are not native run by an interpreter that is created so. Default: none, they are refused.
    #[must_use]
    pub fn with_interpreter(mut self, create: Option<NewInterpreter>) -> Self {
        self.scripts.interpreter = InterpreterSlot::new(create, self.keyspace.ledger());
        self
    }

    /// Keeps the journal in this log. Default: none.
    #[must_use]
    pub fn with_log(self, log: Arc<Log>) -> Self {
        Self { log: Some(log), ..self }
    }

    /// The client of a session, as it asks for locks.
    #[inline]
    pub(crate) fn asking<'c>(&self, session: &'c Session) -> AskingClient<'c> {
        AskingClient { client: &session.client, warn_ms: self.settings.get(settings::LOCK_WAIT_WARN) }
    }

    /// Whether logins from this address are delayed: it has sent too many wrong passwords. The backend of a test delays
    /// nothing, because its clock may stand still.
    pub fn delays_logins_of(&self, peer: &str, now: LockTime) -> bool {
        let origin = Origin::of(peer).filter(|_| self.extension.is_none());
        origin.is_some_and(|origin| self.access.login_delays.delays(origin, now, self.login_delay_ms()))
    }

    /// Until when a login of this session waits, because its address has sent too many wrong passwords; `None`: it is looked
    /// at now. One that has failed before is no guess.
    pub(crate) fn login_waits(
        &self,
        session: &mut Session,
        login: (&[u8], &[u8]),
        now: LockTime,
    ) -> Option<LockTime> {
        let peer = &session.client.address.peer;
        if !self.delays_logins_of(peer, now) || self.is_failed_login(peer, login) {
            return None;
        }
        let (origin, delay_ms) = (Origin::of(peer)?, self.login_delay_ms());
        let was_waiting = session.login_turn.is_waiting();
        let asking = (&session.client, &mut session.login_turn);
        let until = self.access.login_delays.ask(origin, asking, now, delay_ms);
        if until.is_some() && !was_waiting {
            self.tell_delayed_login(peer, now);
        }
        until
    }

    /// A login of this session leaves the queue of its address, and the next one has its turn.
    pub(crate) fn end_login(&self, session: &mut Session, now: LockTime) {
        if let Some(origin) = Origin::of(&session.client.address.peer) {
            self.access.login_delays.leave(origin, &mut session.login_turn, now);
        }
    }

    /// Tells the log that a login from this address waits or is refused, because others were wrong.
    pub fn tell_delayed_login(&self, peer: &str, now: LockTime) {
        if let Some(times) = self.log_limits.delayed_logins.happened(now) {
            tracing::warn!(peer, times, "Logins are delayed: this address has sent too many wrong passwords");
        }
    }

    /// Whether a login from this address has failed before, and nothing has changed since: it is refused unseen.
    pub fn is_failed_login(&self, peer: &str, (name, password): (&[u8], &[u8])) -> bool {
        let AccessControl { acl, wrong_passwords, .. } = &self.access;
        Origin::of(peer).is_some_and(|origin| wrong_passwords.has(Login { origin, name, password }, acl))
    }

    /// The password of a login from this address was looked at and is wrong. It will be known.
    pub fn note_failed_login(&self, peer: &str, (name, password): (&[u8], &[u8]), now: LockTime) {
        let Some(origin) = Origin::of(peer) else { return };
        let AccessControl { acl, wrong_passwords, login_delays, .. } = &self.access;
        wrong_passwords.note(Login { origin, name, password }, acl, now);
        login_delays.failed(origin, now, self.login_delay_ms());
    }

    fn login_delay_ms(&self) -> u64 {
        self.settings.get(settings::LOGIN_DELAY)
    }

    /// Serves the commands of this table, which begins as [`table()`] does. Default: those of the core. Called before
    /// there are users.
    #[must_use]
    pub fn with_commands(mut self, commands: &'static Table) -> Self {
        self.commands = commands;
        self.stats.commands.resize_with(commands.total(), CommandStats::default);
        let password = self.settings.get(settings::REQUIREPASS);
        self.access.acl = Acl::new(password.as_bytes(), self.acl_terms(), self.keyspace.ledger());
        self
    }

    /// Gives it the test backend. Default: none.
    #[must_use]
    pub fn with_extension(self, extension: Arc<dyn Extension>) -> Self {
        Self { namespace: extension.ledger().open(Kind::Namespaces), extension: Some(extension), ..self }
    }

    /// Shows the locks of another server, and refuses every command that would change them. Default: it has its own.
    #[must_use]
    pub fn with_beside(self, beside: Arc<Beside>) -> Self {
        self.keyspace.keep_ended();
        self.expires_actively.store(false, Relaxed);
        self.locks.quarantine.set_read_only();
        Self { beside: Some(beside), ..self }
    }

    /// Makes it the server that leads this cluster. Default: it is a server by itself.
    #[must_use]
    pub fn with_cluster(self, cluster: Arc<ClusterFacts>) -> Self {
        let cluster_enabled = self.cluster_enabled || cluster.group.is_some();
        Self { cluster: Some(cluster), cluster_enabled, ..self }
    }

    /// The group of slots that it leads, if there are several.
    pub fn group(&self) -> Option<&SlotGroup> {
        self.cluster.as_ref()?.group.as_ref()
    }

    /// Whether a key may be at another node, by its slot.
    pub(crate) fn is_one_of_several(&self) -> bool {
        self.peers.is_some() || self.group().is_some()
    }

    /// Makes it a node of a cluster of several. Default: it has all slots.
    #[must_use]
    pub fn with_peers(self, peers: Peers) -> Self {
        Self { peers: Some(peers), ..self }
    }

    /// Whether the server has the commands of this group for this client. Those that it has not are unknown.
    #[inline]
    pub(crate) fn offers(&self, group: Group, client: &Client) -> bool {
        match group {
            Group::Sentinel => self.cluster.is_some() && self.group().is_none(),
            Group::Test => self.is_open_to_tests_of(client),
            _ => true,
        }
    }

    /// Whether this client may use the test backend.
    pub(crate) fn is_open_to_tests_of(&self, client: &Client) -> bool {
        self.extension.as_ref().is_some_and(|extension| extension.is_open_to(client))
    }

    /// Keeps the users in this file. Default: no file.
    #[must_use]
    pub fn with_acl_file(mut self, file: Arc<dyn Store>) -> Self {
        self.access.file = Some(file);
        self
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
    pub(crate) fn save_config_file(&self) -> Result<(), String> {
        let Some(file) = &self.config_file else { return Ok(()) };
        self.settings.undisturbed(|settings| {
            let users = (!self.has_acl_file()).then(|| acl::file::lines(&self.access.acl));
            file.write(&settings_file::rewritten(&file.read()?, settings, users))
        })
    }

    /// The terms that rules for users are parsed with.
    pub fn acl_terms(&self) -> Terms<'static> {
        terms(self.commands, &self.settings)
    }

    /// Whether there is an ACL file.
    pub fn has_acl_file(&self) -> bool {
        self.access.file.is_some()
    }

    /// Replaces all users by those of the ACL file, if there is one. Returns the accounts that were removed.
    ///
    /// # Errors
    /// The mistakes in the file, in sentences. Nothing has changed.
    pub fn load_acl_file(&self) -> Result<Vec<Arc<Account>>, Vec<u8>> {
        let Some(file) = &self.access.file else { return Ok(Vec::new()) };
        let cannot =
            |error| format!("Error loading ACLs, opening file '{}': {error}", file.name()).into_bytes();
        let text = file.read().map_err(cannot)?;
        let users = acl::file::parse(&text, file.name(), self.acl_terms())?;
        Ok(self.access.acl.replace(
            users,
            self.settings.get(settings::REQUIREPASS).as_bytes(),
            self.acl_terms(),
        ))
    }

    /// Writes all users to the ACL file, if there is one.
    ///
    /// # Errors
    /// The error of the system. The file is unchanged.
    pub(crate) fn save_acl_file(&self) -> Result<(), String> {
        self.access.file.as_ref().map_or(Ok(()), |file| file.write(&acl::file::text(&self.access.acl)))
    }

    /// Fills `bytes` with secure random bits of the system, or without a system with bits of the seed.
    ///
    /// # Errors
    /// The system has no source of randomness.
    pub fn fill_secret(&self, bytes: &mut [u8]) -> Result<(), Refusal> {
        let Some(probe) = &self.instance.probe else {
            bytes.iter_mut().for_each(|byte| *byte = self.random.next() as u8);
            return Ok(());
        };
        let none = || Refusal::said("ERR the system has no randomness to give");
        if probe.draw_secret(bytes) { Ok(()) } else { Err(none()) }
    }

    /// Begins a quarantine, in which nothing is granted or extended. `until` is its last millisecond.
    pub fn begin_quarantine(&self, until: LockTime, reason: &'static str) {
        let left_ms = until.millis_since(self.clock.now().lock);
        tracing::warn!(
            left_ms,
            reason,
            "Quarantine: no lock is granted or extended until left_ms have passed"
        );
        self.locks.quarantine.begin(until, reason);
    }

    /// A test lets the server crash: from now on nobody who waits gets a lock, whatever becomes free.
    pub fn crash(&self) {
        self.locks.quarantine.crash();
    }

    /// The server starts again, if it has crashed. Those who waited then have lost their connections.
    pub fn recover(&self) {
        if self.locks.quarantine.has_crashed() {
            self.locks.waits.abandon();
            self.locks.quarantine.recover();
        }
    }

    /// Forgets what a crash of the server would lose: scripts, libraries, and unless `keeps_keys` all keys.
    pub fn forget(&self, keeps_keys: bool) {
        self.scripts.cache.flush();
        let libraries: Vec<u32> = self.scripts.libraries.flush().iter().map(|library| library.id).collect();
        self.scripts.interpreter.forget(&libraries);
        if !keeps_keys {
            let mut view = View::lock(&self.keyspace, ShardSet::All, 0, self.clock.now(), self.events());
            view.whole().clear_all();
            view.finish(&self.registries);
        }
    }

    /// Sets the function that SHUTDOWN calls. Only the first call has an effect.
    pub fn on_stop(&self, hook: impl Fn() + Send + Sync + 'static) {
        // A state belongs to one server, which sets the hook once.
        let _ = self.stop.hook.set(Box::new(hook));
    }

    /// The server begins to stop: nothing is granted or extended any more, and interpreted scripts end.
    pub fn begin_stop(&self) {
        self.stop.has_begun.store(true, SeqCst);
        self.locks.quarantine.stop();
        self.scripts.running.end_all();
    }

    /// Ends the server: SHUTDOWN.
    pub fn stop(&self) {
        self.begin_stop();
        if let Some(hook) = self.stop.hook.get() {
            hook();
        }
    }

    /// Bytes in use beside keys and values. Those of the buffers of clients are as of the last sweep over them.
    pub(crate) fn other_bytes(&self) -> u64 {
        let clients = self.stats.metrics.client_bytes.load(Relaxed);
        clients
            .saturating_add(self.scripts.cache.bytes() as u64)
            .saturating_add(self.keyspace.ledger().total())
    }

    /// True if more memory is in use than `maxmemory` allows. The caller has no shard locked.
    #[inline]
    pub fn is_short_of_memory(&self) -> bool {
        let limit = self.settings.get(settings::MAXMEMORY);
        limit > 0 && self.used_bytes() > limit
    }

    /// Bytes in use in all namespaces, within a kibibyte for each shard. The caller has no shard locked.
    #[inline]
    pub(crate) fn used_bytes(&self) -> u64 {
        self.with_namespaces(self.keyspace.used_bytes().saturating_add(self.other_bytes()))
    }

    /// Bytes in use in all namespaces, of which this server uses `own`. Those of another one are as of its last request or
    /// sweep.
    #[inline]
    pub(crate) fn with_namespaces(&self, own: u64) -> u64 {
        if self.extension.is_none() {
            return own;
        }
        self.namespace.set(own as usize);
        own.saturating_add(self.namespace.others())
    }

    /// Bytes that are held for clients, of a kind.
    pub(crate) fn held(&self, kind: Kind) -> u64 {
        if kind == Kind::Namespaces { self.namespace.others() } else { self.keyspace.ledger().bytes(kind) }
    }

    /// The events that a call publishes.
    #[inline]
    pub fn events(&self) -> Events {
        self.settings.events().with_names(self.registries.tracking.broadcasts())
    }

    /// Records the duration of a call in the command's statistics, the slow log and the latency monitor. `view` has the
    /// shards of its keys locked.
    pub(crate) fn record_duration(
        &self,
        view: &mut View<'_>,
        client: &Client,
        command: &Command,
        request: Request<'_>,
        micros: u64,
    ) {
        let stats = &self.stats.commands[usize::from(command.index)];
        stats.add_timed(micros);
        let unix_secs = || self.clock.wall_micros() / 1_000_000;
        let spike_millis = self.settings.get(settings::LATENCY_MONITOR_THRESHOLD);
        if spike_millis > 0 && micros >= spike_millis.saturating_mul(1000) {
            let event = if command.row.flags.has(Flags::FAST) { "fast-command" } else { "command" };
            self.stats.latency.push(event, Spike { unix_secs: unix_secs(), millis: micros / 1000 });
        }
        let slow_micros = self.settings.get(settings::SLOWLOG_LOG_SLOWER_THAN);
        if u64::try_from(slow_micros).is_ok_and(|limit| micros >= limit)
            && !command.row.flags.has(Flags::SECRET)
        {
            let mut words = shortened(redacted(command, request).into_iter(), request.len());
            words.extend(slow::locks(view, command, request));
            let call = SlowCall {
                id: 0,
                unix_secs: unix_secs(),
                micros,
                words,
                peer: client.address.peer.clone(),
                client_name: client.names.lock().name.clone(),
            };
            self.stats.slowlog.push(call, self.settings.get(settings::SLOWLOG_MAX_LEN));
        }
    }
}

fn terms(commands: &'static Table, settings: &Settings) -> Terms<'static> {
    Terms { catalog: commands, all_channels: settings.get(settings::ACL_PUBSUB_DEFAULT) == "allchannels" }
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
        let calls = shared.stats.slowlog.newest(9);
        assert_eq!(calls.len(), 1, "10 ms are slow, less is not");
        assert_eq!(calls[0].words, ["CONFIG", "SET", "timeout", "7", "RequirePass", "(redacted)"]);
        assert_eq!((calls[0].unix_secs, calls[0].micros), (7, 10_000));
    }

    #[test]
    fn spikes_are_recorded_once_the_threshold_is_set() {
        let shared = shared();
        record_duration(&shared, b"KEYS *\r\n", 50_000);
        assert!(shared.stats.latency.events().is_empty(), "the threshold is not set yet");
        shared.settings.set("latency-monitor-threshold", "20").unwrap();
        record_duration(&shared, b"KEYS *\r\n", 19_999);
        record_duration(&shared, b"KEYS *\r\n", 50_000);
        record_duration(&shared, b"GET k\r\n", 20_000);
        let seen: Vec<_> =
            shared.stats.latency.events().iter().map(|(name, event)| (*name, event.longest_millis)).collect();
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
            let is_up = state.upgrade().is_some_and(|shared| shared.stop.has_begun.load(SeqCst));
            note.store(is_up, SeqCst);
        });
        shared.stop();
        assert!(seen.load(SeqCst));
    }
}
