//! How long a server takes from the start of its process to its first PONG, and what it then has in memory.
//!
//! Not a criterion bench: a start is milliseconds of the system's work, and its spread says more than its mean.
//! `REDLATCH_SERVER` names another program to measure, a redis-server say; it is given `--bind` and `--port`.
//! Memory is printed only on systems with `/proc`.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STARTS: usize = 50;
const CONNECTIONS: usize = 100;

/// A server process; ended when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and is gone either way.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What one start took.
struct Start {
    to_pong: Duration,
    idle_kib: Option<u64>,
    crowded_kib: Option<u64>,
}

fn main() -> io::Result<()> {
    // `cargo bench` says `--bench`; whoever runs it as a test only asks whether it works.
    let starts = if std::env::args().any(|arg| arg == "--bench") { STARTS } else { 1 };
    let program = std::env::var_os("REDLATCH_SERVER").unwrap_or(env!("CARGO_BIN_EXE_redlatch").into());
    let starts = (0..starts).map(|_| start(&program)).collect::<io::Result<Vec<_>>>()?;

    let mut millis: Vec<_> = starts.iter().map(|start| start.to_pong.as_secs_f64() * 1_000.0).collect();
    millis.sort_by(f64::total_cmp);
    let [first, median, last] = [0, millis.len() / 2, millis.len() - 1].map(|at| millis[at]);
    println!(
        "start to first PONG: {first:.2} ms at best, {median:.2} median, {last:.2} at worst, of {} starts",
        millis.len()
    );
    let most = |of: fn(&Start) -> Option<u64>| starts.iter().filter_map(of).max();
    if let Some((idle, crowded)) = most(|start| start.idle_kib).zip(most(|start| start.crowded_kib)) {
        println!(
            "resident when idle: {idle} KiB; with {CONNECTIONS} connections: {crowded} KiB (most of all)"
        );
    }
    Ok(())
}

fn start(program: &OsString) -> io::Result<Start> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let (log, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let begun = Instant::now();
    let process = Process(command.spawn()?);
    // Its ends of the pipe go, so that the log ends with the process.
    drop(command);
    let mut log = BufReader::new(log);
    wait_until_ready(&mut log)?;
    let client = ping(port)?;
    let to_pong = begun.elapsed();

    let idle_kib = resident_kib(&process.0);
    let crowd = (0..CONNECTIONS).map(|_| ping(port)).collect::<io::Result<Vec<_>>>()?;
    let crowded_kib = resident_kib(&process.0);
    drop((client, crowd));
    Ok(Start { to_pong, idle_kib, crowded_kib })
}

fn wait_until_ready(log: &mut impl BufRead) -> io::Result<()> {
    let mut said = String::new();
    loop {
        let before = said.len();
        if log.read_line(&mut said)? == 0 {
            return Err(io::Error::other(format!("the server did not start:\n{said}")));
        }
        if said[before..].contains("Ready to accept connections") {
            return Ok(());
        }
    }
}

/// A connection that has had its first answer.
fn ping(port: u16) -> io::Result<TcpStream> {
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    client.write_all(b"*1\r\n$4\r\nPING\r\n")?;
    let mut answer = [0; 7];
    client.read_exact(&mut answer)?;
    assert_eq!(&answer, b"+PONG\r\n");
    Ok(client)
}

/// KiB that the process has in memory; `None` where there is no `/proc`.
fn resident_kib(process: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
