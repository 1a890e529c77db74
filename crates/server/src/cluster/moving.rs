//! The locks of one server move to a cluster, and those of a cluster to the journal of one server.
//!
//! Owns    the way of the keys: they are restored from where they are, as by a server that starts, and copied to where they
//!         go, with functions, tokens, lock time and quarantine.
//! Rule    the locks are in one place at a time. Where they have come from is marked before they can be used where they go: a
//!         directory by its file `moved`, a cluster by its key `cluster`.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redlatch_core::journal::log::Storage;
use redlatch_core::journal::recovery::{Found, Lacks, Machine};
use redlatch_core::journal::{Mode, frame, item};
use redlatch_core::replication::cluster::{Member, Part};
use redlatch_core::replication::etcd::Etcd;
use redlatch_core::replication::moving::{self, Arrival};
use redlatch_core::replication::restored::Memory;
use redlatch_core::replication::standby::Standby;
use redlatch_core::replication::term::Term;
use redlatch_core::state::settings::Settings;
use redlatch_platform::{boot, files};
use redlatch_proto::clock::Clock;
use tokio::task::spawn_blocking;

use super::node::{agreed, check, client, keys};
use super::place::EtcdPlace;
use crate::journal::{self, Place};
use crate::journal_files::{Directory, MOVED, numbers};
use crate::{Builder, fresh_id};

/// What was moved.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// How many keys, in all databases.
    pub keys: usize,
    /// How long nothing is granted where they are now, and why.
    pub quarantine: Option<(Duration, &'static str)>,
}

/// Moves the locks of the journal in `dir` to a cluster that is not there yet. Needs a runtime.
///
/// # Errors
/// A sentence about a setting, the directory, or what is in etcd. Then the locks are where they were, unless etcd did not
/// answer at the end: the same call tells, and goes on.
pub async fn import(builder: Builder, settings: Settings) -> Result<Moved, String> {
    check_movable(&settings)?;
    let etcd: Arc<dyn Etcd> = Arc::new(client(&settings)?);
    let moved = spawn_blocking(move || import_now(&builder, &settings, etcd)).await;
    moved.map_err(|error| error.to_string())?
}

/// Checks the settings of a node that locks are moved to or from.
fn check_movable(settings: &Settings) -> Result<(), String> {
    check(settings)?;
    match settings.integer("cluster-groups") {
        1 => Ok(()),
        groups => {
            Err(format!("cluster-groups '{groups}': locks are moved to and from a cluster of one group"))
        }
    }
}

fn import_now(builder: &Builder, settings: &Settings, etcd: Arc<dyn Etcd>) -> Result<Moved, String> {
    let dir = directory_of(settings)?;
    if !Path::new(&dir).join("data").exists() {
        return Err(format!("dir '{dir}': has no journal"));
    }
    let from = Arc::new(Directory::open_moved(&dir, fresh_id())?);
    let files = from.files().map_err(|error| format!("dir '{dir}': {error}"))?;
    if files.is_empty() {
        return Err(format!("dir '{dir}': has no journal"));
    }
    drop(files);
    let (keys, id) = (keys(settings, Part::default()), fresh_id());
    let of_prefix = |error| format!("cluster-prefix '{}': {error}", settings.text("cluster-prefix"));
    let image = Image::default();
    let moved = copy(builder, settings, Way { from: from.clone(), to: Box::new(image.clone()) })?;
    let arrival = Arrival::begin(etcd, keys, &agreed(settings, Part::default()), id).map_err(of_prefix)?;
    let (number, bytes) = &*image.0.lock();
    let head = arrival.put(*number, bytes).map_err(of_prefix)?;
    mark_moved(&dir).map_err(|error| format!("dir '{dir}': {error}"))?;
    arrival.end(head).map_err(of_prefix)?;
    Ok(moved)
}

