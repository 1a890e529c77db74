//! The process of a subcommand: its standard output and error stream, its signals, a runtime.

use std::io::Write;

use redlatch_platform::signals::Signals;

/// An error as one sentence for the operator.
pub(crate) type Fault = String;

/// Says something on the error stream. If that is closed, the exit code still reports an error.
pub(crate) fn warn(text: &str) {
    let _ = std::io::stderr().write_all(format!("redlatch: {text}\n").as_bytes());
}

/// The runtime of a subcommand that asks a server.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))
}

/// The signals of this process, caught from now on.
///
/// # Errors
/// The system refuses.
pub(crate) fn signals() -> Result<Signals, Fault> {
    Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))
}

/// Prints to the standard output. A reader that has gone, as in `redlatch man | head`, is no error: then it returns false.
pub(crate) fn print(bytes: &[u8]) -> Result<bool, Fault> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot print: {error}")),
        Ok(()) => Ok(true),
    }
}
