//! What client libraries do: locks, one after the other, and wake-ups of one that waits. One process and one thread.
//!
//! Rule    missing Python packages are reported.

use std::io;
use std::process::Command;

use super::Race;
use crate::machine;
use crate::servers::{Running, Server};

/// The kinds of clients.py, each with what it does and its Python package.
const KINDS: &[(&str, &str, &str)] = &[
    ("redis-py Lock", "lock", "redis"),
    ("redlock", "lock", "redlock"),
    ("wake-up by BLPOP", "wake-up", "redis"),
    ("wake-up by pub/sub", "wake-up", "redis"),
];

/// Runs each kind whose package is installed.
pub(super) fn run(race: &mut Race, name: &str) {
    let python = std::env::var("REDLATCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    for (kind, what, package) in KINDS {
        if machine::said_by(&python, &["-c", &format!("import {package}")]).is_none() {
            let reason = format!("{python} has no package {package}; REDLATCH_PYTHON names one that has");
            race.results.missing.push((format!("{name}, {kind}"), reason));
            continue;
        }
        race.rounds(name, race.options.scale.long_rounds, |server, options, results| {
            // Without a store there is no token to compare on release, and no element.
            if !server.row.has_store {
                return Ok(());
            }
            let [rate, cost] = turn(server, &python, kind, options.scale.client_locks)?;
            results.add(
                name,
                &format!("{kind}, rate"),
                &format!("{what}s per second"),
                server.row.name,
                rate,
            );
            results.add(name, kind, &format!("us of CPU per {what}"), server.row.name, cost);
            Ok(())
        });
    }
}

/// How many per second, and microseconds of the server for each.
fn turn(server: &Server, python: &str, kind: &str, times: u64) -> io::Result<[f64; 2]> {
    let running = server.start()?;
    take(&running, python, kind, times / 10 + 1)?;
    let before = running.cpu_time()?;
    let seconds = take(&running, python, kind, times)?;
    let cpu = running.cpu_time()? - before;
    Ok([times as f64 / seconds, cpu.as_secs_f64() * 1e6 / times as f64])
}

/// Seconds that the client took for them, without its own start.
fn take(running: &Running, python: &str, kind: &str, times: u64) -> io::Result<f64> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/compare/loads/clients.py");
    let output =
        Command::new(python).args([script, kind, &running.port.to_string(), &times.to_string()]).output()?;
    let seconds = String::from_utf8_lossy(&output.stdout).trim().parse();
    seconds.map_err(|_| io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
