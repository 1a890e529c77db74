//! A faulty disk under the real program: every call that uses the journal fails, in every way.
//!
//! Owns    `faulty_disk.c`, the library that the server is started with. A run has two lives of a server, with a rewrite and
//!         a clean stop. One call fails, or several from that one on. Then the server is killed, and starts on a disk that
//!         works.
//! Rule    a lock that was granted is still held, and no released one is. The server does not panic, and says which error it
//!         has met.
//! Runs    one call of each fault, drawn by a seed. `DISK_FAULTS=all` takes every call of every fault, for minutes.
//!         `DISK_FAULTS=everysec:eio:1:17` takes the 17th call that one EIO can meet, and prints all calls.
//! Model   a loss of power cuts each file to its length at its last sync that was not lost, on another boot. Files that were
//!         created, renamed or removed stay so, and no byte changes: `simulation/crash_disk.rs` has that.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;

use super::kills::reply;
use super::*;
use crate::support::rng::{Rng, tally};
use crate::support::waits::{PATIENCE, wait_until};

/// What happens to calls.
#[derive(Clone, Copy)]
struct Fault {
    /// As `faulty_disk.c` knows it.
    name: &'static str,
    /// How many calls fail, one after the other.
    times: u64,
}

const FAULTS: &[Fault] = &[
    Fault { name: "eio", times: 1 },
    Fault { name: "eio", times: 4 },
    Fault { name: "enospc", times: 1 },
    Fault { name: "enospc", times: 4 },
    Fault { name: "short", times: 1 },
    Fault { name: "short", times: CALLS_MAX },
    // The rest of the write fails, and its removal, too.
    Fault { name: "torn", times: 2 },
    Fault { name: "torn", times: 4 },
    Fault { name: "kill", times: 1 },
    // A kill and a loss of power.
    Fault { name: "cut", times: 1 },
    Fault { name: "lost", times: 1 },
];
const MODES: [&str; 2] = ["everysec", "always"];
/// More calls than any run makes.
const CALLS_MAX: u64 = 1_000;
/// The calls among which one is drawn.
const CALLS_DRAWN: u64 = 100;
const SOURCE: &str = include_str!("faulty_disk.c");
/// Of each lock, in milliseconds. It outlasts the run.
const LEASE: u64 = 600_000;

impl Fault {
    fn loses_power(self) -> bool {
        matches!(self.name, "cut" | "lost")
    }

    /// The error that the server is given.
    fn error(self) -> Option<&'static str> {
        match self.name {
            "eio" => Some("Input/output error"),
            "enospc" | "torn" => Some("No space left on device"),
            _ => None,
        }
    }
}

/// What a client knows of its key. Where it had no answer, both may be true.
#[derive(Clone, Copy, Debug)]
struct Known {
    may_be_held: bool,
    may_be_free: bool,
}

/// A server on a disk that fails, in two lives, and the next one.
struct Run<'a> {
    library: &'a str,
    mode: &'static str,
    fault: Fault,
    /// The number of the first call that fails.
    call: u64,
    directory: Directory,
    known: BTreeMap<String, Known>,
    counted: u64,
    token: u64,
    /// All logs, and the replies that are errors.
    said: String,
    violations: Vec<String>,
}

/// The connection has ended.
struct Ended;

impl<'a> Run<'a> {
    fn new(library: &'a str, mode: &'static str, fault: Fault, call: u64) -> Self {
        Self {
            library,
            mode,
            fault,
            call,
            directory: Directory::new(),
            known: BTreeMap::new(),
            counted: 0,
            token: 0,
            said: String::new(),
            violations: Vec::new(),
        }
    }

    /// The words of each call so far: name, inode, bytes, end, path.
    fn calls(&self) -> Vec<Vec<String>> {
        let trace = fs::read_to_string(self.directory.path("trace")).unwrap_or_default();
        trace.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
    }

    /// How many calls have failed.
    fn faults(&self) -> usize {
        self.calls().iter().filter(|call| has_failed(call)).count()
    }

    /// Starts a server, whose disk may fail. `None`: it has ended before it was ready.
    fn start(&mut self, fails: bool) -> Option<Running> {
        let errors = fs::File::options().create(true).append(true).open(self.directory.path("errors"));
        let mut server = redlatch();
        let lease = LEASE.to_string();
        server.args(["--port", "auto", "--appendfsync", self.mode, "--horizon-max-lease", &lease]);
        server.args(["--dir", &self.directory.path("disk")]).stderr(errors.unwrap()).stdout(Stdio::piped());
        server.env("RUNTIME_DIRECTORY", self.directory.path("runtime"));
        server.env("LD_PRELOAD", self.library);
        if fails {
            let counted = self.calls().iter().filter(|call| call[3] != "uncounted").count();
            server.env("FAULT_DIR", self.directory.path("disk"));
            server.env("FAULT_TRACE", self.directory.path("trace"));
            server.env("FAULT", self.fault.name).env("FAULT_TIMES", self.fault.times.to_string());
            server.env("FAULT_FROM", (self.call as i64 - counted as i64).to_string());
        } else if self.fault.loses_power() {
            let boot = self.directory.write("boot", "00000000-0000-4000-8000-00000000b007\n");
            server.env("FAULT_BOOT", boot);
        }
        let mut process = server.spawn().unwrap();
        let log = BufReader::new(process.stdout.take().unwrap());
        let mut running = Running { process, log, said: String::new() };
        match running.hears("Ready to accept connections").is_some() {
            true => Some(running),
            false => {
                self.end(running);
                None
            }
        }
    }

