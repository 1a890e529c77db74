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

/// Opens the log of this process: `level` as in the setting `loglevel`, `path` a file or empty for the standard
/// output.
///
/// # Errors
/// When the file cannot be opened.
pub(super) fn open(level: &str, path: &str) -> Result<Level, Fault> {
    let (filter, handle) = reload::Layer::new(filter(level));
    let (writer, is_colored) = if path.is_empty() {
        (BoxMakeWriter::new(std::io::stdout), std::io::stdout().is_terminal())
    } else {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file =
            file.map_err(|error| format!("logfile '{path}': must be a file that can be written: {error}"))?;
        (BoxMakeWriter::new(Mutex::new(file)), false)
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
