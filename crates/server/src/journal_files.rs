//! The directory of a journal: its lock, its identity and its files.
//!
//! Owns    `dir/data/`. One process uses it at a time, for as long as it holds the lock of the file `lock`.
//! Rule    a write is whole or not there: what a failed write has left is cut off. A new file counts once the directory is
//!         synced, too.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redlatch_core::journal::log::Storage;
use redlatch_core::journal::{frame, item};

use super::journal::Place;

/// The directory of a journal, locked by this process.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Unlocked when it is dropped.
    lock: File,
    /// The id of the server.
    server: [u8; 20],
}

/// Bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;
/// The names of journal files begin so; their number follows.
const PREFIX: &str = "journal-";
/// The file that says that the locks of the journal are in a cluster now.
const MOVED: &str = "moved";
/// How the identity begins; the version of the directory and the id follow.
const IDENTITY: &str = "redlatch data 1\nid ";

impl Directory {
    /// Opens `dir/data`, which is made if there is none. A new directory gets this id.
    ///
    /// # Errors
    /// A sentence that names the directory.
    pub(super) fn open(dir: &str, fresh_id: [u8; 20]) -> Result<Self, String> {
        let directory = Self::open_moved(dir, fresh_id)?;
        if directory.path.join(MOVED).exists() {
            let path = directory.path.display();
            return Err(format!(
                "dir '{path}': its locks were moved to a cluster, by 'redlatch cluster import'"
            ));
        }
        Ok(directory)
    }

    /// As [`Directory::open`], also where the locks were moved to a cluster.
    ///
    /// # Errors
    /// A sentence that names the directory.
    pub(super) fn open_moved(dir: &str, fresh_id: [u8; 20]) -> Result<Self, String> {
        let path = Path::new(dir).join("data");
        let fault = |error: io::Error| format!("dir '{}': {error}", path.display());
        if !path.exists() {
            fs::create_dir_all(&path).map_err(fault)?;
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(fault)?;
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.map_err(fault)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!("dir '{}': another server uses it", path.display()));
            }
            Err(TryLockError::Error(error)) => return Err(fault(error)),
        }
        let server = identity(&path, fresh_id)?;
        Ok(Self { path, lock, server })
    }

    /// From now on no server starts on it: its locks are in a cluster.
    ///
    /// # Errors
    /// The system's.
    #[cfg(feature = "etcd")]
    pub(super) fn mark_moved(&self) -> io::Result<()> {
        write_synced(&self.path.join(MOVED), b"")?;
        File::open(&self.path)?.sync_all()
    }

    /// The path of the file of that number.
    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{PREFIX}{number}"))
    }

    /// The storage of the log that goes on in this directory. Its first sync takes the files that are there with it: a server
    /// that was killed may not have synced what it wrote last.
    fn into_files(self) -> io::Result<Files> {
        let numbers = numbers(&self.path)?;
        let open = |number| Ok(Arc::new(File::open(self.file(number))?));
        let unsynced = numbers.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
        let state = Mutex::new(State { unsynced, ..State::default() });
        Ok(Files { directory: self, state })
    }
}

impl Place for Directory {
    fn server(&self) -> [u8; 20] {
        self.server
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
}

/// The numbers of the journal files in a directory.
fn numbers(path: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u64>().ok()));
    }
    Ok(numbers)
}

/// Checks that this directory has no journal, as that of a node whose journal is elsewhere must. Makes nothing there.
///
/// # Errors
/// A sentence that names the directory.
#[cfg(feature = "etcd")]
pub(super) fn has_no_journal(dir: &str) -> Result<(), String> {
    let path = Path::new(dir).join("data");
    match numbers(&path) {
        _ if dir.is_empty() => Ok(()),
        Ok(found) if found.is_empty() || path.join(MOVED).exists() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(format!(
            "dir '{dir}': has the journal of a server by itself, whose locks a cluster does not know"
        )),
        Err(error) => Err(format!("dir '{}': {error}", path.display())),
    }
}