    /// Waits for the end of a server.
    fn end(&mut self, server: Running) {
        let (code, said) = server.end_with_log();
        self.said += &said;
        // A kill, a clean stop, a refusal, a disk that cannot be trusted.
        if ![None, Some(0), Some(1), Some(74)].contains(&code) {
            self.violations.push(format!("the server has ended with {code:?}"));
        }
    }

    /// Two lives of the server. Either may end early.
    fn live(&mut self) {
        let Some(server) = self.start(true) else { return };
        let is_alive =
            self.work(&server, 1).and_then(|()| self.rewrite(&server)).and_then(|()| self.work(&server, 2));
        if is_alive.is_ok() {
            server.signal("TERM");
        }
        self.end(server);
        let Some(mut server) = self.start(true) else { return };
        if self.work(&server, 3).is_ok() {
            server.process.kill().unwrap();
        }
        self.end(server);
    }

    /// Takes locks, extends and releases them, and tries to take those of others.
    fn work(&mut self, server: &Running, phase: u64) -> Result<(), Ended> {
        let mut client = connect(server)?;
        for key in self.known.keys().cloned().collect::<Vec<_>>() {
            self.contend(&mut client, &key)?;
        }
        for (key, lease) in
            [("held", "PX 600000"), ("deleted", "PX 600000"), ("later", "PX 600000"), ("lasting", "")]
        {
            self.take(&mut client, &format!("SET {phase}:{key} me NX {lease}"))?;
        }
        for key in ["acquired", "released"] {
            self.take(&mut client, &format!("LOCK.ACQUIRE {phase}:{key} me LEASE {LEASE}"))?;
        }
        let answer = self.ask(&mut client, "INCR counter");
        self.counted = match answer?.strip_prefix(':') {
            Some(count) => count.parse().unwrap(),
            None => self.counted,
        };
        self.ask(&mut client, &format!("LOCK.EXTEND {phase}:acquired me LEASE {LEASE}"))?;
        self.release(&mut client, &format!("DEL {phase}:deleted"))?;
        self.release(&mut client, &format!("LOCK.RELEASE {phase}:released me"))?;
        self.release(&mut client, &format!("DEL {}:later", phase - 1))?;
        if self.fault.error().is_some() {
            // It is answered after a sync, before which the server logs that a write has failed.
            self.ask(&mut client, "WAITAOF 1 0 0")?;
        }
        Ok(())
    }

    fn take(&mut self, client: &mut Client, request: &str) -> Result<(), Ended> {
        let key = request.split(' ').nth(1).unwrap().to_owned();
        // Until it is answered.
        self.known.insert(key.clone(), Known { may_be_held: true, may_be_free: true });
        let answer = self.ask(client, request)?;
        let is_granted = answer == "+OK" || answer.starts_with('*');
        self.known.insert(key, Known { may_be_held: is_granted, may_be_free: !is_granted });
        Ok(())
    }

    fn release(&mut self, client: &mut Client, request: &str) -> Result<(), Ended> {
        let key = request.split(' ').nth(1).unwrap();
        let Some(known) = self.known.get_mut(key) else { return Ok(()) };
        let before = std::mem::replace(&mut known.may_be_free, true);
        let is_released = self.ask(client, request)? == ":1";
        // A release on a disk that has failed may be forgotten.
        let is_sure = self.faults() == 0 || self.fault.error().is_none();
        let known = self.known.get_mut(key).unwrap();
        match is_released {
            true => known.may_be_held &= !is_sure,
            false => known.may_be_free = before,
        }
        Ok(())
    }

    /// Tries to take a key that somebody holds, or may hold.
    fn contend(&mut self, client: &mut Client, key: &str) -> Result<(), Ended> {
        let known = self.known[key];
        if !known.may_be_free && self.ask(client, &format!("SET {key} thief NX PX {LEASE}"))? == "+OK" {
            self.violations.push(format!("{key} is granted twice"));
        }
        Ok(())
    }

