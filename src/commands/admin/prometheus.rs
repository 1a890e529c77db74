//! The metrics as the text that Prometheus reads.

use std::fmt::Write as _;

use crate::commands::Shared;
use crate::commands::admin::metrics::{Kind, Snapshot};
use crate::commands::admin::metrics_table::SECTIONS;

/// The figures that move, in Prometheus' text format: names as in INFO, with `redlatch_` before them.
pub fn prometheus(shared: &Shared) -> String {
    let snapshot = Snapshot::take(shared, shared.keyspace.counts(), shared.clock.now().lock);
    let mut text = String::new();
    for row in SECTIONS.iter().flat_map(|section| section.rows) {
        let kind = match row.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Fact | Kind::Never => continue,
        };
        let (name, help, value) = (row.name, row.help, (row.read)(&snapshot));
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "# HELP redlatch_{name} {help}\n# TYPE redlatch_{name} {kind}\nredlatch_{name} {value}\n"
        );
    }
    text
}
