//! A search: the order of the runs, from the one without failures to the pairs of failures.
//!
//! Rule    findings go to the standard output, progress to the standard error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use redlatch_testing::{Event, EventKind};

use super::attempt::Attempt;
use super::case::{AND, Case};
use super::options::{ExploreOptions, INJECTED_VARIABLE};
use super::pairs::{self, Single, Trace};
use super::point::{Deed, Point};
use super::program::{Ending, Runners};
use super::report::{Finding, Report, Tried};
use super::verdict::Baseline;
use crate::common::exit::{self, DONE, Failure, NO, NOT_EXPLORED, SIGNALLED};
use crate::common::{print, signals, warn};

/// How often a case with a problem is run in all, to say how often the problem comes.
const RUNS_OF_A_FINDING: u32 = 3;

/// Explores; returns the exit code.
pub(super) fn run(options: ExploreOptions) -> u8 {
    if std::env::var_os(INJECTED_VARIABLE).is_some() {
        // A test that keeps a finding is part of the tests that are explored.
        warn(&format!("{INJECTED_VARIABLE} is set: another search started this run, so it explores nothing"));
        return DONE;
    }
    exit::run(async move {
        // What runs when a signal comes is ended, as after any run.
        let mut signals = signals()?;
        tokio::select! {
            done = async { Search::begin(options).await?.go_on().await } => done,
            ending = signals.leave() => Ok(SIGNALLED + ending.number),
        }
    })
}

/// A search, after the run without failures.
struct Search {
    options: ExploreOptions,
    runners: Runners,
    /// The run without failures, until its case is examined.
    first: Mutex<Option<Attempt>>,
    baseline: Baseline,
    /// The order of lock events without failures.
    order: pairs::Order,
    cases: Vec<Case>,
    begun: Instant,
}

impl Search {
    /// Runs the command without failures.
    async fn begin(options: ExploreOptions) -> Result<Arc<Self>, Failure> {
        let (begun, runners) = (Instant::now(), Runners::default());
        let attempt = Attempt::make(&options, &runners, &Case::default()).await?;
        let points = Point::all(&attempt.events);
        if let Some(fault) = why_not_explored(&attempt, &points) {
            return Err(Failure(NOT_EXPLORED, fault));
        }
        let mut cases = Case::all(&points, options.servers);
        if let Some(wanted) = &options.case {
            // A pair is compared with each of its failures alone. There may be no second command without the first failure.
            let names: Vec<_> = wanted.split(AND).collect();
            cases.retain(|case| names.iter().any(|name| case.is_named(name)));
            if !cases.iter().any(|case| case.is_named(names[0])) {
                return Err(is_no_case(wanted));
            }
        }
        let baseline = Baseline::of(&attempt);
        warn(&format!(
            "{} lock commands in {} ms, {} cases",
            points.len(),
            attempt.took.as_millis(),
            cases.len()
        ));
        for advice in baseline.advice() {
            warn(&format!("not a finding: {advice}"));
        }
        let (order, first) = (pairs::order(&attempt.events), Mutex::new(Some(attempt)));
        Ok(Arc::new(Self { options, runners, first, baseline, order, cases, begun }))
    }

    async fn go_on(self: Arc<Self>) -> Result<u8, Failure> {
        let (mut report, mut singles) = (Report::new(&self.options), Vec::new());
        // Pairs are compared with each failure alone, so all are tried before them.
        let with_pairs = self.goes_on_with_pairs();
        let mut wanted = Wanted { case: self.options.case.clone(), after: self.options.after.clone() };
        let mut told = wanted.clone();
        let is_tried = |case: &&Case| wanted.has(case) || with_pairs;
        let cases: Vec<_> = self.cases.iter().filter(is_tried).cloned().collect();
        let are_all_tried = self
            .try_all(cases.into_iter(), |case, tried| {
                if !with_pairs || told.has(case) {
                    tell(&report.add(case, &tried))?;
                }
                let injection = case.injections.first().cloned();
                singles.extend(injection.map(|it| Single::new(it, tried.problems, tried.trace)));
                Ok(())
            })
            .await?;
        if are_all_tried && with_pairs {
            let pairs = pairs::all(&singles, &self.order, self.options.servers);
            let pairs: Vec<_> = pairs.filter(|pair| wanted.has(pair)).collect();
            match (pairs.len(), &self.options.case) {
                (0, Some(wanted)) => return Err(is_no_case(wanted)),
                (count, _) => warn(&format!("{count} pairs")),
            }
            self.try_all(pairs.into_iter(), |pair, tried| tell(&report.add(pair, &tried))).await?;
        }
        if are_all_tried && let Some(unknown) = wanted.after {
            return Err(is_no_case(&unknown));
        }
        tell(&report.end())?;
        if are_all_tried && self.options.case.is_none() && self.options.after.is_none() {
            for id in report.unseen() {
                warn(&format!("--accept {id}: no such finding came"));
            }
        }
        let (sum, seconds) = (report.sum(), self.begun.elapsed().as_secs_f64());
        warn(&format!("{sum}, {seconds:.1} s"));
        Ok(if report.found() > 0 { NO } else { DONE })
    }

    fn goes_on_with_pairs(&self) -> bool {
        self.options.with_pairs || self.options.case.as_ref().is_some_and(|wanted| wanted.contains(AND))
    }

