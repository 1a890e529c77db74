//! Fifty busy connections and many idle ones: the cost of idle connections.

use std::io;
use std::net::TcpStream;

use super::Race;
use super::requests::contended;
use crate::generator::{Generator, Work};
use crate::options::{CONNECTIONS, Options};
use crate::results::{CPU_PER_REQUEST, Results};
use crate::servers::Server;

/// Runs it with each size of crowd.
pub(super) fn run(race: &mut Race, name: &str) {
    for idle in race.options.scale.crowds {
        race.rounds(name, race.options.scale.long_rounds, |server, options, results| {
            turn(server, options, *idle, (name, results))
        });
    }
}

fn turn(
    server: &Server,
    options: &Options,
    idle: usize,
    (name, results): (&str, &mut Results),
) -> io::Result<()> {
    let running = server.start()?;
    let mut crowd = (0..idle).map(|_| running.connect()).collect::<io::Result<Vec<TcpStream>>>()?;
    let mut generator = Generator::new(&running, CONNECTIONS, !server.row.has_store)?;
    let [before, timed] = contended();
    // The last of the crowd answers: all of it has been accepted.
    if let Some(last) = crowd.last_mut() {
        running.ask(last, &["PING"])?;
    }
    generator.run(&running, &Work { steps: &before, first: 0, keys: 1, depth: 1 })?;
    let run =
        generator.run(&running, &Work { steps: &timed, first: 0, keys: options.scale.plain, depth: 1 })?;
    drop(crowd);
    let cost = run.cpu.as_secs_f64() * 1e6 / run.requests as f64;
    results.add(name, &format!("beside {idle}"), CPU_PER_REQUEST, server.row.name, cost);
    Ok(())
}
