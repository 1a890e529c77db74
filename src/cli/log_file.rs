//! The file that the log is appended to. It is opened again after another program has moved it away.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use parking_lot::Mutex;

use super::Fault;

/// An open log file.
#[derive(Debug)]
pub(super) struct LogFile {
    path: String,
    file: Mutex<File>,
}

impl LogFile {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn open(path: &str) -> Result<Self, Fault> {
        let file = append_to(path)
            .map_err(|error| format!("logfile '{path}': must be a file that can be written: {error}"))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Opens or creates the file of this name, so that the log leaves a file that was renamed, as logrotate does.
    ///
    /// # Errors
    /// The system's. The log stays in the file that is open.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let file = append_to(&self.path)?;
        *self.file.lock() = file;
        Ok(())
    }
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.lock().write(bytes)
    }

    /// Writes a line with the file locked once, so that lines of two threads do not mix.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.lock().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.lock().flush()
    }
}

fn append_to(path: &str) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}
