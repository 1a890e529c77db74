//! `redlatch run`: a command under a lock.
//!
//! Owns    the order of things: the lock, the command, its signals, the loss of the lock, the end of both.
//! Rule    SIGTERM reaches the command before the server could grant the lock to anybody else, also when the server does
//!         not answer: [`margin`] before the deadline that the guard counts. From then on nothing renews the lock.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::time::Duration;

use redlatch_client::wire::Target;
use redlatch_client::{Error, Guard, Locks, Lost, Trust};
use redlatch_platform::command::{Change, Child, CommandSignals};
use redlatch_platform::{figures, texts as system_texts};
use tokio::time::{Instant, sleep_until, timeout};

use super::terms::Terms;
use super::texts;
use crate::common::exit::{DONE, Failure, HELD, LOST, MISUSED, NOT_FOUND, NOT_RUN, SYSTEM};
use crate::common::{ServerAddress, runtime, warn};

/// What `redlatch run` was asked for.
#[derive(Debug)]
pub(super) struct RunOptions {
    pub(super) server: ServerAddress,
    pub(super) terms: Terms,
    pub(super) command: Vec<OsString>,
    /// `None`: without a limit.
    pub(super) wait: Option<Duration>,
    pub(super) if_held: IfHeld,
    pub(super) on_lost: OnLost,
    pub(super) kill_grace: Duration,
    pub(super) min_hold: Duration,
}

/// What happens while the lock is held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum IfHeld {
    Fail,
    Skip,
    Wait,
}

/// What the command gets when the lock is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OnLost {
    Kill,
    Term,
    Warn,
}

/// Runs the command; returns the exit code.
pub(super) fn run(options: RunOptions) -> u8 {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(fault) => return refuse(SYSTEM, &fault),
    };
    let code = runtime.block_on(supervise(options));
    runtime.shutdown_background();
    code
}

fn refuse(code: u8, fault: &str) -> u8 {
    warn(fault);
    code
}

async fn supervise(options: RunOptions) -> u8 {
    let mut signals = match CommandSignals::catch() {
        Ok(signals) => signals,
        Err(error) => return refuse(SYSTEM, &format!("cannot catch signals: {error}")),
    };
    let server = match options.server.clone().find() {
        Ok(found) => found,
        Err(fault) => return refuse(MISUSED, &fault),
    };
    let owner = owner();
    let guard = tokio::select! {
        guard = locked(&options, &server, &owner) => match guard {
            Ok(guard) => guard,
            Err(code) => return code,
        },
        code = asked_to_end(&mut signals) => {
            // The lock may have been granted in this moment.
            let locks = Locks::at(server.0, server.1).budget(RELEASE_MAX);
            let _ = locks.release(options.terms.keys, owner).await;
            return code;
        }
    };
    let taken = Instant::now();
    if !guard.is_native() {
        warn(texts::PLAIN);
    }
    let code = match Child::start(&options.command, &environment(&options, &guard)) {
        Ok(child) => watch(child, &guard, &options, &mut signals).await,
        Err(error) => {
            let program = options.command.first().map(|program| program.to_string_lossy().into_owned());
            let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUN };
            refuse(code, &format!("{}: {error}", program.unwrap_or_default()))
        }
    };
    end(guard, taken, &options).await;
    code
}

/// Takes the lock, also from a server that does not serve for a moment; or returns the exit code.
async fn locked(options: &RunOptions, server: &(Target, Trust), owner: &str) -> Result<Guard, u8> {
    let (terms, (target, trust)) = (&options.terms, server);
    let locks = Locks::at(target.clone(), trust.clone()).telling(texts::tell_retry);
    let acquire = terms.acquire(&locks, owner.as_bytes(), options.wait).stop_before(margin(options));
    acquire.await.map_err(|error| match error {
        Error::Held(_) if options.if_held == IfHeld::Skip => DONE,
        Error::Held(held) => {
            refuse(HELD, &(terms.held("not run", held.as_deref()) + &texts::force(held.as_deref())))
        }
        error => {
            let Failure(code, fault) = error.into();
            refuse(code, &fault)
        }
    })
}

