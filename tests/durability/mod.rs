//! The promises of docs/durability.md, kept by real processes: kills, ends in good order, disks that fill and that fail.
//!
//! Belongs here  what only a process and its files can show. `simulation/crash.rs` has power losses by the thousand.
//! Time          no sleep: a test waits for replies, for lines of the log, and for ends of processes.

// The helpers are part of the tests, and may panic as well.
#![allow(clippy::unwrap_used)]

mod disks;
#[cfg(all(target_os = "linux", not(target_env = "musl")))]
mod faulty;
mod journal;
mod kills;
mod volumes;

use std::net::SocketAddr;
use std::process::Command;

use crate::support::binary::{Directory, Running, redlatch};
use crate::support::stream::Peer;
use crate::support::words::info_field;

/// A server on this directory.
fn command(directory: &Directory) -> Command {
    let mut command = redlatch();
    command.args(["--port", "auto", "--dir"]).arg(directory.root());
    command
}

fn start(directory: &Directory) -> Running {
    Running::start(&mut command(directory))
}

fn address(server: &Running) -> SocketAddr {
    server.address().parse().unwrap()
}

fn peer(server: &Running) -> Peer {
    Peer::to(address(server))
}

/// The number in a field of INFO.
fn info(server: &Running, field: &str) -> u64 {
    info_field(&server.ask("INFO"), field)
}

/// A library for LD_PRELOAD that is made of this C, in the directory. `None`: there is no C compiler, which the test says.
#[cfg(all(target_os = "linux", not(target_env = "musl")))]
fn build(directory: &Directory, text: &str) -> Option<String> {
    let (source, library) = (directory.write("shim.c", text), directory.path("shim.so"));
    // The compiler for the server's architecture, which may be emulated.
    let variable = format!("CC_{}_unknown_linux_gnu", std::env::consts::ARCH);
    let compiler = std::env::var_os(variable).unwrap_or_else(|| "cc".into());
    match Command::new(&compiler).args(["-shared", "-fPIC", "-o", &library, &source]).status() {
        Ok(status) => assert!(status.success(), "the library compiles"),
        Err(error) => {
            println!("skipped: no C compiler {}: {error}", compiler.display());
            return None;
        }
    }
    Some(library)
}
