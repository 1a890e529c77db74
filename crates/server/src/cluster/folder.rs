//! The directory of a journal, with the marks of moves: [`Folder`] by the system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use redlatch_core::replication::marks::Folder;
use redlatch_platform::files;

/// The directory `data`, which this process has locked.
#[derive(Debug)]
pub(super) struct DataFolder(pub(super) PathBuf);

/// The file that its server locks.
const LOCK: &str = "lock";

impl Folder for DataFolder {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| !name.as_ref().is_ok_and(|name| name == LOCK)).collect()
    }

    fn read(&self, name: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            text => text.map(Some),
        }
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file =
            files::private(options.create(true).truncate(true).write(true)).open(self.0.join(name))?;
        file.write_all(text.as_bytes())
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        files::open_to_sync(&self.0.join(name)).and_then(|file: File| file.sync_all())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        files::sync_directory(&self.0)
    }
}
