//! The locks of one server move to a cluster, and those of a cluster to the journal of one server.
//!
//! Owns    the way of the keys: they are restored from where they are, as by a server that starts, and copied to where they
//!         go, with functions, tokens, lock time and quarantine.
//! Knows   the order of the steps, and what a move leaves that is interrupted, from `replication::moving`.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redlatch_core::journal::log::{Log, Storage};
use redlatch_core::journal::recovery::{Found, Lacks, Machine};
use redlatch_core::journal::{Mode, frame};
use redlatch_core::replication::cluster::Part;
use redlatch_core::replication::etcd::Etcd;
use redlatch_core::replication::marks::{EXPORTING, MOVED, UNFINISHED};
use redlatch_core::replication::moving::{self, MoveError, Pace};
use redlatch_core::state::settings::{self, Settings};
use redlatch_platform::{boot, files};
use redlatch_proto::clock::Clock;
use tokio::task::spawn_blocking;

use super::folder::DataFolder;
use super::node::{agreed, check, client, keys};
use super::place::EtcdPlace;
use crate::journal::{self, Place};
use crate::journal_files::{Directory, numbers};
use crate::sync_mark::SyncMark;
use crate::{Builder, fresh_id};

/// What was moved.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// How many keys, in all databases.
    pub keys: usize,
    /// How long nothing is granted where they are now, and why.
    pub quarantine: Option<(Duration, &'static str)>,
}

/// Moves the locks of the journal in `dir` to a cluster that is not there yet. Needs a runtime. `None`: an earlier call has
/// moved them.
///
/// # Errors
/// A sentence about a setting, the directory, or what is in etcd. After a failure the same call goes on.
pub async fn import(builder: Builder, settings: Settings) -> Result<Option<Moved>, String> {
    let to = prefix(&settings)?;
    let moved = spawn_blocking(move || import_now(&builder, &settings, to)).await;
    moved.map_err(|error| error.to_string())?
}

/// The cluster that locks are moved to or from.
fn prefix(settings: &Settings) -> Result<moving::Prefix, String> {
    check(settings)?;
    match settings.get(settings::CLUSTER_GROUPS) {
        1 => {}
        groups => {
            return Err(format!(
                "cluster-groups '{groups}': locks are moved to and from a cluster of one group"
            ));
        }
    }
    let etcd: Arc<dyn Etcd> = Arc::new(client(settings)?);
    let (keys, agreed) = (keys(settings, Part::default()), agreed(settings, Part::default()));
    Ok(moving::Prefix { etcd, keys, agreed })
}

fn import_now(builder: &Builder, settings: &Settings, to: moving::Prefix) -> Result<Option<Moved>, String> {
    let dir = directory_of(settings)?;
    let data = Path::new(&dir).join("data");
    let has_journal = || numbers(&data).is_ok_and(|found| !found.is_empty());
    if !has_journal() {
        return Err(format!("dir '{dir}': has no journal"));
    }
    let from = Arc::new(Directory::open_marked(&dir, fresh_id())?);
    let read = || {
        let image = Image::default();
        let (moved, _) = copy(builder, settings, Way { from: from.clone(), to: Box::new(image.clone()) })?;
        let (number, bytes) = std::mem::take(&mut *image.0.lock());
        Ok((moved, number, bytes))
    };
    moving::import(to, &DataFolder(data), fresh_id(), read).map_err(|error| sentence(error, settings, &dir))
}

/// Moves the locks of a cluster to a journal in `dir`, which has none yet. Needs a runtime. `None`: an earlier call has moved
/// them.
///
/// # Errors
/// A sentence about a setting, the directory, or what is in etcd; or a node leads. After a failure the same call goes on.
pub async fn export(builder: Builder, settings: Settings) -> Result<Option<Moved>, String> {
    let from = prefix(&settings)?;
    let moved = spawn_blocking(move || export_now(&builder, &settings, from)).await;
    moved.map_err(|error| error.to_string())?
}

