//! Where the audit log goes: a file, or the standard error. `state::audit` makes the lines.
//!
//! Owns    a thread, which alone meets the disk. Other threads put lines into its queue, or leave them out if that is full.
//! Bounds  [`LINES_MAX`] lines wait.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use redlatch_core::state::audit::{AuditSink, LINE_BYTES_MAX};
use redlatch_core::state::settings;
use redlatch_platform::files::append_to;
use tokio::sync::mpsc;

use super::StartError;
use super::context::ServerContext;
use super::worker::{Threads, runtime};

/// Lines that wait for the disk.
const LINES_MAX: usize = 1_024;
const _: () =
    assert!(LINES_MAX * LINE_BYTES_MAX <= 8 << 20, "docs/logging.md says how much memory they take");
/// The value of the setting for the standard error.
const STDERR: &str = "stderr";

/// Starts the thread that the setting `audit-log` asks for, and has these servers write to it.
///
/// # Errors
/// The file cannot be written, or the system has no thread left.
pub(super) fn start(servers: &[ServerContext], threads: &Threads) -> Result<(), StartError> {
    let Some(server) = servers.first().cloned() else { return Ok(()) };
    let path = server.engine.shared().settings.get(settings::AUDIT_LOG);
    if path.is_empty() {
        return Ok(());
    }
    let mut writer = Writer::open(path)?;
    let (lines, mut queue) = mpsc::channel(LINES_MAX);
    let sink = Arc::new(Queue { lines, reopens: Arc::clone(&writer.reopens) });
    servers.iter().for_each(|server| server.engine.shared().access.audit.attach(sink.clone()));
    threads.start_named("redlatch-audit".to_owned(), runtime()?, async move {
        let mut finished = std::pin::pin!(server.finished());
        loop {
            tokio::select! {
                biased;
                line = queue.recv() => match line {
                    Some(line) => writer.write(line),
                    None => break,
                },
                () = &mut finished => break,
            }
        }
    })?;
    Ok(())
}

/// The lines that wait.
#[derive(Debug)]
struct Queue {
    lines: mpsc::Sender<String>,
    reopens: Arc<AtomicBool>,
}

impl AuditSink for Queue {
    fn take(&self, line: String) -> bool {
        self.lines.try_send(line).is_ok()
    }

    fn reopen(&self) {
        self.reopens.store(true, SeqCst);
    }
}

/// Writes lines.
#[derive(Debug)]
struct Writer {
    path: String,
    /// `None`: the standard error.
    file: Option<File>,
    /// Whether the file is opened again before the next line: it may have been renamed.
    reopens: Arc<AtomicBool>,
    /// Whether the last line has no end, because the file took its beginning only.
    is_cut: bool,
    /// Lines that were lost since a write has failed.
    lost: u64,
}

impl Writer {
    fn open(path: String) -> Result<Self, StartError> {
        let unfit = |error| {
            StartError::Unusable(format!("audit-log '{path}': must be a file that can be written: {error}"))
        };
        let file = if path == STDERR { None } else { Some(append_to(&path).map_err(unfit)?) };
        Ok(Self { path, file, reopens: Arc::default(), is_cut: false, lost: 0 })
    }

    fn write(&mut self, mut line: String) {
        if self.is_cut {
            line.insert(0, '\n');
        }
        line.push('\n');
        match self.try_write(line.as_bytes()) {
            Ok(written) => {
                self.is_cut = written < line.len();
                if self.lost > 0 && !self.is_cut {
                    tracing::warn!(lost = self.lost, "The audit log can be written again");
                    self.lost = 0;
                }
            }
            Err(error) => {
                if self.lost == 0 {
                    tracing::error!(%error, "The audit log cannot be written: its lines are lost");
                }
                self.lost = self.lost.saturating_add(1);
            }
        }
    }

    /// Writes a line at once, so that lines of two processes do not mix. Returns how many bytes the file took.
    fn try_write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.file.is_some() && self.reopens.swap(false, SeqCst) {
            match append_to(&self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) => tracing::warn!(%error, "The audit log stays in its old file"),
            }
        }
        loop {
            let written = match &mut self.file {
                Some(file) => file.write(line),
                None => io::stderr().write_all(line).map(|()| line.len()),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_costs_lines_and_nothing_else() {
        // Every write to this file fails with ENOSPC.
        let mut writer = Writer::open("/dev/full".to_owned()).unwrap();
        writer.write("{}".to_owned());
        writer.write("{}".to_owned());
        assert_eq!((writer.lost, writer.is_cut), (2, false));
        writer.file = Some(append_to("/dev/null").unwrap());
        writer.write("{}".to_owned());
        assert_eq!(writer.lost, 0);
    }

    #[test]
    fn a_queue_that_is_full_takes_no_line_and_blocks_nobody() {
        let (lines, _queue) = mpsc::channel(1);
        let sink = Queue { lines, reopens: Arc::default() };
        assert_eq!([sink.take("a".to_owned()), sink.take("b".to_owned())], [true, false]);
    }

    #[test]
    fn what_is_no_file_is_refused_at_the_start() {
        let refused = Writer::open("/".to_owned()).unwrap_err().to_string();
        assert!(refused.starts_with("audit-log '/': must be a file that can be written: "), "{refused}");
    }
}
