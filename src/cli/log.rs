//! The log: one line for each event, fields and not prose.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::Mutex;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, reload};

use super::Fault;

/// Applies another value of the setting `loglevel`.
pub(super) type Level = Box<dyn Fn(&str) + Send + Sync>;

/// Where the log goes.
pub(super) enum Output {
    File(String),
    Nowhere,
    Stdout,
}

impl Output {
    /// `path` is a file or empty. Then the log goes to the standard output, unless that has `other_lines` for a program.
    pub(super) fn new(path: &str, other_lines: bool) -> Self {
        match (path, other_lines) {
            ("", false) => Self::Stdout,
            ("", true) => Self::Nowhere,
            (path, _) => Self::File(path.to_owned()),
        }
    }
}

/// Opens the log of this process; `level` as in the setting `loglevel`.
///
/// # Errors
/// When the file cannot be opened.
pub(super) fn open(level: &str, output: Output) -> Result<Level, Fault> {
    let (filter, handle) = reload::Layer::new(filter(level));
    let (writer, is_colored) = match output {
        Output::Stdout => (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal()),
        Output::Nowhere => (BoxMakeWriter::new(std::io::sink), false),
        Output::File(path) => {
            let file =
                OpenOptions::new().create(true).append(true).open(&path).map_err(|error| {
                    format!("logfile '{path}': must be a file that can be written: {error}")
                })?;
            (BoxMakeWriter::new(Mutex::new(file)), false)
        }
    };
    let lines =
        fmt::layer().with_target(false).log_internal_errors(false).with_ansi(is_colored).with_writer(writer);
    tracing_subscriber::registry().with(filter).with(lines).init();
    // The log lives as long as the process, so that there is always something to reload.
    Ok(Box::new(move |level| drop(handle.reload(self::filter(level)))))
}

fn filter(level: &str) -> LevelFilter {
    match level {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    }
}
