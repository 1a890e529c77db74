//! `redlatch explore`: a command again and again, each time with another failure at another of its lock commands.
//!
//! Belongs here  the order of the runs, and how findings are told. [`case`] makes the failures, [`attempt`] runs the command,
//!               [`verdict`] says what is wrong.
//! Rule          findings go to the standard output, progress to the standard error.

mod attempt;
mod case;
mod verdict;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use redlatch_core::testing::{Extent, Timeline};
use serde_json::json;

use super::exit::{self, Failure};
use super::{print, warn};
use attempt::{Attempt, Ending};
use case::{Case, Kind, Point};
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
    pub(super) is_json: bool,
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
    exit::run(async move { Search::begin(options).await?.go_on().await })
}

/// A search, after the run without failures.
struct Search {
    options: Options,
    baseline: Baseline,
    cases: Vec<Case>,
    begun: Instant,
}

/// A problem that a failure has brought about.
struct Finding {
    case: Case,
    problem: Problem,
    /// How often of [`RUNS_OF_A_FINDING`] it came.
    came: u32,
    attempt: Attempt,
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
        let (mut found, mut met) = (0, 0);
        for (number, case) in self.cases.iter().enumerate() {
            if self.begun.elapsed() >= self.options.budget {
                warn(&format!("the budget is spent: {} cases were not tried", self.cases.len() - number));
                break;
            }
            let attempt = Attempt::make(&self.options, Some(case)).await?;
            met += usize::from(attempt.is_met);
            for finding in self.examine(case, attempt).await? {
                self.tell(&finding)?;
                found += 1;
            }
        }
        warn(&format!("{met} failures met, {found} findings, {:.1} s", self.begun.elapsed().as_secs_f64()));
        Ok(if found > 0 { FOUND } else { 0 })
    }

    fn problems(&self, case: &Case, attempt: &Attempt) -> Vec<Problem> {
        let must_survive = self.options.expects.iter().any(|name| name == case.kind.name());
        self.baseline.compare(attempt, case, must_survive)
    }

    /// The problems of a case, which is run again to see how often they come.
    async fn examine(&self, case: &Case, attempt: Attempt) -> Result<Vec<Finding>, Failure> {
        let problems = self.problems(case, &attempt);
        let Some(first) = problems.first() else { return Ok(Vec::new()) };
        let (mut came, name) = (1, first.name);
        for _ in 1..RUNS_OF_A_FINDING {
            let again = Attempt::make(&self.options, Some(case)).await?;
            came += u32::from(self.problems(case, &again).iter().any(|problem| problem.name == name));
        }
        // What else is wrong in the run is mostly what the first problem leads to.
        let problem = first.clone();
        Ok(vec![Finding { case: case.clone(), problem, came, attempt }])
    }

    fn tell(&self, finding: &Finding) -> Result<(), Failure> {
        let text = if self.options.is_json { self.json(finding) } else { self.text(finding) };
        print(text.as_bytes()).map(drop).map_err(|fault| Failure(COULD_NOT_RUN, fault))
    }

    fn text(&self, finding: &Finding) -> String {
        let Finding { case, problem, came, attempt } = finding;
        let mut text = format!("{} with {case}: {}\n", problem.name, problem.text);
        text += &format!("  the command    {}\n", case.point.line);
        text += &format!("  what happens   {}\n", case.kind.sentence());
        text += &format!("  the command's end   {}\n", ending(attempt.ending));
        for line in &problem.lines {
            text += &format!("  {line}\n");
        }
        for line in Timeline::of(&attempt.events).text(Extent::Screen).lines() {
            text += &format!("  | {line}\n");
        }
        if attempt.ending != Ending::Passed {
            let lines: Vec<&str> = attempt.output.trim_end().lines().collect();
            let end = &lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..];
            text += &format!("  its output ends with\n    {}\n", end.join("\n    "));
        }
        text + &format!("  it came {came} of {RUNS_OF_A_FINDING} times; again: {}\n\n", self.repeat(case))
    }

    fn json(&self, finding: &Finding) -> String {
        let Finding { case, problem, came, attempt } = finding;
        let line = json!({
            "finding": problem.name, "text": problem.text, "case": case.to_string(), "command": case.point.line,
            "injected": case.kind.sentence(), "ending": ending(attempt.ending), "lines": problem.lines,
            "came": came, "runs": RUNS_OF_A_FINDING, "again": self.repeat(case),
        });
        format!("{line}\n")
    }

    /// The line that repeats a case.
    fn repeat(&self, case: &Case) -> String {
        let words = self.options.command.iter().map(|word| quoted(&word.to_string_lossy()));
        let Options { nodes, variables, expects, is_clock_auto, .. } = &self.options;
        let variables =
            variables.iter().filter(|name| *name != URL_VARIABLE).map(|name| format!(" --env {name}"));
        let expects = expects.iter().map(|kind| format!(" --expect {kind}"));
        let nodes = (*nodes > 1).then(|| format!(" --nodes {nodes}"));
        let clock = is_clock_auto.then(|| " --clock auto".to_owned());
        let options: String = variables.chain(expects).chain(nodes).chain(clock).collect();
        format!("redlatch explore{options} --case '{case}' -- {}", words.collect::<Vec<_>>().join(" "))
    }
}

fn ending(ending: Ending) -> String {
    match ending {
        Ending::Passed => "it passed".to_owned(),
        Ending::Failed(Some(code)) => format!("exit code {code}"),
        Ending::Failed(None) => "a signal".to_owned(),
        Ending::Hung => "it hung".to_owned(),
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Lines of the end of the output that are shown.
const OUTPUT_LINES_MAX: usize = 12;