    /// Tries cases, [`ExploreOptions::jobs`] at a time, until the budget is spent. They are told in their order.
    /// Returns whether the budget was enough for all.
    async fn try_all(
        self: &Arc<Self>,
        mut cases: impl Iterator<Item = Case>,
        mut tell: impl FnMut(&Case, Tried) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        let (mut running, mut begun) = (tokio::task::JoinSet::new(), 0);
        let (mut done, mut told, mut last) = (BTreeMap::new(), 0, None);
        loop {
            while running.len() < self.options.jobs
                && self.begun.elapsed() < self.options.budget
                && let Some(case) = cases.next()
            {
                let (search, number) = (Arc::clone(self), begun);
                running
                    .spawn(async move { (number, search.examine(&case).await.map(|tried| (case, tried))) });
                begun += 1;
            }
            let Some(ended) = running.join_next().await else { break };
            let (number, tried) = ended.expect("a run that is awaited is not aborted, and does not panic");
            done.insert(number, tried?);
            while let Some((case, tried)) = done.remove(&told) {
                tell(&case, tried)?;
                told += 1;
                last = Some(case);
            }
        }
        let untried = cases.count();
        if untried > 0 {
            let go_on = last.map_or(String::new(), |case| format!("; to resume: --after '{case}'"));
            warn(&format!("the budget has ended: {untried} cases were not tried{go_on}"));
        }
        Ok(untried == 0)
    }

    async fn attempt(&self, case: &Case) -> Result<Attempt, Failure> {
        let first = if case.injections.is_empty() { self.first.lock().take() } else { None };
        match first {
            Some(attempt) => Ok(attempt),
            None => Attempt::make(&self.options, &self.runners, case).await,
        }
    }

    /// Runs a case. With a problem it is run again, to see how often the first one comes. What else is wrong in the run is
    /// mostly what the first problem leads to. One that is accepted comes after the others.
    async fn examine(&self, case: &Case) -> Result<Tried, Failure> {
        let attempt = self.attempt(case).await?;
        let trace = Trace::of(&attempt.events, case.injections.first().map(|injection| &injection.point));
        let mut tried = Tried {
            took: attempt.took,
            is_met: attempt.is_met,
            problems: BTreeSet::new(),
            trace,
            finding: None,
        };
        let problems = self.baseline.compare(&attempt, case, &self.options.expects);
        tried.problems.extend(problems.iter().map(|problem| problem.kind));
        if let Some(problem) = problems.into_iter().min_by_key(|it| self.options.accepts.contains(&it.id())) {
            let mut came = 1;
            for _ in 1..RUNS_OF_A_FINDING {
                let again = self.attempt(case).await?;
                let problems = self.baseline.compare(&again, case, &self.options.expects);
                came += u32::from(problems.iter().any(|other| other.id() == problem.id()));
                tried.problems.extend(problems.iter().map(|problem| problem.kind));
            }
            tried.finding = Some(Finding { problem, came, runs: RUNS_OF_A_FINDING, attempt });
        }
        Ok(tried)
    }
}

/// Why there is nothing to explore after a run without failures; none if there is.
fn why_not_explored(attempt: &Attempt, points: &[Point]) -> Option<String> {
    let output = attempt.output.trim_end();
    match attempt.ending {
        Ending::Hung => {
            Some(format!("the command already hangs without an injected failure; its output:\n{output}"))
        }
        Ending::Exited(_) | Ending::Killed | Ending::Failed => {
            Some(format!("the command already fails without an injected failure; its output:\n{output}"))
        }
        Ending::Passed if attempt.events.is_empty() => {
            Some(format!("the command does not connect to the server of REDIS_URL; see --env\n{output}"))
        }
        Ending::Passed => {
            let takes_lock = points.iter().any(|point| point.deed == Deed::Acquire);
            (!takes_lock).then(|| format!("{}\n{output}", takes_no_lock(&attempt.events)))
        }
    }
}

/// What a command has sent that takes no lock.
fn takes_no_lock(events: &[Event]) -> String {
    let sent = events.iter().filter(|event| event.kind == EventKind::Request);
    let names: BTreeSet<&str> = sent.clone().filter_map(|event| event.command.as_deref()).collect();
    let (count, names) = (sent.count(), Vec::from_iter(names).join(", "));
    format!("the command sends {count} requests, and none takes a lock that explore knows: {names}")
}

/// The cases that are told.
#[derive(Clone)]
struct Wanted {
    /// This one alone.
    case: Option<String>,
    /// Those behind this one, as long as it has not come.
    after: Option<String>,
}

impl Wanted {
    /// Whether a case is told. It is asked for each in their order.
    fn has(&mut self, case: &Case) -> bool {
        if self.after.as_ref().is_some_and(|after| case.is_named(after)) {
            self.after = None;
            return false;
        }
        self.after.is_none() && self.case.as_ref().is_none_or(|wanted| case.is_named(wanted))
    }
}

fn is_no_case(wanted: &str) -> Failure {
    Failure(NOT_EXPLORED, format!("{wanted} is no case of this command"))
}

fn tell(text: &str) -> Result<(), Failure> {
    print(text.as_bytes()).map(drop).map_err(|fault| Failure(NOT_EXPLORED, fault))
}
