//! The clusters, each of which keeps its locks on three machines, or two: how they are started, and what their clients do.
//!
//! Owns    the processes, which end with their handle, and their files, which are in the target folder.
//! Rule    a release is like that of the cluster's own client library; redlatch and Redis are sent the same requests.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use redlatch::internals::load::RELEASE;

use super::Turn;
use crate::generator::{Generator, Step, Work};
use crate::loads::requests::plan;
use crate::machine::{self, Cores};
use crate::options::Options;
use crate::results::{OURS, REDIS};
use crate::servers::{self, Process, Running, Server, free_ports};
use crate::wire::{Answer, Template};

/// Starts a cluster.
type Start = fn(&Options) -> io::Result<Cluster>;

/// The clusters, by their names in results.
pub(super) const ALL: [(&str, Start); 4] =
    [(OURS, redlatch), (REDIS, redis), (ETCD, etcd), ("curator", curator)];
/// etcd with its own locks.
pub(super) const ETCD: &str = "etcd";
/// Members of etcd, and servers of ZooKeeper.
const MEMBERS: usize = 3;

/// Servers, and their clients.
pub(super) struct Cluster {
    /// Names and versions.
    pub(super) about: String,
    clients: Clients,
    processes: Vec<Process>,
}

enum Clients {
    /// Those of the generator.
    Redis { running: Running, has_replica: bool },
    /// Those of a program.
    Program(Program),
}

/// A program of clients, which does a turn for each line of its input.
struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Cluster {
    /// One turn: the load, and the number of clients.
    pub(super) fn turn(&mut self, what: (&str, usize), options: &Options) -> io::Result<Turn> {
        match &mut self.clients {
            Clients::Redis { running, has_replica } => {
                let before = (cpu_time(&self.processes)?, commits(running, *has_replica)?);
                let mut turn = redis_turn(running, *has_replica, what, options)?;
                turn.cpu_seconds += (cpu_time(&self.processes)? - before.0).as_secs_f64();
                let (count, micros) = commits(running, *has_replica)?;
                let count = count - before.1.0;
                turn.commit = (count > 0.0).then(|| (micros - before.1.1) / count / 1e3);
                Ok(turn)
            }
            Clients::Program(program) => program.turn(what, options.scale.turn, &self.processes),
        }
    }
}

fn cpu_time(processes: &[Process]) -> io::Result<Duration> {
    processes.iter().map(Process::cpu_time).sum()
}

/// The requests of a turn.
fn redis_turn(
    running: &Running,
    has_replica: bool,
    (load, clients): (&str, usize),
    options: &Options,
) -> io::Result<Turn> {
    let mut steps = plan(load).timed;
    if has_replica {
        steps.iter_mut().for_each(wait_for_replica);
    }
    let mut generator = Generator::new(running, clients, false)?;
    let keys = options.scale.locks_each * clients as u64;
    let run = generator.run(running, &Work { steps: &steps, first: 0, keys, depth: 1 })?;
    // No lease ends during the turns of others.
    running.ask(&mut running.connect()?, &["FLUSHALL"])?;
    let millis = |quantile| run.latency.value_at_quantile(quantile) as f64 / 1e6;
    Ok(Turn {
        operations: keys as f64,
        seconds: run.wall.as_secs_f64(),
        p50: millis(0.5),
        p99: millis(0.99),
        cpu_seconds: run.cpu.as_secs_f64(),
        commit: None,
    })
}

/// The answer is awaited with that of a WAIT in the same packet.
fn wait_for_replica(step: &mut Step) {
    step.request = step.request.clone().then(&Template::new(&["WAIT", "1", "1000"]));
    step.answers.push(Answer::Integer(1));
}

/// How many commits redlatch has done, and the microseconds that they took.
fn commits(running: &Running, has_replica: bool) -> io::Result<(f64, f64)> {
    if has_replica {
        return Ok((0.0, 0.0));
    }
    let (text, _) = running.ask(&mut running.connect()?, &["CLUSTER", "INFO"])?;
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
        found.ok_or_else(|| io::Error::other(format!("CLUSTER INFO has no {name}")))
    };
    Ok((field("cluster_commits")?, field("cluster_commit_micros")?))
}

/// redlatch, and members of etcd.
fn redlatch(options: &Options) -> io::Result<Cluster> {
    if !cfg!(feature = "etcd") {
        return Err(io::Error::other("built without the feature etcd"));
    }
    let server = server(OURS, options)?;
    let (processes, endpoints, version) = start_etcd(OURS)?;
    let running = server.start_with(&["--cluster-etcd".to_owned(), endpoints])?;
    let about = format!("{} on {version}", server.about);
    with_redis_clients(running, false, processes, about)
}

/// A primary, and a replica on the same core.
fn redis(options: &Options) -> io::Result<Cluster> {
    let server = server(REDIS, options)?;
    let primary = server.start()?;
    let port = free_ports::<1>()?[0].to_string();
    let mut replica = Command::new(&server.program);
    replica.args(["--port", &port, "--save", "", "--appendonly", "no"]);
    replica.args(["--replicaof", "127.0.0.1", &primary.port.to_string()]).current_dir(std::env::temp_dir());
    let replica = Process::start(&mut replica)?;
    let mut link = primary.connect()?;
    primary.ask(&mut link, &["SET", "ready", "yes"])?;
    // It waits for the replica, which has to be there first.
    match primary.ask(&mut link, &["WAIT", "1", "20000"])? {
        (_, Answer::Integer(1)) => {}
        (answer, _) => return Err(io::Error::other(format!("no replica: {}", answer.escape_ascii()))),
    }
    with_redis_clients(primary, true, vec![replica], format!("{}, a replica, WAIT 1", server.about))
}