/// Moves the locks of a cluster to a journal in `dir`, which has none yet. Needs a runtime.
///
/// # Errors
/// A sentence about a setting, the directory, or what is in etcd; or a node leads. After a failure the same call goes on.
pub async fn export(builder: Builder, settings: Settings) -> Result<Moved, String> {
    check_movable(&settings)?;
    let etcd: Arc<dyn Etcd> = Arc::new(client(&settings)?);
    let moved = spawn_blocking(move || export_now(&builder, &settings, &etcd)).await;
    moved.map_err(|error| error.to_string())?
}

fn export_now(builder: &Builder, settings: &Settings, etcd: &Arc<dyn Etcd>) -> Result<Moved, String> {
    let dir = directory_of(settings)?;
    let data = Path::new(&dir).join("data");
    has_no_journal(&dir)?;
    if data.exists() {
        return Err(format!("dir '{dir}': is in use, or was: name another one, or remove its 'data'"));
    }
    let of_dir = |error: io::Error| format!("dir '{dir}': {error}");
    let draft = Path::new(&dir).join("moving");
    if draft.exists() {
        // What an earlier call has left that was interrupted.
        fs::remove_dir_all(&draft).map_err(of_dir)?;
    }
    fs::create_dir_all(&draft).map_err(of_dir)?;
    let to = Box::new(Directory::open(&draft.to_string_lossy(), fresh_id())?);

    let keys = keys(settings, Part::default());
    let of_prefix = |error: String| format!("cluster-prefix '{}': {error}", settings.text("cluster-prefix"));
    let agreed = agreed(settings, Part::default());
    let pause = Duration::from_millis(agreed.takeover_ms) / LOOKS_PER_TAKEOVER;
    let cluster = moving::find(&**etcd, keys, agreed).map_err(|error| of_prefix(error.to_string()))?;
    let me = Member { id: item::id_text(&fresh_id()), addresses: Vec::new() };
    let term = seize(Standby::new(cluster, me, Memory::default()), etcd, pause).map_err(of_prefix)?;
    moving::leave(&term).map_err(|error| of_prefix(error.to_string()))?;
    let moved = copy(builder, settings, Way { from: Arc::new(EtcdPlace { term: term.clone() }), to })?;
    fs::rename(draft.join("data"), &data).map_err(of_dir)?;
    fs::remove_dir(&draft).and_then(|()| files::sync_directory(dir.as_ref())).map_err(of_dir)?;
    moving::forget(&term).map_err(|error| of_prefix(error.to_string()))?;
    Ok(moved)
}

/// How many times the log is looked at in the time of `cluster-takeover`.
const LOOKS_PER_TAKEOVER: u32 = 10;

/// Takes the epoch that no node has, or whose node has been silent for the time of a takeover.
///
/// # Errors
/// A node leads, the log waits for `accept-restored`, or etcd does not answer.
fn seize(mut standby: Standby, etcd: &Arc<dyn Etcd>, pause: Duration) -> Result<Term, String> {
    let origin = Instant::now();
    let mut seen = None;
    loop {
        let sight = standby.look(&**etcd, || origin.elapsed()).map_err(|error| error.to_string())?;
        if sight.is_restored {
            return Err(
                "etcd was restored from an older state: 'redlatch cluster accept-restored' comes first"
                    .into(),
            );
        }
        let now = Some((sight.epoch, sight.head));
        if seen.is_some() && seen != now {
            let at = sight.leader.map(|leader| leader.addresses.join(", ")).unwrap_or_default();
            return Err(format!("a node leads: stop all nodes first ({at})"));
        }
        seen = now;
        if sight.is_due
            && let Some(term) = standby.seize(Arc::clone(etcd)).map_err(|error| error.to_string())?
        {
            return Ok(term);
        }
        std::thread::sleep(pause);
    }
}

/// From now on no server starts on the journal in `dir`: its locks are in a cluster.
///
/// # Errors
/// The system's.
fn mark_moved(dir: &str) -> io::Result<()> {
    let data = Path::new(dir).join("data");
    files::private(OpenOptions::new().create(true).write(true)).open(data.join(MOVED))?.sync_all()?;
    files::sync_directory(&data)
}

