//! Members of etcd and nodes of a cluster, as processes that are stopped, killed and started again.
//!
//! Owns    the processes, their files, and the network namespaces where a test asks for these.
//! Time    real; a test waits for a line of a log or for an answer.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use crate::support::binary::{Directory, redlatch};
use crate::support::ports::{free_port, free_ports};
use crate::support::waits::PATIENCE;
pub(crate) use crate::support::waits::wait_until;
use crate::support::wire::Link;

/// Where a process runs: on this machine, or in a network namespace with an address of its own.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) ip: Ipv4Addr,
    namespace: Option<String>,
}

impl Host {
    pub(crate) fn local() -> Self {
        Self { ip: Ipv4Addr::LOCALHOST, namespace: None }
    }

    fn in_namespace(ip: Ipv4Addr, namespace: String) -> Self {
        Self { ip, namespace: Some(namespace) }
    }

    /// A program that runs here.
    fn command(&self, program: Command) -> Command {
        let Some(namespace) = &self.namespace else { return program };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null());
        command
    }

    /// A port that nobody uses here.
    fn port(&self, in_namespace: u16) -> u16 {
        if self.namespace.is_some() { in_namespace } else { free_port() }
    }
}

/// Namespaces on a bridge, which this process reaches, too.
pub(crate) struct Network {
    name: String,
    pub(crate) hosts: Vec<Host>,
    /// Its names and addresses are those of the process: one at a time.
    _alone: MutexGuard<'static, ()>,
}

impl Network {
    /// A network of so many namespaces. Takes root and the program `ip`.
    pub(crate) fn new(count: u8) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Names of interfaces have 15 characters at most.
        let id = std::process::id() % 100_000;
        let name = format!("rl{id}");
        let third = (id % 250) as u8;
        let mut network = Self { name: name.clone(), hosts: Vec::new(), _alone: alone };
        ip(&["link", "add", &name, "type", "bridge"]);
        ip(&["addr", "add", &format!("10.231.{third}.{BRIDGE}/24"), "dev", &name]);
        ip(&["link", "set", &name, "up"]);
        for number in 0..count {
            let (namespace, address) =
                (format!("{name}-{number}"), Ipv4Addr::new(10, 231, third, 10 + number));
            let (outer, inner) = (format!("{name}o{number}"), format!("{name}i{number}"));
            ip(&["netns", "add", &namespace]);
            ip(&["link", "add", &outer, "type", "veth", "peer", "name", &inner]);
            ip(&["link", "set", &inner, "netns", &namespace]);
            ip(&["link", "set", &outer, "master", &name, "up"]);
            ip(&["-n", &namespace, "addr", "add", &format!("{address}/24"), "dev", &inner]);
            ip(&["-n", &namespace, "link", "set", &inner, "up"]);
            ip(&["-n", &namespace, "link", "set", "lo", "up"]);
            network.hosts.push(Host::in_namespace(address, namespace));
        }
        network
    }

    /// Drops everything between two hosts, or lets it through again.
    pub(crate) fn part(&self, one: usize, other: usize, are_parted: bool) {
        self.drop_answers(one, self.hosts[other].ip, are_parted);
        self.drop_answers(other, self.hosts[one].ip, are_parted);
    }

    /// Drops what a host sends to this process and to others that the tests start outside of the network, or lets it through
    /// again.
    pub(crate) fn part_from_clients(&self, host: usize, is_parted: bool) {
        let [first, second, third, _] = self.hosts[host].ip.octets();
        self.drop_answers(host, Ipv4Addr::new(first, second, third, BRIDGE), is_parted);
    }

    fn drop_answers(&self, from: usize, to: Ipv4Addr, are_dropped: bool) {
        let namespace = self.hosts[from].namespace.as_deref().expect("a host of this network");
        let change = if are_dropped { "add" } else { "del" };
        ip(&["-n", namespace, "route", change, "blackhole", &format!("{to}/32")]);
    }

    /// Sets the link of a host down, or up again.
    pub(crate) fn set_link(&self, host: usize, is_up: bool) {
        ip(&["link", "set", &format!("{}o{host}", self.name), if is_up { "up" } else { "down" }]);
    }
}

