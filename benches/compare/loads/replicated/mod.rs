//! Locks that outlive a machine: redlatch on etcd, Redis with a replica and WAIT, etcd's own locks, Curator on ZooKeeper.
//!
//! Owns    the rounds, and what is measured in them: a lock taken (`acquire`), a lock taken and released (`cycle`), and one
//!         write to etcd (`commit`).
//! Rule    all processes of a cluster share the first core, and their time counts. The clients have the last core.
//! Rule    in each round, clusters take turns at the same load with the same number of clients.

mod clients;
mod clusters;
pub(crate) mod groups;

use crate::options::Options;
use crate::results::Results;
use clients::Turn;
use clusters::Cluster;

const LOADS: [&str; 3] = [COMMIT, "acquire", "cycle"];
/// The time that everything on etcd takes at least: one client of etcd writes again and again.
const COMMIT: &str = "commit";

/// Rounds that do not count: the JVM compiles what is used often.
const ROUNDS_BEFORE: usize = 2;

/// Measures all clusters that can be started. The others are reported with the reason.
pub(crate) fn run(options: &Options, machine: Vec<(String, String)>) -> Results {
    let mut results = Results { scale: options.scale.name.to_owned(), machine, ..Results::default() };
    let mut clusters = start(options, &mut results);
    for round in 0..ROUNDS_BEFORE + options.scale.rounds {
        for what in loads(options) {
            eprintln!("round {round}: {}, {} clients", what.0, what.1);
            // Every round begins with another cluster.
            let count = clusters.len();
            for index in (0..count).map(|index| (index + round) % count) {
                let (name, cluster) = &mut clusters[index];
                if results.has_failed(what.0, name) || (what.0 == COMMIT && *name != clusters::ETCD) {
                    continue;
                }
                match cluster.turn(what, &options.scale) {
                    Ok(turn) if round >= ROUNDS_BEFORE => add(&mut results, what, name, &turn),
                    Ok(_) => {}
                    Err(error) => results.fail(what.0, name, &error.to_string()),
                }
            }
        }
    }
    results
}

/// The loads that are wanted, each with so many clients.
fn loads(options: &Options) -> impl Iterator<Item = (&'static str, usize)> {
    let all = LOADS.into_iter().filter(|load| options.wants_load(load));
    let all = all.flat_map(|load| options.scale.clients.iter().map(move |clients| (load, *clients)));
    all.filter(|(load, clients)| *load != COMMIT || *clients == 1)
}

fn start(options: &Options, results: &mut Results) -> Vec<(&'static str, Cluster)> {
    let mut clusters = Vec::new();
    for (name, start) in clusters::ALL.into_iter().filter(|(name, _)| options.wants_server(name)) {
        eprintln!("start: {name}");
        match start(options) {
            Ok(cluster) => {
                results.servers.push((name.to_owned(), cluster.about.clone()));
                clusters.push((name, cluster));
            }
            Err(error) => results.missing.push((name.to_owned(), error.to_string())),
        }
    }
    clusters
}

fn add(results: &mut Results, (load, clients): (&str, usize), name: &str, turn: &Turn) {
    let figures = [
        ("rate", "thousand per second", Some(turn.operations / turn.seconds / 1e3)),
        ("p50", "ms", Some(turn.p50)),
        ("p99", "ms", Some(turn.p99)),
        ("CPU", "us", Some(turn.cpu_seconds * 1e6 / turn.operations)),
        ("mean commit", "ms", turn.commit),
    ];
    let clients = format!("{clients} client{}", if clients > 1 { "s" } else { "" });
    for (what, unit, value) in figures {
        if let Some(value) = value {
            results.add(load, &format!("{clients}, {what}"), unit, name, value);
        }
    }
}
