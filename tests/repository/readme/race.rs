//! Benchmarks in the documents: tables and plot match the stored results.

use std::path::Path;

use crate::compare::results::Results;
use crate::compare::{plot, table};

/// The plot, from the root of the repository.
pub(crate) const PLOT: &str = "benches/results/plot.svg";
/// The file besides docs/benchmarks.md that has the tables.
pub(crate) const TABLE: &str = "benches/results/table.md";

/// All figures of clusters, from the root of the repository.
pub(crate) const CLUSTER_TABLES: &str = "benches/results/replicated.md";

pub(crate) fn tables() -> String {
    table::markdown(&kept())
}

/// The table of README.md: the requests of lock clients, and a server's memory before the first request.
pub(crate) fn main_rows() -> String {
    const SERVERS: [&str; 4] = ["redlatch", "redis 7", "valkey", "kevy"];
    let kept = kept();
    let mut text = format!(
        "\n| us of the server's CPU per request: one at a time / pipelined by 16 | {} |\n|---|---:|---:|---:|---:|\n",
        SERVERS.join(" | ")
    );
    let median = |load: &str, what: &str, server: &str| {
        let figure = kept.figure(load, what).unwrap_or_else(|| panic!("{load} has no {what}"));
        match figure.median(server) {
            None => "-".to_owned(),
            Some(median) if median < 10.0 => format!("{median:.2}"),
            Some(median) => format!("{median:.0}"),
        }
    };
    for (load, title) in [
        ("acquire", "take a lock: `SET NX PX`"),
        ("release held", "release it: compare and delete, by EVALSHA"),
        ("extend held", "extend it: compare and PEXPIRE, by EVALSHA"),
    ] {
        let cell =
            |server| format!("{} / {}", median(load, "plain", server), median(load, "pipelined", server));
        text.push_str(&format!("| {title} | {} |\n", SERVERS.map(cell).join(" | ")));
    }
    for (load, what, title) in [
        ("storm", "memory per lock", "bytes of memory for each of a million locks"),
        ("start", "to PONG", "ms from the start to the first PONG"),
    ] {
        let cells = SERVERS.map(|server| median(load, what, server));
        text.push_str(&format!("| {title} | {} |\n", cells.join(" | ")));
    }
    let [revision, processor, cores] = ["revision", "processor", "cores"].map(|name| kept.fact(name));
    let about = |server| {
        let found = kept.servers.iter().find(|(known, _)| known == server);
        found.map(|(_, about)| about.as_str()).unwrap_or_default()
    };
    format!(
        "{text}\nMedians of revision {revision}, {}, {} and {}, each on one core of {processor} with {cores} cores.\n",
        about("redis 7"),
        about("valkey"),
        about("kevy")
    )
}

pub(crate) fn clusters() -> String {
    format!("\n{}\n", table::clusters(&kept_clusters()).trim_end())
}

pub(crate) fn cluster_tables() -> String {
    table::replicated(&kept_clusters())
}

pub(crate) fn drawing() -> String {
    plot::svg(&kept())
}

fn kept() -> Results {
    read("results.json", "cargo bench --bench compare -- --out benches/results")
}

fn kept_clusters() -> Results {
    let command = "cargo bench --features etcd --bench compare -- --replicated --out benches/results";
    read("replicated.json", command)
}

fn read(name: &str, written_by: &str) -> Results {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results").join(name);
    Results::read(&file).unwrap_or_else(|error| panic!("`{written_by}` writes it: {error}"))
}
