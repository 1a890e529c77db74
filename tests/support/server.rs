//! A server process on its own port, ready when `start` returns and killed on drop.
//!
//! Owns    the process and its log.
//! Knows   redlatch's flags, and redis-server's for the cross-check.
//! Time    is the system's; the wait for readiness has a limit.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use super::binary::program;
use super::ports::free_port;
use super::waits::PATIENCE;

pub(crate) struct Server {
    child: Child,
    port: u16,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts redlatch, or the program that `REDLATCH_SERVER` names, and waits until it accepts connections.
    /// `dir` is a directory it may write to, `more` are arguments that both understand.
    pub(crate) fn start(dir: &Path, more: &[String]) -> Result<Self, String> {
        match std::env::var_os("REDLATCH_SERVER") {
            None => Self::start_redlatch(dir, more),
            Some(program) => Self::start_program(Path::new(&program), dir, more),
        }
    }

    /// Starts a redis-server or valkey-server, as [`Server::start`] does.
    pub(crate) fn start_program(program: &Path, dir: &Path, more: &[String]) -> Result<Self, String> {
        let memory_alone = ["--save", "", "--appendonly", "no", "--daemonize", "no"].map(str::to_owned);
        Self::start_on(free_port(), program, dir, &[&memory_alone, more].concat())
    }

    /// Starts redlatch or another program on this port, with its files in `dir`, as [`Server::start`] does.
    pub(crate) fn start_on(port: u16, program: &Path, dir: &Path, more: &[String]) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(dir).args(more);
        Self::spawn(command, |_| Ok(port))
    }

    /// Starts redlatch, as [`Server::start`] does.
    pub(crate) fn start_redlatch(dir: &Path, more: &[String]) -> Result<Self, String> {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let file = FILES.fetch_add(1, Ordering::Relaxed);
        let file = dir.join(format!("port-{}-{file}", std::process::id()));
        let mut command = program();
        command.args(["--port", "auto", "--port-file"]).arg(&file).args(more);
        Self::spawn(command, |log| {
            let text = fs::read_to_string(&file).map_err(|error| format!("port file: {error}\n{log}"))?;
            drop(fs::remove_file(&file));
            // Of several nodes, this is the first one's.
            text.lines()
                .next()
                .unwrap_or_default()
                .parse()
                .map_err(|_| format!("port file: {text:?} is not a port"))
        })
    }

    /// Spawns the server. `port` is called with the log so far once the server is ready.
    fn spawn(mut command: Command, port: impl FnOnce(&str) -> Result<u16, String>) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{name}: {error}"))?;
        let lines = listen(&mut child);
        // From here on a return drops the server, which ends the process.
        let mut server = Self { child, port: 0, log: Arc::default() };
        let log = wait_until_ready(&lines).map_err(|log| format!("{name} did not become ready:\n{log}"))?;
        server.port = port(&log)?;
        let kept = Arc::clone(&server.log);
        thread::spawn(move || {
            for line in lines {
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// The last `count` lines that it logged after it was ready.
    pub(crate) fn last_words(&self, count: usize) -> Vec<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log[log.len().saturating_sub(count)..].to_vec()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Either may find that the client under test has already ended it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads until the line that harnesses look for; gives back the log, in the error too.
fn wait_until_ready(lines: &Receiver<String>) -> Result<String, String> {
    let deadline = Instant::now() + PATIENCE;
    let mut log = String::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                log.push_str(&line);
                log.push('\n');
                if line.contains("Ready to accept connections") {
                    return Ok(log);
                }
            }
            Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return Err(log),
        }
    }
}

/// Everything a child says, line by line, as it comes; the channel closes when both pipes have.
pub(crate) fn listen(child: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(pipe) = child.stdout.take() {
        forward(pipe, sender.clone());
    }
    if let Some(pipe) = child.stderr.take() {
        forward(pipe, sender);
    }
    lines
}

fn forward(pipe: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            // A reader that is gone is no reason to stop: a full pipe would stall the child.
            drop(sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()));
        }
    });
}
