//! Arguments that subcommands of several folders have.

use std::ffi::OsString;

use clap::{Arg, value_parser};

use super::duration;

pub(crate) fn time(name: &'static str, help: &'static str, default: &'static str) -> Arg {
    let help = format!("{help} [default: {default}]");
    Arg::new(name).long(name).value_name("TIME").value_parser(duration::read).help(help)
}

/// The command that a subcommand runs, behind `--`.
pub(crate) fn command_to_run() -> Arg {
    Arg::new("command")
        .value_name("CMD")
        .required(true)
        .num_args(1..)
        .last(true)
        .value_parser(value_parser!(OsString))
        .help("The command and its arguments.")
}
