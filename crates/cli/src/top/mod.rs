//! `redlatch top`: the locks of a running server on the terminal.
//!
//! Owns    the seam of the feature `top`: without it the subcommand says so.
//! Rule    what is shown is a function of what was asked (`view` of `state`); only `screen` knows a terminal and the time.

#[cfg(feature = "top")]
mod sample;
#[cfg(feature = "top")]
mod screen;
#[cfg(feature = "top")]
mod state;
#[cfg(feature = "top")]
mod view;

use std::time::Duration;

use super::place::Place;

/// What `redlatch top` was asked for.
#[derive(Debug)]
#[cfg_attr(not(feature = "top"), allow(dead_code, reason = "the feature `top` reads it"))]
pub(super) struct Options {
    pub(super) place: Place,
    /// How often the server is asked.
    pub(super) interval: Duration,
}

/// Shows the server's locks until it is ended; returns the exit code.
#[cfg(feature = "top")]
pub(super) fn show(options: Options) -> u8 {
    screen::run(options)
}

/// Says that this build cannot.
#[cfg(not(feature = "top"))]
pub(super) fn show(_options: Options) -> u8 {
    super::warn("this build lacks the feature 'top': build it with cargo build --release --features top");
    super::exit::MISUSED
}
