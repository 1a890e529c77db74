//! Stands in for `explore` in a build without the feature `testing`: the subcommands say so.

use crate::common::{Subcommand, exit, task, warn};

pub(crate) const SUBCOMMANDS: &[Subcommand] = &[refused("explore"), refused("timeline")];

/// A subcommand that takes any arguments, and is not in the help.
const fn refused(name: &'static str) -> Subcommand {
    Subcommand::of_server(name, "Not in this build.", |command| command.hide(true), |_| Ok(task(refuse)))
}

/// Returns the exit code.
fn refuse() -> u8 {
    warn("this build lacks the feature 'testing': build it with cargo build --release --features testing");
    exit::MISUSED
}