    /// Rewrites the journal, and waits for the end of that.
    fn rewrite(&mut self, server: &Running) -> Result<(), Ended> {
        self.ask(&mut connect(server)?, "BGREWRITEAOF")?;
        let mut is_rewriting = Ok(true);
        wait_until("the journal is rewritten", || {
            is_rewriting = self.is_rewriting(server);
            !matches!(is_rewriting, Ok(true))
        });
        is_rewriting.map(drop)
    }

    fn is_rewriting(&mut self, server: &Running) -> Result<bool, Ended> {
        let mut client = connect(server)?;
        self.ask(&mut client, "INFO persistence")?;
        let mut lines = std::iter::from_fn(|| reply(&mut client)).flatten();
        let line = lines.find(|line| line.starts_with("aof_rewrite_in_progress:")).ok_or(Ended)?;
        Ok(line.ends_with(":1"))
    }

    /// The first line of a reply. Errors are kept with what the server says.
    fn ask(&mut self, client: &mut Client, request: &str) -> Result<String, Ended> {
        client.get_mut().write_all(format!("{request}\r\n").as_bytes()).map_err(|_| Ended)?;
        let mut lines = reply(client).ok_or(Ended)?;
        if lines[0].starts_with('-') {
            self.said += &format!("{request}: {}\n", lines[0]);
        }
        let token = lines.get(2).and_then(|token| token.strip_prefix(':')?.parse().ok());
        self.token = self.token.max(token.unwrap_or(0));
        Ok(lines.remove(0))
    }

    /// Each file has what its last real sync has found.
    fn lose_power(&self) {
        let mut synced = BTreeMap::new();
        for call in self.calls().iter().filter(|call| !has_failed(call)) {
            let (inode, bytes): (u64, u64) = (call[1].parse().unwrap(), call[2].parse().unwrap());
            let known = synced.entry(inode).or_insert(0);
            match call[0].as_str() {
                "sync" => *known = bytes,
                "truncate" => *known = bytes.min(*known),
                _ => {}
            }
        }
        for file in fs::read_dir(self.directory.path("disk/data")).into_iter().flatten() {
            let path = file.unwrap().path();
            let file = fs::File::options().write(true).open(&path).unwrap();
            let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
            file.set_len(synced.get(&inode).copied().unwrap_or(0).min(file.metadata().unwrap().len()))
                .unwrap();
        }
    }

    /// A server on the disk that works again keeps what was promised.
    fn check(&mut self) {
        let Some(server) = self.start(false) else {
            let errors = fs::read_to_string(self.directory.path("errors")).unwrap();
            self.violations.push(format!("the next start refuses: {}", errors.trim()));
            return;
        };
        let waits = info(&server, "quarantine_active") == 1;
        let may_wait = self.mode == "everysec" && (self.fault.loses_power() || self.fault.error().is_some());
        if waits && !may_wait {
            self.violations.push("nobody is to wait".to_owned());
        }
        let mut client = connect(&server).ok().unwrap();
        for (key, known) in self.known.clone() {
            let value = self.ask(&mut client, &format!("GET {key}")).ok().unwrap();
            let value = if value == "$-1" { "" } else { &reply(&mut client).unwrap()[0] };
            let may_be_forgotten = waits && self.fault.loses_power() && !key.ends_with(":lasting");
            match value {
                "" if known.may_be_free || may_be_forgotten => {}
                "" => self.violations.push(format!("{key} is lost")),
                "me" if known.may_be_held || waits && self.fault.loses_power() => {}
                "me" => self.violations.push(format!("{key} is held again")),
                _ => self.violations.push(format!("{key} is garbage: {value}")),
            }
            let _ = self.contend(&mut client, &key);
        }
        let before = self.token;
        let answer = self.ask(&mut client, "LOCK.ACQUIRE next me LEASE 1000").ok().unwrap();
        if answer.starts_with('*') && self.token <= before {
            self.violations.push(format!("no token is above {before}"));
        }
        let count = self.ask(&mut client, "INCR counter").ok().unwrap();
        if count.strip_prefix(':').is_some_and(|count| count.parse::<u64>().unwrap() <= self.counted) {
            self.violations.push(format!("the counter is {count} after {}", self.counted));
        }
        server.kill();
    }

    /// The whole run. `None`: there is no such call.
    fn run(mut self) -> Option<Done> {
        self.live();
        if self.faults() == 0 {
            return None;
        }
        let errors = fs::read_to_string(self.directory.path("errors")).unwrap();
        self.said += &errors;
        if self.fault.error().is_some_and(|error| !self.said.contains(error)) {
            self.violations.push("nothing says which error it was".to_owned());
        }
        if self.fault.loses_power() {
            self.lose_power();
        }
        let before = self.violations.len();
        self.check();
        let mut lies = self.violations.split_off(before);
        if self.fault.name != "lost" {
            self.violations.append(&mut lies);
        }
        // A disk that lies may forget, but nothing else.
        let is_worse = |why: &String| {
            why.contains("garbage") || why.contains("refuses") && !why.contains("startup-guard")
        };
        self.violations.extend(lies.extract_if(.., |why| is_worse(why)));
        if self.said.contains("panicked") {
            self.violations.push("a panic".to_owned());
        }
        Some(self.done(lies))
    }

