//! The metrics table: every figure that the server gives of itself, once. INFO is a loop over it, and so is the text that
//! Prometheus reads.
//!
//! Owns    [`Metric`] and [`Snapshot`], what the figures are read from; the rows stand in `metrics_table`.
//! Rule    one look at the clients, the shards and the process serves all rows of one answer, so that they agree.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock::{LockTime, Process};
use crate::commands::Shared;
use crate::keyspace::Counts;
use crate::state::clients::Client;

/// One figure.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Metric {
    /// Its name: Redis' where Redis has it.
    pub(in crate::commands) name: &'static str,
    /// How it moves.
    pub(in crate::commands) kind: Kind,
    /// What it says, in one sentence; empty for a fact, whose name says it.
    pub(in crate::commands) help: &'static str,
    /// Its value as text.
    pub(in crate::commands) read: fn(&Snapshot<'_>) -> String,
}

/// How a figure moves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::commands) enum Kind {
    /// It only grows, until CONFIG RESETSTAT or the end.
    Counter,
    /// It says what is.
    Fact,
    /// It grows and shrinks.
    Gauge,
    /// It belongs to something that this server does not have, and is always this: tools look for it all the same.
    Never,
}

/// Everything the rows read, as of one moment.
pub(in crate::commands) struct Snapshot<'s> {
    pub(in crate::commands) shared: &'s Shared,
    pub(in crate::commands) now: LockTime,
    pub(in crate::commands) process: Process,
    pub(in crate::commands) counts: Counts,
    /// Bytes that all clients hold.
    pub(in crate::commands) buffer_bytes: u64,
    /// Keys, values, scripts and clients.
    pub(in crate::commands) used_bytes: u64,
    /// The most that was ever used, as far as anybody looked.
    pub(in crate::commands) peak_bytes: u64,
    /// What the process has in RAM.
    pub(in crate::commands) resident_bytes: u64,
    /// Clients whose call waits, or whose request a pause holds back.
    pub(in crate::commands) held: usize,
    /// Clients whose call waits for a limited time.
    pub(in crate::commands) waiting: usize,
    /// The longest input and output buffer of a client.
    pub(in crate::commands) longest_buffers: [u64; 2],
    /// Commands, bytes received, bytes sent.
    pub(in crate::commands) traffic: [u64; 3],
    /// The same in a second.
    pub(in crate::commands) rates: [f64; 3],
}

impl<'s> Snapshot<'s> {
    pub(in crate::commands) fn take(shared: &'s Shared, counts: Counts, now: LockTime) -> Self {
        let process = shared.process();
        let clients = shared.audience.clients.all();
        let longest =
            |bytes: fn(&Client) -> u64| clients.iter().map(|client| bytes(client)).max().unwrap_or(0);
        let buffer_bytes = buffered(&clients);
        let used_bytes = [counts.bytes as u64, buffer_bytes, shared.scripts.bytes() as u64].iter().sum();
        let traffic = shared.metrics.traffic();
        Self {
            shared,
            now,
            counts,
            buffer_bytes,
            used_bytes,
            peak_bytes: shared.metrics.peak_bytes.see(used_bytes),
            resident_bytes: if process.resident_bytes > 0 { process.resident_bytes } else { used_bytes },
            process,
            held: clients.iter().filter(|client| client.is_blocked()).count(),
            waiting: clients.iter().filter(|client| client.waits_until().is_some()).count(),
            longest_buffers: [
                longest(|client| client.query_bytes.load(Relaxed)),
                longest(|client| client.reply_bytes.load(Relaxed)),
            ],
            traffic,
            rates: shared.metrics.rates.per_sec(now.as_millis(), traffic),
        }
    }

    /// Seconds since the server started.
    pub(in crate::commands) fn uptime_secs(&self) -> u64 {
        self.now.millis_since(self.shared.started) / 1000
    }
}

/// Bytes that all clients hold.
pub(in crate::commands) fn client_bytes(shared: &Shared) -> u64 {
    buffered(&shared.audience.clients.all())
}

fn buffered(clients: &[Arc<Client>]) -> u64 {
    clients.iter().map(|client| client.held_bytes()).sum()
}

/// A figure that only grows.
pub(in crate::commands) const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&Snapshot<'_>) -> String,
) -> Metric {
    Metric { name, kind: Kind::Counter, help, read }
}

/// A figure that grows and shrinks.
pub(in crate::commands) const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&Snapshot<'_>) -> String,
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read }
}

/// What is so, and stays so or changes with a setting.
pub(in crate::commands) const fn fact(name: &'static str, read: fn(&Snapshot<'_>) -> String) -> Metric {
    Metric { name, kind: Kind::Fact, help: "", read }
}

/// Zero of what this server does not have.
pub(in crate::commands) const fn zero(name: &'static str) -> Metric {
    Metric { name, kind: Kind::Never, help: "", read: |_| "0".to_owned() }
}

/// What this server does not have, and how Redis says that there is none.
pub(in crate::commands) const fn never(name: &'static str, read: fn(&Snapshot<'_>) -> String) -> Metric {
    Metric { name, kind: Kind::Never, help: "", read }
}

/// The value of a row.
pub(in crate::commands) fn show(value: impl Display) -> String {
    value.to_string()
}

/// A part in a hundred.
pub(in crate::commands) fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Microseconds as seconds.
pub(in crate::commands) fn secs(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// Bytes as people read them: `943.07K`.
pub(in crate::commands) fn human(bytes: u64) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = UNITS.iter().peekable();
    let mut unit = units.next().unwrap_or(&'K');
    while value >= 1024.0
        && let Some(larger) = units.next()
    {
        value /= 1024.0;
        unit = larger;
    }
    format!("{value:.2}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_as_people_read_them() {
        let seen = [0, 1023, 1024, 965_704, 1 << 20, u64::MAX].map(human);
        assert_eq!(seen, ["0B", "1023B", "1.00K", "943.07K", "1.00M", "16384.00P"]);
    }
}
