//! The command line: what the binary `redlatch` does with its arguments, its environment and its files.
//!
//! Owns    the flags (one for each row of the settings table), the configuration file, the log, the process' end.
//! Knows   the server through its builder and its handle, other servers through the client; nothing of commands or keys.
//! Rule    an error at the start is one sentence on the error stream and a line of the log, and the process exits
//!         with 1. The subcommands for locks have exit codes of their own.
//!
//! This crate is a part of `redlatch`; any version may change it.

#![forbid(unsafe_code)]

mod accept_restored;
mod check_config;
mod descriptors;
mod duration;
mod exit;
mod explore;
mod explore_flags;
mod explored;
mod fence;
mod file;
mod flags;
mod harness;
mod health;
mod hold;
mod hold_flags;
pub mod load;
mod load_command;
mod load_flags;
mod lock_flags;
mod log;
mod log_file;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(not(feature = "mcp"))]
#[path = "mcp_none.rs"]
mod mcp;
mod mcp_flags;
mod moves;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "otlp_none.rs"]
mod otlp;
mod place;
mod run;
mod serve;
mod served;
mod sources;
mod systemd;
mod table;
mod terms;
mod texts;
mod timeline;
#[cfg(feature = "top")]
mod top;
#[cfg(not(feature = "top"))]
#[path = "top_none.rs"]
mod top;
mod views;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use redlatch_platform::signals::Signals;

use flags::Action;
use sources::Sources;

/// Runs the binary with the arguments and the environment of this process; returns its exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(fault) => {
            warn(&fault);
            ExitCode::FAILURE
        }
    }
}

/// An error as one sentence for the operator.
type Fault = String;

fn run(arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let (program, rest) = arguments.split_first().map_or((None, &[][..]), |(p, rest)| (Some(p), rest));
    match flags::read(rest)? {
        Action::Print(text) => print(text.as_bytes()).map(drop)?,
        Action::AcceptRestored(options) => return accept_restored::accept(&options),
        Action::Move(way, request) => return moves::run(way, &request),
        Action::CheckConfig(request) => return check_config::check(&request),
        Action::Explore(options) => return Ok(explore::run(options).into()),
        Action::Health(place) => print(health::check(place)?.as_bytes()).map(drop)?,
        Action::Hold(options) => return Ok(hold::run(options).into()),
        Action::Load(options) => return Ok(load_command::run(options).into()),
        Action::Mcp(options) => return Ok(mcp::run(options).into()),
        Action::Top(place, interval) => return Ok(top::show(place, interval).into()),
        Action::Timeline(options) => return Ok(timeline::show(options).into()),
        Action::Run(options) => return Ok(run::run(options).into()),
        Action::View(view) => return Ok(views::show(view).into()),
        Action::Misused(fault) => {
            warn(&fault);
            return Ok(exit::MISUSED.into());
        }
        Action::Serve(request) => {
            let sources = Sources::read(&request);
            let flags = &request.process;
            // First: the numbers of inherited sockets are those that files of this process would have.
            let inherited = systemd::inherited();
            let output = log::Output::new(&sources.value("logfile"), flags.is_ready_told)?;
            let (spans, exporter) = match otlp::open(&sources.value("otlp-endpoint")) {
                Ok(Some((spans, exporter))) => (Some(spans), Ok(Some(exporter))),
                Ok(None) => (None, Ok(None)),
                Err(fault) => (None, Err(fault)),
            };
            let (file, format) = (output.file(), sources.value("log-format"));
            let set_level = log::open(&sources.value("loglevel"), &format, output, spans);
            let program = program.map_or("redlatch".into(), |program| program.to_string_lossy());
            let served = sources.check().and_then(|settings| {
                let (exporter, log) = (exporter?, serve::Log { file, set_level });
                let inherited = inherited?;
                let process =
                    serve::Process { program: &program, flags, request: &request, inherited, log, exporter };
                match explored::server(&program) {
                    Some(server) => explored::serve(&process, &settings, server),
                    None => serve::serve(process, settings),
                }
            });
            return served.inspect_err(|fault| tracing::error!(reason = fault, "Cannot start"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says something on the error stream. If that is closed, the exit code still reports an error.
fn warn(text: &str) {
    let _ = std::io::stderr().write_all(format!("redlatch: {text}\n").as_bytes());
}

/// The runtime of a subcommand that asks a server.
fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))
}

/// The signals of this process, caught from now on.
///
/// # Errors
/// The system refuses.
fn signals() -> Result<Signals, Fault> {
    Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))
}

/// Prints to the standard output. A reader that has gone, as in `redlatch man | head`, is no error: then it returns false.
fn print(bytes: &[u8]) -> Result<bool, Fault> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(format!("cannot print: {error}")),
        Ok(()) => Ok(true),
    }
}