/// The last number of the address of this process in a network.
const BRIDGE: u8 = 1;

impl Drop for Network {
    fn drop(&mut self) {
        for (number, host) in self.hosts.iter().enumerate() {
            let _ = Command::new("ip").args(["link", "del", &format!("{}o{number}", self.name)]).status();
            if let Some(namespace) = &host.namespace {
                let _ = Command::new("ip").args(["netns", "del", namespace]).status();
            }
        }
        let _ = Command::new("ip").args(["link", "del", &self.name]).status();
    }
}

fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().expect("the program ip");
    assert!(status.success(), "ip {args:?}");
}

pub(crate) struct Etcd {
    directory: Directory,
    members: Vec<Member>,
    more: Vec<String>,
    /// Whether clients speak TLS to it, and what etcdctl needs for that.
    tls: Option<Vec<String>>,
}

struct Member {
    host: Host,
    client: u16,
    peer: u16,
    process: Option<Child>,
}

impl Etcd {
    /// One member on this machine, with more arguments.
    pub(crate) fn start_one(more: &[&str]) -> Self {
        Self::start(&[Host::local()], more)
    }

    /// A member on each host. Returns when they answer.
    pub(crate) fn start(hosts: &[Host], more: &[&str]) -> Self {
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        Self::start_with(hosts, more, None)
    }

    /// One member that clients reach by TLS alone. `server`: authorities, certificate and key of the member; `client`: a
    /// certificate and a key.
    pub(crate) fn start_tls(server: [&str; 3], client: [&str; 2]) -> Self {
        let flags = |names: &[&str], files: &[&str]| -> Vec<String> {
            let pairs = names.iter().zip(files).flat_map(|(name, file)| [*name, *file]);
            pairs.map(str::to_owned).collect()
        };
        let mut more = flags(&["--trusted-ca-file", "--cert-file", "--key-file"], &server);
        more.push("--client-cert-auth".to_owned());
        let tls = flags(&["--cacert", "--cert", "--key"], &[server[0], client[0], client[1]]);
        Self::start_with(&[Host::local()], more, Some(tls))
    }

    fn start_with(hosts: &[Host], more: Vec<String>, tls: Option<Vec<String>>) -> Self {
        let member = |host: &Host| Member {
            host: host.clone(),
            client: host.port(2379),
            peer: host.port(2380),
            process: None,
        };
        let members = hosts.iter().map(member).collect();
        let mut etcd = Self { directory: Directory::new(), members, more, tls };
        (0..hosts.len()).for_each(|number| etcd.restart(number));
        etcd.wait();
        etcd
    }

    /// The endpoints, for `cluster-etcd`.
    pub(crate) fn endpoints(&self) -> String {
        let all = self.members.iter().map(|member| self.url(member, member.client));
        all.collect::<Vec<_>>().join(",")
    }

    /// Where clients reach the first member.
    pub(crate) fn address(&self) -> SocketAddr {
        (self.members[0].host.ip, self.members[0].client).into()
    }

    fn url(&self, member: &Member, port: u16) -> String {
        let is_tls = self.tls.is_some() && port == member.client;
        format!("{}://{}:{port}", if is_tls { "https" } else { "http" }, member.host.ip)
    }

