//! The disk and the etcd of a process that moves locks, and the step at which it is killed.
//!
//! Owns    the files of a directory by their names, what of them is synced, and [`Life`], which counts the steps.
//! Rule    a kill leaves everything that was done, and a part of what was being written. A loss of power leaves any of the
//!         changes of names since the last sync of the directory, and of each file any prefix that has the synced bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor};
use std::sync::Arc;

use parking_lot::Mutex;
use redlatch_core::journal::frame;
use redlatch_core::journal::log::Storage;
use redlatch_core::replication::etcd::{Answer, Etcd, EtcdError, Transaction};
use redlatch_core::replication::marks::Folder;

use super::replicated_etcd::Near;
use crate::support::rng::Rng;

/// What happens at a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    /// The process is killed before the step.
    Kill,
    /// The same once etcd has done its part, or a part of a write is on the disk.
    KillAfter,
    /// The same while the transaction is on its way, which arrives later.
    KillBefore,
    /// From this step on the disk is full.
    Full,
    /// etcd does not answer, and has done nothing.
    Unanswered,
    /// etcd does not answer, and has done its part.
    UnansweredAfter,
}

pub(super) const TROUBLES: &[Trouble] = &[
    Trouble::Kill,
    Trouble::KillAfter,
    Trouble::KillBefore,
    Trouble::Full,
    Trouble::Unanswered,
    Trouble::UnansweredAfter,
];

/// The life of a process: how many steps it takes, and the trouble at one of them.
#[derive(Debug, Default)]
pub(super) struct Life {
    state: Mutex<LifeState>,
    trouble: Option<(usize, Trouble)>,
}

#[derive(Debug, Default)]
struct LifeState {
    steps: usize,
    is_dead: bool,
    is_full: bool,
}

impl Life {
    pub(super) fn with(trouble: Option<(usize, Trouble)>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), trouble })
    }

    /// The steps that were taken.
    pub(super) fn steps(&self) -> usize {
        self.state.lock().steps
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state.lock().is_dead
    }

    /// Takes a step; returns the trouble at it.
    fn step(&self) -> io::Result<Option<Trouble>> {
        let mut state = self.state.lock();
        if state.is_dead {
            return Err(io::Error::other("the process was killed"));
        }
        state.steps += 1;
        let trouble = self.trouble.filter(|(step, _)| *step == state.steps).map(|(_, trouble)| trouble);
        state.is_dead = matches!(trouble, Some(Trouble::Kill | Trouble::KillAfter | Trouble::KillBefore));
        state.is_full |= trouble == Some(Trouble::Full);
        Ok(trouble)
    }
}

/// etcd, as a process has it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) near: Arc<Near>,
    pub(super) life: Arc<Life>,
    /// What is on its way still.
    late: Mutex<Vec<Transaction>>,
}

impl Wire {
    pub(super) fn new(near: &Arc<Near>, life: &Arc<Life>) -> Arc<Self> {
        Arc::new(Self { near: Arc::clone(near), life: Arc::clone(life), late: Mutex::default() })
    }

    /// What was on its way arrives.
    pub(super) fn deliver(&self) {
        for transaction in self.late.lock().drain(..) {
            self.near.transact(&transaction).expect("this etcd answers");
        }
    }
}

impl Etcd for Wire {
    fn transact(&self, transaction: &Transaction) -> Result<Answer, EtcdError> {
        let unknown = || Err(EtcdError::Unknown("no answer".to_owned()));
        match self.life.step() {
            Ok(None | Some(Trouble::Full)) => self.near.transact(transaction),
            Ok(Some(Trouble::KillAfter | Trouble::UnansweredAfter)) => {
                self.near.transact(transaction)?;
                unknown()
            }
            Ok(Some(Trouble::KillBefore)) => {
                self.late.lock().push(transaction.clone());
                unknown()
            }
            Ok(Some(Trouble::Kill | Trouble::Unanswered)) | Err(_) => unknown(),
        }
    }

    fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        self.near.compact(revision)
    }
}

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    synced: usize,
}

/// A change of names.
#[derive(Clone, Debug)]
enum Change {
    Link(String, usize),
    Rename(String, String),
    Unlink(String),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link(name, file) => drop(names.insert(name.clone(), *file)),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Unlink(name) => drop(names.remove(name)),
        }
    }
}

/// The directory of a journal.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    /// The names that are on the disk, and what has changed since.
    synced: BTreeMap<String, usize>,
    changes: Vec<Change>,
}

impl Contents {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        let file = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(&mut self.files[file])
    }

    /// The file of this name, empty.
    fn create(&mut self, name: &str) -> &mut File {
        let file = self.names.get(name).copied().unwrap_or_else(|| {
            self.files.push(File::default());
            self.change(Change::Link(name.to_owned(), self.files.len() - 1));
            self.files.len() - 1
        });
        self.files[file] = File::default();
        &mut self.files[file]
    }
}

