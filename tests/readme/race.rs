//! The chapter on speed: its table and its picture are those of the results that are kept.

use std::path::Path;

use crate::compare::results::Results;
use crate::compare::{plot, table};

/// Where the picture is, from the root of the repository.
pub(crate) const PLOT: &str = "benches/results/plot.svg";
/// Where the tables are besides the README.
pub(crate) const TABLE: &str = "benches/results/table.md";

/// The chapter's tables.
pub(crate) fn tables() -> String {
    table::markdown(&kept())
}

/// The chapter's picture.
pub(crate) fn drawing() -> String {
    plot::svg(&kept())
}

fn kept() -> Results {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results/results.json");
    Results::read(&file).expect("`cargo bench --bench compare -- --out benches/results` writes it")
}
