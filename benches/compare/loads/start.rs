//! A start: the time from exec to the first PONG, and memory after it.

use std::io;

use super::Race;
use crate::servers::binary_bytes;

/// Connections for the second memory measurement.
const CROWD: usize = 100;

/// Starts each server `scale.starts` times.
pub(super) fn run(race: &mut Race, name: &str) {
    race.rounds(name, race.options.scale.starts, |server, _, results| {
        let running = server.start()?;
        let mut add =
            |what: &str, unit: &str, value: f64| results.add(name, what, unit, server.row.name, value);
        add("to PONG", "ms", running.to_pong.as_secs_f64() * 1e3);
        add("idle private memory", "MB", running.private_bytes()? as f64 / 1e6);
        add("idle memory", "MB", running.resident_bytes()? as f64 / 1e6);
        let mut crowd = (0..CROWD).map(|_| running.connect()).collect::<io::Result<Vec<_>>>()?;
        crowd.iter_mut().try_for_each(|stream| running.ask(stream, &["PING"]).map(drop))?;
        add(&format!("memory with {CROWD} connections"), "MB", running.resident_bytes()? as f64 / 1e6);
        Ok(())
    });
    race.rounds(name, 1, |server, _, results| {
        // The program of `limit` is the race itself.
        if server.row.has_store {
            let bytes = binary_bytes(&server.program)?;
            results.add(name, "binary", "MB", server.row.name, bytes as f64 / 1e6);
        }
        Ok(())
    });
}
