//! A real Redis or Valkey, started for one transcript and ended with it.
//!
//! Owns     a process, its directory and its Unix socket: no port, so no race for one.
//! Time     runs by itself; a step of a transcript sleeps, which is the only way to step a real server.

use std::io::{BufRead, BufReader, Read, Write};
#[cfg(not(unix))]
use std::net::TcpStream as UnixStream;
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ports::free_port;
use super::target::{Heard, Link, Target, Wait, hear};
use super::waits::wait_until;

/// How often a server is started whose port may be taken.
pub(crate) const STARTS_MAX: usize = 5;

/// The process and the connections to it.
pub(crate) struct RealServer {
    name: &'static str,
    process: Child,
    /// Kept open, because a server that logs into a closed pipe notices.
    _log: BufReader<ChildStdout>,
    directory: PathBuf,
    links: Vec<UnixStream>,
}

impl RealServer {
    /// Starts the server that transcripts call `name`, and returns when it accepts connections.
    pub(crate) fn start(name: &'static str) -> Self {
        Self::try_start(name, &[]).expect("the server starts")
    }

    /// Starts it in cluster mode, and returns when it serves all slots.
    #[allow(dead_code, reason = "only transcripts need slots")]
    pub(crate) fn start_with_slots(name: &'static str) -> Self {
        let start = || {
            let bus_port = free_port().to_string();
            Self::try_start(name, &["--cluster-enabled", "yes", "--cluster-port", &bus_port])
        };
        // Another program may take the port first.
        let server = (0..STARTS_MAX).find_map(|_| start()).expect("the server starts");
        let mut link = server.link();
        let mut ask = |request: &[u8]| {
            link.write_all(request).expect("the server reads");
            let mut bytes = [0; 4096];
            let count = link.read(&mut bytes).expect("the server answers");
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        };
        assert_eq!(ask(b"CLUSTER ADDSLOTSRANGE 0 16383\r\n"), "+OK\r\n");
        // It serves them two seconds after its start.
        wait_until("it serves the slots", || ask(b"CLUSTER INFO\r\n").contains("cluster_state:ok"));
        server
    }

    #[cfg(unix)]
    fn link(&self) -> UnixStream {
        UnixStream::connect(self.directory.join("socket")).expect("the server accepts")
    }

    #[cfg(not(unix))]
    fn link(&self) -> UnixStream {
        panic!("real servers are for Unix")
    }

    /// Starts it with more options. `None`: the server has ended before it accepted connections.
    pub(crate) fn try_start(name: &'static str, more: &[&str]) -> Option<Self> {
        let program = program(name);
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("redlatch-transcripts-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let mut process = Command::new(&program)
            .args(["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no"])
            .args(["--daemonize", "no", "--enable-debug-command", "yes", "--logfile", ""])
            .args(more)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut log = BufReader::new(process.stdout.take().expect("its output is piped"));
        let mut line = String::new();
        while !line.to_lowercase().contains("ready to accept connections") {
            line.clear();
            if log.read_line(&mut line).expect("a log is text") == 0 {
                let _ = process.wait();
                return None;
            }
        }
        Some(Self { name, process, _log: log, directory, links: Vec::new() })
    }
}

#[allow(dead_code, reason = "transcripts have their own links")]
impl RealServer {
    /// Its address, as clients take it.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.directory.join("socket").display())
    }
}

impl Target for RealServer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn clock_is_manual(&self) -> bool {
        false
    }

    fn unix_ms(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
        i64::try_from(now.as_millis()).expect("it is not that late")
    }

    fn connect(&mut self) -> Link {
        let link = self.link();
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
        std::thread::sleep(step + OVERSHOOT);
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The program of `redis` or `valkey`. Tests that need it are ignored by default; `.ci/run servers` runs them.
pub(crate) fn program(name: &str) -> PathBuf {
    let variable = format!("REDLATCH_{}_SERVER", name.to_uppercase());
    let path = std::env::var_os(&variable).filter(|path| !path.is_empty());
    PathBuf::from(path.unwrap_or_else(|| panic!("{variable} names no program")))
}

/// A real server's clock is read in milliseconds, and a key lives through its last one.
const OVERSHOOT: Duration = Duration::from_millis(3);
