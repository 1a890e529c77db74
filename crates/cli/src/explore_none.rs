//! Stands in for `explore` in a build without the feature `testing`: the subcommands say so.

use clap::Command;

use crate::common::{Subcommand, exit, task, warn};

/// Subcommands that take any arguments, and are not in the help.
pub(crate) const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand::of_server("explore", hide, |_| Ok(task(refuse))),
    Subcommand::of_server("timeline", hide, |_| Ok(task(refuse))),
];

fn hide(command: Command) -> Command {
    command.hide(true)
}

/// Returns the exit code.
fn refuse() -> u8 {
    warn("this build lacks the feature 'testing': build it with cargo build --release --features testing");
    exit::MISUSED
}
