//! The metric families of a server, as a monitoring system collects them.
//!
//! Owns    [`FAMILIES`], the rows with labels and histograms. All others are the rows of the metrics table that change.
//! Rule    the values of a label come from a fixed set: kinds of locks, outcomes, priorities, names of commands, and the
//!         prefixes that the operator has listed. Keys, owners and names of clients are no labels.

use std::sync::atomic::Ordering::Relaxed;

use crate::commands::Shared;
use crate::commands::admin::metrics::{Kind, Metric, Snapshot};
use crate::commands::admin::metrics_table::SECTIONS;
use crate::locks::{Durations, GroupCounts, Waited};
use crate::state::metrics::CommandStats;
use crate::state::settings::OTHER_PREFIX;
use crate::types::lock::LockKind;

/// One metric family, as of one moment.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name, without the name of the program before it, and without the suffix of a counter.
    pub name: &'static str,
    /// Its meaning, in one sentence.
    pub help: &'static str,
    pub kind: FamilyKind,
    /// A value for each set of labels.
    pub samples: Vec<Sample>,
}

/// What the samples of a family are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FamilyKind {
    /// Numbers that only grow, until CONFIG RESETSTAT.
    Counter,
    /// Numbers that grow and shrink.
    Gauge,
    Histogram,
}

/// One value of a family.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The name of a label and its value, unless the family has no labels.
    pub label: Option<(&'static str, String)>,
    pub value: Value,
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Integer(u64),
    Number(f64),
    Durations(Durations),
}

/// The row of a family.
struct FamilyRow {
    name: &'static str,
    kind: FamilyKind,
    help: &'static str,
    read: fn(&Snapshot<'_>) -> Vec<Sample>,
}

/// The families that INFO does not have, because they have labels or are histograms.
const FAMILIES: &[FamilyRow] = &[
    gauge("locks_held", "Keys that are locks, by kind.", |seen| {
        by_kind(seen.counts.locks.held.map(|count| count as u64))
    }),
    counter("lock_acquired", "Grants of locks, by kind. A renewal is no grant.", |seen| {
        by_kind(seen.counts.locks.acquired)
    }),
    counter("lock_refused", "Requests for locks that were not granted.", |seen| {
        one(seen.counts.locks.refused)
    }),
    gauge("lock_waiting", "Requests that wait in the queue of a lock, by priority.", |seen| {
        let counts = seen.shared.locks.waits.by_priority().into_iter().enumerate();
        counts.map(|(level, count)| labeled("priority", level.to_string(), Value::Integer(count))).collect()
    }),
    histogram("lock_wait_seconds", "Time that requests waited in the queue of a lock, by outcome.", |seen| {
        let waits = Waited::NAMES.into_iter().zip(seen.counts.locks.waits);
        waits.map(|(name, durations)| labeled("outcome", name, Value::Durations(durations))).collect()
    }),
    histogram("lock_hold_seconds", "Time from the grant of a lock to its end.", |seen| {
        vec![Sample { label: None, value: Value::Durations(seen.counts.locks.hold) }]
    }),
    histogram(
        "lock_handover_seconds",
        "Time from the end of a lock to its next grant, to a client that had waited for it or polled it.",
        |seen| vec![Sample { label: None, value: Value::Durations(seen.counts.locks.handover) }],
    ),
    counter(
        "locks_deleted_by_others",
        "Locks whose key was deleted or overwritten by another client than their holder.",
        |seen| one(seen.counts.locks.deleted_by_others),
    ),
    gauge("lock_queue_longest", "Calls in the longest queue of a lock.", |seen| {
        one(seen.counts.lock_queue_longest as u64)
    }),
    gauge("lock_prefix_held", "Keys that are locks, by the prefixes of lock-metrics-prefix.", |seen| {
        by_prefix(seen, |counts| counts.held as u64)
    }),
    counter("lock_prefix_acquired", "Grants of locks, by the prefixes of lock-metrics-prefix.", |seen| {
        by_prefix(seen, |counts| counts.acquired)
    }),
    counter(
        "lock_prefix_refused",
        "Requests for locks that were held, by the prefixes of lock-metrics-prefix.",
        |seen| by_prefix(seen, |counts| counts.refused),
    ),
    counter(
        "lock_prefix_expired",
        "Locks that ended because their lease had ended, by the prefixes of lock-metrics-prefix.",
        |seen| by_prefix(seen, |counts| counts.expired),
    ),
    counter("command_calls", "Calls of each command that was called.", |seen| {
        by_command(seen, |stats| Value::Integer(stats.calls.get()))
    }),
    counter(
        "command_seconds",
        "Time spent in each command, estimated from the calls that were timed.",
        |seen| by_command(seen, |stats| Value::Number(stats.rising_micros() as f64 / 1e6)),
    ),
    counter("command_failed", "Calls of each command that were refused or answered with an error.", |seen| {
        by_command(seen, |stats| Value::Integer(stats.failed.get() + stats.rejected.get()))
    }),
    gauge(
        "journal_refuses_writes",
        "1 while writes are refused because the journal cannot be written.",
        |seen| one(u64::from(seen.shared.locks.quarantine.disk_error().is_some())),
    ),
    gauge("journal_enabled", "1 if there is a journal.", |seen| one(u64::from(seen.journal.is_some()))),
    gauge("not_ready", "1 while locks are not granted for this reason; /readyz says it.", |seen| {
        let reasons = seen.shared.reasons_not_ready(seen.now);
        reasons.map(|(reason, is_so)| labeled("reason", reason, Value::Integer(u64::from(is_so)))).collect()
    }),
    gauge("beside_in_gap", "1 while `redlatch beside` cannot read all locks of the other server.", |seen| {
        one(u64::from(seen.shared.beside.as_ref().is_some_and(|beside| beside.is_in_gap.load(Relaxed))))
    }),
    gauge("leads", "1 if this server leads, as one by itself does; 0: it is a standby of a cluster.", |_| {
        one(1)
    }),
    gauge(
        "cluster_restored",
        "1 while no node of the cluster leads, because etcd was restored from an older state and nobody has accepted that.",
        |seen| one(u64::from(seen.shared.cluster.as_ref().is_some_and(|cluster| cluster.is_restored()))),
    ),
    gauge("build_info", "1, with the version of the server.", |_| {
        vec![labeled("version", env!("CARGO_PKG_VERSION"), Value::Integer(1))]
    }),
];

/// Every family, as of now. Waits for no script: the counters of its shards are those of its beginning.
pub fn families(shared: &Shared) -> Vec<Family> {
    let snapshot = Snapshot::take(shared, shared.keyspace.counts(), shared.clock.now().lock);
    let rows = SECTIONS.iter().flat_map(|section| section.rows);
    let plain = rows.filter_map(|row| family_of(row, &snapshot));
    let labeled = FAMILIES.iter().map(|row| {
        let &FamilyRow { name, help, kind, read } = row;
        Family { name, help, kind, samples: read(&snapshot) }
    });
    plain.chain(labeled).filter(|family| !family.samples.is_empty()).collect()
}

/// The family that a row of the metrics table is, unless its value is a constant or a family with labels tells more.
fn family_of(row: &Metric, snapshot: &Snapshot<'_>) -> Option<Family> {
    let kind = match row.kind {
        Kind::Counter => FamilyKind::Counter,
        Kind::Gauge => FamilyKind::Gauge,
        Kind::Fact | Kind::Never | Kind::Sum => return None,
    };
    let text = (row.read)(snapshot);
    let value = text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Number)).ok()?;
    let samples = vec![Sample { label: None, value }];
    Some(Family { name: exported_name(row), help: row.help, kind, samples })
}

