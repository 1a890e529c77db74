//! Many runs against one real server; each disagreement is reduced to the shortest steps that still show it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::comparison::{Comparison, Parted, spell_words};
use super::plan::{Step, Stock};
use crate::support::rng::{number, tally};

/// The treatment of commands and options that Redis 7.0 lacks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Newer {
    LeftOut,
    /// Only they are tried, with a few commands that create their values.
    WithTheirTypes,
}

/// Runs of a test without `RUNS`.
const RUNS: u64 = 150;
const STEPS: usize = 400;
/// Disagreements after which a test stops.
const DISAGREEMENTS_MAX: usize = 8;
/// Replays to shorten one disagreement.
const REPLAYS_MAX: usize = 1_000;
/// No new run begins after this time: a slow machine does fewer runs.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Many runs against one real server.
pub(crate) struct Runner {
    name: &'static str,
    stock: Stock,
    /// Whether the servers are in cluster mode.
    has_slots: bool,
}

impl Runner {
    pub(crate) fn new(name: &'static str, newer: Newer, has_slots: bool) -> Self {
        let known = Comparison::start(name, has_slots).commands();
        let stock = Stock::new(newer, |command| known.contains(&command.to_lowercase().replace(' ', "|")));
        Self { name, stock, has_slots }
    }

    /// Runs all seeds; returns every disagreement in words.
    pub(crate) fn run(&self) -> Vec<String> {
        let seeds = match number("SEED") {
            Some(seed) => seed..seed + 1,
            None => {
                let first = number("FIRST").unwrap_or(0);
                first..first.saturating_add(number("RUNS").unwrap_or(RUNS))
            }
        };
        let steps = number("STEPS").map_or(STEPS, |steps| steps as usize);
        let (began, mut found) = (Instant::now(), BTreeMap::new());
        let is_bounded = number("RUNS").is_none();
        let (mut runs, mut requests) = (0, 0);
        for seed in seeds {
            let is_late = is_bounded && began.elapsed() > TIME_MAX;
            if is_late || found.len() >= DISAGREEMENTS_MAX {
                break;
            }
            let steps = self.stock.steps(seed, steps);
            runs += 1;
            requests += steps.iter().map(|step| step.requests.len()).sum::<usize>();
            // A known disagreement may come first in many runs.
            if let Err(parted) = self.play(&steps)
                && !found.contains_key(&parted.command)
            {
                found.insert(parted.command.clone(), self.shortest(seed, steps, parted));
            }
        }
        eprintln!("{}: {runs} runs, {requests} requests, {} disagreements", self.name, found.len());
        tally(&[("operations", requests as u64), ("violations", found.len() as u64)]);
        found.into_values().collect()
    }

    fn play(&self, steps: &[Step]) -> Result<(), Parted> {
        Comparison::start(self.name, self.has_slots).run(steps)
    }

    /// Leaves out every step without which the servers still disagree about this command; returns the rest in words.
    fn shortest(&self, seed: u64, mut steps: Vec<Step>, mut parted: Parted) -> String {
        steps.truncate(parted.step + 1);
        let single = |step: &Step| {
            let client = step.client;
            step.requests.clone().into_iter().map(move |request| Step { client, requests: vec![request] })
        };
        let singles: Vec<Step> = steps.iter().flat_map(single).collect();
        if let Err(other) = self.play(&singles)
            && other.command == parted.command
        {
            (steps, parted) = (singles, other);
            steps.truncate(parted.step + 1);
        }
        let (mut replays, mut size) = (0, steps.len().div_ceil(2));
        let mut try_without = |steps: &mut Vec<Step>, parted: &mut Parted, fewer: Vec<Step>| {
            replays += 1;
            match self.play(&fewer) {
                Err(other) if other.command == parted.command => {
                    *steps = fewer;
                    steps.truncate(other.step + 1);
                    *parted = other;
                    Some(true)
                }
                _ => (replays < REPLAYS_MAX).then_some(false),
            }
        };
        while size > 0 {
            let mut end = steps.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut fewer = steps.clone();
                fewer.drain(start..end.min(fewer.len()));
                if try_without(&mut steps, &mut parted, fewer).is_none() {
                    return self.tell(seed, &steps, &parted);
                }
                end = start.min(steps.len());
            }
            size /= 2;
        }
        self.tell(seed, &steps, &parted)
    }

    fn tell(&self, seed: u64, steps: &[Step], parted: &Parted) -> String {
        let mut text = format!("SEED={seed}, {}\n", parted.command);
        for step in steps {
            for request in &step.requests {
                text.push_str(&format!("    c{}> {}\n", step.client, spell_words(&request.words)));
            }
        }
        text.push_str(&format!("  redlatch: {}\n  {}: {}", parted.ours, self.name, parted.theirs));
        text
    }
}

/// Whether a version, as command rows give it, is newer than Redis 7.0.
pub(crate) fn is_newer(since: &str) -> bool {
    let mut numbers = since.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) > (7, 0)
}
