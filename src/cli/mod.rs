//! The command line: what the binary `redlatch` does with its arguments, its environment and its files.
//!
//! Owns    the flags (one for each row of the settings table), the configuration file, the log, the process' end.
//! Knows   the server through its builder and its handle; nothing of commands or keys.
//! Rule    an error at the start is one sentence on the error stream and a line of the log, and the process exits
//!         with 1.

mod descriptors;
mod directives;
mod file;
mod flags;
mod health;
mod log;
mod secure;
mod serve;
mod sources;

use std::io::Write;
use std::process::ExitCode;

use flags::Action;
use sources::Sources;

/// Runs the binary with the arguments and the environment of this process; returns its exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            // If the error stream is closed, the exit code still reports the error.
            let _ = writeln!(std::io::stderr(), "redlatch: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// An error as one sentence for the operator.
type Fault = String;

fn run(arguments: &[String]) -> Result<(), Fault> {
    let (program, rest) =
        arguments.split_first().map_or(("redlatch", &[][..]), |(p, rest)| (p.as_str(), rest));
    match flags::read(rest)? {
        Action::Print(text) => print(text.as_bytes()),
        Action::Health(url, trust) => print(health::check(url.as_deref(), trust)?.as_bytes()),
        Action::Serve(request) => {
            let sources = Sources::read(&request);
            let level = log::open(&sources.value("loglevel"), &sources.value("logfile"))?;
            let served = sources.check().and_then(|settings| serve::serve(program, settings, level));
            served.inspect_err(|fault| tracing::error!(reason = fault, "Cannot start"))
        }
    }
}

/// Prints to the standard output. A reader that has gone, as in `redlatch man | head`, is no error.
fn print(bytes: &[u8]) -> Result<(), Fault> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("cannot print: {error}")),
        _ => Ok(()),
    }
}
