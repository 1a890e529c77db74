//! The log: one line for each event, fields and not prose.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::Mutex;

use tracing_subscriber::filter::LevelFilter;

use super::Fault;

/// Opens the log of this process: `level` as in the setting `loglevel`, `path` a file or empty for the standard output.
///
/// # Errors
/// When the file cannot be opened.
pub(super) fn open(level: &str, path: &str) -> Result<(), Fault> {
    let filter = match level {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        "nothing" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    };
    let log = tracing_subscriber::fmt().with_max_level(filter).with_target(false).log_internal_errors(false);
    if path.is_empty() {
        log.with_ansi(std::io::stdout().is_terminal()).init();
    } else {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file =
            file.map_err(|error| format!("logfile '{path}': must be a file that can be written: {error}"))?;
        log.with_ansi(false).with_writer(Mutex::new(file)).init();
    }
    Ok(())
}
