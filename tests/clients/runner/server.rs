//! A server process on a port of its own, ready when `start` returns and gone when dropped.
//!
//! Owns    the process and what it logged.
//! Knows   redlatch's flags, and redis-server's for the cross-check.
//! Time    is the system's; the wait for readiness has a limit.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::certificates::Authority;
use crate::process::listen;

/// A running server.
pub(crate) struct Server {
    child: Child,
    port: u16,
    tls: Option<Tls>,
    log: Arc<Mutex<Vec<String>>>,
}

/// The TLS port of a server, and its files.
pub(crate) struct Tls {
    pub(crate) port: u16,
    identity: Identity,
}

/// A directory with the files `authority.crt`, whose certificates are taken, `stranger.crt`, whose are not, and `.crt` and
/// `.key` of a `server` and a `client`. It goes with the server.
struct Identity(PathBuf);

impl Server {
    /// Starts redlatch, or the program that `REDLATCH_SERVER` names, and waits until it accepts connections.
    /// `dir` is a directory it may write to.
    ///
    /// # Errors
    /// It does not start, or is not ready in time; with what it logged.
    pub(crate) fn start(dir: &Path, has_tls: bool) -> Result<Self, String> {
        static DIRECTORIES: AtomicUsize = AtomicUsize::new(0);
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let files = dir.join(format!("server-{}-{number}", std::process::id()));
        let identity = if has_tls { Some(Identity::new(files)?) } else { None };
        match std::env::var_os("REDLATCH_SERVER") {
            None => {
                let (port, tls_port) = (PortFile::new(dir), PortFile::new(dir));
                let mut command = Command::new(env!("CARGO_BIN_EXE_redlatch"));
                command.args(["--port", "auto", "--port-file"]).arg(&port.0);
                if let Some(identity) = &identity {
                    command.args(["--tls-port", "auto", "--tls-port-file"]).arg(&tls_port.0);
                    identity.hand_to(&mut command);
                }
                let mut server = Self::spawn(command, |log| port.read(log))?;
                if let Some(identity) = identity {
                    server.tls = Some(Tls { port: tls_port.read("")?, identity });
                }
                Ok(server)
            }
            Some(program) => {
                let (port, tls_port) = (free_port()?, free_port()?);
                let mut command = Command::new(program);
                command.args([
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--daemonize",
                    "no",
                ]);
                command.args(["--port", &port.to_string(), "--dir"]).arg(dir);
                if let Some(identity) = &identity {
                    command.args(["--tls-port", &tls_port.to_string()]);
                    identity.hand_to(&mut command);
                }
                let mut server = Self::spawn(command, |_| Ok(port))?;
                server.tls = identity.map(|identity| Tls { port: tls_port, identity });
                Ok(server)
            }
        }
    }

    /// `port` is asked once the server said that it is ready, and is given the log so far.
    fn spawn(mut command: Command, port: impl FnOnce(&str) -> Result<u16, String>) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{name}: {error}"))?;
        let lines = listen(&mut child);
        // From here on a return drops the server, which ends the process.
        let mut server = Self { child, port: 0, tls: None, log: Arc::default() };
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

    /// How it is reached through TLS, if it is.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
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

impl Tls {
    /// The directory of its files.
    pub(crate) fn files(&self) -> &Path {
        &self.identity.0
    }
}

impl Identity {
    fn new(directory: PathBuf) -> Result<Self, String> {
        let identity = Self(directory);
        let write = |name: &str, text: &str| fs::write(identity.0.join(name), text);
        let authority = Authority::new("authority");
        let written = fs::create_dir_all(&identity.0)
            .and_then(|()| write("authority.crt", &authority.pem))
            .and_then(|()| write("stranger.crt", &Authority::new("stranger").pem))
            .and_then(|()| {
                ["server", "client"].into_iter().try_for_each(|name| {
                    let (certificate, key) = authority.vouch(name);
                    write(&format!("{name}.crt"), &certificate)?;
                    write(&format!("{name}.key"), &key)
                })
            });
        written.map_err(|error| format!("certificates: {error}"))?;
        Ok(identity)
    }

    /// The settings by which a server takes them.
    fn hand_to(&self, command: &mut Command) {
        for (setting, file) in [
            ("--tls-cert-file", "server.crt"),
            ("--tls-key-file", "server.key"),
            ("--tls-ca-cert-file", "authority.crt"),
        ] {
            command.arg(setting).arg(self.0.join(file));
        }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A file that a server writes a port to.
struct PortFile(PathBuf);

impl PortFile {
    fn new(dir: &Path) -> Self {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let file = FILES.fetch_add(1, Ordering::Relaxed);
        Self(dir.join(format!("port-{}-{file}", std::process::id())))
    }

    /// The port, once the server has said that it is ready.
    fn read(&self, log: &str) -> Result<u16, String> {
        let text = fs::read_to_string(&self.0).map_err(|error| format!("port file: {error}\n{log}"))?;
        drop(fs::remove_file(&self.0));
        text.trim().parse().map_err(|_| format!("port file: {text:?} is not a port"))
    }
}

/// Reads until the line that harnesses look for; gives back the log, in the error too.
fn wait_until_ready(lines: &Receiver<String>) -> Result<String, String> {
    let deadline = Instant::now() + READY_TIME_MAX;
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

/// A port that was free a moment ago: for servers that cannot be told to pick one.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}

const READY_TIME_MAX: Duration = Duration::from_secs(30);