    /// Starts a member, on its files if it has run before.
    pub(crate) fn restart(&mut self, number: usize) {
        let url = |member: &Member, port: u16| self.url(member, port);
        let peers = self.peers();
        let member = &self.members[number];
        let mut command = Command::new(program());
        command
            .args(["--name", &format!("m{number}")])
            .args(["--data-dir", &self.directory.path(&format!("m{number}"))])
            .args(["--listen-client-urls", &url(member, member.client)])
            .args(["--advertise-client-urls", &url(member, member.client)])
            .args(["--listen-peer-urls", &url(member, member.peer)])
            .args(["--initial-advertise-peer-urls", &url(member, member.peer)])
            .args(["--initial-cluster", &peers])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.more);
        let mut command = member.host.command(command);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.members[number].process = Some(process.expect("etcd starts"));
    }

    /// Kills a member as the loss of its machine does, and puts a new one in its place, with another address and no files.
    pub(crate) fn replace(&mut self, number: usize) {
        self.signal(number, Signal::SIGKILL);
        std::fs::remove_dir_all(self.directory.path(&format!("m{number}"))).expect("its files");
        let name = format!("m{number}");
        let (_, list) = self.ctl(&["member", "list"]);
        // Id, status, name, addresses.
        let line = list.lines().find(|line| line.split(", ").nth(2) == Some(&name)).expect("the member");
        let id = line.split(", ").next().expect("an id").to_owned();
        let member = &mut self.members[number];
        (member.client, member.peer) = (member.host.port(2379), member.host.port(2380));
        let peer = format!("--peer-urls={}", self.url(&self.members[number], self.members[number].peer));
        // etcd refuses a change until its members have been connected for some seconds.
        wait_until("the removal", || self.ctl(&["member", "remove", &id]).0);
        wait_until("the addition", || self.ctl(&["member", "add", &name, &peer]).0);
        self.more.extend(["--initial-cluster-state", "existing"].map(str::to_owned));
        self.restart(number);
    }

    /// The members, as `--initial-cluster` wants them.
    fn peers(&self) -> String {
        let named = (0..).zip(&self.members).map(|(n, m)| format!("m{n}={}", self.url(m, m.peer)));
        named.collect::<Vec<_>>().join(",")
    }

    /// Saves a snapshot; returns the name of its file.
    pub(crate) fn save(&self) -> String {
        let file = self.directory.path("snapshot.db");
        // One member alone is asked.
        let mut command = Command::new(program().with_file_name("etcdctl"));
        command.args(["--endpoints", &self.url(&self.members[0], self.members[0].client)]);
        let saved = command.args(["snapshot", "save", &file]).env("ETCDCTL_API", "3").output();
        assert!(saved.expect("etcdctl is beside etcd").status.success(), "a snapshot");
        file
    }

    /// Ends all members, and starts them again from a snapshot. `token`: the name of the cluster of etcd.
    pub(crate) fn restore(&mut self, snapshot: &str, token: &str) {
        for number in 0..self.members.len() {
            self.signal(number, Signal::SIGKILL);
            let data = self.directory.path(&format!("m{number}"));
            std::fs::remove_dir_all(&data).expect("its files");
            let member = &self.members[number];
            // etcd 3.6 has it there.
            let utility = Some(program().with_file_name("etcdutl")).filter(|file| file.is_file());
            let mut command = Command::new(utility.unwrap_or(program().with_file_name("etcdctl")));
            command
                .args(["snapshot", "restore", snapshot, "--name", &format!("m{number}"), "--data-dir", &data])
                .args(["--initial-cluster", &self.peers(), "--initial-cluster-token", token])
                .args(["--initial-advertise-peer-urls", &self.url(member, member.peer)]);
            let restored = command.env("ETCDCTL_API", "3").output().expect("etcdctl is beside etcd");
            assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
        }
        (0..self.members.len()).for_each(|number| self.restart(number));
        self.wait();
    }

    /// Waits until a write succeeds.
    pub(crate) fn wait(&self) {
        wait_until("etcd answers", || self.ctl(&["put", "ready", "yes"]).0);
    }

    /// Runs etcdctl; whether it succeeds, and what it prints.
    pub(crate) fn ctl(&self, words: &[&str]) -> (bool, String) {
        let output = self.etcdctl(words).output().expect("etcdctl is beside etcd");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Puts any bytes under a key.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) {
        let key = std::str::from_utf8(key).expect("a key is text");
        let mut command = self.etcdctl(&["put", key]);
        let mut process = command.stdin(Stdio::piped()).spawn().expect("etcdctl is beside etcd");
        let written = process.stdin.take().expect("its input is piped").write_all(value);
        assert!(written.is_ok() && process.wait().is_ok_and(|status| status.success()), "put {key}");
    }

    fn etcdctl(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program().with_file_name("etcdctl"));
        command.args(["--endpoints", &self.endpoints(), "--command-timeout", "3s"]);
        command.args(self.tls.iter().flatten()).args(words).env("ETCDCTL_API", "3");
        command
    }

    /// Bytes that the database of the first member has on its disk, those that were in use once included.
    pub(crate) fn database_bytes(&self) -> u64 {
        let (_, status) = self.ctl(&["endpoint", "status", "--write-out", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("etcdctl writes JSON");
        status[0]["Status"]["dbSize"].as_u64().expect("a size")
    }

    /// Sends a signal to a member.
    pub(crate) fn signal(&mut self, number: usize, signal: Signal) {
        let process = self.members[number].process.as_mut().expect("a member that runs");
        send(process.id(), signal);
        if signal == Signal::SIGKILL {
            let _ = process.wait();
        }
    }

    /// The number of the member that leads the others.
    pub(crate) fn leader(&self) -> usize {
        let until = Instant::now() + PATIENCE;
        loop {
            let (_, status) = self.ctl(&["endpoint", "status", "--write-out", "json"]);
            // One that does not answer is left out, and all of them may be.
            let answers: Vec<serde_json::Value> = serde_json::from_str(&status).unwrap_or_default();
            let leads = |answer: &&serde_json::Value| {
                let status = &answer["Status"];
                status["leader"].as_u64() == status["header"]["member_id"].as_u64()
            };
            let leader = answers.iter().find(leads).and_then(|answer| answer["Endpoint"].as_str());
            let is_leader = |member: &Member| leader == Some(&*self.url(member, member.client));
            if let Some(number) = self.members.iter().position(is_leader) {
                return number;
            }
            assert!(Instant::now() < until, "no member leads: {status}");
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The program etcd: `REDLATCH_ETCD`, or what PATH has.
fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("REDLATCH_ETCD") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|directory| directory.join("etcd")).find(|file| file.is_file());
    found.expect("etcd is installed, or REDLATCH_ETCD names it")
}

/// A node. It is killed when it is dropped.
pub(crate) struct Node {
    pub(crate) host: Host,
    port: u16,
    args: Vec<String>,
    process: Child,
    log: std::sync::mpsc::Receiver<String>,
    pub(crate) said: Vec<String>,
}

impl Node {
    /// Starts a node on this machine, and waits until it accepts clients.
    pub(crate) fn start(etcd: &Etcd, more: &[&str]) -> Self {
        Self::start_on(&Host::local(), etcd, more)
    }

    /// Starts a node on a host.
    pub(crate) fn start_on(host: &Host, etcd: &Etcd, more: &[&str]) -> Self {
        Self::start_with(host, &etcd.endpoints(), more)
    }

    /// Starts a node on a host, with these endpoints of etcd.
    pub(crate) fn start_with(host: &Host, endpoints: &str, more: &[&str]) -> Self {
        let mut args = vec!["--cluster-etcd".to_owned(), endpoints.to_owned()];
        args.extend(more.iter().map(|word| (*word).to_owned()));
        if host.namespace.is_some() {
            args.extend([
                "--bind".to_owned(),
                host.ip.to_string(),
                "--protected-mode".to_owned(),
                "no".to_owned(),
            ]);
        }
        let groups = more.iter().skip_while(|word| **word != "--cluster-groups").nth(1);
        let port = match groups.and_then(|groups| groups.parse().ok()) {
            Some(groups) if host.namespace.is_none() => free_ports(groups),
            _ => host.port(6379),
        };
        let (process, log) = spawn(host, port, &args);
        let mut node = Self { host: host.clone(), port, args, process, log, said: Vec::new() };
        node.wait_for("Ready to accept connections");
        node
    }

    /// Starts a node that may wait for etcd.
    pub(crate) fn spawn(args: &[&str]) -> Self {
        let (host, port) = (Host::local(), free_port());
        let args: Vec<_> = args.iter().map(|word| (*word).to_owned()).collect();
        let (process, log) = spawn(&host, port, &args);
        Self { host, port, args, process, log, said: Vec::new() }
    }

    /// Starts a server or a node, and waits for a line of its log. `None`: it refuses to start.
    pub(crate) fn try_spawn(args: &[&str], words: &str) -> Option<Self> {
        let mut node = Self::spawn(args);
        loop {
            let line = node.log.recv_timeout(PATIENCE);
            assert!(!matches!(line, Err(RecvTimeoutError::Timeout)), "no line with '{words}'");
            node.said.push(line.ok()?);
            if node.said.last().is_some_and(|line| line.contains(words)) {
                return Some(node);
            }
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (self.host.ip, self.port).into()
    }

    /// Waits for a line of the log that begins after the last one that was waited for.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.log.recv_timeout(left) else {
                panic!("no line with '{words}':\n{}", self.said.join("\n"));
            };
            let is_it = line.contains(words);
            self.said.push(line.clone());
            if is_it {
                return line;
            }
        }
    }

    /// The log up to now.
    pub(crate) fn log(&mut self) -> String {
        self.said.extend(self.log.try_iter());
        self.said.join("\n")
    }

    /// Whether it leads, by its log up to now.
    pub(crate) fn leads(&mut self) -> bool {
        self.said.extend(self.log.try_iter());
        let last =
            self.said.iter().rev().find(|line| line.contains(" leads") || line.contains("not lead any more"));
        last.is_some_and(|line| line.contains("This node leads"))
    }

    /// Sends a signal; SIGKILL also waits for the end.
    pub(crate) fn signal(&mut self, signal: Signal) {
        send(self.process.id(), signal);
        if signal == Signal::SIGKILL {
            let _ = self.process.wait();
        }
    }

    /// Waits for the end; returns the exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.process.wait().expect("a process").code()
    }

    /// Starts it again on its port, after its end.
    pub(crate) fn restart(&mut self) {
        let (process, log) = spawn(&self.host, self.port, &self.args);
        (self.process, self.log) = (process, log);
        self.said.clear();
        self.wait_for("Ready to accept connections");
    }

    /// Sends a request on a connection of its own. `None`: there is no answer in time.
    pub(crate) fn ask(&self, words: &[&str]) -> Option<OwnedFrame> {
        ask(self.address(), words)
    }

    /// The fencing token of a lock that is acquired; `None`: it is not.
    pub(crate) fn acquire(&self, key: &str, owner: &str) -> Option<i64> {
        token_in(&self.ask(&["LOCK.ACQUIRE", key, owner, "LEASE", "60000"])?)
    }
}

