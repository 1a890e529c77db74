//! How a subcommand ends: exit codes, those of sysexits.h where it has one, and failures with their codes.

use redlatch_client::Error;
use redlatch_proto::log_name::readable;

use super::process::{Fault, runtime, warn};

/// The answer is no, or something has failed that has no code of its own.
pub(crate) const FAILED: u8 = 1;
/// Arguments, or a URL, that cannot be used.
pub(crate) const MISUSED: u8 = 64;
/// A server cannot be asked.
pub(crate) const NO_SERVER: u8 = 69;
/// The server ends because the disk cannot be trusted.
pub(crate) const DISK_FAILED: u8 = 74;
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// A lock is held no longer.
pub(crate) const LOST: u8 = 76;

/// Why a subcommand has failed, and the exit code for it.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) u8, pub(crate) Fault);

impl Failure {
    /// With the code [`MISUSED`].
    pub(crate) fn misused(fault: impl ToString) -> Self {
        Self(MISUSED, fault.to_string())
    }

    /// With the code [`NO_SERVER`].
    pub(crate) fn no_server(fault: impl ToString) -> Self {
        Self(NO_SERVER, fault.to_string())
    }

    /// Why a lock was not taken, renewed or released. `is_reached`: whether the server has ever answered; one that refuses
    /// the login serves nobody here.
    pub(crate) fn of_lock(error: &Error, is_reached: bool) -> Self {
        let code = match error {
            Error::Unsupported(_) | Error::Url(_) | Error::Usage(_) => MISUSED,
            Error::Broken(_) | Error::Unreachable(_) => NO_SERVER,
            _ if !is_reached => NO_SERVER,
            _ => NOT_ACQUIRED,
        };
        Self(code, readable(error.to_string().as_bytes()))
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self(FAILED, fault)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Url(_) => Self::misused(error),
            _ => Self::no_server(error),
        }
    }
}

/// Does the work of a subcommand on a runtime of its own; returns the exit code.
pub(crate) fn run(work: impl Future<Output = Result<u8, Failure>>) -> u8 {
    code(runtime().map_err(Failure::from).and_then(|runtime| {
        let done = runtime.block_on(work);
        runtime.shutdown_background();
        done
    }))
}

/// The exit code of what was done. A failure is told on the error stream.
pub(crate) fn code(done: Result<u8, Failure>) -> u8 {
    done.unwrap_or_else(|Failure(code, fault)| {
        warn(&fault);
        code
    })
}
