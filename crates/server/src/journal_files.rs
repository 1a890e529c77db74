//! The directory of a journal: its lock, its identity and its files.
//!
//! Owns    `dir/data/`. One process uses it at a time, for as long as it holds the lock of the file `lock`.
//! Rule    a write is whole or not there: what a failed write has left is cut off. A new file counts once the directory is
//!         synced, too.
//! Rule    `identity` is written after the first journal file is synced. So one without the other says that something was
//!         removed, or that a backup was restored.
//! Rule    a sync that fails is marked outside of this directory, too: a disk that is gone takes no mark.
//! Rule    the file `reserve` takes up room that the journal needs when the disk is full: it is removed then.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redlatch_core::journal::item::Volume;
use redlatch_core::journal::log::Storage;
use redlatch_core::journal::recovery::{Ending, Found, Machine};
use redlatch_core::journal::{frame, item};
use redlatch_core::replication::marks;
use redlatch_platform::{boot, files, volume};

use super::journal::Place;
use super::sync_mark::SyncMark;

/// The directory of a journal, locked by this process.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Unlocked when it is dropped.
    lock: File,
    /// The id of the server.
    server: [u8; 20],
    /// Whether the file `identity` says so.
    is_identified: bool,
    /// What is missing here.
    doubt: Option<Doubt>,
}

/// What is missing in a directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Doubt {
    /// A server has used it, and its journal is gone.
    Lost,
    /// There is a journal without an identity, as a backup is restored.
    Restored,
}

/// Bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;
/// The names of journal files begin so; their number follows.
const PREFIX: &str = "journal-";
/// How the identity begins; the version of the directory and the id follow.
const IDENTITY: &str = "redlatch data 1\nid ";
/// The name of the file that takes up room for a full disk, and its bytes: more than 10,000 releases.
const RESERVE: &str = "reserve";
const RESERVE_BYTES: usize = 1 << 20;

impl Directory {
    /// Opens `dir/data`, which is made if there is none. A new directory gets this id.
    ///
    /// # Errors
    /// A sentence that names the directory.
    pub(super) fn open(dir: &str, fresh_id: [u8; 20]) -> Result<Self, String> {
        let directory = Self::open_marked(dir, fresh_id)?;
        let path = &directory.path;
        match marks::refusal(|name| path.join(name).exists()) {
            Some(why) => Err(format!("dir '{}': {why}", path.display())),
            None => Ok(directory),
        }
    }

    /// As [`Directory::open`], also where locks were moved, or a move has not ended.
    ///
    /// # Errors
    /// A sentence that names the directory.
    pub(super) fn open_marked(dir: &str, fresh_id: [u8; 20]) -> Result<Self, String> {
        let path = Path::new(dir).join("data");
        let fault = |error: io::Error| format!("dir '{}': {error}", path.display());
        if !path.exists() {
            files::create_synced_directory(&path).map_err(fault)?;
        }
        let lock = files::private(OpenOptions::new().create(true).write(true)).open(path.join("lock"));
        let lock = lock.map_err(fault)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!("dir '{}': another server uses it", path.display()));
            }
            Err(TryLockError::Error(error)) => return Err(fault(error)),
        }
        let has_journal = !numbers(&path).map_err(fault)?.is_empty();
        let (known, draft) = (read_identity(&path.join("identity"))?, path.join("identity.new"));
        let doubt = match (&known, has_journal) {
            (Some(_), false) => Some(Doubt::Lost),
            // The first start may have ended before it had written the identity.
            (None, true) if !draft.exists() => Some(Doubt::Restored),
            _ => None,
        };
        let server = known.unwrap_or(fresh_id);
        Ok(Self { path, lock, server, is_identified: known.is_some(), doubt })
    }

    /// The files of this directory were removed: a journal begins in it.
    #[cfg(feature = "etcd")]
    pub(super) fn emptied(self) -> Self {
        Self { is_identified: false, doubt: None, ..self }
    }

    /// The path of the file of that number.
    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{PREFIX}{number}"))
    }

    /// The storage of the log that goes on in this directory. Its first sync takes the files that are there with it: a server
    /// that was killed may not have synced what it wrote last.
    fn into_files(self) -> io::Result<Files> {
        if !self.is_identified && self.doubt.is_none() {
            self.write_identity("identity.new")?;
        }
        let open = |number| Ok((number, Arc::new(files::open_to_sync(&self.file(number))?)));
        let kept = numbers(&self.path)?.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        let unsynced = kept.iter().map(|(_, file)| Arc::clone(file)).collect();
        let mut state = State { unsynced, kept, is_identified: self.is_identified, ..State::default() };
        state.make_reserve(&self.path);
        Ok(Files { directory: Mutex::new(self), state: Mutex::new(state) })
    }

    /// What identifies the storage of the directory.
    fn volume(&self) -> Volume {
        let volume::Volume { device, disk, file_system, root_mount, mount } = volume::of(&self.path);
        Volume { device, disk, file_system, root_mount, mount }
    }

    fn write_identity(&self, name: &str) -> io::Result<()> {
        let text = format!("{IDENTITY}{}\n", item::id_text(&self.server));
        let mut file =
            files::private(OpenOptions::new().create(true).write(true)).open(self.path.join(name))?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Puts the identity in its place.
    fn identify(&self) -> io::Result<()> {
        self.write_identity("identity.new")?;
        fs::rename(self.path.join("identity.new"), self.path.join("identity"))?;
        files::sync_directory(&self.path)
    }
}

