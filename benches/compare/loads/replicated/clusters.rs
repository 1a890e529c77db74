//! The clusters: how their servers are started.
//!
//! Owns    the processes, which end with their handle, and their files, which are in the target folder.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::clients::Clients;
use crate::machine::{self, Cores};
use crate::options::Options;
use crate::results::{OURS, REDIS};
use crate::servers::{self, Process, Server, free_ports};
use crate::wire::Answer;

type Start = fn(&Options) -> io::Result<Cluster>;

/// The clusters, by their names in results.
pub(super) const ALL: [(&str, Start); 4] =
    [(OURS, redlatch), (REDIS, redis), (ETCD, etcd), ("curator", curator)];
/// etcd with its own locks.
pub(super) const ETCD: &str = "etcd";
/// Members of etcd, and servers of ZooKeeper.
const MEMBERS: usize = 3;

pub(super) struct Cluster {
    pub(super) about: String,
    pub(super) clients: Clients,
    /// All servers, but for that which clients of Redis are connected to.
    pub(super) processes: Vec<Process>,
}

/// redlatch, and members of etcd.
fn redlatch(options: &Options) -> io::Result<Cluster> {
    if !cfg!(feature = "etcd") {
        return Err(io::Error::other("built without the feature etcd"));
    }
    let server = server(OURS, options)?;
    let (processes, endpoints, version) = start_etcd(OURS, MEMBERS)?;
    let running = server.start_with(&["--cluster-etcd".to_owned(), endpoints])?;
    let about = format!("{} on {version}", server.about);
    Ok(Cluster { about, clients: Clients::redis(running, false)?, processes })
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
    let about = format!("{}, a replica, WAIT 1", server.about);
    Ok(Cluster { about, clients: Clients::redis(primary, true)?, processes: vec![replica] })
}

/// Members of etcd, and clients with etcd's own library.
fn etcd(_: &Options) -> io::Result<Cluster> {
    let (processes, endpoints, version) = start_etcd(ETCD, MEMBERS)?;
    let program = kept().join("etcd-locks");
    must_run(Command::new("go").args(["build", "-C", ETCD_SOURCE, "-o"]).arg(&program))?;
    let clients = Clients::program(Command::new(program).arg(endpoints))?;
    Ok(Cluster { about: format!("{version}, clientv3/concurrency"), clients, processes })
}

/// Starts so many members, [`MEMBERS`] at most. Returns them, their endpoints, and name and version.
pub(super) fn start_etcd(name: &str, count: usize) -> io::Result<(Vec<Process>, String, String)> {
    let program = servers::in_path("etcd").ok_or_else(|| io::Error::other("no etcd in the path"))?;
    let version = machine::said_by(&program.to_string_lossy(), &["--version"]).unwrap_or_default();
    let folder = new_folder(name)?;
    let ports = free_ports::<{ 2 * MEMBERS }>()?.map(|port| format!("http://127.0.0.1:{port}"));
    let urls = &ports.as_chunks::<2>().0[..count];
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
    let clients =
        Clients::program(Command::new("java").args(["-cp", &jars]).arg(source).arg(servers.join(",")))?;
    Ok(Cluster { about: "ZooKeeper 3.9.3, Curator 5.9.0".to_owned(), clients, processes })
}

pub(super) fn server(name: &str, options: &Options) -> io::Result<Server> {
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
