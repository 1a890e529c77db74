//! `redlatch top`: the locks of a running server on the terminal.
//!
//! Rule    what is shown is a function of what was asked (`view` of `state`); only `screen` knows a terminal and the time.

#[cfg(feature = "top")]
mod sample;
#[cfg_attr(not(feature = "top"), path = "screen_none.rs")]
mod screen;
#[cfg(feature = "top")]
mod state;
#[cfg(feature = "top")]
mod view;

use std::time::Duration;

use clap::{Arg, Command};

use crate::common::{ServerAddress, Subcommand, duration, task, with_url};

pub(super) const TOP: Subcommand = Subcommand::new(
    "top",
    "Shows the locks of a server on the terminal, and their changes.",
    arguments,
    |matches| {
        let interval = matches.get_one::<Duration>("interval").copied().unwrap_or(Duration::from_secs(1));
        if interval < INTERVAL_MIN {
            return Err(format!("--interval {interval:?}: must be at least {INTERVAL_MIN:?}"));
        }
        let server = ServerAddress::read(matches);
        Ok(task(move || screen::show(server, interval)))
    },
);

fn arguments(command: Command) -> Command {
    let interval = Arg::new("interval")
        .long("interval")
        .value_name("TIME")
        .value_parser(duration::read)
        .help("Time between two looks, at least 100ms. [default: 1s]");
    with_url(command.after_help(TOP_HELP).arg(interval))
}

/// How often a server may be asked for what `redlatch top` shows.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

const TOP_HELP: &str = "\
Keys:
  q                         ends
  p                         pauses
  s                         sorts by the next column
  /                         filters by a part of the key: Enter keeps the filter, Escape clears it
  arrows, PageUp, PageDown  move through the list";
