//! Stands in for `screen` in a build without the feature `top`: the subcommand says so.

use std::time::Duration;

use crate::common::{ServerAddress, exit, warn};

/// Returns the exit code.
pub(super) fn show(_: ServerAddress, _: Duration) -> u8 {
    warn("this build lacks the feature 'top': build it with cargo build --release --features top");
    exit::MISUSED
}
