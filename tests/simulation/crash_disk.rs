//! A disk in memory, on which a log writes its files: what survives a kill, and what a loss of power leaves.
//!
//! Owns    the bytes of every file, how many of them are synced, and which files the directory lists for sure.
//! Rule    a kill leaves everything that was written, and a part of what was being written. A loss of power leaves of each
//!         file any prefix that has the synced bytes, sometimes with zeros or anything else in the rest, at its end or
//!         with good bytes behind; new files may be missing, and removed ones may be back. A disk that rots changes a
//!         byte that was synced. A disk that dies loses what was not synced, and takes nothing until it is attached again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Cursor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;
use redlatch_core::journal::frame;
use redlatch_core::journal::item::Volume;
use redlatch_core::journal::log::Storage;

use crate::support::rng::Rng;

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    synced: usize,
    /// Whether the file is in the directory after a loss of power.
    is_listed: bool,
}

#[derive(Debug, Default)]
struct Contents {
    files: BTreeMap<u64, File>,
    /// Files whose removal the directory may not have yet.
    removed: BTreeMap<u64, File>,
    is_full: bool,
    is_dead: bool,
    /// How often it was attached, if the system tells.
    attached: Option<u64>,
}

impl Contents {
    fn refusal(&self) -> io::Result<()> {
        match (self.is_dead, self.is_full) {
            (true, _) => Err(io::Error::from_raw_os_error(5)),
            (_, true) => Err(io::Error::from_raw_os_error(28)),
            _ => Ok(()),
        }
    }
}

/// How a sync ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SyncEnd {
    Works,
    /// What was not synced is lost.
    Fails,
    /// And the disk takes nothing more.
    Dies,
}

/// The disk of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<Mutex<Contents>>);

impl Disk {
    /// What a process that starts finds.
    pub(super) fn files(&self) -> Vec<(u64, Cursor<Vec<u8>>)> {
        let contents = self.0.lock();
        contents.files.iter().map(|(number, file)| (*number, Cursor::new(file.bytes.clone()))).collect()
    }

    /// A disk of which the system tells when it was attached, or not.
    pub(super) fn new(is_attachment_known: bool) -> Self {
        let attached = is_attachment_known.then_some(0);
        Self(Arc::new(Mutex::new(Contents { attached, ..Contents::default() })))
    }

    /// What the system says of the disk.
    pub(super) fn volume(&self) -> Volume {
        Volume { file_system: self.0.lock().attached, ..Volume::default() }
    }

    /// The disk is attached again. Returns whether the system says so.
    pub(super) fn attach_again(&self) -> bool {
        let mut contents = self.0.lock();
        contents.is_dead = false;
        contents.attached = contents.attached.map(|times| times + 1);
        contents.attached.is_some()
    }

    /// Whether writes fail for want of space.
    pub(super) fn set_full(&self, is_full: bool) {
        self.0.lock().is_full = is_full;
    }

    /// Changes a byte that was synced, if `shows` that. Returns whether it has.
    pub(super) fn rot(&self, rng: &mut Rng, shows: impl Fn(Vec<(u64, Cursor<Vec<u8>>)>) -> bool) -> bool {
        let pick = |rng: &mut Rng, contents: &Contents| {
            let synced: Vec<_> = contents.files.iter().filter(|(_, file)| file.synced > 0).collect();
            let (number, file) = synced.get(rng.below(synced.len().max(1)))?;
            Some((**number, rng.below(file.synced)))
        };
        let Some((number, at)) = pick(rng, &self.0.lock()) else { return false };
        let flip = || self.0.lock().files.get_mut(&number).expect("it is there").bytes[at] ^= 0x20;
        flip();
        let is_shown = shows(self.files());
        if !is_shown {
            flip();
        }
        is_shown
    }

    /// The power fails. Returns whether some bytes at the end of a file are not those that were written.
    pub(super) fn lose_power(&self, rng: &mut Rng) -> bool {
        let mut contents = self.0.lock();
        let back = rng.below(contents.removed.len() + 1);
        let removed = std::mem::take(&mut contents.removed);
        contents.files.extend(removed.into_iter().rev().take(back));
        contents.files.retain(|_, file| file.is_listed || rng.one_in(2));
        let mut has_zeros = false;
        for (number, file) in &mut contents.files {
            let unsynced = file.bytes.len() - file.synced;
            let kept = match rng.below(4) {
                0 => unsynced,
                1 => 0,
                _ => rng.below(unsynced + 1),
            };
            file.bytes.truncate(file.synced + kept);
            if kept > 0 && rng.one_in(4) {
                let start = file.synced + rng.below(kept);
                let lost = 1 + rng.below(file.bytes.len() - start);
                let end = if rng.one_in(2) { file.bytes.len() } else { start + lost };
                // A first file that begins with anything else is refused as no journal: it was never served.
                let byte = if rng.one_in(2) || *number == 1 { 0 } else { rng.below(256) as u8 };
                file.bytes[start..end].fill(byte);
                has_zeros = true;
            }
            (file.synced, file.is_listed) = (file.bytes.len(), true);
        }
        has_zeros
    }
}

