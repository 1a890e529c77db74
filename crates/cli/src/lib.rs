//! The command line: what the binary `redlatch` does with its arguments, its environment and its files.
//!
//! Knows   the server through its builder and its handle, other servers through the client; nothing of commands or keys.
//! Rule    an error at the start is one sentence on the error stream and a line of the log, and the process exits
//!         with 1. The subcommands for locks have exit codes of their own.
//!
//! This crate is a part of `redlatch`; any version may change it.
//!
//! # Folders
//!
//! A folder imports only from those below it, and shows the others what its `mod.rs` makes public.
//!
//! ```text
//! 3  flags     all subcommands as one command line, with its help, man pages and completions
//! 2  beside/   the locks of a server that is no redlatch: beside, doctor
//! 2  explore/  a command again and again, each time with another failure; the timeline of a history
//! 2  load/     a load with locks, and its report
//! 2  mcp/      locks as tools of coding agents
//! 1  locks/    locks of a running server: run, take, ls, who, watch, top
//! 1  server/   the process around one server: settings, log, signals; check-config, health, cluster
//! 0  common/   streams, exit codes, the server to ask, the form of a subcommand
//! ```

#![forbid(unsafe_code)]

mod beside;
mod common;
#[cfg(feature = "testing")]
mod explore;
#[cfg(not(feature = "testing"))]
#[path = "explore_none.rs"]
mod explore;
mod flags;
pub mod load;
mod locks;
mod mcp;
mod server;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use common::{Fault, exit, warn};
use flags::Action;

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

fn run(arguments: &[OsString]) -> Result<ExitCode, Fault> {
    let (program, rest) = arguments.split_first().map_or((None, &[][..]), |(p, rest)| (Some(p), rest));
    let name = program.and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == "redis-cli" || name == "valkey-cli") {
        return server::redis_cli(rest);
    }
    match flags::read(rest)? {
        Action::Misused(code, fault) => {
            warn(&fault);
            Ok(code.into())
        }
        Action::Print(text) => Ok(exit::printed(&text).into()),
        Action::Run(task) => task(),
        Action::Serve(arguments) => {
            let program = program.map_or("redlatch".into(), |program| program.to_string_lossy());
            server::run(&program, &arguments)
        }
    }
}