/// Checks that `dir` has no journal, as that of a node whose journal is elsewhere must. Makes nothing there.
///
/// # Errors
/// A sentence that names the directory.
pub(super) fn has_no_journal(dir: &str) -> Result<(), String> {
    let data = Path::new(dir).join("data");
    match numbers(&data) {
        _ if dir.is_empty() => Ok(()),
        Ok(found) if found.is_empty() || data.join(MOVED).exists() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(format!(
            "dir '{dir}': has the journal of a server by itself, whose locks a cluster does not know"
        )),
        Err(error) => Err(format!("dir '{}': {error}", data.display())),
    }
}

fn directory_of(settings: &Settings) -> Result<String, String> {
    Some(settings.text("dir")).filter(|dir| !dir.is_empty()).ok_or_else(|| "dir: must be set".to_owned())
}

/// Copies all live keys, with what belongs to them, and ends the copy in good order.
fn copy(builder: &Builder, settings: &Settings, way: Way) -> Result<Moved, String> {
    let mut keyspace = builder.again().blueprint().empty_keyspace(settings);
    let recovered = journal::recover(&mut keyspace, (Box::new(way), Mode::Always), settings);
    let recovered = recovered.map_err(|error| error.to_string())?;
    let (log, now) = (&recovered.log, recovered.clock.now().lock);
    if log.is_copying() {
        return Err(log.error().unwrap_or_else(|| "the keys were not all copied".to_owned()));
    }
    log.stop(now, boot::millis()).map_err(|error| format!("dir: {error}"))?;
    let keys = (0..keyspace.databases()).map(|database| keyspace.size(database).0).sum();
    let left = |until: redlatch_proto::clock::LockTime| {
        Duration::from_millis(until.as_millis().saturating_sub(now.as_millis()))
    };
    Ok(Moved { keys, quarantine: recovered.quarantine.map(|(until, why)| (left(until), why)) })
}

/// A journal that is read in one place, and goes on in another.
#[derive(Debug)]
struct Way {
    from: Arc<dyn Place>,
    to: Box<dyn Place>,
}

impl Place for Way {
    fn server(&self) -> [u8; 20] {
        self.to.server()
    }

    fn adopt(&mut self, server: [u8; 20]) {
        self.to.adopt(server);
    }

    fn name(&self, number: u64) -> String {
        self.from.name(number)
    }

    fn doubt(&self, found: &Found) -> Option<String> {
        self.from.doubt(found)
    }

    fn may_be_torn(&self) -> bool {
        self.from.may_be_torn()
    }

    fn files(&self) -> io::Result<Vec<(u64, Box<dyn Read>)>> {
        self.from.files()
    }

    fn into_storage(self: Box<Self>) -> io::Result<Box<dyn Storage>> {
        self.to.into_storage()
    }

    fn machine(&self) -> Machine {
        self.from.machine()
    }

    fn session_grace_ms(&self) -> u64 {
        self.from.session_grace_ms()
    }

    fn lacks(&self) -> Option<Lacks> {
        self.from.lacks()
    }

    /// The files before stay where they are: the new one has all live keys.
    fn files_max(&self) -> usize {
        0
    }
}

/// A file of a journal in memory, with its number.
#[derive(Clone, Debug, Default)]
struct Image(Arc<Mutex<(u64, Vec<u8>)>>);

impl Place for Image {
    fn server(&self) -> [u8; 20] {
        fresh_id()
    }

    fn name(&self, number: u64) -> String {
        format!("file {number}")
    }

    fn files(&self) -> io::Result<Vec<(u64, Box<dyn Read>)>> {
        Ok(Vec::new())
    }

    fn into_storage(self: Box<Self>) -> io::Result<Box<dyn Storage>> {
        Ok(self)
    }
}

impl Storage for Image {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().1.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn begin(&self, number: u64) -> io::Result<()> {
        *self.0.lock() = (number, frame::first_line().to_vec());
        Ok(())
    }

    fn remove_before(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}
