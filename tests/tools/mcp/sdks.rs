//! The official SDKs for Python and TypeScript drive the program, each by a program of the project `tests/clients/mcp`.

use std::time::Duration;

use crate::clients::installer::{Closed, Installer};
use crate::clients::process::run;
use crate::support::binary::{Running, redlatch};

/// Runs a program of the project, which prints `done` when all is as it must be.
fn driven_by(words: &[&str]) {
    let server = Running::start(redlatch().args(["--port", "auto"]));
    let installer = match Installer::open("mcp") {
        Ok(installer) => installer,
        Err(Closed::Broken(why) | Closed::Missing(why)) => panic!("mcp: {why}"),
    };
    let mut command = installer.command(words);
    command.args([env!("CARGO_BIN_EXE_redlatch"), &server.url()]);
    let finished = run(command, TIME_MAX).expect("it starts");
    let said = finished.lines.join("\n");
    assert_eq!(finished.failure(), None, "{said}");
    assert_eq!(finished.lines.last().map(String::as_str), Some("done"), "{said}");
}

#[test]
#[ignore = "needs REDLATCH_INSTALL_CLIENTS=1"]
fn the_sdk_for_python_drives_it() {
    driven_by(&["venv/bin/python", "agents.py"]);
}

#[test]
#[ignore = "needs REDLATCH_INSTALL_CLIENTS=1"]
fn the_sdk_for_typescript_drives_it() {
    driven_by(&["node", "agents.js"]);
}

const TIME_MAX: Duration = Duration::from_secs(300);
