//! A cluster of three masters for one transcript, with or without replicas: redlatch's in one process, or real servers.
//!
//! Owns     the servers, and connections over TCP.
//! Time     redlatch's is moved by hand; that of real servers runs by itself.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlatch::Server;
use redlatch_proto::clock::WallTime;

use super::ports::free_port;
use super::real::{STARTS_MAX, program};
use super::reply::Reply;
use super::target::{Heard, Link, Target, Wait, hear};
use super::waits::{PATIENCE, wait_until};

/// The number of masters. A client is connected to the node which the last digit of its name says, else to the first.
const MASTERS: u16 = 3;

/// The nodes and the connections to them.
pub(crate) struct Nodes {
    name: &'static str,
    addresses: Vec<SocketAddr>,
    links: Vec<TcpStream>,
    unix_ms: i64,
    _servers: Servers,
}

enum Servers {
    Own(#[allow(dead_code, reason = "dropping it ends it")] Server),
    /// The processes and their directory.
    Real(Vec<Child>, PathBuf),
}

impl Nodes {
    /// Starts redlatch with a clock that stands still, and so many replicas of each master.
    pub(crate) fn start(replicas: u16) -> Self {
        let unix_ms = 1_700_000_000_000;
        let start = WallTime::from_millis(unix_ms as u64);
        let cluster = Server::builder().cluster(MASTERS * (replicas + 1)).replicas(replicas);
        let server = cluster.manual_clock(start).start_on_threads(1);
        let server = server.expect("a cluster starts");
        let addresses = server.node_addrs();
        Self { name: "redlatch", addresses, links: Vec::new(), unix_ms, _servers: Servers::Own(server) }
    }

    /// Starts real servers, and returns when they are a cluster with the slots of `redis-cli --cluster create`.
    pub(crate) fn start_real(name: &'static str, replicas: u16) -> Self {
        // Another program may take a port first: then all start again.
        let started = (0..STARTS_MAX).find_map(|_| Self::try_start_real(name, MASTERS * (replicas + 1)));
        let (mut nodes, ports) = started.expect("real servers start");
        nodes.found(&ports);
        nodes
    }

    /// Starts real servers, with the ports for clients and for each other. `None`: one of them has ended.
    fn try_start_real(name: &'static str, count: u16) -> Option<(Self, Vec<[u16; 2]>)> {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("redlatch-nodes-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let ports: Vec<[u16; 2]> = (0..count).map(|_| [free_port(), free_port()]).collect();
        let children = ports.iter().map(|[port, bus]| {
            let mut command = Command::new(program(name));
            command.args(["--cluster-enabled", "yes", "--save", "", "--cluster-node-timeout", "1000"]);
            command.current_dir(&directory).args(["--logfile", "log"]);
            command.args(["--cluster-config-file", &format!("{port}.conf"), "--port", &port.to_string()]);
            command.args(["--cluster-port", &bus.to_string()]).stdout(Stdio::null());
            command.spawn().expect("a real server starts")
        });
        let mut children: Vec<Child> = children.collect();
        let addresses: Vec<SocketAddr> =
            ports.iter().map(|[port, _]| SocketAddr::from((Ipv4Addr::LOCALHOST, *port))).collect();
        let all_answer = children.iter_mut().zip(&addresses).all(|(child, address)| answers(child, *address));
        let servers = Servers::Real(children, directory);
        let nodes = Self { name, addresses, links: Vec::new(), unix_ms: 0, _servers: servers };
        all_answer.then_some((nodes, ports))
    }

