//! The metrics table's types: INFO and the metric families are loops over the table.
//!
//! Owns    [`Metric`], a row, and [`Snapshot`], the values that rows read. The rows are in `metrics_table`.
//! Rule    all rows of one reply read one snapshot of clients, shards and process.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::clock::{LockTime, Process};
use redlatch_proto::number::total;

use crate::commands::Shared;
use crate::commands::admin::persistence;
use crate::journal::log::{Log, Status};
use crate::keyspace::Counts;
use crate::state::clients::Client;
use crate::state::cluster::ClusterFacts;
use crate::state::ledger;
use crate::state::running::Script;

#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Metric {
    /// Its name, as in INFO of Redis if Redis has it.
    pub(in crate::commands) name: &'static str,
    pub(in crate::commands) kind: Kind,
    /// Its meaning in one sentence; empty for a fact.
    pub(in crate::commands) help: &'static str,
    pub(in crate::commands) read: fn(&Snapshot<'_>) -> String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::commands) enum Kind {
    /// It only grows, until CONFIG RESETSTAT.
    Counter,
    /// It is constant, or changes with a setting.
    Fact,
    Gauge,
    /// A family with labels tells more than this number, which is for INFO alone.
    Sum,
    /// It belongs to a feature that this server does not have. It is constant and present because tools read it.
    Never,
}

/// All values that the rows read, as of one moment.
pub(in crate::commands) struct Snapshot<'s> {
    pub(in crate::commands) shared: &'s Shared,
    pub(in crate::commands) now: LockTime,
    pub(in crate::commands) process: Process,
    pub(in crate::commands) counts: Counts,
    /// Bytes of the buffers of all clients.
    pub(in crate::commands) buffer_bytes: u64,
    /// Keys, values, scripts, clients, and what is held for clients.
    pub(in crate::commands) used_bytes: u64,
    /// The highest value of `used_bytes` seen so far.
    pub(in crate::commands) peak_bytes: u64,
    /// Resident bytes of the process.
    pub(in crate::commands) resident_bytes: u64,
    /// Clients whose call is parked, or whose request a pause delays.
    pub(in crate::commands) held: usize,
    /// Clients whose parked call has a time limit.
    pub(in crate::commands) waiting: usize,
    /// The longest input and output buffer of a client.
    pub(in crate::commands) longest_buffers: [u64; 2],
    /// Commands, bytes received, bytes sent.
    pub(in crate::commands) traffic: [u64; 3],
    /// The figures of `traffic`, per second.
    pub(in crate::commands) rates: [f64; 3],
    /// The journal, if there is one.
    pub(in crate::commands) journal: Option<Status>,
}

impl<'s> Snapshot<'s> {
    pub(in crate::commands) fn take(shared: &'s Shared, counts: Counts, now: LockTime) -> Self {
        let process = shared.instance.process();
        let clients = shared.registries.clients.all();
        let longest =
            |bytes: fn(&Client) -> u64| clients.iter().map(|client| bytes(client)).max().unwrap_or(0);
        let buffer_bytes = client_bytes(shared, &clients);
        let (scripts, held) = (shared.scripts.cache.bytes() as u64, shared.keyspace.ledger().total());
        let used_bytes = shared.with_namespaces(total([counts.bytes as u64, buffer_bytes, scripts, held]));
        let traffic = shared.stats.metrics.traffic();
        Self {
            shared,
            now,
            counts,
            buffer_bytes,
            used_bytes,
            peak_bytes: shared.stats.metrics.peak_bytes.raise_to(used_bytes),
            resident_bytes: if process.resident_bytes > 0 { process.resident_bytes } else { used_bytes },
            process,
            held: clients.iter().filter(|client| client.is_blocked()).count(),
            waiting: clients.iter().filter(|client| client.waits_until().is_some()).count(),
            longest_buffers: [
                longest(|client| client.buffers.query_bytes.load(Relaxed)),
                longest(|client| client.buffers.reply_bytes.load(Relaxed)),
            ],
            traffic,
            rates: shared.stats.metrics.rates.per_sec(now.as_millis(), traffic),
            journal: persistence::journal(shared).map(Log::status),
        }
    }

