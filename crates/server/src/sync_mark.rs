//! The mark of a failed sync outside of the disk of the journal, which may take none.
//!
//! Owns    a file in a directory that lives as long as the boot, named after the id of the server. After another boot it is
//!         not needed: that start expects that something is missing, anyway.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::{fs, io};

use redlatch_core::journal::item;
use redlatch_platform::{boot, files};

/// The mark of one server.
#[derive(Debug)]
pub(super) struct SyncMark {
    /// Where it may be. The first directory that takes it has it.
    files: Vec<PathBuf>,
}

impl SyncMark {
    pub(super) fn of(server: &[u8; 20]) -> Self {
        let name = format!("sync-failed-{}", item::id_text(server));
        let directories = boot::runtime_directories().into_iter();
        Self { files: directories.map(|directory| directory.join(&name)).collect() }
    }

    pub(super) fn is_set(&self) -> bool {
        self.files.iter().any(|file| file.exists())
    }

    /// Sets it. The log says if that does not work.
    pub(super) fn set(&self) {
        let mut result = Ok(());
        for file in &self.files {
            result = create(file);
            if result.is_ok() {
                return;
            }
        }
        if let Err(error) = result {
            tracing::warn!(%error, "Cannot write the mark of a failed sync to a runtime directory");
        }
    }

    /// Removes it: what it says is in the journal now.
    pub(super) fn remove(&self) {
        for file in self.files.iter().filter(|file| file.exists()) {
            if let Err(error) = fs::remove_file(file) {
                let file = file.display();
                tracing::warn!(%file, %error, "The mark of a failed sync cannot be removed: the next start waits, too");
            }
        }
    }
}

fn create(file: &Path) -> io::Result<()> {
    files::create_private_directory(file.parent().unwrap_or(file))?;
    files::private(OpenOptions::new().create(true).write(true)).open(file).map(drop)
}
