//! The arguments of `redlatch mcp`.

use clap::Command;

use super::handler;
use crate::common::{ServerAddress, Subcommand, task, with_url};
use crate::locks::{owner, owner_of};

pub(super) const MCP: Subcommand = Subcommand::new(
    "mcp",
    "Gives coding agents locks, as tools of the Model Context Protocol.",
    arguments,
    |matches| {
        let owner = matches.contains_id("as").then(|| owner_of(matches)).transpose()?;
        let server = ServerAddress::read(matches);
        Ok(task(move || handler::run(server, owner)))
    },
);

fn arguments(command: Command) -> Command {
    let help = "The owner of locks: a name that no other agent uses. [default: that of the client, and a \
                random number]";
    let command = command.arg(owner().required(false).help(help)).after_help(HELP);
    with_url(command)
}

const HELP: &str = "\
Speaks the protocol on the standard input and output. Exit codes: 0 when the client closes the connection; 64 for bad
options; 69 if it does so before it has begun. See docs/mcp.md.";
