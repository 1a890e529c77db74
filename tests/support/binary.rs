//! The binary, its files and its log, for tests that start it.
//!
//! Time    no sleep: a test waits for a line of the log or for the end of the process, and the ports are free ones.

#![allow(dead_code, reason = "each test file uses its part of it")]

use std::borrow::BorrowMut;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The program that is built with the tests, without the REDLATCH variables of the test's environment. TEST_PROGRAM names
/// another one in its place, behind the emulator that runs it.
pub(crate) fn program() -> Command {
    let named = std::env::var("TEST_PROGRAM").unwrap_or_default();
    let mut words = named.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(env!("CARGO_BIN_EXE_redlatch")));
    command.args(words);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REDLATCH_")) {
        command.env_remove(name);
    }
    command
}

/// The program without a standard input.
pub(crate) fn redlatch() -> Command {
    let mut command = program();
    command.stdin(Stdio::null());
    command
}

/// A temporary directory, removed on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("redlatch-process-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that accepts connections.
pub(crate) struct Running {
    pub(crate) process: Child,
    pub(crate) log: BufReader<ChildStdout>,
    pub(crate) said: String,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let process = command.stdout(Stdio::piped()).spawn().unwrap();
        Self::wait(process)
    }

    pub(crate) fn wait(mut process: Child) -> Self {
        let log = BufReader::new(process.stdout.take().unwrap());
        let mut running = Self { process, log, said: String::new() };
        running.wait_for("Ready to accept connections");
        running
    }

    /// Reads the log up to the line with these words; returns that line.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        self.hears(words).unwrap_or_else(|| panic!("it ended without '{words}':\n{}", self.said))
    }

    /// As [`Running::wait_for`]; `None`: the log has ended without these words.
    pub(crate) fn hears(&mut self, words: &str) -> Option<String> {
        loop {
            let before = self.said.len();
            if self.log.read_line(&mut self.said).unwrap() == 0 {
                return None;
            }
            if self.said[before..].contains(words) {
                return Some(self.said[before..].trim_end().to_owned());
            }
        }
    }

    /// The TCP address that the log names.
    pub(crate) fn address(&self) -> String {
        self.address_of("tcp")
    }

    /// The address that the log names under `field`.
    pub(crate) fn address_of(&self, field: &str) -> String {
        let label = format!(" {field}=\"");
        let (_, address) = self.said.rsplit_once(&label).expect("the log names the address");
        address.split('"').next().unwrap_or_default().to_owned()
    }

    /// Moves the clock of a server with test commands on.
    pub(crate) fn pass(&self, millis: u64) {
        assert!(self.ask(&format!("TEST.CLOCK ADVANCE {millis}")).starts_with(':'));
    }

    /// The URL of that address.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).unwrap()
    }

    pub(crate) fn ask(&self, request: &str) -> String {
        ask(self.connect(), request)
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(&self.process, name);
    }

    /// Ends it at once, and waits for that.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.end();
    }

    /// Waits for the end; returns the exit code.
    pub(crate) fn end(self) -> Option<i32> {
        self.end_with_log().0
    }

    /// Waits for the end; returns the exit code and all that was logged.
    pub(crate) fn end_with_log(mut self) -> (Option<i32>, String) {
        self.log.read_to_string(&mut self.said).unwrap();
        (self.process.wait().unwrap().code(), std::mem::take(&mut self.said))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(process: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &process.id().to_string()]).status().unwrap().success());
}

/// Sends one inline request and QUIT; returns all that is answered to the first.
pub(crate) fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(format!("{request}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.strip_suffix("+OK\r\n").expect("QUIT is answered last").to_owned()
}

/// Waits for the end of a command; returns its exit code, its output and its error stream.
pub(crate) fn ended(mut command: impl BorrowMut<Command>) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.borrow_mut().output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (status.code(), stdout, stderr)
}

/// The sentence with which the binary refuses to start.
pub(crate) fn refusal(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    said.trim_end().to_owned()
}