impl Place for Directory {
    fn server(&self) -> [u8; 20] {
        self.server
    }

    fn doubt(&self, found: &Found) -> Option<String> {
        let is_of_another = found.opened.as_ref().is_some_and(|opened| opened.server != self.server);
        let (is_lost, is_restored) = match self.doubt {
            Some(doubt) => (doubt == Doubt::Lost, doubt == Doubt::Restored),
            None => (false, self.is_identified && is_of_another),
        };
        let here = || format!("dir '{}'", self.path.display());
        match found.ending {
            _ if is_lost => Some(format!("{}: the journal is gone", here())),
            _ if is_restored => {
                Some(format!("{}: the journal is a backup, for the file identity is not its own", here()))
            }
            Ending::Damaged => Some(format!("{}: the journal is damaged", self.name(found.number))),
            _ => None,
        }
    }

    fn may_be_torn(&self) -> bool {
        true
    }

    fn adopt(&mut self, server: [u8; 20]) {
        self.is_identified &= self.server == server;
        self.server = server;
    }

    fn name(&self, number: u64) -> String {
        self.file(number).display().to_string()
    }

    fn files(&self) -> io::Result<Vec<(u64, Box<dyn Read>)>> {
        let mut numbers = numbers(&self.path)?;
        numbers.sort_unstable();
        let open = |number| {
            let file = BufReader::with_capacity(READ_BYTES, File::open(self.file(number))?);
            Ok((number, Box::new(file) as Box<dyn Read>))
        };
        numbers.into_iter().map(open).collect()
    }

    fn into_storage(self: Box<Self>) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(self.into_files()?))
    }

    fn machine(&self) -> Machine {
        let volume = self.volume();
        Machine { boot: boot::id(), boot_ms: boot::millis(), volume }
    }

    fn sync_mark(&self, server: &[u8; 20]) -> Option<SyncMark> {
        Some(SyncMark::of(server))
    }
}

/// The numbers of the journal files in a directory.
pub(super) fn numbers(path: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u64>().ok()));
    }
    Ok(numbers)
}

/// Reads the id of the server; `None`: there is no such file.
fn read_identity(file: &Path) -> Result<Option<[u8; 20]>, String> {
    let fault = |why: String| format!("dir '{}': {why}", file.parent().unwrap_or(file).display());
    let text = match fs::read(file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error.to_string())),
    };
    if let Some(id) = text.strip_prefix(IDENTITY).and_then(|id| item::parse_id(id.trim_end())) {
        return Ok(Some(id));
    }
    let first = text.lines().next().unwrap_or_default();
    let version = first.strip_prefix("redlatch data ").and_then(|version| version.parse::<u32>().ok());
    Err(fault(match version {
        Some(version) if version > 1 => format!("the file identity is of another version: '{first}'"),
        _ => "the file identity is damaged: remove it, and set startup-guard for the next start".to_owned(),
    }))
}

/// The files of a journal that is written.
#[derive(Debug)]
pub(super) struct Files {
    directory: Mutex<Directory>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    newest: Option<Arc<File>>,
    /// Bytes of the newest file that count.
    bytes: u64,
    /// Whether a failed write may have left more bytes than that.
    is_torn: bool,
    /// Earlier files that were not synced since their last write, as far as this process knows.
    unsynced: Vec<Arc<File>>,
    /// All files that the next start needs, with their numbers.
    kept: Vec<(u64, Arc<File>)>,
    /// Whether files were added to the directory since it was last synced.
    is_directory_changed: bool,
    is_identified: bool,
    /// Why there is no reserve, if there is none.
    shortage: Option<String>,
}

