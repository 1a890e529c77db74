//! `redlatch explore`: a command again and again, each time with another failure at another of its lock commands.
//!
//! Belongs here  the order of the runs, and how findings are told. [`case`] makes the failures, [`attempt`] runs the command,
//!               [`verdict`] says what is wrong, [`report`] how it is written.
//! Rule          findings go to the standard output, progress to the standard error.

mod attempt;
mod case;
mod report;
mod verdict;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::exit::{self, Failure};
use super::{print, signals, warn};
use attempt::{Attempt, Ending};
use case::{Case, Kind, Point};
use report::{Finding, Report};
use verdict::{Baseline, Problem};

/// What `redlatch explore` was asked for.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) command: Vec<OsString>,
    /// The variables in which the command finds the URL of its server.
    pub(super) variables: Vec<String>,
    /// How many servers there are: 1 to 64.
    pub(super) nodes: u16,
    /// How long one run may take.
    pub(super) timeout: Duration,
    /// How long all runs may take.
    pub(super) budget: Duration,
    /// Kinds of failures that the command must survive; [`Kind::name`].
    pub(super) expects: Vec<String>,
    /// This case alone, as a finding names it.
    pub(super) case: Option<String>,
    pub(super) is_clock_auto: bool,
    pub(super) format: Format,
}

/// How findings are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Text,
    Json,
    Junit,
}

/// The variable in which a command finds its URL unless it is told otherwise.
pub(super) const URL_VARIABLE: &str = "REDIS_URL";
/// The exit code of a search that has found something.
const FOUND: u8 = 1;
/// The exit code of a search that could not begin.
const COULD_NOT_RUN: u8 = 2;
/// How often a case with a problem is run in all, to say how often the problem comes.
const RUNS_OF_A_FINDING: u32 = 3;

/// The names of all kinds of failures.
pub(super) fn kinds() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.name()).collect()
}

/// Explores; returns the exit code.
pub(super) fn run(options: Options) -> u8 {
    exit::run(async move {
        // What runs when a signal comes is ended, as after any run.
        let mut signals = signals()?;
        tokio::select! {
            done = async { Search::begin(options).await?.go_on().await } => done,
            ending = signals.leave() => Ok(128 + ending.number),
        }
    })
}

/// A search, after the run without failures.
struct Search {
    options: Options,
    baseline: Baseline,
    cases: Vec<Case>,
    begun: Instant,
}

impl Search {
    /// Runs the command without failures.
    async fn begin(options: Options) -> Result<Self, Failure> {
        let begun = Instant::now();
        let attempt = Attempt::make(&options, None).await?;
        let could_not =
            |fault: &str| Err(Failure(COULD_NOT_RUN, format!("{fault}\n{}", attempt.output.trim_end())));
        match attempt.ending {
            Ending::Hung => return could_not("the command hangs without any failure; its output:"),
            Ending::Failed(_) => return could_not("the command fails without any failure; its output:"),
            Ending::Passed if attempt.events.is_empty() => {
                return could_not("the command does not connect to the server of REDIS_URL; see --env");
            }
            Ending::Passed => {}
        }
        let points = Point::all(&attempt.events);
        if points.is_empty() {
            return could_not("the command takes no lock");
        }
        let mut cases = Case::all(&points, options.nodes);
        if let Some(wanted) = &options.case {
            cases.retain(|case| case.to_string() == *wanted);
            if cases.is_empty() {
                return could_not(&format!("{wanted} is no case of this command"));
            }
        }
        let baseline = Baseline::of(&attempt);
        warn(&format!(
            "{} lock commands in {} ms, {} cases",
            points.len(),
            attempt.took.as_millis(),
            cases.len()
        ));
        for fault in baseline.faults() {
            warn(&format!("without any failure, too, and left out: {fault}"));
        }
        Ok(Self { options, baseline, cases, begun })
    }

    async fn go_on(self) -> Result<u8, Failure> {
        let (mut report, mut met) = (Report::new(&self.options), 0);
        for (number, case) in self.cases.iter().enumerate() {
            if self.begun.elapsed() >= self.options.budget {
                warn(&format!("the budget is spent: {} cases were not tried", self.cases.len() - number));
                break;
            }
            let attempt = Attempt::make(&self.options, Some(case)).await?;
            met += usize::from(attempt.is_met);
            let took = attempt.took;
            let finding = self.examine(case, attempt).await?;
            tell(&report.add(case, took, finding.as_ref()))?;
        }
        tell(&report.end())?;
        let (found, seconds) = (report.found, self.begun.elapsed().as_secs_f64());
        warn(&format!("{met} failures met, {found} findings, {seconds:.1} s"));
        Ok(if found > 0 { FOUND } else { 0 })
    }

    fn problems(&self, case: &Case, attempt: &Attempt) -> Vec<Problem> {
        let must_survive = self.options.expects.iter().any(|name| name == case.kind.name());
        self.baseline.compare(attempt, case, must_survive)
    }

    /// The first problem of a case, which is run again to see how often it comes. What else is wrong in the run is mostly
    /// what the first problem leads to.
    async fn examine(&self, case: &Case, attempt: Attempt) -> Result<Option<Finding>, Failure> {
        let Some(problem) = self.problems(case, &attempt).into_iter().next() else { return Ok(None) };
        let mut came = 1;
        for _ in 1..RUNS_OF_A_FINDING {
            let again = Attempt::make(&self.options, Some(case)).await?;
            came += u32::from(self.problems(case, &again).iter().any(|other| other.name == problem.name));
        }
        Ok(Some(Finding { problem, came, runs: RUNS_OF_A_FINDING, attempt }))
    }
}

fn tell(text: &str) -> Result<(), Failure> {
    print(text.as_bytes()).map(drop).map_err(|fault| Failure(COULD_NOT_RUN, fault))
}