/// The name of a row outside of INFO: every counter has the suffix `_total` there, so it needs no such word before it.
fn exported_name(row: &Metric) -> &'static str {
    row.name.strip_prefix("total_").filter(|_| row.kind == Kind::Counter).unwrap_or(row.name)
}

fn one(value: u64) -> Vec<Sample> {
    vec![Sample { label: None, value: Value::Integer(value) }]
}

fn labeled(label: &'static str, value: impl Into<String>, sample: Value) -> Sample {
    Sample { label: Some((label, value.into())), value: sample }
}

fn by_kind(counts: [u64; LockKind::NAMES.len()]) -> Vec<Sample> {
    let named = LockKind::NAMES.into_iter().zip(counts);
    named.map(|(name, count)| labeled("kind", name, Value::Integer(count))).collect()
}

fn by_prefix(seen: &Snapshot<'_>, read: fn(&GroupCounts) -> u64) -> Vec<Sample> {
    let name = |prefix: Option<&bytes::Bytes>| {
        prefix.map_or(OTHER_PREFIX.into(), |prefix| String::from_utf8_lossy(prefix).into_owned())
    };
    let all = seen.counts.lock_groups.iter().flat_map(|groups| groups.all());
    all.map(|(prefix, counts)| labeled("prefix", name(prefix), Value::Integer(read(counts)))).collect()
}

fn by_command(seen: &Snapshot<'_>, read: fn(&CommandStats) -> Value) -> Vec<Sample> {
    let stats = |index: u16| &seen.shared.stats.commands[usize::from(index)];
    let was_called = |stats: &CommandStats| stats.calls.get() > 0 || stats.rejected.get() > 0;
    let called = seen.shared.commands.all().filter(|command| was_called(stats(command.index)));
    called.map(|command| labeled("command", &*command.name, read(stats(command.index)))).collect()
}

const fn counter(
    name: &'static str,
    help: &'static str,
    read: fn(&Snapshot<'_>) -> Vec<Sample>,
) -> FamilyRow {
    FamilyRow { name, kind: FamilyKind::Counter, help, read }
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Snapshot<'_>) -> Vec<Sample>) -> FamilyRow {
    FamilyRow { name, kind: FamilyKind::Gauge, help, read }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    read: fn(&Snapshot<'_>) -> Vec<Sample>,
) -> FamilyRow {
    FamilyRow { name, kind: FamilyKind::Histogram, help, read }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_family_has_a_help_sentence() {
        let is_exported = |row: &&Metric| matches!(row.kind, Kind::Counter | Kind::Gauge);
        let plain = SECTIONS.iter().flat_map(|section| section.rows).filter(is_exported);
        let plain = plain.map(|row| (exported_name(row), row.help));
        let all: Vec<_> = plain.chain(FAMILIES.iter().map(|row| (row.name, row.help))).collect();
        for (index, (name, help)) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|(other, _)| other != name), "{name}: twice");
            assert!(help.ends_with('.'), "{name}: no sentence");
            assert!(!name.ends_with("_total") && !name.ends_with("_sum"), "{name}: a suffix of the format");
        }
    }

    #[test]
    fn a_histogram_is_one_of_seconds() {
        for row in FAMILIES.iter().filter(|row| row.kind == FamilyKind::Histogram) {
            assert!(row.name.ends_with("_seconds"), "{}", row.name);
        }
    }
}