impl State {
    /// Appends to the newest file. What does not fit on the disk takes the room of the reserve.
    fn append(&mut self, bytes: &[u8], directory: &Path) -> io::Result<()> {
        match self.append_once(bytes) {
            Err(error) if is_full(&error) && fs::remove_file(directory.join(RESERVE)).is_ok() => {
                self.shortage = Some(error.to_string());
                self.append_once(bytes)
            }
            result => result,
        }
    }

    fn append_once(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &self.newest else { return Err(io::Error::other("there is no file yet")) };
        if self.is_torn {
            file.set_len(self.bytes)?;
            self.is_torn = false;
        }
        if let Err(error) = (&**file).write_all(bytes) {
            self.is_torn = file.set_len(self.bytes).is_err();
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes the reserve, if there is none of its size.
    fn make_reserve(&mut self, directory: &Path) {
        let path = directory.join(RESERVE);
        let make = || {
            if fs::metadata(&path).is_ok_and(|file| file.len() == RESERVE_BYTES as u64) {
                return Ok(());
            }
            let mut file =
                files::private(OpenOptions::new().create(true).truncate(true).write(true)).open(&path)?;
            file.write_all(&vec![1; RESERVE_BYTES])
        };
        self.shortage = make().err().map(|error: io::Error| {
            let _ = fs::remove_file(&path);
            error.to_string()
        });
    }
}

/// Whether a write has failed for want of room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Files {
    fn sync_all(&self) -> io::Result<()> {
        let (newest, unsynced, is_directory_changed, is_identified) = {
            let state = self.state.lock();
            let (newest, unsynced) = (state.newest.clone(), state.unsynced.clone());
            (newest, unsynced, state.is_directory_changed, state.is_identified)
        };
        for file in &unsynced {
            file.sync_data()?;
        }
        if let Some(newest) = &newest {
            newest.sync_data()?;
        }
        if is_directory_changed {
            let path = self.directory.lock().path.clone();
            files::sync_directory(&path)?;
        }
        if !is_identified {
            self.directory.lock().identify()?;
        }
        let mut state = self.state.lock();
        state.is_identified = true;
        state.unsynced.retain(|file| !unsynced.iter().any(|synced| Arc::ptr_eq(synced, file)));
        // A file that was begun meanwhile is synced the next time.
        let is_same = match (&state.newest, &newest) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            _ => false,
        };
        state.is_directory_changed &= !is_same;
        Ok(())
    }
}

