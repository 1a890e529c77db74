//! The results of a race, as stored in results.json.
//!
//! Owns    the figures of every round; medians, shares and multiples are derived where they are shown.
//! Knows   nothing of servers and loads but their names, so that tests of the README can read results as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) const OURS: &str = "redlatch";
/// The server that shares of capacity are of.
pub(crate) const LIMIT: &str = "limit";
/// The other server beside it.
pub(crate) const REDIS: &str = "redis 7";
/// The server that multiples are of.
pub(crate) const VALKEY: &str = "valkey";
/// The load in which one lock goes from client to client.
pub(crate) const HAND_OFF: &str = "hand-off";
/// The load in which many clients wait for one lock, each once.
pub(crate) const HERD: &str = "hand-off in a herd";
/// The unit of the cost of a request.
pub(crate) const CPU_PER_REQUEST: &str = "us of CPU per request";

/// Whether the server of that name has one thread: others are not comparable by their cost for a request.
pub(crate) fn has_one_thread(name: &str) -> bool {
    !name.contains(" 2 ")
}

/// The fact about the machine that names the measured source.
const REVISION: &str = "revision";

/// The outcome of one race.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Results {
    /// `full`, `quick` or `smoke`: how much was done.
    pub(crate) scale: String,
    /// Facts about the machine, by name and value.
    pub(crate) machine: Vec<(String, String)>,
    /// Name and version of the servers, in the order of the columns.
    pub(crate) servers: Vec<(String, String)>,
    /// Loads that were repeated at another revision than that of `machine`, and that revision.
    #[serde(default)]
    pub(crate) repeated: Vec<(String, String)>,
    /// Servers that did not run, and why.
    pub(crate) missing: Vec<(String, String)>,
    /// Failed loads: the load, the server, the error.
    pub(crate) failed: Vec<(String, String, String)>,
    /// In the order in which they were measured.
    pub(crate) figures: Vec<Figure>,
}

/// One quantity, measured on several servers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The load: `acquire`, `storm`.
    pub(crate) load: String,
    /// The measured quantity: `plain`, `probe, p99`.
    pub(crate) what: String,
    /// Its unit: `us of CPU per request`.
    pub(crate) unit: String,
    /// By the server's name: one value for each round.
    pub(crate) values: BTreeMap<String, Vec<f64>>,
}

impl Results {
    /// Adds a value of one round.
    pub(crate) fn add(&mut self, load: &str, what: &str, unit: &str, server: &str, value: f64) {
        // More than three decimals are noise.
        let value = (value * 1_000.0).round() / 1_000.0;
        let known = self.figures.iter_mut().find(|figure| figure.load == load && figure.what == what);
        let figure = match known {
            Some(figure) => figure,
            None => {
                let (load, what, unit) = (load.to_owned(), what.to_owned(), unit.to_owned());
                self.figures.push(Figure { load, what, unit, values: BTreeMap::new() });
                self.figures.last_mut().expect("just pushed")
            }
        };
        figure.values.entry(server.to_owned()).or_default().push(value);
    }

    /// Notes that a server did not get through a load.
    pub(crate) fn fail(&mut self, load: &str, server: &str, reason: &str) {
        self.failed.push((load.to_owned(), server.to_owned(), reason.to_owned()));
    }

    pub(crate) fn has_failed(&self, load: &str, server: &str) -> bool {
        self.failed.iter().any(|(failed, by, _)| failed == load && by == server)
    }

    pub(crate) fn figure(&self, load: &str, what: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.load == load && figure.what == what)
    }

    /// A fact about the machine; empty if it is not known.
    pub(crate) fn fact(&self, name: &str) -> &str {
        let found = self.machine.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Takes over the results of an earlier race for the loads that were not run now, so that one load can be repeated.
    pub(crate) fn keep(&mut self, earlier: Self) -> Result<(), String> {
        let revision = self.fact(REVISION).to_owned();
        self.machine.retain(|(name, _)| name != REVISION);
        self.machine.extend(earlier.machine.iter().filter(|(name, _)| name == REVISION).cloned());
        let now = (&self.scale, &self.machine, &self.servers, &self.missing);
        if now != (&earlier.scale, &earlier.machine, &earlier.servers, &earlier.missing) {
            return Err("the stored results are of other servers or another machine".to_owned());
        }
        let mut own = std::mem::take(&mut self.figures);
        let run: BTreeSet<String> = own.iter().map(|figure| figure.load.clone()).collect();
        self.repeated.extend(earlier.repeated.into_iter().filter(|(load, _)| !run.contains(load)));
        if revision != self.fact(REVISION) {
            self.repeated.extend(run.iter().map(|load| (load.clone(), revision.clone())));
        }
        for figure in earlier.figures {
            if run.contains(&figure.load) {
                // The new results of a load take the place of its first old one.
                self.figures.extend(own.extract_if(.., |other| other.load == figure.load));
            } else {
                self.figures.push(figure);
            }
        }
        self.figures.append(&mut own);
        self.failed.extend(earlier.failed.into_iter().filter(|(load, ..)| !run.contains(load)));
        Ok(())
    }

    /// Reads a file that [`Self::write`] has written.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
    }

    pub(crate) fn write(&self, file: &Path) -> std::io::Result<()> {
        let line = |name: &str, value: serde_json::Result<String>| {
            value.map(|value| format!("  \"{name}\": {value}")).map_err(std::io::Error::other)
        };
        // A line for each figure, so that two races can be compared by their lines.
        let figures: Result<Vec<String>, _> = self.figures.iter().map(serde_json::to_string).collect();
        let figures = figures.map(|lines| format!("[\n    {}\n  ]", lines.join(",\n    ")));
        let lines = [
            line("scale", serde_json::to_string(&self.scale))?,
            line("machine", serde_json::to_string(&self.machine))?,
            line("servers", serde_json::to_string(&self.servers))?,
            line("repeated", serde_json::to_string(&self.repeated))?,
            line("missing", serde_json::to_string(&self.missing))?,
            line("failed", serde_json::to_string(&self.failed))?,
            line("figures", figures)?,
        ];
        std::fs::write(file, format!("{{\n{}\n}}\n", lines.join(",\n")))
    }
}

impl Figure {
    /// The median over the rounds of a server; `None` if it has none.
    pub(crate) fn median(&self, server: &str) -> Option<f64> {
        median(self.values.get(server)?.clone())
    }

    /// The median over the rounds of `other`'s value divided by `server`'s: servers of one round share its disturbances.
    pub(crate) fn multiple(&self, other: &str, server: &str) -> Option<f64> {
        ratio(self.values.get(other)?, self.values.get(server)?)
    }
}

/// The median over the rounds of one quantity divided by another.
pub(crate) fn ratio(values: &[f64], by: &[f64]) -> Option<f64> {
    let rounds = values.iter().zip(by).filter(|(_, by)| **by > 0.0);
    median(rounds.map(|(value, by)| value / by).collect())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
