//! The log: one line for each event, fields and not prose.

use std::io::IsTerminal;
use std::sync::Arc;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, reload};

use super::Fault;
use super::log_file::LogFile;

/// Applies another value of the setting `loglevel`.
pub(super) type Level = Box<dyn Fn(&str) + Send + Sync>;

/// Where the log goes.
pub(super) enum Output {
    File(Arc<LogFile>),
    Nowhere,
    Stdout,
}

impl Output {
    /// `path` is a file or empty. Then the log goes to the standard output, unless that has `other_lines` for a program.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn new(path: &str, other_lines: bool) -> Result<Self, Fault> {
        Ok(match (path, other_lines) {
            ("", false) => Self::Stdout,
            ("", true) => Self::Nowhere,
            (path, _) => Self::File(Arc::new(LogFile::open(path)?)),
        })
    }

    /// The file, if the log goes to one.
    pub(super) fn file(&self) -> Option<Arc<LogFile>> {
        match self {
            Self::File(file) => Some(Arc::clone(file)),
            Self::Nowhere | Self::Stdout => None,
        }
    }
}

/// Opens the log of this process; `level` as in the setting `loglevel`.
pub(super) fn open(level: &str, output: Output) -> Level {
    let (filter, handle) = reload::Layer::new(filter(level));
    let (writer, is_colored) = match output {
        Output::Stdout => (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal()),
        Output::Nowhere => (BoxMakeWriter::new(std::io::sink), false),
        Output::File(file) => (BoxMakeWriter::new(file), false),
    };
    let lines =
        fmt::layer().with_target(false).log_internal_errors(false).with_ansi(is_colored).with_writer(writer);
    tracing_subscriber::registry().with(filter).with(lines).init();
    // The log lives as long as the process, so that there is always something to reload.
    Box::new(move |level| drop(handle.reload(self::filter(level))))
}

fn filter(level: &str) -> LevelFilter {
    match level {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    }
}
