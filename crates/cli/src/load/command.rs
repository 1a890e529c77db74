//! `redlatch load`: a load with locks, its progress, and its report.
//!
//! Rule    the report is the only output; progress is one line on the error stream, if that is a terminal.
//! Rule    SIGINT, SIGTERM and SIGHUP end the load with the report so far. The second one ends the process.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redlatch_client::Error;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::live::Live;
use super::plan::Plan;
use super::report::Report;
use super::runner::{self, Failure as LoadFailure};
use crate::common::exit::{self, DONE, Failure, MISUSED, NO, OVERLAP};
use crate::common::{Fault, descriptors, print, signals, warn};

/// What `redlatch load` was asked for.
#[derive(Debug)]
pub(super) struct LoadOptions {
    pub(super) plan: Plan,
    pub(super) is_json: bool,
    pub(super) plot: Option<PathBuf>,
}

/// Runs the load; returns the exit code.
pub(super) fn run(options: &LoadOptions) -> u8 {
    let wanted = options.plan.clients * options.plan.nodes.len() + options.plan.threads * PER_THREAD;
    match descriptors::raise_limit(wanted as u64, 0) {
        Ok(fit) if fit < wanted as u64 => {
            warn(&format!(
                "--clients: the system allows this process {fit} of {wanted} descriptors; see ulimit -n"
            ));
            return MISUSED;
        }
        _ => {}
    }
    exit::run(async {
        match watched(options.plan.clone(), Arc::new(Live::default())).await? {
            Ok(report) => Ok(show(options, &report)?),
            Err(LoadFailure::Misfit(fault)) => Err(Failure::misused(fault)),
            Err(LoadFailure::NoServer(fault)) => Err(Failure::no_server(fault)),
            Err(LoadFailure::Refused(text)) => Err(Error::Refused(text).into()),
        }
    })
}

/// Runs the load on threads of its own, and watches it and the signals here.
async fn watched(plan: Plan, live: Arc<Live>) -> Result<Result<Report, LoadFailure>, Fault> {
    let mut signals = signals()?;
    let (tell, mut ended) = oneshot::channel();
    let loaded = live.clone();
    std::thread::spawn(move || {
        // Nobody listens after the second signal.
        let _ = tell.send(runner::run(plan, &loaded, || {}));
    });
    let mut progress = Progress::new();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_ending = false;
    loop {
        let is_asked = tokio::select! {
            report = &mut ended => {
                progress.clear();
                return report.map_err(|_| "the load has failed".to_owned());
            }
            _ = second.tick() => false,
            _ = signals.leave() => true,
        };
        if is_asked && is_ending {
            return Err("ended without a report".to_owned());
        }
        if is_asked {
            live.stop();
            is_ending = true;
        } else {
            progress.show(&live);
        }
    }
}

/// Writes the report and the picture; returns the exit code.
fn show(options: &LoadOptions, report: &Report) -> Result<u8, Fault> {
    let text = if options.is_json { format!("{:#}\n", report.json()) } else { report.text() };
    print(text.as_bytes())?;
    if let Some(path) = &options.plot {
        let written = std::fs::write(path, report.svg());
        written.map_err(|error| format!("--plot {}: {error}", path.display()))?;
    }
    Ok(match (report.overlaps(), report.acquired()) {
        (1.., _) => OVERLAP,
        (0, 0) => NO,
        (0, 1..) => DONE,
    })
}

/// The line that says how far a load is.
struct Progress {
    is_terminal: bool,
    start: Instant,
    last: (Instant, u64),
}

impl Progress {
    fn new() -> Self {
        let start = Instant::now();
        Self { is_terminal: std::io::stderr().is_terminal(), start, last: (start, 0) }
    }

    fn show(&mut self, live: &Live) {
        if !self.is_terminal {
            return;
        }
        let (now, acquired) = (Instant::now(), live.acquired());
        let rate = (acquired - self.last.1) as f64 / (now - self.last.0).as_secs_f64().max(1e-3);
        self.last = (now, acquired);
        let seconds = (now - self.start).as_secs();
        self.write(&format!(
            "{seconds:>5} s  {acquired} acquired  {rate:.0}/s  {} overlaps",
            live.overlaps()
        ));
    }

    /// Leaves nothing of the line.
    fn clear(&self) {
        if self.is_terminal {
            self.write("");
        }
    }

    fn write(&self, line: &str) {
        // The line in place of the last one. A terminal that has gone shows nothing.
        let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
    }
}

/// Descriptors of a thread beside its clients': its own connections, its runtime, its timer.
const PER_THREAD: usize = 24;
