//! The arguments of `redlatch mcp`.

use clap::{ArgMatches, Command};

use super::Fault;
use super::flags::Action;
use super::hold_flags::{owner, owner_of};
use super::lock_flags::with_url;
use super::place::Place;

/// The names of the subcommands.
pub(super) const NAMES: &[&str] = &["mcp"];

/// The server to ask, and for whom.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "mcp"),
    allow(dead_code, reason = "a build without the feature reads it, and does nothing")
)]
pub(super) struct Options {
    pub(super) place: Place,
    /// The owner of locks; `None`: the name that the client tells, and a random number.
    pub(super) owner: Option<Vec<u8>>,
}

pub(super) fn command() -> Command {
    let help = "The owner of locks: a name that no other agent uses. [default: that of the client, and a \
                random number]";
    let command = Command::new("mcp")
        .about("Gives coding agents locks, as tools of the Model Context Protocol.")
        .arg(owner().required(false).help(help))
        .after_help(HELP);
    with_url(command)
}

/// What the arguments ask for.
///
/// # Errors
/// The server would refuse the owner.
pub(super) fn read(matches: &ArgMatches) -> Result<Action, Fault> {
    let owner = matches.contains_id("as").then(|| owner_of(matches)).transpose()?;
    Ok(Action::Mcp(Options { place: Place::read(matches), owner }))
}

const HELP: &str = "\
Speaks the protocol on the standard input and output. Exit codes: 0 when the client closes the connection; 64 for bad
options; 69 if it does so before it has begun. See docs/mcp.md.";
