//! Groups of slots on one etcd: what a lock costs a node that leads one, four, eight or sixteen of them.
//!
//! Rule    a node begins for each turn, on keys of its own, so that the heartbeats of idle groups disturb nobody. In each
//!         round, all numbers of groups take turns.
//! Rule    the clients are shared out evenly to the groups. A client has the keys of its group alone, as a client in cluster
//!         mode has that has found its leader.

use std::io;
use std::time::Duration;

use redlatch_core::types::slot;

use super::clients::commits;
use super::clusters::{server, start_etcd};
use crate::generator::{Generator, Step, Work};
use crate::loads::requests::plan;
use crate::options::{Options, Scale};
use crate::results::{OURS, Results};
use crate::servers::{Process, Running, Server, free_run};

/// By their names in results.
const GROUPS: [(&str, usize); 4] = [(OURS, 1), ("4 groups", 4), ("8 groups", 8), ("16 groups", 16)];
/// How many clients take locks, and how many locks in a second together; 0: as many as they get.
const LOADS: [(usize, u64); 5] = [(1, 0), (50, 0), (500, 0), (500, 2_000), (500, 5_000)];
/// A turn of few clients has the locks of so many.
const CLIENTS_COUNTED: usize = 20;
/// Rounds that do not count.
const ROUNDS_BEFORE: usize = 1;
/// Members of etcd. Commits of several groups would keep three of them on one core busy all the time.
const MEMBERS: usize = 1;

/// Measures all numbers of groups.
pub(crate) fn run(options: &Options, machine: Vec<(String, String)>) -> Results {
    let mut results = Results { scale: options.scale.name.to_owned(), machine, ..Results::default() };
    if let Err(error) = measure(options, &mut results) {
        results.missing.push((OURS.to_owned(), error.to_string()));
    }
    results
}

fn measure(options: &Options, results: &mut Results) -> io::Result<()> {
    if !cfg!(feature = "etcd") {
        return Err(io::Error::other("built without the feature etcd"));
    }
    let server = server(OURS, options)?;
    let (members, endpoints, version) = start_etcd("groups", MEMBERS)?;
    for (name, _) in GROUPS {
        results.servers.push((name.to_owned(), format!("{} on {version}", server.about)));
    }
    for round in 0..ROUNDS_BEFORE + options.scale.rounds {
        let wanted = LOADS.into_iter().filter(|load| options.wants_load(&title(*load)));
        for (number, load) in wanted.enumerate() {
            eprintln!("round {round}: {}", title(load));
            for index in (0..GROUPS.len()).map(|index| (index + round) % GROUPS.len()) {
                let (name, groups) = GROUPS[index];
                let prefix = format!("/{round}.{number}.{groups}/");
                let turn = start(&server, (&endpoints, &prefix), groups)
                    .and_then(|running| turn(&running, (load, groups), &members, &options.scale));
                match turn {
                    Ok(turn) if round >= ROUNDS_BEFORE => turn.add(results, load, name),
                    Ok(_) => {}
                    Err(error) => results.fail(&title(load), name, &error.to_string()),
                }
            }
        }
    }
    Ok(())
}

fn title((clients, rate): (usize, u64)) -> String {
    match rate {
        0 if clients == 1 => "acquire, 1 client".to_owned(),
        0 => format!("acquire, {clients} clients"),
        _ => format!("acquire, {clients} clients, {rate} a second"),
    }
}

/// Starts a node, and waits until it leads all groups.
fn start(server: &Server, (endpoints, prefix): (&str, &str), groups: usize) -> io::Result<Running> {
    let count = groups.to_string();
    let arguments = ["--cluster-etcd", endpoints, "--cluster-prefix", prefix, "--cluster-groups", &count];
    let arguments = arguments.map(str::to_owned);
    let running = server.start_at(free_run(groups as u16)?, &arguments)?;
    for group in 0..groups {
        running.ask(&mut running.connect_to(group)?, &["PING"])?;
    }
    Ok(running)
}

/// What was measured in a turn.
struct Turn {
    locks: f64,
    seconds: f64,
    /// Milliseconds that a lock took, median and 99 %.
    p50: f64,
    p99: f64,
    /// Seconds of the node, and of the members of etcd.
    node_cpu: f64,
    etcd_cpu: f64,
    commits: f64,
    /// Milliseconds.
    mean_commit: f64,
}

fn turn(
    running: &Running,
    ((clients, rate), groups): ((usize, u64), usize),
    members: &[Process],
    scale: &Scale,
) -> io::Result<Turn> {
    let steps = steps(groups)?;
    let mut generator = Generator::of_groups(running, clients, groups)?;
    let mut locks = scale.locks_each * clients.max(CLIENTS_COUNTED) as u64;
    if rate > 0 {
        generator = generator.paced(rate as f64);
        locks = (rate as f64 * scale.turn.as_secs_f64()) as u64;
    }
    let cpu = || members.iter().map(Process::cpu_time).sum::<io::Result<Duration>>();
    let all_commits = || {
        let of_group = |group| commits(running, group);
        let all = (0..groups).map(of_group).collect::<io::Result<Vec<_>>>()?;
        io::Result::Ok(all.into_iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
    };
    let (cpu_before, before) = (cpu()?, all_commits()?);
    let run = generator.run(running, &Work { steps: &steps, first: 0, keys: locks, depth: 1 })?;
    let (etcd_cpu, after) = (cpu()? - cpu_before, all_commits()?);
    let millis = |quantile| run.latency.value_at_quantile(quantile) as f64 / 1e6;
    Ok(Turn {
        locks: locks as f64,
        seconds: run.wall.as_secs_f64(),
        p50: millis(0.5),
        p99: millis(0.99),
        node_cpu: run.cpu.as_secs_f64(),
        etcd_cpu: etcd_cpu.as_secs_f64(),
        commits: after.0 - before.0,
        mean_commit: (after.1 - before.1) / (after.0 - before.0) / 1e3,
    })
}

/// What the clients of each group send, one group behind the other.
fn steps(groups: usize) -> io::Result<Vec<Step>> {
    let tags = || (0..1_000_000).map(|number| format!("{{{number:06}}}"));
    let mut all = Vec::new();
    for slots in slot::ranges(groups as u16) {
        let tag = tags().find(|tag| slots.contains(&slot::slot(tag.as_bytes())));
        let tag = tag.ok_or_else(|| io::Error::other("a group without a tag"))?;
        let steps = plan("acquire").timed.into_iter();
        all.extend(steps.map(|step| Step { request: step.request.tagged(&tag), ..step }));
    }
    Ok(all)
}

impl Turn {
    fn add(&self, results: &mut Results, load: (usize, u64), name: &str) {
        let micros_each = |seconds: f64| seconds * 1e6 / self.locks;
        for (what, unit, value) in [
            ("rate", "thousand per second", self.locks / self.seconds / 1e3),
            ("p50", "ms", self.p50),
            ("p99", "ms", self.p99),
            ("CPU of the node", "us", micros_each(self.node_cpu)),
            ("CPU", "us", micros_each(self.node_cpu + self.etcd_cpu)),
            ("mean commit", "ms", self.mean_commit),
            ("p50 above a mean commit", "ms", self.p50 - self.mean_commit),
            ("locks per commit", "locks", self.locks / self.commits),
        ] {
            results.add(&title(load), what, unit, name, value);
        }
    }
}