    /// Bytes that are held for clients, of a kind.
    pub(in crate::commands) fn held(&self, kind: ledger::Kind) -> u64 {
        self.shared.held(kind)
    }

    /// A number that the journal knows; zero without one.
    pub(in crate::commands) fn journal(&self, read: fn(&Status) -> u64) -> u64 {
        self.journal.as_ref().map_or(0, read)
    }

    /// A number that the cluster knows; zero without one.
    pub(in crate::commands) fn cluster(&self, read: fn(&ClusterFacts) -> u64) -> u64 {
        self.shared.cluster.as_deref().map_or(0, read)
    }

    /// The Unix second of the last sync; without a journal, that of the start.
    pub(in crate::commands) fn saved_unix_secs(&self) -> u64 {
        let saved = self.journal.as_ref().map_or(self.shared.instance.started, |journal| journal.synced_at);
        let ago_ms = self.now.millis_since(saved);
        (self.shared.clock.wall_micros() / 1000).saturating_sub(ago_ms) / 1000
    }

    /// The script that runs, and for how many milliseconds it does.
    pub(in crate::commands) fn running_script(&self) -> Option<(Script, u64)> {
        self.shared.scripts.running.script_and_age(self.now)
    }

    /// Seconds since the server started.
    pub(in crate::commands) fn uptime_secs(&self) -> u64 {
        self.now.millis_since(self.shared.instance.started) / 1000
    }

    /// Milliseconds until the quarantine ends, if there is one.
    pub(in crate::commands) fn quarantine_left_ms(&self) -> Option<u64> {
        self.shared.locks.quarantine.until(self.now).map(|until| until.millis_since(self.now))
    }
}

/// Bytes of the buffers of all clients. `maxmemory` counts the same from now on, so that nothing is refused for memory that a
/// reader of this figure has seen free.
pub(in crate::commands) fn client_bytes(shared: &Shared, clients: &[Arc<Client>]) -> u64 {
    let bytes = total(clients.iter().map(|client| client.buffer_bytes()));
    shared.stats.metrics.client_bytes.store(bytes, Relaxed);
    bytes
}

pub(in crate::commands) const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&Snapshot<'_>) -> String,
) -> Metric {
    Metric { name, kind: Kind::Counter, help, read }
}

pub(in crate::commands) const fn gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&Snapshot<'_>) -> String,
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read }
}

/// A number that a family with labels replaces outside of INFO.
pub(in crate::commands) const fn sum(
    name: &'static str,
    help: &'static str,
    read: fn(&Snapshot<'_>) -> String,
) -> Metric {
    Metric { name, kind: Kind::Sum, help, read }
}

pub(in crate::commands) const fn fact(name: &'static str, read: fn(&Snapshot<'_>) -> String) -> Metric {
    Metric { name, kind: Kind::Fact, help: "", read }
}

/// A zero for a feature that this server does not have.
pub(in crate::commands) const fn zero(name: &'static str) -> Metric {
    Metric { name, kind: Kind::Never, help: "", read: |_| "0".to_owned() }
}

/// A constant for a feature that this server does not have.
pub(in crate::commands) const fn never(name: &'static str, read: fn(&Snapshot<'_>) -> String) -> Metric {
    Metric { name, kind: Kind::Never, help: "", read }
}

/// The value of a row.
pub(in crate::commands) fn show(value: impl Display) -> String {
    value.to_string()
}

/// A ratio in percent.
pub(in crate::commands) fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Milliseconds as seconds.
pub(in crate::commands) fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

/// Microseconds as seconds.
pub(in crate::commands) fn secs(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// Bytes with a unit: `943.07K`.
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
    fn bytes_are_written_with_a_unit() {
        let seen = [0, 1023, 1024, 965_704, 1 << 20, u64::MAX].map(human);
        assert_eq!(seen, ["0B", "1023B", "1.00K", "943.07K", "1.00M", "16384.00P"]);
    }
}
