//! The arguments of `redlatch mcp`.

use clap::Command;

use super::handler;
use crate::common::exit::{DONE, MISUSED, NO_SERVER, SYSTEM};
use crate::common::{ServerAddress, Subcommand, task, with_url};
use crate::locks::{owner, owner_of};

pub(super) const MCP: Subcommand = Subcommand::new(
    "mcp",
    "Serves locks to coding agents, as tools of the Model Context Protocol.",
    arguments,
    |matches| {
        let owner = matches.contains_id("as").then(|| owner_of(matches)).transpose()?;
        let server = ServerAddress::read(matches);
        Ok(task(move || handler::run(server, owner)))
    },
)
.only(&[DONE, MISUSED, NO_SERVER, SYSTEM]);

fn arguments(command: Command) -> Command {
    let help = "Name of the owner. No other agent may use it. [default: the name of the client and a random \
                number]";
    let command = command.arg(owner().required(false).help(help)).after_help(HELP);
    with_url(command)
}

const HELP: &str = "\
Speaks the protocol on standard input and output, until the client closes them. See docs/mcp.md.";
