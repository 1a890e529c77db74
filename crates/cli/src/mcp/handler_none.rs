//! Stands in for `handler` in a build without the feature `mcp`: the subcommand says so.

use crate::common::{ServerAddress, exit, warn};

/// Returns the exit code.
pub(super) fn run(_: ServerAddress, _: Option<Vec<u8>>) -> u8 {
    warn("this build lacks the feature 'mcp': build it with cargo build --release --features mcp");
    exit::MISUSED
}