impl Storage for Files {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let directory = self.directory.lock();
        self.state.lock().append(bytes, &directory.path)
    }

    fn sync(&self) -> io::Result<()> {
        let result = self.sync_all();
        if result.is_err() {
            SyncMark::of(&self.directory.lock().server).set();
        }
        result
    }

    fn begin(&self, number: u64) -> io::Result<()> {
        let directory = self.directory.lock();
        let path = directory.file(number);
        let file = Arc::new(files::append_to(&path)?);
        // What a start that has failed has left.
        file.set_len(0)?;
        let mut state = self.state.lock();
        let mut next = State { newest: Some(Arc::clone(&file)), ..State::default() };
        next.shortage = state.shortage.clone();
        if let Err(error) = next.append(&frame::first_line(), &directory.path) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        next.unsynced = std::mem::take(&mut state.unsynced);
        next.unsynced.extend(state.newest.take());
        next.kept = std::mem::take(&mut state.kept);
        // A start that has failed may have left a file of this number.
        next.kept.retain(|(known, _)| *known != number);
        next.kept.push((number, file));
        next.is_directory_changed = true;
        next.is_identified = state.is_identified;
        *state = next;
        Ok(())
    }

    fn remove_before(&self, number: u64) -> io::Result<()> {
        let directory = self.directory.lock();
        self.state.lock().kept.retain(|(kept, _)| *kept >= number);
        let mut numbers = numbers(&directory.path)?;
        numbers.sort_unstable();
        for number in numbers.into_iter().take_while(|earlier| *earlier < number) {
            fs::remove_file(directory.file(number))?;
        }
        Ok(())
    }

    fn shortage(&self) -> Option<String> {
        self.state.lock().shortage.clone()
    }

    fn end_shortage(&self) {
        let directory = self.directory.lock();
        self.state.lock().make_reserve(&directory.path);
    }

    fn volume(&self) -> Volume {
        self.directory.lock().volume()
    }

    fn is_in_place(&self) -> bool {
        let (directory, state) = (self.directory.lock(), self.state.lock());
        let has_identity = || directory.path.join("identity").exists();
        files::is_at(&directory.path.join("lock"), &directory.lock)
            && has_identity()
            && state.kept.iter().all(|(number, file)| files::is_at(&directory.file(*number), file))
    }

    fn remake(&self) -> io::Result<()> {
        let mut directory = self.directory.lock();
        if !files::is_at(&directory.path.join("lock"), &directory.lock) {
            let dir = directory.path.parent().unwrap_or(Path::new(".")).display().to_string();
            let made = Directory::open(&dir, directory.server).map_err(io::Error::other)?;
            *directory = Directory { server: directory.server, ..made };
        }
        let mut state = self.state.lock();
        let newest = state.kept.iter().map(|(number, _)| *number).max();
        if numbers(&directory.path)?.into_iter().max() > newest {
            return Err(io::Error::other("it has files of another journal"));
        }
        (state.is_identified, state.is_directory_changed) = (false, true);
        state.unsynced.clear();
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The lock of a file ends with its last descriptor, which a child of this process may have.
        let _ = self.directory.get_mut().lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(dir: &Path) -> String {
        Directory::open(dir.to_str().unwrap(), [7; 20]).unwrap_err().replace(dir.to_str().unwrap(), "DIR")
    }

    #[test]
    fn the_first_sync_takes_the_files_of_earlier_servers_with_it() {
        let dir = std::env::temp_dir().join(format!("redlatch-earlier-files-{}", std::process::id()));
        let open = || Directory::open(dir.to_str().unwrap(), [1; 20]).unwrap().into_files().unwrap();
        let first = open();
        first.begin(1).unwrap();
        first.write(b"killed before it was synced").unwrap();
        drop(first);
        let next = open();
        next.begin(2).unwrap();
        assert_eq!(next.state.lock().unsynced.len(), 1);
        next.sync().unwrap();
        assert!(next.state.lock().unsynced.is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn nobody_opens_a_directory_whose_locks_were_moved_or_that_an_export_has_begun_with() {
        let dir = std::env::temp_dir().join(format!("redlatch-marks-{}", std::process::id()));
        let open = || Directory::open(dir.to_str().unwrap(), [1; 20]);
        drop(open().unwrap());
        for (mark, why) in [
            (marks::EXPORTING, "an export to here has not ended: run 'redlatch cluster export' again"),
            (marks::MOVED, "its locks were moved to a cluster, by 'redlatch cluster import'"),
        ] {
            fs::write(dir.join("data").join(mark), "").unwrap();
            let refused = refused(&dir);
            assert!(refused.starts_with(&format!("dir 'DIR/data': {why}")), "{refused}");
            fs::remove_file(dir.join("data").join(mark)).unwrap();
        }
        fs::write(dir.join("data/exported"), "").unwrap();
        drop(open().unwrap());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_directory_has_one_server_at_a_time_and_keeps_its_id() {
        let dir = std::env::temp_dir().join(format!("redlatch-directory-{}", std::process::id()));
        let path = dir.to_str().unwrap();
        let first = Directory::open(path, [1; 20]).unwrap();
        assert_eq!(refused(&dir), "dir 'DIR/data': another server uses it");
        let files = first.into_files().unwrap();
        files.begin(1).unwrap();
        assert!(!dir.join("data/identity").exists(), "there is no journal yet");
        files.sync().unwrap();
        drop(files);
        assert_eq!(Directory::open(path, [2; 20]).unwrap().server, [1; 20]);
        fs::write(dir.join("data/identity"), "redlatch data 2\n").unwrap();
        assert_eq!(
            refused(&dir),
            "dir 'DIR/data': the file identity is of another version: 'redlatch data 2'"
        );
        for damaged in [&b""[..], b"redlatch data 1\nid 12", b"\xff\0"] {
            fs::write(dir.join("data/identity"), damaged).unwrap();
            assert_eq!(
                refused(&dir),
                "dir 'DIR/data': the file identity is damaged: remove it, and set startup-guard for the next start"
            );
        }
        fs::remove_dir_all(&dir).unwrap();
        fs::write(&dir, "a file").unwrap();
        assert!(refused(&dir).starts_with("dir 'DIR/data': "), "{}", refused(&dir));
        fs::remove_file(&dir).unwrap();
    }
}
