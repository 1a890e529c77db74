//! Servers that restart, still start, run a long script or are full: what waits goes on until its own time is over.
//!
//! Time    no sleep: a test waits for a line that says that a try has failed, and changes the server then. A waiting time is
//!         so long that it cannot end, or so short that the first try is the last one.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use crate::support::binary::{Directory, Running, ask, ended, redlatch};
use crate::support::waits::wait_until;

/// A path for the socket of one server after another.
struct Socket(Directory);

impl Socket {
    fn new() -> Self {
        Self(Directory::new())
    }

    fn path(&self) -> String {
        self.0.path("socket")
    }

    fn start(&self) -> Running {
        let limit = ["--busy-reply-threshold", "1"];
        Running::start(redlatch().args(["--port", "0", "--unixsocket", &self.path()]).args(limit))
    }

    fn ask(&self, request: &str) -> String {
        ask(UnixStream::connect(self.path()).unwrap(), request)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = redlatch();
        command.args(&arguments[..1]).args(["--url", &format!("unix://{}", self.path())]);
        command.args(&arguments[1..]);
        command
    }
}

/// A command whose lines are read one by one.
struct Lines {
    process: Child,
    said: BufReader<ChildStdout>,
    warned: BufReader<ChildStderr>,
}

impl Lines {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let warned = BufReader::new(process.stderr.take().unwrap());
        Self { process, said, warned }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.said.read_line(&mut line).unwrap() > 0, "it ended: {:?}", self.process.wait());
        line.trim_end().to_owned()
    }

    /// Waits for the line that says that another try follows.
    fn wait_for_retry(&mut self, why: &str) {
        let mut line = String::new();
        self.warned.read_line(&mut line).unwrap();
        assert!(line.ends_with("; trying again\n") && line.contains(why), "{line}");
    }

    fn end(mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const RAN: &[&str] = &["lock:a", "--", "echo", "ran"];

#[test]
fn run_goes_on_waiting_when_the_server_restarts() {
    let socket = Socket::new();
    for limit in [&["run"][..], &["run", "--wait", "1h"]] {
        let server = socket.start();
        socket.ask("LOCK.ACQUIRE lock:a other");
        let mut waits = Lines::start(socket.command(&[limit, RAN].concat()));
        wait_until("somebody waits", || socket.ask("LOCK.WAITERS lock:a") != "*0\r\n");
        server.kill();
        waits.wait_for_retry("");
        let _server = socket.start();
        assert_eq!(waits.line(), "ran");
        assert_eq!(waits.end(), Some(0));
    }
}

#[test]
fn take_goes_on_waiting_when_the_server_restarts() {
    let socket = Socket::new();
    let server = socket.start();
    socket.ask("LOCK.ACQUIRE lock:a other LEASE 3600000");
    let words = ["take", "--wait", "1h", "--for", "1h", "--as", "me", "lock:a"];
    let mut waits = Lines::start(socket.command(&words));
    let mut line = String::new();
    waits.warned.read_line(&mut line).unwrap();
    assert_eq!(line, "redlatch: waiting for lock:a, at place 1 of its queue\n");
    server.kill();
    let _server = socket.start();
    assert_eq!(waits.line(), "1 me");
    assert_eq!(waits.end(), Some(0));
}

#[test]
fn run_with_a_time_limit_waits_for_a_server_that_still_starts() {
    let socket = Socket::new();
    let mut waits = Lines::start(socket.command(&[&["run", "--wait", "1h"], RAN].concat()));
    waits.wait_for_retry("");
    let _server = socket.start();
    assert_eq!(waits.line(), "ran");
    assert_eq!(waits.end(), Some(0));
}

#[test]
fn a_server_that_was_never_there_is_not_waited_for_without_a_time_limit() {
    let socket = Socket::new();
    for arguments in [
        &["run", "lock:a", "--", "true"][..],
        &["run", "--no-wait", "lock:a", "--", "true"],
        &["run", "--wait", "1ms", "lock:a", "--", "true"],
        &["run", "--if-held", "skip", "lock:a", "--", "true"],
        &["wait", "lock:a"],
        &["wait", "lock:a", "--timeout", "1ms"],
        &["watch"],
        &["who", "lock:a"],
    ] {
        let (code, _, said) = ended(socket.command(arguments));
        assert_eq!(code, Some(69), "{arguments:?}: {said}");
    }
}

#[test]
fn run_and_wait_outlast_a_long_script_and_run_outlasts_a_full_memory() {
    let socket = Socket::new();
    let _server = socket.start();
    let mut script = UnixStream::connect(socket.path()).unwrap();
    script.write_all(b"EVAL 'while true do end' 1 lock:a\r\n").unwrap();
    wait_until("the server is busy", || socket.ask("GET lock:a").starts_with("-BUSY"));
    for arguments in
        [&["run", "--no-wait", "lock:a", "--", "true"][..], &["wait", "lock:a", "--timeout", "0"]]
    {
        let (code, _, said) = ended(socket.command(arguments));
        assert_eq!((code, said.contains("BUSY")), (Some(79), true), "{arguments:?}: {said}");
    }
    let mut runs = Lines::start(socket.command(&[&["run"], RAN].concat()));
    let mut waits = Lines::start(socket.command(&["wait", "lock:a"]));
    runs.wait_for_retry("BUSY");
    waits.wait_for_retry("BUSY");
    assert_eq!(socket.ask("SCRIPT KILL"), "+OK\r\n");
    assert_eq!(runs.line(), "ran");
    assert_eq!(waits.line(), "lock:a is free");
    assert_eq!((runs.end(), waits.end()), (Some(0), Some(0)));

    assert_eq!(socket.ask("CONFIG SET maxmemory 1"), "+OK\r\n");
    let (code, _, said) = ended(socket.command(&["run", "--no-wait", "lock:a", "--", "true"]));
    assert_eq!((code, said.contains("OOM")), (Some(79), true), "{said}");
    let mut runs = Lines::start(socket.command(&[&["run", "--wait", "1h"], RAN].concat()));
    runs.wait_for_retry("OOM");
    assert_eq!(socket.ask("CONFIG SET maxmemory 0"), "+OK\r\n");
    assert_eq!(runs.line(), "ran");
    assert_eq!(runs.end(), Some(0));
}

#[test]
fn wait_goes_on_when_the_server_restarts() {
    let socket = Socket::new();
    for limit in [&["wait", "lock:a"][..], &["wait", "lock:a", "--timeout", "1h"]] {
        let server = socket.start();
        socket.ask("LOCK.ACQUIRE lock:a other");
        let mut waits = Lines::start(socket.command(limit));
        // It has asked once.
        wait_until("it is asked", || socket.ask("INFO commandstats").contains("cmdstat_exists:"));
        server.kill();
        waits.wait_for_retry("");
        let _server = socket.start();
        assert_eq!(waits.line(), "lock:a is free");
        assert_eq!(waits.end(), Some(0));
    }
}

#[test]
fn watch_goes_on_when_the_server_restarts_and_says_what_it_missed() {
    let socket = Socket::new();
    let server = socket.start();
    socket.ask("LOCK.ACQUIRE lock:a me");
    let mut watches = Lines::start(socket.command(&["watch", "--json", "--interval", "10ms"]));
    let event = |watches: &mut Lines| {
        let event: serde_json::Value = serde_json::from_str(&watches.line()).unwrap();
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        (text("event"), text("key"), event["since"].as_u64().zip(event["time"].as_u64()))
    };
    let (what, key, _) = event(&mut watches);
    assert_eq!((what.as_str(), key.as_str()), ("held", "lock:a"));
    server.kill();
    watches.wait_for_retry("");
    let _server = socket.start();
    let (what, _, missed) = event(&mut watches);
    let (since, until) = missed.unwrap();
    assert!(what == "missed" && since <= until, "{what} {since} {until}");
    let (what, key, _) = event(&mut watches);
    assert_eq!((what.as_str(), key.as_str()), ("free", "lock:a"), "what is no longer held is told");
    socket.ask("LOCK.ACQUIRE lock:b me");
    let (what, key, _) = event(&mut watches);
    assert_eq!((what.as_str(), key.as_str()), ("held", "lock:b"));
}
