//! INFO: the metrics table in sections.
//!
//! Owns    the sections that have a row for each command, error or database.
//! Source  Redis 7.0 `genRedisInfoString`: which sections `default`, `all` and `everything` mean.

use std::fmt::{Display, Write as _};

use redlatch_proto::error::Refusal;

use crate::commands::admin::metrics::Snapshot;
use crate::commands::admin::metrics_table::{SECTIONS, Section};
use crate::commands::row::{Flags, Group, Row, text};
use crate::commands::{Call, Outcome, Shared};

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Server, "INFO", "1.0.0", info)
    .summary("Returns facts and statistics about the server, by section.")
    .flags(Flags::LOADING.with(Flags::STALE).with(Flags::DANGEROUS).with(Flags::LINEAR).with(Flags::SUMS))
    .args(&[text("section").maybe().many()])];

fn info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut asked: Vec<&[u8]> = call.args.rest().collect();
    if asked.is_empty() {
        asked.push(b"default");
    }

    let snapshot = Snapshot::take(call.shared, call.view.whole().counts(), call.now.lock);
    let mut fields = Fields::default();
    let beside = call.shared.beside.is_some().then_some(&BESIDE);
    for section in SECTIONS.iter().chain(beside).filter(|section| section.is_among(&asked)) {
        if !fields.0.is_empty() {
            fields.0.push_str("\r\n");
        }
        // Writing to a String cannot fail.
        let _ = write!(fields.0, "# {}\r\n", section.title);
        for row in section.rows {
            fields.put(row.name, (row.read)(&snapshot));
        }
        match section.title {
            "Beside" => of_beside(&mut fields, call.shared),
            "Commandstats" => command_stats(&mut fields, call.shared),
            "Errorstats" => error_stats(&mut fields, call.shared),
            "Keyspace" => keyspace(&mut fields, call),
            "Latencystats" => latency_stats(&mut fields, call.shared),
            _ => {}
        }
    }

    call.reply.verbatim(&fields.0);
    Ok(Outcome::Replied)
}

/// The section of a server that shows the locks of another one.
const BESIDE: Section = Section { title: "Beside", is_default: true, rows: &[] };

impl Section {
    fn is_among(&self, asked: &[&[u8]]) -> bool {
        let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        asked.iter().any(|word| {
            is(word, self.title)
                || is(word, "all")
                || is(word, "everything")
                || (is(word, "default") && self.is_default)
        })
    }
}

/// The lines of a section.
#[derive(Default)]
struct Fields(String);

impl Fields {
    fn put(&mut self, name: &str, value: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }
}

fn of_beside(fields: &mut Fields, shared: &Shared) {
    for (name, value) in shared.beside.iter().flat_map(|beside| beside.fields()) {
        fields.put(name, value);
    }
}

fn command_stats(fields: &mut Fields, shared: &Shared) {
    for command in shared.commands.all() {
        let stats = &shared.stats.commands[usize::from(command.index)];
        let (calls, micros) = (stats.calls.get(), stats.micros());
        let (rejected, failed) = (stats.rejected.get(), stats.failed.get());
        if [calls, rejected, failed].iter().any(|count| *count > 0) {
            let each = stats.micros_per_call();
            let text = format!(
                "calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
            );
            fields.put(&format!("cmdstat_{}", command.name), text);
        }
    }
}

fn error_stats(fields: &mut Fields, shared: &Shared) {
    for (code, count) in shared.stats.metrics.error_codes.all() {
        fields.put(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latency_stats(fields: &mut Fields, shared: &Shared) {
    for command in shared.commands.all() {
        let histogram = &shared.stats.commands[usize::from(command.index)].histogram;
        if histogram.cumulative().is_empty() {
            continue;
        }
        let parts = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)]
            .map(|(name, percent)| format!("{name}={:.3}", histogram.percentile(percent)));
        fields.put(&format!("latency_percentiles_usec_{}", command.name), parts.join(","));
    }
}

fn keyspace(fields: &mut Fields, call: &mut Call<'_, '_>) {
    for database in 0..call.shared.keyspace.databases() {
        let (keys, deadlines) = call.view.whole().known_size(database);
        if keys > 0 {
            let ttl = match deadlines {
                0 => 0,
                _ => call.view.whole().average_ttl_ms(database, call.shared.random.next()),
            };
            fields
                .put(&format!("db{database}"), format_args!("keys={keys},expires={deadlines},avg_ttl={ttl}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_found_by_any_of_its_names() {
        let shown = |asked: &[&[u8]]| SECTIONS.iter().filter(|section| section.is_among(asked)).count();
        assert_eq!(shown(&[b"KEYSPACE"]), 1);
        assert_eq!(shown(&[b"keyspace", b"cpu", b"nope"]), 2);
        assert_eq!(shown(&[b"all"]), SECTIONS.len());
        assert_eq!(
            shown(&[b"default"]),
            SECTIONS.len() - 3,
            "commands, latencies and nodes are shown on request"
        );
    }
}
