//! `redlatch mcp`: locks for coding agents, as tools of the Model Context Protocol.
//!
//! Owns    the connection to the host of the agent: the standard input and output, a message on each line.
//! Knows   the subcommands of a shell, which do the same for people.
//! Rule    nothing is written to the standard output but messages; what people read goes to the error stream.
//! Source  the protocol: <https://modelcontextprotocol.io>, by the SDK `rmcp`.

#[cfg(feature = "mcp")]
mod agent;
#[cfg(feature = "mcp")]
mod arguments;
mod flags;
#[cfg(feature = "mcp")]
mod frames;
#[cfg_attr(not(feature = "mcp"), path = "handler_none.rs")]
mod handler;
#[cfg(feature = "mcp")]
mod holds;
#[cfg(feature = "mcp")]
mod tools;

use crate::common::Subcommand;

pub(crate) const SUBCOMMANDS: &[Subcommand] = &[flags::MCP];