    /// Makes the nodes a cluster.
    fn found(&mut self, ports: &[[u16; 2]]) {
        let ranges = ["0 5460", "5461 10922", "10923 16383"];
        for number in 1..=ports.len() {
            let link = self.connect_as(&number.to_string());
            self.ask(link, format!("CLUSTER SET-CONFIG-EPOCH {number}\r\n").as_bytes());
        }
        for (link, range) in ranges.iter().enumerate() {
            self.ask(link, format!("CLUSTER ADDSLOTSRANGE {range}\r\n").as_bytes());
        }
        for [port, bus] in &ports[1..] {
            self.ask(0, format!("CLUSTER MEET 127.0.0.1 {port} {bus}\r\n").as_bytes());
        }
        let known = format!("cluster_known_nodes:{}\\r", ports.len());
        self.until_all_say("CLUSTER INFO", |info| {
            ["cluster_state:ok", "cluster_size:3", &known].iter().all(|fact| info.contains(fact))
        });
        let masters = usize::from(MASTERS);
        for link in masters..ports.len() {
            let Reply::Bulk(id) = self.ask(link % masters, b"CLUSTER MYID\r\n") else { panic!("no id") };
            let id = String::from_utf8_lossy(&id).into_owned();
            self.ask(link, format!("CLUSTER REPLICATE {id}\r\n").as_bytes());
        }
        let replicas = ports.len() - masters;
        self.until_all_say("CLUSTER SHARDS", |shards| {
            shards.matches("replica\"").count() == replicas && !shards.contains("loading")
        });
        self.links.clear();
    }

    /// Waits until the replies of all nodes to a request are so.
    fn until_all_say(&mut self, request: &str, is_so: impl Fn(&str) -> bool) {
        for link in 0..self.links.len() {
            let asked = format!("{request}\r\n");
            wait_until("the nodes find each other", || is_so(&self.ask(link, asked.as_bytes()).spell()));
        }
    }
}

/// Waits until a real server answers at this address, as it does once it has its ports. False: it has ended, or it is another
/// program that has the port.
fn answers(child: &mut Child, address: SocketAddr) -> bool {
    let pong = || {
        let mut link = TcpStream::connect(address).ok()?;
        link.set_read_timeout(Some(PATIENCE)).ok()?;
        link.write_all(b"PING\r\n").ok()?;
        let mut pong = [0; 7];
        link.read_exact(&mut pong).ok()?;
        (&pong == b"+PONG\r\n").then_some(())
    };
    let mut is_there = true;
    wait_until("the server answers or ends", || {
        let is_answered = pong().is_some();
        is_there = child.try_wait().expect("it is a child").is_none();
        is_answered || !is_there
    });
    is_there
}

impl Target for Nodes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn clock_is_manual(&self) -> bool {
        self.name == "redlatch"
    }

    fn unix_ms(&self) -> i64 {
        self.unix_ms
    }

    fn connect(&mut self) -> Link {
        self.connect_as("")
    }

    fn connect_as(&mut self, client: &str) -> Link {
        let number = client.chars().last().and_then(|digit| digit.to_digit(10)).unwrap_or(1);
        let address = self.addresses[number as usize - 1];
        let link =
            TcpStream::connect(address).unwrap_or_else(|error| panic!("{} {number}: {error}", self.name));
        self.links.push(link);
        self.links.len() - 1
    }

    fn send(&mut self, link: Link, bytes: &[u8]) {
        // A server that has closed refuses the bytes; whether that was right, the next reply line says.
        let _ = self.links[link].write_all(bytes);
    }

    fn receive(&mut self, link: Link, wait: Wait, into: &mut Vec<u8>) -> Heard {
        let link = &mut self.links[link];
        link.set_read_timeout(Some(wait.limit())).expect("the limit is not zero");
        hear(link, into)
    }

    fn advance(&mut self, step: Duration) {
        self.unix_ms += i64::try_from(step.as_millis()).expect("a step is short");
        if !self.clock_is_manual() {
            return std::thread::sleep(step);
        }
        let link = self.connect();
        self.ask(link, format!("TEST.CLOCK ADVANCE {}\r\n", step.as_millis()).as_bytes());
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Self::Real(children, directory) = self {
            for child in children {
                let _ = child.kill();
                let _ = child.wait();
            }
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
