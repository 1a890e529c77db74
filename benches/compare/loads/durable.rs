//! Locks that outlive their server: what each mode of the journal costs, and a start with a million locks.
//!
//! Rule    the journal is on the disk of `--out`, in a directory that is removed after each turn.
//! Rule    `no` is redlatch without a directory, and an AOF of the others that is never synced.

use std::io;
use std::path::PathBuf;

use super::Race;
use super::requests::{HELD_MS, Plan, load_scripts, plan};
use crate::generator::{Generator, Run, Step, Work};
use crate::options::{CONNECTIONS, DEPTH, Options};
use crate::results::{CPU_PER_REQUEST, OURS, REDIS, Results, VALKEY};
use crate::servers::{Running, Server};
use crate::wire::{Answer, KEY, OWNER, Template};

/// The names of the loads that show the cost.
pub(super) const NAMES: &[&str] =
    &["durable acquire", "durable contended", "durable release held", "durable extend held", "durable cycle"];
/// How many clients there are, and how many requests each has under way.
const CROWDS: [(usize, usize); 3] = [(1, 1), (CONNECTIONS, 1), (CONNECTIONS, DEPTH)];
/// When the journal is synced.
const MODES: [&str; 3] = ["no", "everysec", "always"];
/// The servers with one thread and a store.
const SERVERS: [&str; 3] = [OURS, REDIS, VALKEY];

/// Runs the requests of a load in each mode, from each of the crowds.
pub(super) fn run(race: &mut Race, name: &str) {
    let plan = plan(name.strip_prefix("durable ").expect("one of NAMES"));
    race.rounds(name, race.options.scale.long_rounds, |server, options, results| {
        if !SERVERS.contains(&server.row.name) {
            return Ok(());
        }
        for mode in MODES {
            let files = Files::new(options)?;
            let running = server.start_with(&files.arguments(server, mode))?;
            load_scripts(&running)?;
            for (clients, depth) in CROWDS {
                let run = turn(&running, &plan, options, (mode, clients, depth))?;
                let plural = if clients > 1 { "s" } else { "" };
                let by = if depth > 1 { format!(" by {depth}") } else { String::new() };
                add(results, (name, &format!("{mode}, {clients} client{plural}{by}")), server.row.name, &run);
            }
        }
        Ok(())
    });
}

fn turn(
    running: &Running,
    plan: &Plan,
    options: &Options,
    (mode, clients, depth): (&str, usize, usize),
) -> io::Result<Run> {
    let mut generator = Generator::new(running, clients, false)?;
    running.ask(&mut running.connect()?, &["FLUSHALL"])?;
    // redlatch learns from the first lease how long leases are: that one waits for the disk.
    running.ask(&mut running.connect()?, &["SET", "first", "lease", "PX", HELD_MS])?;
    // A client that waits for the disk each time takes milliseconds for each request.
    let is_slow = mode == "always" && clients == 1;
    let requests = match depth {
        1 if is_slow => options.scale.synced,
        1 => options.scale.plain,
        _ => options.scale.pipelined,
    };
    let keys = requests / plan.timed.len() as u64;
    plan.prepare(running, &mut generator, (0, keys))?;
    generator.run(running, &Work { steps: &plan.timed, first: 0, keys, depth })
}

fn add(results: &mut Results, (name, what): (&str, &str), server: &str, run: &Run) {
    let requests = run.requests as f64;
    results.add(name, what, CPU_PER_REQUEST, server, run.cpu.as_secs_f64() * 1e6 / requests);
    let rate = requests / run.wall.as_secs_f64() / 1e3;
    results.add(name, &format!("{what}, rate"), "thousand requests per second", server, rate);
}

/// Kills a server that holds many locks, and starts it again; compares the memory with that of a server without a journal.
pub(super) fn restart(race: &mut Race, name: &str) {
    race.rounds(name, race.options.scale.long_rounds, |server, options, results| {
        if !SERVERS.contains(&server.row.name) {
            return Ok(());
        }
        let (locks, files) = (options.scale.locks, Files::new(options)?);
        let mut add =
            |what: &str, unit: &str, value: f64| results.add(name, what, unit, server.row.name, value);
        let arguments = files.arguments(server, "everysec");
        let (taken, bytes) = fill(&server.start_with(&arguments)?, locks)?;
        add("memory per lock, with a journal", "bytes", bytes);
        let again = server.start_with(&arguments)?;
        let (_, kept) = again.ask(&mut again.connect()?, &["DBSIZE"])?;
        if kept != Answer::Integer(taken as i64) {
            return Err(io::Error::other(format!("{kept:?} of {taken} locks are there after a kill")));
        }
        add("to PONG with all locks", "ms", again.to_pong.as_secs_f64() * 1e3);
        drop(again);
        add("memory per lock, without", "bytes", fill(&server.start()?, locks)?.1);
        Ok(())
    });
}

/// Takes so many locks, in whole waves; returns how many, and the bytes of memory for each.
fn fill(running: &Running, locks: u64) -> io::Result<(u64, f64)> {
    let empty = running.resident_bytes()?;
    let step = Step {
        request: Template::new(&["SET", KEY, OWNER, "NX", "PX", HELD_MS]),
        answers: vec![Answer::Simple],
    };
    let mut generator = Generator::new(running, CONNECTIONS, false)?;
    let run = generator.run(running, &Work { steps: &[step], first: 0, keys: locks, depth: DEPTH })?;
    drop(generator);
    let bytes = running.resident_bytes()?.saturating_sub(empty) as f64;
    Ok((run.requests, bytes / run.requests as f64))
}

/// The directory of a journal; removed on drop.
struct Files(PathBuf);

impl Files {
    fn new(options: &Options) -> io::Result<Self> {
        let path = std::path::absolute(&options.out)?.join("journal");
        // What a race that was ended has left.
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn arguments(&self, server: &Server, mode: &str) -> Vec<String> {
        if server.row.is_ours() && mode == "no" {
            return Vec::new();
        }
        let path = self.0.display().to_string();
        ["--dir", &path, "--appendonly", "yes", "--appendfsync", mode].map(str::to_owned).to_vec()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
