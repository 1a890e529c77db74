//! `redlatch mcp`: the locks of coding agents, over the standard input and output of the program.
//!
//! Belongs here  what a host of agents sends and gets, line by line; without the feature, what the program says.
//! Time          stands still, and moves by TEST.CLOCK. A test waits for a line, or for the end of a process.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

#[cfg(feature = "mcp")]
mod holding;
#[cfg(feature = "mcp")]
mod host;
#[cfg(feature = "mcp")]
mod hostile;
#[cfg(feature = "mcp")]
mod other_servers;
#[cfg(feature = "mcp")]
mod sdks;
#[cfg(feature = "mcp")]
mod waiting;

#[cfg(not(feature = "mcp"))]
#[test]
fn a_build_without_it_names_the_feature() {
    let (code, _, said) = crate::support::binary::ended(crate::support::binary::redlatch().arg("mcp"));
    assert!(code == Some(64) && said.contains("--features mcp"), "{said}");
}
