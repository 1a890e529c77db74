//! The log: one line for each event, fields and not prose. docs/logging.md is the reference.
//!
//! Rule    spans are no part of it, and neither are the events of libraries, unless they warn of something.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use super::log_file::LogFile;
use crate::common::Fault;

/// Applies another value of the setting `loglevel`.
pub(super) type SetLevel = Box<dyn Fn(&str) + Send + Sync>;

pub(super) type Spans = Box<dyn Layer<Registry> + Send + Sync>;

pub(super) enum Output {
    File(Arc<LogFile>),
    Nowhere,
}

impl Output {
    /// `path` is a file or empty. Then the log goes to the standard output, unless that has `other_lines` for a program.
    ///
    /// # Errors
    /// The file or the standard output cannot be opened.
    pub(super) fn new(path: &str, other_lines: bool) -> Result<Self, Fault> {
        Ok(match (path, other_lines) {
            ("", false) => Self::File(Arc::new(LogFile::stdout()?)),
            ("", true) => Self::Nowhere,
            (path, _) => Self::File(Arc::new(LogFile::open(path)?)),
        })
    }

    /// The open log, if there is one.
    pub(super) fn file(&self) -> Option<Arc<LogFile>> {
        match self {
            Self::File(file) => Some(Arc::clone(file)),
            Self::Nowhere => None,
        }
    }
}

/// Opens the log of this process; `level` and `format` as in the settings `loglevel` and `log-format`, but for `auto`.
/// `spans` gets the spans, if anybody wants them.
pub(super) fn open(level: &str, format: &str, output: Output, spans: Option<Spans>) -> SetLevel {
    let (filter, handle) = reload::Layer::new(EventFilter::of(level));
    let (writer, is_colored) = match output {
        Output::Nowhere => (BoxMakeWriter::new(std::io::sink), false),
        Output::File(file) => {
            let is_terminal = file.is_terminal();
            (BoxMakeWriter::new(file), is_terminal)
        }
    };
    let lines = fmt::layer().with_target(false).log_internal_errors(false).with_writer(writer);
    let lines = match format {
        "json" => {
            let lines = lines.with_ansi(false).json().flatten_event(true);
            lines.with_current_span(false).with_span_list(false).boxed()
        }
        "redis" => lines.with_ansi(false).event_format(RedisLines::default()).boxed(),
        _ => lines.with_ansi(is_colored).boxed(),
    };
    tracing_subscriber::registry().with(spans).with(lines.with_filter(filter)).init();
    // The log lives as long as the process, so that there is always something to reload.
    Box::new(move |level| drop(handle.reload(EventFilter::of(level))))
}

/// Opens the log of a subcommand that serves: at the level `notice`, on the standard output.
///
/// # Errors
/// The standard output cannot be opened.
pub(crate) fn log_to_stdout() -> Result<(), Fault> {
    drop(open("notice", "auto", Output::new("", false)?, None));
    Ok(())
}

/// Which events are lines of the log.
#[derive(Clone, Copy, Debug)]
struct EventFilter(LevelFilter);

impl EventFilter {
    fn of(level: &str) -> Self {
        Self(match level {
            "debug" => LevelFilter::TRACE,
            "verbose" => LevelFilter::DEBUG,
            "warning" => LevelFilter::WARN,
            _ => LevelFilter::INFO,
        })
    }

    fn admits(self, metadata: &Metadata<'_>) -> bool {
        let is_own = metadata.target().starts_with("redlatch");
        metadata.is_event() && *metadata.level() <= self.0 && (is_own || *metadata.level() <= Level::WARN)
    }
}

impl<S> Filter<S> for EventFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.admits(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.admits(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }
}

/// Lines as Redis writes them: `PID:M 24 Nov 2026 12:00:00.123 * message`. The fields follow the message, as in the format
/// `text`. The time is UTC.
#[derive(Debug)]
struct RedisLines {
    pid: u32,
}

impl Default for RedisLines {
    fn default() -> Self {
        Self { pid: std::process::id() }
    }
}

impl<S, N> FormatEvent<S, N> for RedisLines
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let sign = match *event.metadata().level() {
            Level::TRACE => '.',
            Level::DEBUG => '-',
            Level::INFO => '*',
            Level::WARN | Level::ERROR => '#',
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, others } = fields;
        writeln!(line, "{}:M {} {sign} {message}{others}", self.pid, redis_time(unix_ms))
    }
}

/// The message of an event, and ` name=value` for each of its other fields.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.others, " {name}={value:?}"),
        };
    }
}

/// `24 Nov 2026 12:00:00.123`, in UTC.
fn redis_time(unix_ms: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (mut year, mut day) = (1970, days);
    while day >= days_of_year(year) {
        day -= days_of_year(year);
        year += 1;
    }
    let mut month = 0;
    while day >= days_of_month(year, month) {
        day -= days_of_month(year, month);
        month += 1;
    }
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{:02} {} {year} {hour:02}:{minute:02}:{second:02}.{:03}", day + 1, MONTHS[month], ms % 1_000)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

/// `month` counts from 0.
fn days_of_month(year: u64, month: usize) -> u64 {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    DAYS[month] + u64::from(month == 1 && is_leap(year))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_redis() {
        let times = [0, 951_782_399_999, 951_782_400_000, 951_868_800_000, 1_795_521_600_123].map(redis_time);
        let expected = [
            "01 Jan 1970 00:00:00.000", "28 Feb 2000 23:59:59.999", "29 Feb 2000 00:00:00.000",
            "01 Mar 2000 00:00:00.000", "24 Nov 2026 12:00:00.123",
        ];
        assert_eq!(times, expected);
    }
}
