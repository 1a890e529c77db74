//! The signals that end a process in good order, or have it read its files again.
//!
//! Rule    a signal that is caught waits until somebody asks for it. It is registered with the runtime in which it is caught,
//!         and may be waited for in any that can wait for signals.

use nix::sys::signal::Signal::SIGHUP;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Fault;

/// The signals of a process.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// Whether the process was started to ignore SIGHUP, as by nohup.
    ignores_hangup: bool,
}

/// A signal that has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Caught {
    /// SIGTERM or SIGINT, by its name.
    End(&'static str),
    /// SIGHUP.
    Hangup,
}

impl Signals {
    /// Catches them from now on. Needs a runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn catch() -> Result<Self, Fault> {
        let caught = |kind| signal(kind).map_err(|error| format!("cannot catch signals: {error}"));
        let ignores_hangup = ignored() & (1 << (SIGHUP as i32 - 1)) != 0;
        Ok(Self {
            ignores_hangup,
            terminate: caught(SignalKind::terminate())?,
            interrupt: caught(SignalKind::interrupt())?,
            hangup: caught(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. No signal is lost if the wait is given up.
    pub(super) async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.terminate.recv() => Caught::End("SIGTERM"),
            _ = self.interrupt.recv() => Caught::End("SIGINT"),
            _ = self.hangup.recv() => Caught::Hangup,
        }
    }

    /// Waits for one that ends a program at a terminal: also SIGHUP, unless it was ignored from the start.
    pub(super) async fn leave(&mut self) {
        while self.next().await == Caught::Hangup && self.ignores_hangup {}
    }

    /// Waits for one that ends the process.
    pub(super) async fn end(&mut self) {
        while self.next().await == Caught::Hangup {}
    }
}

/// The signals that this process was started to ignore, as by nohup, one bit for each, the first for signal 1. Caught signals
/// are not among them. Linux tells; on other systems it is none.
pub(super) fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
