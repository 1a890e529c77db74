//! A run: client processes on one server, and the faults they suffer.
//!
//! Owns    the processes, the directory of their histories, and the faults: processes are stopped for longer than their
//!         leases (SIGSTOP, SIGCONT), and killed (SIGKILL) while they hold locks.
//! Time    real; the caller gives the duration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis_protocol::resp2::types::OwnedFrame;

use super::client::{Orders, now_ns};
use super::history::{Answer, Ask, Call, read};
use crate::support::binary::Directory;
use crate::support::rng::Rng;
use crate::support::wire::Link;

/// Runs clients on the server for a duration; returns their calls.
///
/// # Errors
/// A process that fails to start or ends with an error, or a malformed history.
pub(crate) fn run(server: SocketAddr, seed: u64, lasts: Duration) -> Result<Vec<Call>, String> {
    let is_native = prepare(server).map_err(|error| format!("a server that answers: {error}"))?;
    let (directory, rng) = (Directory::new(), Rng::new(seed));
    let mut run = Run { directory, server, is_native, rng, members: Vec::new() };
    let end = Instant::now() + lasts;
    for _ in 0..PROCESSES {
        run.start(myself()?, lasts)?;
    }
    if let Some(python) = python() {
        run.start(python, lasts)?;
    }
    loop {
        run.rest(80);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        run.strike(left)?;
    }
    run.gather()
}

/// Removes the results of an earlier run. Returns whether the server has the commands `LOCK.*`.
fn prepare(server: SocketAddr) -> std::io::Result<bool> {
    let mut link = Link::to(server)?;
    link.ask(&["FLUSHALL"])?;
    Ok(!matches!(link.ask(&["LOCK.TOKEN", "lock", "owner"])?, OwnedFrame::Error(_)))
}

struct Run {
    directory: Directory,
    server: SocketAddr,
    is_native: bool,
    rng: Rng,
    members: Vec<Member>,
}

struct Member {
    process: Child,
    history: PathBuf,
    /// The moments before it was killed, and after its connections were closed.
    killed_ns: Option<(u64, u64)>,
}

impl Run {
    fn start(&mut self, mut command: Command, lasts: Duration) -> Result<(), String> {
        let history = self.directory.root().join(self.members.len().to_string());
        let seed = self.rng.below(1 << 20) as u64;
        let Self { server, is_native, .. } = *self;
        let orders = Orders { server, is_native, history: history.display().to_string(), seed, lasts };
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
        if at < PROCESSES && self.rng.one_in(8) {
            let before_ns = now_ns();
            self.members[at].signal(Signal::SIGKILL)?;
            // The system closes the connections of a process before it can be waited for.
            self.members[at].process.wait().map_err(|error| error.to_string())?;
            self.members[at].killed_ns = Some((before_ns, now_ns()));
            return self.start(myself()?, left);
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
            calls.extend(member.hangups(&its_calls));
            calls.extend(its_calls);
        }
        Ok(calls)
    }
}

impl Member {
    /// The end of the sessions of a process that was killed.
    fn hangups(&self, calls: &[Call]) -> Vec<Call> {
        let Some((before_ns, after_ns)) = self.killed_ns else { return Vec::new() };
        let sessions = calls.iter().filter(|call| call.ask == Ask::Session);
        let hangup = |call: &Call| Call {
            ask: Ask::Hangup,
            sent_ns: before_ns,
            answer: Some((after_ns, Answer::Yes)),
            ..call.clone()
        };
        sessions.map(hangup).collect()
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

/// This program, as a process of clients.
fn myself() -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args(["--exact", "mutex::process_of_clients", "--ignored", "--nocapture"]);
    Ok(command)
}

/// redis-py's Lock, where the packages of `clients.rs` are installed.
pub(crate) fn python() -> Option<Command> {
    let shop = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients/python");
    let mut command = Command::new(shop.join("venv/bin/python"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutex/redis_py_lock.py"));
    shop.join(".installed").exists().then_some(command)
}

/// Processes of clients at a time, besides redis-py's.
const PROCESSES: usize = 2;
