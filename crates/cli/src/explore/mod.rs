//! `redlatch explore`: a command again and again, each time with another failure at another of its lock commands. And the
//! picture of what clients did to locks, `redlatch timeline`.
//!
//! Belongs here  [`search`] has the order of the runs. [`point`] finds the lock commands, [`case`] makes the failures,
//!               [`pairs`]
//!               joins them, [`attempt`] runs the [`program`], [`verdict`] says what is wrong, [`report`] how it is written,
//!               and [`kept`] which test keeps it.

mod attempt;
mod case;
mod flags;
mod kept;
mod options;
mod pairs;
mod point;
mod problem;
mod program;
mod report;
mod rival;
mod search;
mod servers;
mod timeline;
mod verdict;

use crate::common::Subcommand;

pub(crate) const SUBCOMMANDS: &[Subcommand] = &[flags::EXPLORE, timeline::TIMELINE];
