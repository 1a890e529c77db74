//! Stands in for `mcp` in a build without the feature: the subcommand says so.

use super::mcp_flags::Options;

/// Returns the exit code.
pub(super) fn run(_: Options) -> u8 {
    super::warn("this build lacks the feature 'mcp': build it with cargo build --release --features mcp");
    super::exit::MISUSED
}
