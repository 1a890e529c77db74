//! `redlatch doctor`: observes a server for a while, and reports what endangers its locks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redlatch_client::Error;
use redlatch_client::wire::Reply;
use redlatch_core::state::beside::Beside;
use redlatch_proto::log_name::readable;
use tokio::time::{Instant, timeout};

use super::changes::Changes;
use super::diagnosis::{Clock, Diagnosis, Facts, of_commands, of_rounds, of_server};
use super::login::Login;
use super::observed::Observed;
use super::report::Report;
use super::shadow::check;
use super::sweep::Sweep;
use crate::common::exit::{self, Failure};
use crate::common::print;

#[derive(Debug)]
pub(super) struct DoctorOptions {
    pub(super) login: Login,
    /// How long to observe.
    pub(super) time: Duration,
    /// Requests in a second.
    pub(super) rate: u32,
    /// The keys that are locks, whatever their names.
    pub(super) pattern: Option<String>,
    /// Whether the report is JSON.
    pub(super) json: bool,
    /// Whether the report has the owners of locks.
    pub(super) shows_owners: bool,
}

/// Observes and reports; returns the exit status.
pub(super) fn run(options: DoctorOptions) -> u8 {
    exit::run(diagnose(options))
}

async fn diagnose(options: DoctorOptions) -> Result<u8, Failure> {
    let DoctorOptions { login, time, rate, pattern, json, shows_owners } = options;
    let (url, beside) = (login.url(), Arc::new(Beside::new(login.url())));
    let mut observed = Observed::connect(login, rate, Arc::clone(&beside), Changes::default()).await?;
    check(&mut observed, &url, pattern.is_some()).await?;
    let before = facts(&mut observed).await?;
    let diagnosis = Diagnosis::new(pattern.is_some());
    let mut sweep = Sweep::new(observed, pattern, diagnosis);
    let (start, mut clock) = (Instant::now(), Clock::default());
    if let Ok(error) = timeout(time, observe(&mut sweep, start, &mut clock)).await {
        return Err(error.into());
    }
    // The time may have ended while the server could not be read.
    let after = match facts(&mut sweep.observed).await {
        Err(_) => {
            sweep.observed.reconnect().await?;
            facts(&mut sweep.observed).await?
        }
        told => told?,
    };
    let mut findings = of_server(&after);
    findings.extend(of_commands(&before, &after));
    findings.extend(clock.findings());
    findings.extend(of_rounds(beside.rounds.load(Relaxed)));
    findings.extend(sweep.viewer.of_locks());
    findings.sort_by_key(|finding| finding.severity);
    let report = Report {
        url,
        observed: start.elapsed(),
        requests: beside.requests.load(Relaxed),
        rounds: beside.rounds.load(Relaxed),
        gaps: beside.gaps.load(Relaxed),
        keys: beside.keys.load(Relaxed),
        locks: sweep.locks(),
        findings,
        forbidden: sweep.observed.forbidden,
        shows_owners,
    };
    let text = if json { format!("{:#}\n", report.value()) } else { report.text() };
    print(text.as_bytes())?;
    Ok(report.status())
}

/// Reads round after round, with the server's clock after each.
async fn observe(sweep: &mut Sweep<Diagnosis>, start: Instant, clock: &mut Clock) -> Error {
    loop {
        if let Err(error) = sweep.round().await {
            return error;
        }
        match sweep.observed.clock_ahead(start).await {
            Ok(Some(ahead)) => clock.note(Instant::now(), ahead),
            Ok(None) => {}
            Err(error) => return error,
        }
    }
}

/// What the server says of itself, as far as the login allows.
async fn facts(observed: &mut Observed) -> Result<Facts, Error> {
    let mut facts = Facts::new();
    for section in ["memory", "persistence", "replication", "commandstats"] {
        facts.extend(observed.info(section).await?);
    }
    for setting in ["appendfsync", "save"] {
        let reply = observed.read(&[b"CONFIG", b"GET", setting.as_bytes()]).await?;
        let value = reply.as_ref().and_then(|reply| reply.field(setting)).and_then(Reply::text);
        facts.extend(value.map(|value| (setting.to_owned(), readable(value))));
    }
    Ok(facts)
}
