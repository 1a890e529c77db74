//! The journal at the start of a server: what is in its directory, or in etcd, is restored, and a new file is begun.
//!
//! Rule    nothing is served before the new file is on the disk: it says from which boot on its records are, and until when
//!         the quarantine lasts.

use std::fmt::Debug;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redlatch_core::commands::Shared;
use redlatch_core::journal::Mode;
use redlatch_core::journal::item::Volume;
use redlatch_core::journal::log::{Log, Storage};
use redlatch_core::journal::recovery::{self, Ending, Found, Lacks, Machine, Resume, Terms};
use redlatch_core::keyspace::{Copied, CopyCursor, Keyspace, Replayed};
use redlatch_core::state::cluster::ClusterFacts;
use redlatch_core::state::settings::{self, Settings};
use redlatch_platform::boot;
use redlatch_proto::clock::{Clock, LockTime};

use super::clock::SystemClock;
use super::journal_files::Directory;
use super::sync_mark::SyncMark;
use super::{StartError, clock};

/// Where the files of a journal are.
pub(super) trait Place: Debug + Send + Sync {
    /// The id of the server, or of the cluster.
    fn server(&self) -> [u8; 20];

    /// Why it is unknown which locks may be held, whatever was found, if that is so.
    fn doubt(&self, _found: &Found) -> Option<String> {
        None
    }

    /// Whether a loss of power may take what was not synced.
    fn may_be_torn(&self) -> bool {
        false
    }

    /// The id of the server is that of the journal.
    fn adopt(&mut self, _server: [u8; 20]) {}

    /// The name of the file of that number, for an error.
    fn name(&self, number: u64) -> String;

    /// The files and their numbers, the earliest first.
    ///
    /// # Errors
    /// The system's.
    fn files(&self) -> io::Result<Vec<(u64, Box<dyn Read>)>>;

    /// The storage of the log that goes on here.
    ///
    /// # Errors
    /// The system's.
    fn into_storage(self: Box<Self>) -> io::Result<Box<dyn Storage>>;

    /// The machine whose clock is that of the files, and their storage.
    fn machine(&self) -> Machine {
        Machine { boot: boot::id(), boot_ms: boot::millis(), volume: Volume::default() }
    }

    /// Where a sync that has failed is marked beside the files, if that is done. `server` is the id in the files.
    fn sync_mark(&self, _server: &[u8; 20]) -> Option<SyncMark> {
        None
    }

    /// For how many milliseconds from now connections to the server before this one may be open.
    fn session_grace_ms(&self) -> u64 {
        0
    }

    /// What is known of the promises that the files lack, if they are an older state of themselves.
    fn lacks(&self) -> Option<Lacks> {
        None
    }

    /// Files above which the live keys are copied before the server serves: each start begins one.
    fn files_max(&self) -> usize {
        3
    }
}

/// How a server goes on from its journal.
pub(super) struct Recovered {
    pub(super) log: Arc<Log>,
    pub(super) clock: Arc<SystemClock>,
    pub(super) quarantine: Option<(LockTime, &'static str)>,
    /// The libraries of functions, as FUNCTION DUMP gives them.
    functions: Option<Bytes>,
    replayed: Replayed,
    /// The cluster that the journal belongs to, if it does.
    cluster: Option<Arc<ClusterFacts>>,
}

impl Recovered {
    /// The journal belongs to this cluster.
    pub(super) fn of_cluster(self, cluster: Option<Arc<ClusterFacts>>) -> Self {
        Self { cluster, ..self }
    }

