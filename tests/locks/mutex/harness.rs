//! A run: client processes on one server, and the faults they suffer.
//!
//! Owns    the processes, the directory of their histories, and the faults: processes are stopped for longer than their
//!         leases (SIGSTOP, SIGCONT), and killed (SIGKILL) while they hold locks. The caller may have the server killed, too.
//! Time    real; the caller gives the duration.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis_protocol::resp2::types::OwnedFrame;

use super::client::{Orders, Role, is_closed, now_ns};
use super::history::{Answer, Ask, Call, Grants, read};
use crate::support::binary::Directory;
use crate::support::rng::Rng;
use crate::support::waits::PATIENCE;
use crate::support::wire::Link;

/// Kills the server and starts it again at its address.
pub(crate) type Restart<'r> = &'r mut dyn FnMut() -> Result<(), String>;

/// When clients learn that a server which is killed, or replaced, has ended their sessions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Told {
    /// Before anybody else is granted a lock of the session: their connections are closed.
    First,
    /// At any time: a process that is stopped, or a link that is down, closes no connection.
    #[cfg(feature = "etcd")]
    Late,
}

/// Runs clients on the server for a duration, with a kill of the server every second or so if it can be restarted; returns
/// their calls. `others` are programs that take part, besides those of this program. Where several servers serve the same
/// locks, the processes have them in turn, and the other programs the first one.
///
/// # Errors
/// A process that fails to start or ends with an error, or a malformed history.
pub(crate) fn run(
    servers: &[SocketAddr],
    (role, others): (Role, Vec<Command>),
    seed: u64,
    lasts: Duration,
    mut restart: Option<(Told, Restart<'_>)>,
) -> Result<Vec<Call>, String> {
    let is_native = prepare(servers[0])?;
    let (directory, rng) = (Directory::new(), Rng::new(seed));
    let (is_killed, is_told) = (restart.is_some(), matches!(restart, Some((Told::First, _))));
    let mut run = Run {
        directory,
        servers,
        role,
        is_native,
        is_killed,
        is_told,
        is_attacked: false,
        rng,
        members: Vec::new(),
        restarts: Vec::new(),
    };
    let end = Instant::now() + lasts;
    let mut next_kill = Instant::now() + KILL_EVERY;
    for _ in 0..processes(role) {
        run.start_own(lasts)?;
    }
    for other in others {
        run.start(other, servers[0], lasts)?;
    }
    loop {
        run.rest(80);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        run.strike(left)?;
        if let Some((_, restart)) = restart.as_mut().filter(|_| Instant::now() >= next_kill) {
            let before_ns = now_ns();
            restart()?;
            run.restarts.push((before_ns, now_ns()));
            next_kill = Instant::now() + KILL_EVERY;
        }
    }
    run.gather()
}

/// Removes the results of an earlier run. Returns whether the server has the commands `LOCK.*`. Nodes that have just started
/// may still hand groups over to each other, which closes connections: then this begins again.
fn prepare(server: SocketAddr) -> Result<bool, String> {
    let started = Instant::now();
    loop {
        match prepare_once(server) {
            Err(error) if is_closed(&error) && started.elapsed() < PATIENCE => {}
            prepared => return prepared.map_err(|error| format!("a server that answers: {error}")),
        }
    }
}

fn prepare_once(server: SocketAddr) -> io::Result<bool> {
    let mut link = Link::to(server)?;
    link.ask(&["FLUSHALL"])?;
    let answer = link.ask(&["LOCK.TOKEN", "lock", "owner"])?;
    Ok(!matches!(answer, OwnedFrame::Error(text) if text.starts_with("ERR unknown command")))
}

struct Run<'r> {
    directory: Directory,
    servers: &'r [SocketAddr],
    role: Role,
    is_native: bool,
    is_killed: bool,
    is_told: bool,
    is_attacked: bool,
    rng: Rng,
    members: Vec<Member>,
    /// The moments before the server was killed, and after it had been started again.
    restarts: Vec<(u64, u64)>,
}

struct Member {
    process: Child,
    history: PathBuf,
    /// The moments before it was killed, and after its connections were closed.
    killed_ns: Option<(u64, u64)>,
}

impl Run<'_> {
    /// Starts a process of this program.
    fn start_own(&mut self, lasts: Duration) -> Result<(), String> {
        let server = self.servers[self.members.len() % self.servers.len()];
        self.start(myself()?, server, lasts)
    }

    fn start(&mut self, mut command: Command, server: SocketAddr, lasts: Duration) -> Result<(), String> {
        let history = self.directory.root().join(self.members.len().to_string());
        let seed = self.rng.below(1 << 20) as u64;
        let orders = Orders {
            role: self.role,
            server,
            is_native: self.is_native,
            is_killed: self.is_killed,
            is_told: self.is_told,
            is_attacked: self.is_attacked,
            history: history.display().to_string(),
            seed,
            lasts,
        };
        let name = command.get_program().to_string_lossy().into_owned();
        command.envs(orders.environment()).stdin(Stdio::null()).stdout(Stdio::null());
        let process = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        self.members.push(Member { process, history, killed_ns: None });
        Ok(())
    }

    fn rest(&mut self, millis_max: usize) {
        sleep(Duration::from_millis(self.rng.below(millis_max) as u64));
    }

    /// Something happens to one of the processes.
    fn strike(&mut self, left: Duration) -> Result<(), String> {
        let at = self.rng.below(self.members.len());
        if self.members[at].killed_ns.is_some() {
            return Ok(());
        }
        // Only the first ones, which are this program: another takes the place of the one that is killed.
        if at < processes(self.role) && self.rng.one_in(8) {
            self.members[at].end()?;
            return self.start_own(left);
        }
        self.members[at].signal(Signal::SIGSTOP)?;
        self.rest(200);
        self.members[at].signal(Signal::SIGCONT)
    }

    /// Waits for all of them, and reads what they have written.
    fn gather(mut self) -> Result<Vec<Call>, String> {
        let mut calls = Vec::new();
        for member in &mut self.members {
            let status = member.process.wait().map_err(|error| error.to_string())?;
            if !status.success() && member.killed_ns.is_none() {
                return Err(format!("a process of clients ended with {status}"));
            }
            // One that was killed early has written nothing.
            let text = fs::read_to_string(&member.history).unwrap_or_default();
            let its_calls = read(&text)?;
            // Clients that are told note these ends themselves.
            let restarts = self.restarts.iter().filter(|_| !self.is_told);
            let ends = member.killed_ns.iter().chain(restarts);
            calls.extend(ends.flat_map(|end| hangups(&its_calls, *end)));
            calls.extend(its_calls);
        }
        Ok(calls)
    }
}

