//! Stands in for `top` in a build without the feature: the subcommand says so.

use std::time::Duration;

use super::place::Place;

/// Returns the exit code.
pub(super) fn show(_: Place, _: Duration) -> u8 {
    super::warn("this build lacks the feature 'top': build it with cargo build --release --features top");
    super::exit::MISUSED
}
