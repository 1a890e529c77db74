//! A child process that ends: by itself, or when its time is up.
//!
//! Owns    the child's pipes and its exit status.
//! Knows   nothing of servers or clients.
//! Time    is the system's; no wait in here is without a limit.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::server::listen;

/// The output and status of a child.
pub(crate) struct Finished {
    /// Standard output and standard error, each in order, mixed as they arrived.
    pub(crate) lines: Vec<String>,
    /// None: it was killed because its time was up.
    status: Option<ExitStatus>,
}

impl Finished {
    /// Why this run counts as a failure; none for exit status 0.
    pub(crate) fn failure(&self) -> Option<String> {
        match self.status {
            None => Some("killed: its time was up".to_owned()),
            Some(status) if status.success() => None,
            Some(status) => Some(status.to_string()),
        }
    }
}

/// Runs `command` to its end, or for `limit`; then kills its whole process group.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<Finished, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Its own group, so that its children can be killed with it.
    let child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().map_err(|error| format!("{name}: {error}"))?;
    let group = child.id();
    let lines = listen(&mut child);
    let ended = end_of(child);

    let status = match ended.recv_timeout(limit) {
        Ok(status) => Some(status),
        Err(_) => {
            // The child is not reaped until `ended` says so, hence the number is still its own.
            drop(Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).status());
            None
        }
    };
    Ok(Finished { lines: gather(&lines, Instant::now() + LINGER_MAX), status })
}

fn end_of(mut child: Child) -> Receiver<ExitStatus> {
    let (sender, ended) = channel();
    thread::spawn(move || child.wait().map(|status| sender.send(status)));
    ended
}

/// The lines that arrive until the pipes close. A grandchild may hold them open: not beyond `deadline`.
fn gather(lines: &Receiver<String>, deadline: Instant) -> Vec<String> {
    let mut gathered = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => gathered.push(line),
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return gathered,
        }
    }
}

const LINGER_MAX: Duration = Duration::from_secs(2);