impl Disk {
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.lock().names.contains_key(name)
    }

    /// The files of the journal.
    pub(super) fn journal(&self) -> Vec<(u64, Cursor<Vec<u8>>)> {
        let contents = self.0.lock();
        let numbered = |name: &String| name.strip_prefix(JOURNAL)?.parse::<u64>().ok();
        let files = contents.names.iter().filter_map(|(name, file)| Some((numbered(name)?, *file)));
        let mut files: Vec<_> =
            files.map(|(number, file)| (number, Cursor::new(contents.files[file].bytes.clone()))).collect();
        files.sort_unstable_by_key(|(number, _)| *number);
        files
    }

    pub(super) fn lose_power(&self, rng: &mut Rng) {
        let mut contents = self.0.lock();
        let (mut names, changes) = (contents.synced.clone(), std::mem::take(&mut contents.changes));
        changes.iter().filter(|_| rng.one_in(2)).for_each(|change| change.apply(&mut names));
        for file in &mut contents.files {
            let kept = rng.below(file.bytes.len() - file.synced + 1);
            file.bytes.truncate(file.synced + kept);
            file.synced = file.bytes.len();
        }
        (contents.names, contents.synced) = (names.clone(), names);
    }
}

const JOURNAL: &str = "journal-";

/// The directory, as a process has it.
#[derive(Clone, Debug)]
pub(super) struct OpenDisk {
    pub(super) disk: Disk,
    pub(super) life: Arc<Life>,
    /// A defect: a sync of a mark and of its directory does nothing.
    pub(super) syncs_no_marks: bool,
    newest: Arc<Mutex<Option<String>>>,
}

impl OpenDisk {
    pub(super) fn new(disk: &Disk, life: &Arc<Life>) -> Self {
        Self { disk: disk.clone(), life: Arc::clone(life), syncs_no_marks: false, newest: Arc::default() }
    }

    /// A step on the disk that takes room. `kept`: the part of the bytes that a kill leaves.
    fn put(&self, name: &str, bytes: &[u8], is_new: bool) -> io::Result<()> {
        let trouble = self.life.step()?;
        if self.life.state.lock().is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let kept = match trouble {
            Some(Trouble::Kill | Trouble::KillBefore) => return Err(io::Error::other("killed")),
            Some(Trouble::KillAfter) => bytes.len() / 2,
            _ => bytes.len(),
        };
        let mut contents = self.disk.0.lock();
        let file = if is_new { contents.create(name) } else { contents.file(name)? };
        file.bytes.extend_from_slice(&bytes[..kept]);
        if self.life.is_dead() { Err(io::Error::other("killed")) } else { Ok(()) }
    }

    /// A step on the disk that takes no room.
    fn act(&self, act: impl FnOnce(&mut Contents) -> io::Result<()>) -> io::Result<()> {
        match self.life.step()? {
            Some(Trouble::Kill | Trouble::KillBefore) => Err(io::Error::other("killed")),
            _ => act(&mut self.disk.0.lock()),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        self.act(|contents| {
            contents.synced = contents.names.clone();
            contents.changes.clear();
            Ok(())
        })
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.act(|contents| {
            let file = contents.file(name)?;
            file.synced = file.bytes.len();
            Ok(())
        })
    }
}

impl Folder for OpenDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.disk.0.lock().names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Option<String>> {
        let mut contents = self.disk.0.lock();
        let text = |file: &mut File| String::from_utf8_lossy(&file.bytes).into_owned();
        Ok(contents.file(name).ok().map(text))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.put(name, text.as_bytes(), true)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        if self.syncs_no_marks { Ok(()) } else { self.sync_file(name) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.act(|contents| {
            contents.change(Change::Rename(from.to_owned(), to.to_owned()));
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.act(|contents| {
            contents.change(Change::Unlink(name.to_owned()));
            Ok(())
        })
    }

    fn sync_directory(&self) -> io::Result<()> {
        if self.syncs_no_marks { Ok(()) } else { self.sync_names() }
    }
}

impl Storage for OpenDisk {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let newest = self.newest.lock();
        self.put(newest.as_deref().expect("a file was begun"), bytes, false)
    }

    /// A start syncs the files that it has found with its own.
    fn sync(&self) -> io::Result<()> {
        let names: BTreeSet<String> = self.disk.0.lock().names.keys().cloned().collect();
        names.iter().filter(|name| name.starts_with(JOURNAL)).try_for_each(|name| self.sync_file(name))?;
        self.sync_names()
    }

    fn begin(&self, number: u64) -> io::Result<()> {
        let name = format!("{JOURNAL}{number}");
        self.put(&name, &frame::first_line(), true)?;
        *self.newest.lock() = Some(name);
        Ok(())
    }

    fn remove_before(&self, number: u64) -> io::Result<()> {
        let earlier = self.disk.journal().into_iter().filter(|(earlier, _)| *earlier < number);
        earlier.map(|(earlier, _)| format!("{JOURNAL}{earlier}")).try_for_each(|name| self.remove(&name))
    }
}