    /// Gives the rest of what was found to a server that starts.
    pub(super) fn go_on(self, shared: Shared) -> Shared {
        let shared = shared.with_log(self.log);
        let shared = match self.cluster {
            Some(cluster) => shared.with_cluster(cluster),
            None => shared,
        };
        shared.registries.clients.raise_ids(self.replayed.client);
        shared.registries.lock_sessions.restore(self.replayed.session_locks);
        if let Some(dump) = &self.functions {
            shared.restore_functions(dump);
        }
        if let Some((until, reason)) = self.quarantine {
            shared.begin_quarantine(until, reason);
        }
        shared
    }
}

const NEEDS_GUARD: &str = "locks may be held that nothing tells of: set startup-guard to the longest lease of the \
                           clients, in milliseconds, and nothing is granted for so long";

/// How long a copy waits for a shard that a long call holds, or for a log that is behind, until it looks again.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The directory that the settings ask for, and how replies wait for it. Resolves `appendonly`.
///
/// # Errors
/// `appendonly` cannot be set.
pub(super) fn wanted(settings: &Settings) -> Result<Option<(String, Mode)>, StartError> {
    let (dir, appendonly) = (settings.get(settings::DIR), settings.get(settings::APPENDONLY));
    // As in Redis, a journal without a directory is in the working directory.
    let dir = if dir.is_empty() && appendonly == "yes" { ".".to_owned() } else { dir };
    let mode = match settings.get(settings::APPENDFSYNC).as_str() {
        _ if appendonly == "no" => Mode::Memory,
        "always" => Mode::Always,
        "no" => Mode::Memory,
        _ => Mode::EverySecond,
    };
    let keeps = !dir.is_empty() && mode != Mode::Memory;
    settings.set("appendonly", if keeps { "yes" } else { "no" })?;
    Ok((!dir.is_empty()).then_some((dir, mode)))
}

/// The directory of that name.
///
/// # Errors
/// It is used by another server, cannot be read or written, or is of a newer version.
pub(super) fn directory(name: &str) -> Result<Box<dyn Place>, StartError> {
    Ok(Box::new(Directory::open(name, super::fresh_id()).map_err(StartError::Unusable)?))
}

/// Restores an empty keyspace, and attaches the log to it.
///
/// # Errors
/// The files cannot be read or written, or are of a newer version.
pub(super) fn recover(
    keyspace: &mut Keyspace,
    (mut place, mode): (Box<dyn Place>, Mode),
    settings: &Settings,
) -> Result<Recovered, StartError> {
    let mut terms = Terms {
        server: place.server(),
        mode,
        fresh: LockTime::from_millis(clock::wall_micros() / 1000),
        startup_guard_ms: settings.get(settings::STARTUP_GUARD),
        lease_ms_max: settings.get(settings::HORIZON_MAX_LEASE),
        lacks: place.lacks(),
    };
    let files = place.files()?;
    let is_crowded = files.len() > place.files_max();
    let mut replay = keyspace.replay();
    let mut beyond = None;
    let found = recovery::read(files, keyspace.seed(), &mut |now, mutations| {
        replay.at(now);
        for mutation in mutations.iter().filter(|_| mode != Mode::Memory) {
            match mutation.database() {
                database if database < keyspace.databases() => replay.apply(mutation),
                database => beyond = Some(database),
            }
        }
    });
    let mut found =
        found.map_err(|(number, why)| StartError::Unusable(format!("{}: {why}", place.name(number))))?;
    let mark = place.sync_mark(&found.opened.as_ref().map_or(terms.server, |opened| opened.server));
    if mark.as_ref().is_some_and(SyncMark::is_set) {
        found.note_failed_sync();
    }
    found.settle(place.machine(), place.may_be_torn());
    let is_doubtful = place.may_be_torn() && matches!(found.ending, Ending::Torn | Ending::Damaged);
    if let Some(doubt) = place.doubt(&found) {
        if terms.startup_guard_ms == 0 {
            return Err(StartError::Unusable(format!("{doubt}, so that {NEEDS_GUARD}")));
        }
        found.ending = Ending::Damaged;
    }
    if let Some(opened) = &found.opened {
        terms.server = opened.server;
        place.adopt(opened.server);
    }
    if let Some(database) = beyond {
        return Err(StartError::Unusable(format!("databases: the journal has keys in database {database}")));
    }
    // Read as late as possible: what passes until the clock goes on makes every lease longer.
    let machine = place.machine();
    let resume = recovery::resume(&found, machine, &terms);
    let replayed = replay.finish(resume.now, place.session_grace_ms());
    keyspace.raise_tokens(resume.token);
    let start = recovery::beginning(&found, &resume, machine, &terms, keyspace.tokens());
    let functions = start.functions.clone();
    let log = Arc::new(Log::start(place.into_storage()?, start)?);
    keyspace.set_journal(log.clone());
    let clock = Arc::new(SystemClock::going_on_at(resume.now));
    // Nothing is to depend on files that were damaged, or that the system may not have written.
    if (is_crowded || is_doubtful) && copy_all(keyspace, &*clock, &log, || false) {
        log.end_copy();
        sync(&log, &clock)?;
        log.remove_older()?;
    }
    sync(&log, &clock)?;
    if let Some(mark) = mark {
        mark.remove();
    }
    report(&found, machine, &resume, keyspace);
    Ok(Recovered { log, clock, quarantine: resume.quarantine, functions, replayed, cluster: None })
}

fn sync(log: &Log, clock: &SystemClock) -> Result<(), StartError> {
    let unusable = |error| StartError::Unusable(format!("dir: {error}"));
    log.sync(clock.now().lock, boot::millis()).map_err(unusable)
}

fn report(found: &Found, machine: Machine, resume: &Resume, keyspace: &Keyspace) {
    if let Some(changed) = found.change_of_volume(machine) {
        tracing::warn!(changed, "The disk of the journal was attached or mounted again since the last start");
    }
    let keys: usize = (0..keyspace.databases()).map(|database| keyspace.size(database).0).sum();
    match found.ending {
        Ending::Nothing => tracing::info!("A new journal begins"),
        Ending::Torn | Ending::Damaged => {
            let file = found.number;
            let (bytes, until) = (found.bytes, resume.quarantine.map(|(until, _)| until.as_millis()));
            tracing::error!(
                keys,
                file,
                bytes,
                until,
                "The journal is damaged: only the part before the damage is restored"
            );
        }
        Ending::Stopped | Ending::Killed if resume.restores => {
            tracing::info!(keys, ending = ?found.ending, "Keys are restored from the journal");
        }
        Ending::Stopped | Ending::Killed => tracing::warn!("The previous server kept no keys"),
    }
}

/// Copies the live keys to the newest file. Returns false if the log cannot be written, or `ends` says so.
pub(super) fn copy_all(keyspace: &Keyspace, clock: &dyn Clock, log: &Log, ends: impl Fn() -> bool) -> bool {
    let mut cursor = CopyCursor::default();
    loop {
        let copied = keyspace.copy(&mut cursor, clock.now().lock);
        log.write();
        if log.has_error() || ends() {
            return false;
        }
        match copied {
            Copied::All => return true,
            Copied::Some => {
                while log.is_behind() && !ends() {
                    std::thread::sleep(BUSY_PAUSE);
                }
            }
            // A script holds the shard, for seconds perhaps.
            Copied::Nothing => std::thread::sleep(BUSY_PAUSE),
        }
    }
}