/// Reads the id of the server, or writes a new one.
fn identity(path: &Path, fresh: [u8; 20]) -> Result<[u8; 20], String> {
    let file = path.join("identity");
    let fault = |error: io::Error| format!("dir '{}': {error}", path.display());
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = item::id_text(&fresh);
            write_synced(&file, format!("{IDENTITY}{id}\n").as_bytes()).map_err(fault)?;
            return Ok(fresh);
        }
        Err(error) => return Err(fault(error)),
    };
    let id = text.strip_prefix(IDENTITY).and_then(|id| item::parse_id(id.trim_end()));
    let first = || text.lines().next().unwrap_or_default().to_owned();
    id.ok_or_else(|| {
        format!("dir '{}': the file identity is of another version: '{}'", path.display(), first())
    })
}

/// Writes a new file as a whole.
fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

/// The files of a journal that is written.
#[derive(Debug)]
pub(super) struct Files {
    directory: Directory,
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
    /// Whether files were added to the directory since it was last synced.
    is_directory_changed: bool,
}

impl State {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
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
}

impl Storage for Files {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.state.lock().append(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let (newest, unsynced, is_directory_changed) = {
            let state = self.state.lock();
            (state.newest.clone(), state.unsynced.clone(), state.is_directory_changed)
        };
        for file in &unsynced {
            file.sync_data()?;
        }
        if let Some(newest) = &newest {
            newest.sync_data()?;
        }
        if is_directory_changed {
            File::open(&self.directory.path)?.sync_all()?;
        }
        let mut state = self.state.lock();
        state.unsynced.retain(|file| !unsynced.iter().any(|synced| Arc::ptr_eq(synced, file)));
        // A file that was begun meanwhile is synced the next time.
        let is_same = match (&state.newest, &newest) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            _ => false,
        };
        state.is_directory_changed &= !is_same;
        Ok(())
    }

    fn begin(&self, number: u64) -> io::Result<()> {
        let path = self.directory.file(number);
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        // What a start that has failed has left.
        file.set_len(0)?;
        let mut next = State { newest: Some(Arc::new(file)), ..State::default() };
        if let Err(error) = next.append(&frame::first_line()) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        let mut state = self.state.lock();
        next.unsynced = std::mem::take(&mut state.unsynced);
        next.unsynced.extend(state.newest.take());
        next.is_directory_changed = true;
        *state = next;
        Ok(())
    }

    fn remove_before(&self, number: u64) -> io::Result<()> {
        let mut numbers = numbers(&self.directory.path)?;
        numbers.sort_unstable();
        for number in numbers.into_iter().take_while(|earlier| *earlier < number) {
            fs::remove_file(self.directory.file(number))?;
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The lock of a file ends with its last descriptor, which a child of this process may have.
        let _ = self.directory.lock.unlock();
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
    fn a_directory_has_one_server_at_a_time_and_keeps_its_id() {
        let dir = std::env::temp_dir().join(format!("redlatch-directory-{}", std::process::id()));
        let path = dir.to_str().unwrap();
        let first = Directory::open(path, [1; 20]).unwrap();
        assert_eq!(refused(&dir), "dir 'DIR/data': another server uses it");
        drop(first);
        assert_eq!(Directory::open(path, [2; 20]).unwrap().server, [1; 20]);
        fs::write(dir.join("data/identity"), "redlatch data 2\n").unwrap();
        assert_eq!(
            refused(&dir),
            "dir 'DIR/data': the file identity is of another version: 'redlatch data 2'"
        );
        fs::remove_dir_all(&dir).unwrap();
        fs::write(&dir, "a file").unwrap();
        assert!(refused(&dir).starts_with("dir 'DIR/data': "), "{}", refused(&dir));
        fs::remove_file(&dir).unwrap();
    }
}
