//! Loads that are requests and nothing else: fifty connections, one request at a time on each, and sixteen.
//!
//! Rule    each run begins on an emptied store with the same keys, so every server grants the same share.

use std::io;
use std::time::Duration;

use redlatch_cli::load::RELEASE;
use sha1::{Digest, Sha1};

use super::Race;
use crate::generator::{Generator, Run, Step, Work};
use crate::options::{CONNECTIONS, DEPTH, Options};
use crate::results::{CPU_PER_REQUEST, Results};
use crate::servers::{Running, Server};
use crate::wire::{Answer, KEY, OWNER, Template, key};

/// The names of these loads.
pub(crate) const NAMES: &[&str] = &[
    "acquire", "contended", "cycle", "release held", "release missing", "extend held", "extend missing",
    "release by EVAL", "extend by EVAL", "GET", "DEL", "INCR", "PEXPIRE", "SETNX",
];

/// The untimed preparation, and the timed steps.
pub(super) struct Plan {
    before: Vec<Step>,
    /// Keys that are met before, at most.
    before_max: u64,
    pub(super) timed: Vec<Step>,
}

impl Plan {
    /// Does what comes before the timed steps with so many keys, from number `first` on.
    pub(super) fn prepare(
        &self,
        running: &Running,
        generator: &mut Generator,
        (first, keys): (u64, u64),
    ) -> io::Result<()> {
        let keys = keys.min(self.before_max.saturating_sub(first));
        if !self.before.is_empty() && keys > 0 {
            generator.run(running, &Work { steps: &self.before, first, keys, depth: DEPTH })?;
        }
        Ok(())
    }

    /// Runs the timed steps with so many keys, and goes on with others until `turn_min` has passed.
    fn run(
        &self,
        running: &Running,
        generator: &mut Generator,
        (keys, depth): (u64, usize),
        turn_min: Duration,
    ) -> io::Result<Run> {
        let mut part = |first| -> io::Result<Run> {
            self.prepare(running, generator, (first, keys))?;
            generator.run(running, &Work { steps: &self.timed, first, keys, depth })
        };
        let (mut run, mut next) = (part(0)?, keys);
        while run.wall < turn_min {
            run = run.and(&part(next)?)?;
            next += keys;
        }
        Ok(run)
    }
}

/// Runs the load of this name.
pub(super) fn run(race: &mut Race, name: &str) {
    let plan = plan(name);
    let mut field: Vec<Option<(Running, Generator)>> = race.servers.iter().map(|_| None).collect();
    let names: Vec<_> = race.servers.iter().map(|server| server.row.name).collect();
    race.rounds(name, race.options.scale.rounds, |server, options, results| {
        let slot = names.iter().position(|name| *name == server.row.name).expect("a server of this race");
        // Those that have had their turn stay, asleep: a start in every round would take longer than the load.
        let (running, generator) = match &mut field[slot] {
            Some(known) => known,
            empty => empty.insert(connect(server)?),
        };
        turn(server, running, generator, &plan, options, (name, results))
    });
}

fn connect(server: &Server) -> io::Result<(Running, Generator)> {
    let running = server.start()?;
    let generator = Generator::new(&running, CONNECTIONS, !server.row.has_store)?;
    load_scripts(&running)?;
    Ok((running, generator))
}

pub(super) fn load_scripts(running: &Running) -> io::Result<()> {
    for script in [RELEASE, EXTEND] {
        running.ask(&mut running.connect()?, &["SCRIPT", "LOAD", script])?;
    }
    Ok(())
}

fn turn(
    server: &Server,
    running: &Running,
    generator: &mut Generator,
    plan: &Plan,
    options: &Options,
    (name, results): (&str, &mut Results),
) -> io::Result<()> {
    let scale = &options.scale;
    for (mode, requests, depth) in [("plain", scale.plain, 1), ("pipelined", scale.pipelined, DEPTH)] {
        let keys = requests / plan.timed.len() as u64;
        let run = plan.run(running, generator, (keys, depth), scale.turn_min)?;
        add(results, server.row.name, name, mode, &run);
        // Its leases must not end in the turn of another server.
        running.ask(&mut running.connect()?, &["FLUSHALL"])?;
    }
    Ok(())
}

