//! The log: one line for each event, fields and not prose.
//!
//! Rule    `loglevel` may change while the server runs, so an event asks the server for it, once there is one. Events
//!         are rare: a connection's faults, never a command.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::Fault;
use crate::commands::Shared;
use crate::state::settings::Settings;

/// The server whose settings the log follows, from the moment that there is one.
pub(super) type Followed = Arc<OnceLock<Arc<Shared>>>;

/// Opens the log of this process, as `settings` say.
///
/// # Errors
/// When its file cannot be opened.
pub(super) fn open(settings: &Settings) -> Result<Followed, Fault> {
    let followed = Followed::default();
    let first = level(&settings.text("loglevel"));
    let server = Arc::clone(&followed);
    let filter = dynamic_filter_fn(move |event, _| {
        let now = server.get().map_or(first, |shared| level(&shared.settings.text("loglevel")));
        *event.level() <= now
    });
    let lines = layer().with_target(false).log_internal_errors(false);
    let path = settings.text("logfile");
    if path.is_empty() {
        let lines = lines.with_ansi(std::io::stdout().is_terminal());
        tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    } else {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file =
            file.map_err(|error| format!("logfile '{path}': must be a file that can be written: {error}"))?;
        let lines = lines.with_ansi(false).with_writer(Mutex::new(file));
        tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    }
    Ok(followed)
}

fn level(word: &str) -> LevelFilter {
    match word {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        _ => LevelFilter::INFO,
    }
}