/// Watches the command until it ends; returns the exit code.
async fn watch(mut child: Child, guard: &Guard, options: &RunOptions, signals: &mut CommandSignals) -> u8 {
    let (mut is_lost, mut is_ended, mut kill_at) = (false, false, None);
    loop {
        tokio::select! {
            biased;
            change = child.change(&mut signals.changes) => match change {
                Change::Ended(_) if is_ended => return LOST,
                Change::Ended(code) => return code.unwrap_or(NOT_RUN),
                Change::Stopped => {
                    child.stop_with_it();
                    // The lock is not renewed while this process is stopped.
                    if !guard.remaining().is_zero() || options.on_lost == OnLost::Warn {
                        child.go_on();
                    }
                }
            },
            signal = signals.passed.next() => child.pass(signal),
            lost = guard.lost(), if !is_lost => {
                is_lost = true;
                is_ended = options.on_lost != OnLost::Warn;
                let what = if lost == Lost::Unrenewed { "is about to be lost" } else { "is lost" };
                warn(&format!("the lock {what}: {lost}"));
                match options.on_lost {
                    OnLost::Kill => child.kill(),
                    OnLost::Term => {
                        child.terminate();
                        kill_at = Some(Instant::now() + options.kill_grace);
                    }
                    OnLost::Warn => {}
                }
            },
            () = at(kill_at) => {
                child.kill();
                kill_at = None;
            },
        }
    }
}

/// How long before the end of the lock SIGTERM reaches the command: the shorter of the grace and a third of the lease,
/// and a little for the signal itself. The first renewal is due after the first third: it has the second one to succeed in.
fn margin(options: &RunOptions) -> Duration {
    let grace = match options.on_lost {
        OnLost::Term => options.kill_grace.min(options.terms.lease / 3),
        OnLost::Kill | OnLost::Warn => Duration::ZERO,
    };
    grace + (options.terms.lease / 20).min(SLACK_MAX)
}

/// Releases the lock, or leaves it for the rest of the time that it is to be held at least.
async fn end(guard: Guard, taken: Instant, options: &RunOptions) {
    if guard.remaining().is_zero() {
        // It is released by one try, and ends with its lease otherwise.
        let _ = timeout(RELEASE_MAX, guard.release()).await;
        return;
    }
    let left = options.min_hold.saturating_sub(taken.elapsed());
    let ended = async {
        match left.is_zero() {
            true => guard.release().await,
            false => guard.leave(left.max(Duration::from_millis(1))).await,
        }
    };
    if let Ok(Err(_)) | Err(_) = timeout(RELEASE_MAX, ended).await {
        warn("the lock could not be released: it ends with its lease");
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// An owner that nobody else uses, and that tells people where it runs.
fn owner() -> String {
    let host = figures::host_name().unwrap_or_else(|| "localhost".into());
    format!("{host}:{}:{:016x}", std::process::id(), redlatch_client::wire::random())
}

fn environment(options: &RunOptions, guard: &Guard) -> [(&'static str, Option<OsString>); 4] {
    let deadline = texts::unix_ms_in(guard.remaining());
    let keys = match options.terms.any {
        true => guard.key().to_vec(),
        false => options.terms.keys.join(&b'\n'),
    };
    [
        ("REDLATCH_KEY", Some(system_texts::from_bytes(keys))),
        ("REDLATCH_TOKEN", guard.token().map(|token| token.to_string().into())),
        ("REDLATCH_OWNER", Some(system_texts::from_bytes(guard.owner().to_vec()))),
        ("REDLATCH_DEADLINE", Some(deadline.to_string().into())),
    ]
}

/// Waits for a signal that asks to end; returns the exit code.
async fn asked_to_end(signals: &mut CommandSignals) -> u8 {
    loop {
        if let Some(code) = signals.passed.next().await.exit_code() {
            return code;
        }
    }
}

/// How long the release may take at the end.
const RELEASE_MAX: Duration = Duration::from_secs(2);
/// What the margin has for the signal itself, at most.
const SLACK_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use redlatch_proto::options::Options;

    use super::*;

    #[test]
    fn the_margin_leaves_time_for_a_renewal() {
        let options = |lease, kill_grace, on_lost| RunOptions {
            server: ServerAddress::default(),
            terms: Terms {
                keys: Vec::new(),
                any: false,
                lease: Duration::from_millis(lease),
                options: Options::default(),
            },
            command: Vec::new(),
            wait: None,
            if_held: IfHeld::Wait,
            on_lost,
            kill_grace: Duration::from_millis(kill_grace),
            min_hold: Duration::ZERO,
        };
        for (lease, grace, on_lost, expected) in [
            (30_000, 5_000, OnLost::Term, 5_500),
            (6_000, 6_000, OnLost::Term, 2_300),
            (1_000, 0, OnLost::Term, 50),
            (30_000, 5_000, OnLost::Kill, 500),
        ] {
            assert_eq!(margin(&options(lease, grace, on_lost)), Duration::from_millis(expected));
        }
    }
}
