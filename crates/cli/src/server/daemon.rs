//! `daemonize yes`: the program starts again in the background.
//!
//! Rule    the process that was started returns when the one in the background accepts connections, or has failed. Redis
//!         returns at once, and its caller learns of no failure.
//! Rule    `--ready-json` marks the one in the background: a process with this flag never goes there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

use redlatch_platform::command::put_in_background;

use super::arguments::ServerArguments;
use super::configuration::Sources;
use crate::common::{Fault, exit};

/// Whether the server is to run in the background. As in Redis, one that systemd supervises is not.
pub(super) fn is_wanted(sources: &Sources, arguments: &ServerArguments) -> bool {
    let is_supervised = matches!(&*sources.value("supervised"), "systemd" | "auto")
        && std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty());
    sources.value("daemonize").eq_ignore_ascii_case("yes")
        && !is_supervised
        && !arguments.harness.is_ready_told
}

/// Starts this program again with the same arguments, and waits until it is ready. Prints what it says if it fails.
///
/// # Errors
/// It cannot be started, or its configuration came through the standard input, which it would not have.
pub(super) fn start(program: &str, arguments: &ServerArguments) -> Result<ExitCode, Fault> {
    if arguments.reads_stdin {
        return Err("daemonize 'yes': must be no where the standard input is a configuration file".to_owned());
    }
    let fault = |error| format!("daemonize 'yes': cannot start in the background: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(fault)?);
    put_in_background(command.args(std::env::args_os().skip(1)).arg("--ready-json"), program);
    // It keeps no stream of its caller open.
    let streams = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = streams.spawn().map_err(fault)?;
    let ready = server.stdout.take().and_then(|stdout| BufReader::new(stdout).lines().next());
    if ready.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let ended = server.wait_with_output().map_err(fault)?;
    // If the error stream is closed, the exit code still reports the failure.
    let _ = std::io::stderr().write_all(&ended.stderr);
    let code = ended.status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(exit::NO).into())
}