/// Processes of clients that log in to one server, which the caller attacks meanwhile.
pub(crate) struct Besieged<'r> {
    run: Run<'r>,
    grants: Vec<Grants>,
}

impl<'r> Besieged<'r> {
    /// # Errors
    /// A process that does not start.
    pub(crate) fn start(server: &'r SocketAddr, seed: u64) -> Result<Self, String> {
        let mut run = Run {
            directory: Directory::new(),
            servers: std::slice::from_ref(server),
            role: Role::Clients,
            is_native: true,
            is_killed: false,
            is_told: false,
            is_attacked: true,
            rng: Rng::new(seed),
            members: Vec::new(),
            restarts: Vec::new(),
        };
        for _ in 0..PROCESSES {
            run.start_own(BESIEGED_MAX)?;
        }
        Ok(Self { run, grants: (0..PROCESSES).map(|_| Grants::default()).collect() })
    }

    /// How many locks the clients have been granted so far.
    ///
    /// # Errors
    /// A process that has ended, or a history that cannot be read.
    pub(crate) fn grants(&mut self) -> Result<usize, String> {
        for (member, grants) in self.run.members.iter_mut().zip(&mut self.grants) {
            member.check_that_it_runs()?;
            // A process that has just started has no history.
            let Ok(mut file) = fs::File::open(&member.history) else { continue };
            let mut text = String::new();
            let read =
                file.seek(SeekFrom::Start(grants.offset as u64)).and_then(|_| file.read_to_string(&mut text));
            read.map_err(|error| format!("a history: {error}"))?;
            grants.read_on(&text);
        }
        Ok(self.grants.iter().map(|grants| grants.count).sum())
    }

    /// Kills the processes; returns their calls.
    ///
    /// # Errors
    /// A process that has ended by itself: a connection was lost, or a request was answered with an error.
    pub(crate) fn end(mut self) -> Result<Vec<Call>, String> {
        for member in &mut self.run.members {
            member.check_that_it_runs()?;
            member.end()?;
        }
        self.run.gather()
    }
}

impl Member {
    /// Kills it, and notes between which moments its connections have ended.
    fn end(&mut self) -> Result<(), String> {
        let before_ns = now_ns();
        self.signal(Signal::SIGKILL)?;
        // The system closes the connections of a process before it can be waited for.
        self.process.wait().map_err(|error| error.to_string())?;
        self.killed_ns = Some((before_ns, now_ns()));
        Ok(())
    }

    fn check_that_it_runs(&mut self) -> Result<(), String> {
        match self.process.try_wait().map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(status) => Err(format!("a process of clients ended with {status}")),
        }
    }

    /// A process that has ended by itself is not reaped yet, so that its number is still its own.
    fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.process.id()).map_err(|error| error.to_string())?;
        kill(Pid::from_raw(pid), signal).map_err(|error| format!("{signal}: {error}"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It has ended, unless the run failed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The end of the sessions that were asked for before it: the process, or the server, was killed between the two moments.
fn hangups(calls: &[Call], (before_ns, after_ns): (u64, u64)) -> Vec<Call> {
    let sessions = calls.iter().filter(|call| call.ask == Ask::Session && call.sent_ns < after_ns);
    let hangup = |call: &Call| Call {
        ask: Ask::Hangup,
        sent_ns: before_ns,
        answer: Some((after_ns, Answer::Yes)),
        ..call.clone()
    };
    sessions.map(hangup).collect()
}

/// This program, as a process of clients.
fn myself() -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args(["--exact", "locks::mutex::process_of_clients", "--ignored", "--nocapture"]);
    Ok(command)
}

/// redis-py's Lock, where the packages of `clients.rs` are installed.
pub(crate) fn python() -> Vec<Command> {
    let shop = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients/python");
    let mut command = Command::new(shop.join("venv/bin/python"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks/mutex/redis_py_lock.py"));
    if shop.join(".installed").exists() { vec![command] } else { Vec::new() }
}

/// From a start of the server to its next kill, about.
const KILL_EVERY: Duration = Duration::from_secs(1);
/// Longer than any siege: its processes are killed at its end.
const BESIEGED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Processes of this program at a time, besides the other programs.
fn processes(role: Role) -> usize {
    if role == Role::Clients { PROCESSES } else { TAKERS }
}

const PROCESSES: usize = 2;
const TAKERS: usize = 50;