fn add(results: &mut Results, server: &str, name: &str, mode: &str, run: &Run) {
    let requests = run.requests as f64;
    results.add(name, mode, CPU_PER_REQUEST, server, run.cpu.as_secs_f64() * 1e6 / requests);
    let rate = requests / run.wall.as_secs_f64() / 1e3;
    results.add(name, &format!("{mode}, rate"), "thousand requests per second", server, rate);
    if name == "cycle" && mode == "plain" {
        for (quantile, what) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")] {
            let micros = run.latency.value_at_quantile(quantile) as f64 / 1e3;
            results.add(name, &format!("latency, {what}"), "us", server, micros);
        }
    }
}

/// The plan of the load of this name.
pub(super) fn plan(name: &str) -> Plan {
    let ok = Answer::Simple;
    let [zero, one, two] = [0, 1, 2].map(Answer::Integer);
    let taken = step(&["SET", KEY, OWNER, "NX", "PX", "30000"], ok);
    let held = step(&["SET", KEY, OWNER, "NX", "PX", HELD_MS], ok);
    let one_key = key(0);
    let [release_sha, extend_sha] = [RELEASE, EXTEND].map(sha1_hex);
    let release = |answer| step(&["EVALSHA", &release_sha, "1", KEY, OWNER], answer);
    let extend = |answer| step(&["EVALSHA", &extend_sha, "1", KEY, OWNER, HELD_MS], answer);
    let count = |answer| step(&["INCR", KEY], answer);
    let (before, timed) = match name {
        "acquire" => (vec![], vec![taken]),
        "contended" => (
            vec![step(&["SET", &one_key, OWNER], ok)],
            vec![step(&["SET", &one_key, OWNER, "NX", "PX", "30000"], Answer::Nil)],
        ),
        "cycle" => (vec![], vec![taken, release(one)]),
        "release held" => (vec![held], vec![release(one)]),
        "release missing" => (vec![], vec![release(zero)]),
        "extend held" => (vec![held], vec![extend(one)]),
        "extend missing" => (vec![], vec![extend(zero)]),
        "release by EVAL" => (vec![held], vec![step(&["EVAL", RELEASE, "1", KEY, OWNER], one)]),
        "extend by EVAL" => (vec![held], vec![step(&["EVAL", EXTEND, "1", KEY, OWNER, HELD_MS], one)]),
        "GET" => (vec![held], vec![step(&["GET", KEY], Answer::Text(OWNER.len()))]),
        "DEL" => (vec![held], vec![step(&["DEL", KEY], one)]),
        "INCR" => (vec![count(one)], vec![count(two)]),
        "PEXPIRE" => (vec![held], vec![step(&["PEXPIRE", KEY, HELD_MS], one)]),
        "SETNX" => (vec![], vec![step(&["SETNX", KEY, OWNER], one)]),
        other => unreachable!("{other} is none of NAMES"),
    };
    // The one contended key is taken once.
    let before_max = if name == "contended" { 1 } else { u64::MAX };
    Plan { before, before_max, timed }
}

fn step(words: &[&str], answer: Answer) -> Step {
    Step { request: Template::new(words), answers: vec![answer] }
}

/// The request of the crowd, which leaves the store unchanged.
pub(super) fn contended() -> [Vec<Step>; 2] {
    let Plan { before, timed, .. } = plan("contended");
    [before, timed]
}

fn sha1_hex(text: &str) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lease of locks that are held before the timed requests: longer than a turn takes, and as long as one may be that
/// does not wait for the disk in redlatch's default mode.
pub(super) const HELD_MS: &str = "60000";
const EXTEND: &str = "if redis.call(\"get\",KEYS[1]) == ARGV[1] then \
     return redis.call(\"pexpire\",KEYS[1],ARGV[2]) else return 0 end";
