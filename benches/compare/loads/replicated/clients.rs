//! The clients of a cluster, and their turns.
//!
//! Rule    redlatch and Redis are sent the same requests, by the same generator. Others have programs with their own client
//!         libraries, which are told each turn by a line.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use redlatch_cli::load::RELEASE;

use super::clusters::Cluster;
use crate::generator::{Generator, Step, Work};
use crate::loads::requests::plan;
use crate::options::Scale;
use crate::servers::{Process, Running};
use crate::wire::{Answer, Template};

/// What a cluster has done in a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) operations: f64,
    pub(super) seconds: f64,
    /// Milliseconds that an operation took, median and 99 %.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Processor time of all servers.
    pub(super) cpu_seconds: f64,
    /// Milliseconds of one commit, as redlatch counts them.
    pub(super) commit: Option<f64>,
}

/// The clients of a cluster.
pub(super) enum Clients {
    /// Connections of the generator to this server.
    Redis {
        running: Running,
        has_replica: bool,
    },
    Program(Program),
}

/// A program, which does a turn for each line of its input.
pub(super) struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Clients {
    pub(super) fn redis(running: Running, has_replica: bool) -> io::Result<Self> {
        running.ask(&mut running.connect()?, &["SCRIPT", "LOAD", RELEASE])?;
        Ok(Self::Redis { running, has_replica })
    }

    pub(super) fn program(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { unreachable!("both are pipes") };
        Ok(Self::Program(Program { child, input, output: BufReader::new(output).lines() }))
    }
}

impl Cluster {
    /// Does the load with so many clients.
    pub(super) fn turn(&mut self, what: (&str, usize), scale: &Scale) -> io::Result<Turn> {
        match &mut self.clients {
            Clients::Program(program) => program.turn(what, scale.turn, &self.processes),
            Clients::Redis { running, has_replica: true } => {
                requests(running, &self.processes, what, (scale.locks_each, Some(wait_for_replica)))
            }
            Clients::Redis { running, has_replica: false } => {
                let before = commits(running, 0)?;
                let turn = requests(running, &self.processes, what, (scale.locks_each, None))?;
                let after = commits(running, 0)?;
                let commit = (after.1 - before.1) / (after.0 - before.0) / 1e3;
                Ok(Turn { commit: Some(commit), ..turn })
            }
        }
    }
}

fn cpu_time(processes: &[Process]) -> io::Result<Duration> {
    processes.iter().map(Process::cpu_time).sum()
}

/// A turn of the generator: each client takes so many locks, in changed steps.
fn requests(
    running: &Running,
    beside: &[Process],
    (load, clients): (&str, usize),
    (locks_each, change): (u64, Option<fn(&mut Step)>),
) -> io::Result<Turn> {
    let mut steps = plan(load).timed;
    if let Some(change) = change {
        steps.iter_mut().for_each(change);
    }
    let mut generator = Generator::new(running, clients, false)?;
    let keys = locks_each * clients as u64;
    let before = cpu_time(beside)?;
    let run = generator.run(running, &Work { steps: &steps, first: 0, keys, depth: 1 })?;
    let cpu = run.cpu + (cpu_time(beside)? - before);
    // No lease ends during the turns of others.
    running.ask(&mut running.connect()?, &["FLUSHALL"])?;
    let millis = |quantile| run.latency.value_at_quantile(quantile) as f64 / 1e6;
    Ok(Turn {
        operations: keys as f64,
        seconds: run.wall.as_secs_f64(),
        p50: millis(0.5),
        p99: millis(0.99),
        cpu_seconds: cpu.as_secs_f64(),
        commit: None,
    })
}

/// The answer is awaited with that of a WAIT in the same packet.
fn wait_for_replica(step: &mut Step) {
    step.request = step.request.clone().then(&Template::new(&["WAIT", "1", "1000"]));
    step.answers.push(Answer::Integer(1));
}

/// How many commits redlatch has done in a group, and the microseconds that they took.
pub(super) fn commits(running: &Running, group: usize) -> io::Result<(f64, f64)> {
    let (text, _) = running.ask(&mut running.connect_to(group)?, &["CLUSTER", "INFO"])?;
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
        found.ok_or_else(|| io::Error::other(format!("CLUSTER INFO has no {name}")))
    };
    Ok((field("cluster_commits")?, field("cluster_commit_micros")?))
}

impl Program {
    fn turn(
        &mut self,
        (load, clients): (&str, usize),
        time: Duration,
        servers: &[Process],
    ) -> io::Result<Turn> {
        writeln!(self.input, "{load} {clients} {}", time.as_secs_f64())?;
        self.line()?;
        let before = cpu_time(servers)?;
        let figures = self.line()?;
        let cpu_seconds = (cpu_time(servers)? - before).as_secs_f64();
        self.line()?;
        let figures: Vec<f64> = figures.split(' ').map_while(|word| word.parse().ok()).collect();
        let [operations, seconds, p50, p99] = figures[..] else {
            return Err(io::Error::other(format!("figures that are none: {figures:?}")));
        };
        Ok(Turn { operations, seconds, p50: p50 / 1e3, p99: p99 / 1e3, cpu_seconds, commit: None })
    }

    fn line(&mut self) -> io::Result<String> {
        self.output.next().unwrap_or_else(|| Err(io::Error::other("the program of the clients has ended")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself, and is gone either way.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
