//! How a subcommand ends: the exit statuses, which are those of sysexits.h where it has one, and failures with theirs.
//!
//! Rule    a status has one meaning in the whole program. `--help` prints [`STATUSES`], and docs/ has its rows.

use redlatch_client::Error;
use redlatch_proto::log_name::readable;

use super::process::{Fault, print, runtime, warn};

pub(crate) const DONE: u8 = 0;
pub(crate) const NO: u8 = 1;
pub(crate) const NOT_EXPLORED: u8 = 2;
pub(crate) const MISUSED: u8 = 64;
pub(crate) const NO_SERVER: u8 = 69;
pub(crate) const OVERLAP: u8 = 70;
pub(crate) const SYSTEM: u8 = 71;
pub(crate) const DISK_FAILED: u8 = 74;
pub(crate) const HELD: u8 = 75;
pub(crate) const LOST: u8 = 76;
pub(crate) const NOT_PERMITTED: u8 = 77;
pub(crate) const REFUSED: u8 = 79;
pub(crate) const NOT_RUN: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// The number of the signal is added.
pub(crate) const SIGNALLED: u8 = 128;

/// Each status, and its meaning.
pub(crate) const STATUSES: [(u8, &str); 15] = [
    (DONE, "done, or yes"),
    (NO, "no: the lock is free, or a server, setting, move, load, test or check fails"),
    (NOT_EXPLORED, "explore could not run the search"),
    (MISUSED, "wrong arguments, or the server has no commands for them"),
    (NO_SERVER, "unreachable: the server, one of its nodes or the client of mcp does not answer"),
    (OVERLAP, "load has seen two owners of one lock at the same time"),
    (SYSTEM, "the operating system refuses output, a file, a thread or a signal handler"),
    (DISK_FAILED, "the server cannot trust its disk"),
    (HELD, "held: another owner has the lock, also at the end of a wait"),
    (LOST, "lost: the owner does not hold the lock, or no longer"),
    (NOT_PERMITTED, "not permitted: the server refuses the login, or the user lacks a right"),
    (REFUSED, "refused: the server answers with another error, for example BUSY or OOM"),
    (NOT_RUN, "run could not start the command"),
    (NOT_FOUND, "run did not find the command"),
    (SIGNALLED, "a signal ended the command; its number is added, so SIGTERM gives 143"),
];

/// The statuses of a subcommand that asks a server.
pub(crate) const OF_ASKING: &[u8] = &[DONE, MISUSED, NO_SERVER, SYSTEM, NOT_PERMITTED, REFUSED];

/// The statuses that `has` picks with their meanings, as a part of a help text.
pub(crate) fn meanings(has: impl Fn(u8) -> bool) -> String {
    let rows = STATUSES.iter().filter(|(code, _)| has(*code));
    let lines: String = rows.map(|(code, meaning)| format!("\n  {code:<3}  {meaning}")).collect();
    format!("Exit statuses:{lines}")
}

/// Why a subcommand has failed, and its exit status.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) u8, pub(crate) Fault);

impl Failure {
    /// With the status [`MISUSED`].
    pub(crate) fn misused(fault: impl ToString) -> Self {
        Self(MISUSED, fault.to_string())
    }

    /// With the status [`NO_SERVER`].
    pub(crate) fn no_server(fault: impl ToString) -> Self {
        Self(NO_SERVER, fault.to_string())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self(SYSTEM, fault)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Held(_) => HELD,
            Error::Lost { .. } => LOST,
            Error::Unsupported(_) | Error::Url(_) | Error::Usage(_) => MISUSED,
            Error::Refused(text) if is_denial(text) => NOT_PERMITTED,
            Error::Deadlock(_) | Error::Refused(_) => REFUSED,
            _ => NO_SERVER,
        };
        Self(status, readable(error.to_string().as_bytes()))
    }
}

/// Whether an error reply refuses the login, or a request for which the user lacks a right.
fn is_denial(text: &str) -> bool {
    matches!(text.split(' ').next(), Some("DENIED" | "NOAUTH" | "NOPERM" | "WRONGPASS"))
}

/// Does the work of a subcommand on its own runtime; returns the exit status.
pub(crate) fn run(work: impl Future<Output = Result<u8, Failure>>) -> u8 {
    code(runtime().map_err(Failure::from).and_then(|runtime| {
        let done = runtime.block_on(work);
        runtime.shutdown_background();
        done
    }))
}

/// The exit status of what was done. Prints a failure to the error stream.
pub(crate) fn code(done: Result<u8, Failure>) -> u8 {
    done.unwrap_or_else(|Failure(code, fault)| {
        warn(&fault);
        code
    })
}

/// Prints a text; returns the exit status.
pub(crate) fn printed(text: &str) -> u8 {
    code(print(text.as_bytes()).map(|_| DONE).map_err(Failure::from))
}