/// Sends a request to an address on a connection of its own. `None`: there is no answer in time.
pub(crate) fn ask(address: SocketAddr, words: &[&str]) -> Option<OwnedFrame> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_MAX).ok()?;
    let mut link = Link::over(stream).ok()?;
    link.set_patience(ANSWER_MAX);
    link.ask(words).ok()
}

/// The fencing token in the reply of LOCK.ACQUIRE; `None`: it was not granted.
pub(crate) fn token_in(reply: &OwnedFrame) -> Option<i64> {
    let OwnedFrame::Array(fields) = reply else { return None };
    let token = fields.iter().skip_while(|field| field.as_str() != Some("token")).nth(1)?;
    match token {
        OwnedFrame::Integer(token) => Some(*token),
        _ => None,
    }
}

fn spawn(host: &Host, port: u16, args: &[String]) -> (Child, std::sync::mpsc::Receiver<String>) {
    let mut command = redlatch();
    // A file comes first.
    command.args(args).args(["--port", &port.to_string()]);
    let mut process = host.command(command).stdout(Stdio::piped()).spawn().expect("redlatch starts");
    let (sender, log) = std::sync::mpsc::channel();
    let lines = BufReader::new(process.stdout.take().expect("its output is piped")).lines();
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // A reader that is gone is no reason to stop: a full pipe would stall the process.
            let _ = sender.send(line);
        }
    });
    (process, log)
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn send(process: u32, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(process).expect("a process id"));
    kill(id, signal).expect("a process that has not been waited for");
}

/// A refusal of the program to start.
pub(crate) fn refusal(args: &[&str]) -> String {
    let output = redlatch().args(["--port", "auto"]).args(args).output().expect("redlatch starts");
    crate::support::binary::refusal(&output)
}

/// How long an answer is waited for: longer than a node holds a client.
const ANSWER_MAX: Duration = Duration::from_secs(10);