    fn done(self, lies: Vec<String>) -> Done {
        let Fault { name, times } = self.fault;
        let calls = self.calls();
        let failed = calls.iter().find(|call| has_failed(call)).unwrap();
        let file = failed[4].rsplit('/').next().unwrap();
        let of = format!("{}:{name}:{times}:{}, {} {file}", self.mode, self.call, failed[0]);
        Done {
            faults: self.faults(),
            locks: self.known.values().filter(|known| !known.may_be_free).count(),
            violations: self.violations.iter().map(|why| format!("{of}: {why}")).collect(),
            lies,
            heard: self.said + &calls.iter().map(|call| call.join(" ") + "\n").collect::<String>(),
        }
    }
}

/// What a run has shown.
struct Done {
    faults: usize,
    /// How many locks were held for sure.
    locks: usize,
    violations: Vec<String>,
    /// What a disk that loses syncs has made the server forget.
    lies: Vec<String>,
    /// What the server has said, and the calls.
    heard: String,
}

fn has_failed(call: &[String]) -> bool {
    !["works", "uncounted"].contains(&call[3].as_str())
}

type Client = BufReader<TcpStream>;

fn connect(server: &Running) -> Result<Client, Ended> {
    let stream = TcpStream::connect(address(server)).map_err(|_| Ended)?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Ok(BufReader::new(stream))
}

/// Every call of the fault, or one that is drawn.
fn run_all(library: &str, mode: &'static str, fault: Fault, seed: u64, is_complete: bool) -> Vec<Done> {
    let run = |call| Run::new(library, mode, fault, call).run();
    if is_complete {
        return (1..).map_while(run).collect();
    }
    // A fault that meets fewer calls than that is tried at an earlier one.
    let drawn = 1 + Rng::new(seed).below_u64(CALLS_DRAWN);
    let calls = std::iter::successors(Some(drawn), |call| Some(call / 2)).take_while(|call| *call > 0);
    calls.filter_map(run).take(1).collect()
}

#[test]
fn a_call_that_fails_costs_no_lock_and_is_told() {
    let disk = Directory::new();
    let Some(library) = build(&disk, SOURCE) else { return };
    let asked = std::env::var("DISK_FAULTS").unwrap_or_default();
    if let [mode, name, times, call] = asked.split(':').collect::<Vec<_>>()[..] {
        let mode = MODES.into_iter().find(|known| *known == mode).unwrap();
        let fault =
            FAULTS.iter().find(|fault| fault.name == name && fault.times.to_string() == times).unwrap();
        let done =
            Run::new(&library, mode, *fault, call.parse().unwrap()).run().expect("there is such a call");
        println!("{}\nlies: {:?}", done.heard, done.lies);
        assert_eq!(done.violations, [""; 0]);
        return;
    }
    let is_complete = asked == "all";
    let each = MODES.into_iter().flat_map(|mode| FAULTS.iter().map(move |fault| (mode, *fault)));
    let done: Vec<Done> = std::thread::scope(|scope| {
        let threads = each.zip(1..).map(|((mode, fault), seed)| {
            let library = &library;
            scope.spawn(move || run_all(library, mode, fault, seed, is_complete))
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let violations: Vec<_> = done.iter().flat_map(|done| done.violations.clone()).collect();
    let faults: usize = done.iter().map(|done| done.faults).sum();
    let locks: usize = done.iter().map(|done| done.locks).sum();
    println!("{} runs, {locks} locks", done.len());
    println!("faulty disk: {faults} faults injected, {} violations", violations.len());
    // A fault from one call on counts once for each run.
    tally(&[("faults", done.len() as u64), ("violations", violations.len() as u64)]);
    assert!(violations.is_empty(), "repeat one with DISK_FAULTS=...:\n{}", violations.join("\n"));
    assert!(done.len() >= MODES.len() * FAULTS.len() && locks > done.len(), "each fault has met a call");
}

/// The canary: a disk that loses what the server relies on costs locks, and the check sees it.
// Breaks P-failed-call.
#[test]
fn syncs_that_are_lost_are_seen_to_cost_locks() {
    let disk = Directory::new();
    let Some(library) = build(&disk, SOURCE) else { return };
    // The first syncs are those of an empty journal.
    let done = Run::new(&library, "always", Fault { name: "lost", times: CALLS_MAX }, 8).run().unwrap();
    assert!(done.lies.iter().any(|lie| lie.contains("is granted twice")), "{:?}", done.lies);
    assert_eq!(done.violations, [""; 0]);
}