fn export_now(builder: &Builder, settings: &Settings, from: moving::Prefix) -> Result<Option<Moved>, String> {
    let dir = directory_of(settings)?;
    let to = Directory::open_marked(&dir, fresh_id())?;
    let data = Path::new(&dir).join("data");
    // A call that was interrupted may have made them, and not have synced them.
    files::sync_above(&data, 2).map_err(|error| format!("dir '{dir}': {error}"))?;
    let origin = Instant::now();
    let look_every = Duration::from_millis(from.agreed.takeover_ms) / LOOKS_PER_TAKEOVER;
    let pace = Pace { pause: || std::thread::sleep(look_every), now: || origin.elapsed() };
    // The log has the directory locked until the export has ended.
    let copied = moving::export(from, &DataFolder(data), [fresh_id(), fresh_id()], pace, |term| {
        let from = Arc::new(EtcdPlace { term: term.clone() });
        copy(builder, settings, Way { from, to: Box::new(to.emptied()) })
    });
    let copied = copied.map_err(|error| sentence(error, settings, &dir))?;
    Ok(copied.map(|(moved, _)| moved))
}

/// How many times the log is looked at in the time of `cluster-takeover`.
const LOOKS_PER_TAKEOVER: u32 = 10;

/// The error, with the setting that it is about.
fn sentence(error: MoveError, settings: &Settings, dir: &str) -> String {
    match error {
        MoveError::Copy(why) => why,
        MoveError::Elsewhere | MoveError::Folder(_) => format!("dir '{dir}': {error}"),
        error => format!("cluster-prefix '{}': {error}", settings.get(settings::CLUSTER_PREFIX)),
    }
}

/// Checks that `dir` has no journal, as that of a node whose journal is elsewhere must. Makes nothing there.
///
/// # Errors
/// A sentence that names the directory.
pub(super) fn has_no_journal(dir: &str) -> Result<(), String> {
    if dir.is_empty() {
        return Ok(());
    }
    let data: PathBuf = Path::new(dir).join("data");
    match numbers(&data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("dir '{}': {error}", data.display())),
        Ok(_) if data.join(MOVED).exists() => Ok(()),
        Ok(_) if data.join(EXPORTING).exists() => Err(format!("dir '{dir}': {UNFINISHED}")),
        Ok(found) if found.is_empty() => Ok(()),
        Ok(_) => Err(format!(
            "dir '{dir}': has the journal of a server by itself, whose locks a cluster does not know"
        )),
    }
}

fn directory_of(settings: &Settings) -> Result<String, String> {
    Some(settings.get(settings::DIR))
        .filter(|dir| !dir.is_empty())
        .ok_or_else(|| "dir: must be set".to_owned())
}

/// Copies all live keys, with what belongs to them, and ends the copy in good order. Returns its log, too.
fn copy(builder: &Builder, settings: &Settings, way: Way) -> Result<(Moved, Arc<Log>), String> {
    let mut keyspace = builder.again().blueprint().empty_keyspace(settings);
    let recovered = journal::recover(&mut keyspace, (Box::new(way), Mode::Always), settings);
    let recovered = recovered.map_err(|error| error.to_string())?;
    let (log, now) = (recovered.log, recovered.clock.now().lock);
    if log.is_copying() {
        return Err(log.error().unwrap_or_else(|| "the keys were not all copied".to_owned()));
    }
    log.stop(now, boot::millis()).map_err(|error| format!("dir: {error}"))?;
    let keys = (0..keyspace.databases()).map(|database| keyspace.size(database).0).sum();
    let left = |until: redlatch_proto::clock::LockTime| {
        Duration::from_millis(until.as_millis().saturating_sub(now.as_millis()))
    };
    let quarantine = recovered.quarantine.map(|(until, why)| (left(until), why));
    Ok((Moved { keys, quarantine }, log))
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

    fn sync_mark(&self, server: &[u8; 20]) -> Option<SyncMark> {
        self.from.sync_mark(server)
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
