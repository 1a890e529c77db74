//! The file in which a node keeps what it remembers of the log in etcd, if it has a directory.
//!
//! Rule    it decides about no lock. Without it a node that is started after a restore of etcd knows less.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use redlatch_core::replication::cluster::Part;
use redlatch_core::replication::restored::Memory;

use redlatch_platform::files;

/// The file, and what is in it.
#[derive(Debug)]
pub(super) struct Notebook {
    /// `None`: the node has no directory.
    file: Option<PathBuf>,
    written: Mutex<Memory>,
    has_warned: AtomicBool,
}

impl Notebook {
    /// The file in a directory for what a log has; an empty name: there is none.
    pub(super) fn in_directory(dir: &str, part: Part) -> Self {
        let name = match part.groups {
            1 => "cluster-memory".to_owned(),
            _ => format!("cluster-memory-{}", part.group),
        };
        let file = (!dir.is_empty()).then(|| PathBuf::from(dir).join(name));
        Self { file, written: Mutex::default(), has_warned: AtomicBool::new(false) }
    }

    /// What is remembered of the cluster of this id.
    pub(super) fn read(&self, cluster: &[u8; 20]) -> Memory {
        let text = self.file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let memory = text.and_then(|text| Memory::parse(&text, cluster)).unwrap_or_default();
        *self.written.lock() = memory;
        memory
    }

    /// Writes it, if it has changed.
    pub(super) fn write(&self, memory: &Memory, cluster: &[u8; 20]) {
        let mut written = self.written.lock();
        let Some(file) = self.file.as_ref().filter(|_| *written != *memory) else { return };
        match replace(file, &memory.text(cluster)) {
            Ok(()) => *written = *memory,
            Err(error) if !self.has_warned.swap(true, Relaxed) => {
                tracing::warn!(%error, file = %file.display(), "Cannot save what this node knows of etcd");
            }
            Err(_) => {}
        }
    }
}

/// Replaces the file as a whole. It is not synced: a loss of power leaves an older one, or none.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    file.parent().map_or(Ok(()), files::create_private_directory)?;
    let draft = file.with_extension("new");
    let options = &mut OpenOptions::new();
    files::private(options.write(true).create(true).truncate(true))
        .open(&draft)?
        .write_all(text.as_bytes())?;
    fs::rename(&draft, file)
}
