//! The loads of the race, in the order in which they run.
//!
//! Owns    the table of loads, and the rounds: a server that fails a load is reported and continues with the next.

mod clients;
mod crowd;
mod durable;
mod hand_off;
pub(crate) mod replicated;
mod requests;
mod start;
mod storm;

use std::io;

pub(crate) use requests::NAMES as REQUESTS;

use crate::options::Options;
use crate::results::Results;
use crate::servers::Server;

/// The state of the race.
pub(crate) struct Race {
    pub(crate) options: Options,
    pub(crate) servers: Vec<Server>,
    pub(crate) results: Results,
}

/// A load or a family of loads: the names, and the function that runs one of these names.
type Load = (&'static [&'static str], fn(&mut Race, &str));

const LOADS: &[Load] = &[
    (&["start"], start::run),
    (requests::NAMES, requests::run),
    (&["crowd"], crowd::run),
    (hand_off::NAMES, hand_off::run),
    (&["clients"], clients::run),
    (&["storm"], storm::run),
    (durable::NAMES, durable::run),
    (&["durable restart"], durable::restart),
];

/// Runs all loads that are wanted.
pub(crate) fn run_all(race: &mut Race) {
    let names = LOADS.iter().flat_map(|(names, run)| names.iter().map(move |name| (*name, run)));
    for (name, run) in names.filter(|(name, _)| race.options.wants_load(name)).collect::<Vec<_>>() {
        eprintln!("{name}");
        run(race, name);
    }
}

impl Race {
    /// Gives each server a turn per round; every round begins with another server.
    fn rounds(
        &mut self,
        load: &str,
        rounds: usize,
        mut turn: impl FnMut(&Server, &Options, &mut Results) -> io::Result<()>,
    ) {
        let count = self.servers.len();
        for round in 0..rounds {
            for index in (0..count).map(|index| (index + round) % count) {
                let server = &self.servers[index];
                if self.results.has_failed(load, server.row.name) {
                    continue;
                }
                if let Err(error) = turn(server, &self.options, &mut self.results) {
                    eprintln!("  {}: {error}", server.row.name);
                    self.results.fail(load, server.row.name, &error.to_string());
                }
            }
        }
    }
}