/// The life of a process, from its start to its kill.
#[derive(Debug)]
pub(super) struct Life {
    is_dead: AtomicBool,
    /// How many bytes of the next write arrive before the process is killed.
    last_bytes: AtomicUsize,
}

impl Life {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { is_dead: AtomicBool::new(false), last_bytes: AtomicUsize::new(usize::MAX) })
    }

    pub(super) fn end(&self) {
        self.is_dead.store(true, SeqCst);
    }

    /// The process is killed inside its next write.
    pub(super) fn end_in_write(&self, bytes: usize) {
        self.last_bytes.store(bytes, SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_dead.load(SeqCst)
    }
}

/// The files as one process has them open.
pub(super) struct Files {
    disk: Disk,
    life: Arc<Life>,
    /// The files that its next sync is for.
    unsynced: Mutex<BTreeSet<u64>>,
    /// What happens while a sync runs.
    during_sync: Box<dyn Fn() -> SyncEnd + Send + Sync>,
}

impl Files {
    /// A start syncs the files that it has found with its own.
    pub(super) fn new(
        disk: Disk,
        life: Arc<Life>,
        during_sync: impl Fn() -> SyncEnd + Send + Sync + 'static,
    ) -> Self {
        let found = disk.0.lock().files.keys().copied().collect();
        Self { disk, life, unsynced: Mutex::new(found), during_sync: Box::new(during_sync) }
    }

    fn alive(&self) -> io::Result<()> {
        if self.life.is_over() { Err(io::Error::other("the process was killed")) } else { Ok(()) }
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl Storage for Files {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.alive()?;
        let mut contents = self.disk.0.lock();
        contents.refusal()?;
        let (number, newest) = contents.files.iter_mut().next_back().expect("a file was begun");
        let last_bytes = self.life.last_bytes.load(SeqCst);
        if last_bytes < usize::MAX {
            newest.bytes.extend_from_slice(&bytes[..last_bytes.min(bytes.len())]);
            self.life.end();
            return self.alive();
        }
        newest.bytes.extend_from_slice(bytes);
        self.unsynced.lock().insert(*number);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.alive()?;
        let lens: Vec<(u64, usize)> = {
            let (contents, unsynced) = (self.disk.0.lock(), self.unsynced.lock());
            let files = contents.files.iter().filter(|(number, _)| unsynced.contains(number));
            files.map(|(number, file)| (*number, file.bytes.len())).collect()
        };
        let end = (self.during_sync)();
        self.alive()?;
        let mut contents = self.disk.0.lock();
        if end != SyncEnd::Works {
            contents.is_dead = end == SyncEnd::Dies;
            // The system has thrown away what it could not write.
            for file in contents.files.values_mut() {
                match end {
                    SyncEnd::Dies => file.bytes.truncate(file.synced),
                    _ => file.bytes[file.synced..].fill(0),
                }
            }
            return Err(io::Error::other("the disk is broken"));
        }
        for (number, len) in lens {
            if let Some(file) = contents.files.get_mut(&number) {
                file.synced = file.synced.max(len);
                if !std::mem::replace(&mut file.is_listed, true) {
                    contents.removed.clear();
                }
            }
        }
        Ok(())
    }

    fn begin(&self, number: u64) -> io::Result<()> {
        self.alive()?;
        let mut contents = self.disk.0.lock();
        contents.refusal()?;
        let is_listed = contents.files.get(&number).is_some_and(|file| file.is_listed);
        contents.files.insert(number, File { bytes: frame::first_line(), synced: 0, is_listed });
        self.unsynced.lock().insert(number);
        Ok(())
    }

    fn remove_before(&self, number: u64) -> io::Result<()> {
        self.alive()?;
        let mut contents = self.disk.0.lock();
        let kept = contents.files.split_off(&number);
        let removed = std::mem::replace(&mut contents.files, kept);
        contents.removed.extend(removed);
        Ok(())
    }

    fn volume(&self) -> Volume {
        self.disk.volume()
    }
}