fn with_redis_clients(
    running: Running,
    has_replica: bool,
    processes: Vec<Process>,
    about: String,
) -> io::Result<Cluster> {
    running.ask(&mut running.connect()?, &["SCRIPT", "LOAD", RELEASE])?;
    Ok(Cluster { about, clients: Clients::Redis { running, has_replica }, processes })
}

/// Members of etcd, and clients with etcd's own library.
fn etcd(_: &Options) -> io::Result<Cluster> {
    let program = kept().join("etcd-locks");
    let build = ["build", "-C", ETCD_SOURCE, "-o"];
    must_run(Command::new("go").args(build).arg(&program))?;
    let (processes, endpoints, version) = start_etcd(ETCD)?;
    let program = Program::start(Command::new(program).arg(endpoints))?;
    let about = format!("{version}, clientv3/concurrency");
    Ok(Cluster { about, clients: Clients::Program(program), processes })
}

/// Returns the members, their endpoints, and name and version.
fn start_etcd(name: &str) -> io::Result<(Vec<Process>, String, String)> {
    let program = servers::in_path("etcd").ok_or_else(|| io::Error::other("no etcd in the path"))?;
    let version = machine::said_by(&program.to_string_lossy(), &["--version"]).unwrap_or_default();
    let folder = new_folder(name)?;
    let ports = free_ports::<{ 2 * MEMBERS }>()?.map(|port| format!("http://127.0.0.1:{port}"));
    let urls = ports.as_chunks::<2>().0;
    let peers: Vec<_> = (0..).zip(urls).map(|(n, [_, peer])| format!("m{n}={peer}")).collect();
    let start = |(n, [client, peer]): (usize, &[String; 2])| {
        let mut command = Command::new(&program);
        command.args(["--name", &format!("m{n}")]).arg("--data-dir").arg(folder.join(n.to_string()));
        command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
        command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        command.args(["--initial-cluster", &peers.join(",")]);
        Process::start(&mut command)
    };
    let members = (0..).zip(urls).map(start).collect::<io::Result<_>>()?;
    let clients: Vec<_> = urls.iter().map(|[client, _]| client.as_str()).collect();
    Ok((members, clients.join(","), version.replace(" Version:", "")))
}

/// Servers of ZooKeeper, and clients with Curator.
fn curator(_: &Options) -> io::Result<Cluster> {
    let jars = kept().join("jars");
    let into = format!("-DoutputDirectory={}", jars.display());
    must_run(Command::new("mvn").args(["--batch-mode", "--quiet", "--file", CURATOR_SOURCE, COPY, &into]))?;
    let jars = format!("{}/*", jars.display());
    let folder = new_folder("zookeeper")?;
    let ports = free_ports::<{ 3 * MEMBERS }>()?;
    let ports = ports.as_chunks::<3>().0;
    let peers =
        (1..).zip(ports).map(|(n, ports)| format!("server.{n}=127.0.0.1:{}:{}\n", ports[1], ports[2]));
    let peers: String = peers.collect();
    let mut processes = Vec::new();
    for (n, ports) in (1..).zip(ports) {
        let data = folder.join(n.to_string());
        std::fs::create_dir(&data)?;
        std::fs::write(data.join("myid"), n.to_string())?;
        let file = folder.join(format!("{n}.cfg"));
        let settings =
            format!("clientPort={}\ndataDir={}\n{ZOOKEEPER_SETTINGS}{peers}", ports[0], data.display());
        std::fs::write(&file, settings)?;
        let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
        processes.push(Process::start(Command::new("java").args(["-cp", &jars, main]).arg(file))?);
    }
    let servers: Vec<_> = ports.iter().map(|ports| format!("127.0.0.1:{}", ports[0])).collect();
    let source = Path::new(CURATOR_SOURCE).join("Curator.java");
    let mut clients = Command::new("java");
    clients.args(["-cp", &jars]).arg(source).arg(servers.join(","));
    let about = "ZooKeeper 3.9.3, Curator 5.9.0".to_owned();
    Ok(Cluster { about, clients: Clients::Program(Program::start(&mut clients)?), processes })
}

impl Program {
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { unreachable!("both are pipes") };
        Ok(Self { child, input, output: BufReader::new(output).lines() })
    }

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

fn server(name: &str, options: &Options) -> io::Result<Server> {
    let (found, missing) = servers::find(options);
    let server = found.into_iter().find(|server| server.row.name == name);
    let reason = missing.into_iter().find(|(missing, _)| missing == name).map(|(_, reason)| reason);
    server.ok_or_else(|| io::Error::other(reason.unwrap_or_default()))
}

/// Where programs and files of clusters are kept.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("replicated")
}

/// An empty folder for the files of a cluster.
fn new_folder(name: &str) -> io::Result<PathBuf> {
    let folder = kept().join(name);
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Runs a program on all cores, to its end.
fn must_run(command: &mut Command) -> io::Result<()> {
    machine::keep_to(Cores::All)?;
    let output = command.output();
    machine::keep_to(Cores::Generator)?;
    let failed =
        |reason: &dyn Display| io::Error::other(format!("{}: {reason}", command.get_program().display()));
    let output = output.map_err(|error| failed(&error))?;
    if output.status.success() { Ok(()) } else { Err(failed(&String::from_utf8_lossy(&output.stderr))) }
}

const ETCD_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/compare/loads/replicated/etcd");
const CURATOR_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/compare/loads/replicated/curator");
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
/// Besides ports and files. The default for one address is 60 connections.
const ZOOKEEPER_SETTINGS: &str = "\
clientPortAddress=127.0.0.1
tickTime=2000
initLimit=10
syncLimit=5
maxClientCnxns=0
admin.enableServer=false
";
