//! The command line of the race, and the amount of work of each load.
//!
//! Rule    everything that makes a run longer or shorter is in [`Scale`]; loads have no counts of their own.

use std::path::PathBuf;
use std::time::Duration;

use crate::loads::REQUESTS;
use crate::results::has_one_thread;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) scale: Scale,
    /// Runs the loads whose name contains this; all by default.
    pub(crate) only: Option<String>,
    /// Names of servers; all by default.
    pub(crate) servers: Option<Vec<String>>,
    pub(crate) out: PathBuf,
    /// Whether to keep the results of loads that are not run.
    pub(crate) again: bool,
    /// Whether to measure clusters, and nothing else.
    pub(crate) replicated: bool,
    /// Whether to measure groups of slots, and nothing else.
    pub(crate) groups: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) name: &'static str,
    /// How often each server takes its turn.
    pub(crate) rounds: usize,
    /// Rounds of loads that take seconds.
    pub(crate) long_rounds: usize,
    /// Requests of one turn, one at a time on each connection; see also `turn_min`.
    pub(crate) plain: u64,
    /// Requests of one turn, sixteen at a time.
    pub(crate) pipelined: u64,
    /// How long a turn of requests takes at least: their number is sent again, on other keys, until then.
    pub(crate) turn_min: Duration,
    /// Requests of one turn of a client that waits for the disk each time.
    pub(crate) synced: u64,
    /// Connections that stand by in a crowd.
    pub(crate) crowds: &'static [usize],
    pub(crate) locks: u64,
    /// From the first lock of the storm to the first end of a lease: they must all be taken by then.
    pub(crate) storm_in: Duration,
    /// From the first end of a lease to the last.
    pub(crate) storm_span: Duration,
    /// The time between the end of the storm and the memory measurement.
    pub(crate) storm_after: Duration,
    pub(crate) hand_offs: usize,
    /// Clients that wait for the lock, again and again.
    pub(crate) waiters: usize,
    /// Clients that wait for the lock, each once.
    pub(crate) herd: usize,
    /// Locks that a client library takes.
    pub(crate) client_locks: u64,
    /// Starts of each server.
    pub(crate) starts: usize,
    pub(crate) clients: &'static [usize],
    /// Locks of a cluster for each client, where clients count.
    pub(crate) locks_each: u64,
    /// How long a turn takes where clients look at the time.
    pub(crate) turn: Duration,
}

pub(crate) const CONNECTIONS: usize = 50;
/// Requests under way on a connection that pipelines.
pub(crate) const DEPTH: usize = 16;

const FULL: Scale = Scale {
    name: "full",
    rounds: 5,
    long_rounds: 3,
    plain: 30_000,
    pipelined: 160_000,
    turn_min: Duration::ZERO,
    synced: 1_000,
    crowds: &[1_000, 10_000],
    locks: 1_000_000,
    storm_in: Duration::from_secs(8),
    storm_span: Duration::from_secs(1),
    storm_after: Duration::from_secs(4),
    hand_offs: 2_000,
    waiters: 100,
    herd: 1_000,
    client_locks: 3_000,
    starts: 20,
    clients: &[1, 50, 500],
    locks_each: 200,
    turn: Duration::from_secs(3),
};

const QUICK: Scale = Scale {
    name: "quick",
    rounds: 5,
    long_rounds: 1,
    plain: 4_000,
    pipelined: 16_000,
    turn_min: Duration::from_millis(500),
    synced: 200,
    crowds: &[1_000],
    locks: 100_000,
    storm_in: Duration::from_secs(3),
    storm_after: Duration::from_secs(1),
    hand_offs: 200,
    herd: 200,
    client_locks: 300,
    starts: 5,
    locks_each: 100,
    turn: Duration::from_secs(1),
    ..FULL
};

/// As a test: that each load works, and nothing about how fast.
const SMOKE: Scale = Scale {
    name: "smoke",
    rounds: 1,
    long_rounds: 1,
    plain: 200,
    pipelined: 1_600,
    turn_min: Duration::ZERO,
    synced: 20,
    crowds: &[60],
    locks: 500,
    storm_in: Duration::from_millis(500),
    storm_span: Duration::from_millis(100),
    storm_after: Duration::ZERO,
    hand_offs: 10,
    waiters: 5,
    herd: 20,
    client_locks: 5,
    starts: 1,
    clients: &[1, 50],
    locks_each: 5,
    turn: Duration::from_millis(100),
};

pub(crate) const USAGE: &str = "\
cargo bench --bench compare -- [quick] [--only LOAD] [--servers A,B] [--out DIR] [--again] [--replicated | --groups]

  quick          ten minutes instead of three quarters of an hour: requests alone, in turns of a second, of the servers with
                 one thread. Of other loads, with --only, it makes small and rough ones
  --only LOAD    only loads whose name holds LOAD
  --servers A,B  only these servers; see the table in benches/compare/servers.rs
  --out DIR      where results.json, table.md and plot.svg go [default: target/compare]
  --again        only the loads that are run replace what DIR has of this very race
  --replicated   locks that outlive a machine, on etcd, Redis with a replica and ZooKeeper; takes the feature etcd
  --groups       locks on etcd in 1, 4, 8 and 16 groups of slots; takes the feature etcd";

impl Options {
    /// Reads the arguments of the program. Without `--bench`, which cargo adds, it runs as a test.
    pub(crate) fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            scale: FULL,
            only: None,
            servers: None,
            out: "target/compare".into(),
            again: false,
            replicated: false,
            groups: false,
        };
        let (mut is_bench, mut arguments) = (false, arguments.into_iter());
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value\n{USAGE}"));
            match argument.as_str() {
                "--bench" => is_bench = true,
                "--again" => options.again = true,
                "--replicated" => options.replicated = true,
                "--groups" => options.groups = true,
                "quick" => options.scale = QUICK,
                "--only" => options.only = Some(value()?),
                "--out" => options.out = value()?.into(),
                "--servers" => options.servers = Some(value()?.split(',').map(str::to_owned).collect()),
                // Arguments that cargo and its users pass to every test program.
                other if !is_bench && !other.starts_with("--help") => {}
                other => return Err(format!("{other} is not an argument\n{USAGE}")),
            }
        }
        if !is_bench {
            let servers = Some(vec!["redlatch".to_owned(), "limit".to_owned()]);
            let out = std::env::temp_dir().join(format!("redlatch-compare-{}", std::process::id()));
            options = Self { scale: SMOKE, servers, out, ..options };
        }
        Ok(options)
    }

    /// Whether it only has to work.
    pub(crate) fn is_test(&self) -> bool {
        self.scale.name == SMOKE.name
    }

    /// Whether it compares the cost of requests as closely as it can in minutes.
    pub(crate) fn is_quick(&self) -> bool {
        self.scale.name == QUICK.name
    }

    pub(crate) fn wants_load(&self, name: &str) -> bool {
        match &self.only {
            Some(only) => name.contains(only.as_str()),
            None => !self.is_quick() || REQUESTS.contains(&name),
        }
    }

    pub(crate) fn wants_server(&self, name: &str) -> bool {
        match &self.servers {
            Some(servers) => servers.iter().any(|server| server == name),
            None => !self.is_quick() || has_one_thread(name),
        }
    }
}
