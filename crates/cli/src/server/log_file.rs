//! Where the log goes: the standard output, or a file that is opened again after another program has moved it away.
//!
//! Rule    a line is written only if that does not wait. Lines are written by the threads that serve locks, some while a
//!         shard is locked: a pipe or terminal that nobody reads costs lines, and delays no lock.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use redlatch_platform::files::append_to;
use redlatch_platform::output::{self, takes_bytes};
use tokio::sync::Notify;

use crate::common::Fault;

#[derive(Debug)]
pub(super) struct LogFile {
    /// `None`: it is the standard output.
    path: Option<String>,
    open: Mutex<Open>,
    /// Lines that were left out since the start.
    left_out: AtomicU64,
    /// Notified when a line is left out.
    has_left_out: Notify,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Whether the last line has no end, because the file took its beginning only.
    is_cut: bool,
}

/// Bytes that a pipe takes at once if it takes any: POSIX' `PIPE_BUF` on Linux.
const PIPE_BYTES: usize = 4096;
/// The same of a terminal: the kernel gives it room in steps of so many bytes.
const TERMINAL_BYTES: usize = 256;
/// How long after a line that was left out the log says so.
const TELL_AFTER: Duration = Duration::from_secs(1);

impl LogFile {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn open(path: &str) -> Result<Self, Fault> {
        let file = append_to(path)
            .map_err(|error| format!("logfile '{path}': must be a file that can be written: {error}"))?;
        Ok(Self::of(Some(path.to_owned()), file))
    }

    /// The standard output.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn stdout() -> Result<Self, Fault> {
        let stdout = output::stdout();
        let stdout = stdout.map_err(|error| format!("cannot open the standard output: {error}"))?;
        Ok(Self::of(None, stdout))
    }

    fn of(path: Option<String>, file: File) -> Self {
        let open = Mutex::new(Open { file, is_cut: false });
        Self { path, open, left_out: AtomicU64::new(0), has_left_out: Notify::new() }
    }

    /// Whether people read it in a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.open.lock().file.is_terminal()
    }

    /// Opens or creates the file of this name, so that the log leaves a file that was renamed, as logrotate does.
    ///
    /// # Errors
    /// The system's. The log stays in the file that is open.
    pub(super) fn reopen(&self) -> io::Result<()> {
        if let Some(path) = &self.path {
            let file = append_to(path)?;
            *self.open.lock() = Open { file, is_cut: false };
        }
        Ok(())
    }

    /// Logs how many lines were left out, until one of these lines is read. Never resolves.
    pub(super) async fn tell_left_out(&self) {
        loop {
            self.has_left_out.notified().await;
            tokio::time::sleep(TELL_AFTER).await;
            let left_out = self.left_out.load(Relaxed);
            tracing::warn!(left_out, "The log was read too slowly: lines were left out");
        }
    }
}

impl Write for &LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_all(line)?;
        Ok(line.len())
    }

    /// Writes a line with the file locked once, so that lines of two threads do not mix.
    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock();
        // The end of a line that was begun is written with the next one.
        let end: &[u8] = if std::mem::take(&mut open.is_cut) { b"\n" } else { b"" };
        let bytes_at_once = if open.file.is_terminal() { TERMINAL_BYTES } else { PIPE_BYTES };
        let chunks = [end, line].into_iter().flat_map(|bytes| bytes.chunks(bytes_at_once));
        for (at, chunk) in chunks.enumerate() {
            if !takes_bytes(&open.file) {
                open.is_cut = at > 0 || !end.is_empty();
                self.left_out.fetch_add(1, Relaxed);
                self.has_left_out.notify_one();
                break;
            }
            open.file.write_all(chunk)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open.lock().file.flush()
    }
}
