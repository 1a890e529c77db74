//! An engine that runs one script at a time and returns everything observable of the run.
//!
//! Owns    the compared facts: the reply, keys, deadlines, effects, messages and statistics.
//! Time    stands still: all runs see one instant.

use std::sync::{Arc, Mutex};

use redlatch_core::commands::Shared;
use redlatch_core::engine::{Engine, Flow};
use redlatch_core::journal::{Journal, Mutation, Record};
use redlatch_core::keyspace::{Keyspace, Layout, ShardSet, View};
use redlatch_core::locks::Grant;
use redlatch_core::scripts::native::Program;
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::{Events, Settings};
use redlatch_proto::clock::Clock;
use redlatch_proto::resp::Decoder;

use crate::support::clock::StillClock;
use crate::support::interpreter::INTERPRETER;
use crate::support::words::request;

#[derive(Debug, Default)]
struct Log(Mutex<Vec<String>>);

impl Journal for Log {
    fn append(&self, record: &Record<'_>) {
        let mut effects = self.0.lock().expect("no test has panicked here");
        // Grants depend on the SHA-1 of a script, which tells what the script is for: tests/locks/grants.rs.
        let effect = |mutation: &&Mutation| !matches!(mutation, Mutation::Grant { .. });
        effects
            .extend(record.mutations.to_vec().iter().filter(effect).map(|mutation| format!("{mutation:?}")));
    }
}

/// The time of the engine's clock, which stands still: since 1970, and as a lock time.
pub(crate) const WALL_MS: i64 = 1_700_001_000_000;
const LOCK_MS: u64 = 1_000_000;

/// An engine with two sessions: one calls scripts, the other is subscribed to every channel.
pub(crate) struct ScriptRunner {
    engine: Engine,
    session: Session,
    listener: Session,
    log: Arc<Log>,
}

impl ScriptRunner {
    pub(crate) fn new() -> Self {
        let log = Arc::new(Log::default());
        let journal: Arc<dyn Journal> = log.clone();
        let layout = Layout { shards: 4, databases: 4, seed: 7, journal: Some(journal) };
        let keyspace = Keyspace::new(layout, || {});
        let clock = StillClock::new(LOCK_MS, WALL_MS - LOCK_MS as i64);
        let now = clock.now().lock;
        let shared = Shared::new(keyspace, Settings::default(), clock, 7).with_interpreter(INTERPRETER);
        let engine = Engine::new(Arc::new(shared));
        let client = |id| Client::new(id, format!("127.0.0.1:{id}"), String::new(), false, now);
        let [mut session, listener] = [1, 2].map(|id| engine.connect(client(id)));
        session.may_block = true;
        let mut runner = Self { engine, session, listener, log };
        runner.swap();
        runner.send(&[b"PSUBSCRIBE", b"*"]);
        runner.send(&[b"SSUBSCRIBE", b"k1", b"k2", b"k3", b"k4", b"k5", b"mine", b"other"]);
        runner.swap();
        runner
    }

    fn swap(&mut self) {
        std::mem::swap(&mut self.session, &mut self.listener);
    }

    pub(crate) fn send(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let request = request(words);
        let (mut decoder, mut out, mut batch) = (Decoder::new(), Vec::new(), self.engine.batch());
        decoder.next(&request, self.engine.trust(&self.session)).expect("a request").expect("a whole one");
        let flow = self.engine.execute(&mut self.session, decoder.request(&request), &mut batch, &mut out);
        assert_eq!(flow, Flow::Next);
        self.engine.end_batch(&mut self.session, batch);
        out
    }

    /// Begins a quarantine of so many milliseconds, or ends it. Time stands still, so it does not end by itself.
    pub(crate) fn quarantine(&self, left_ms: Option<u64>) {
        let shared = self.engine.shared();
        match left_ms {
            Some(left_ms) => shared.locks.quarantine.begin(shared.clock.now().lock + left_ms, "a test"),
            None => drop(shared.locks.quarantine.end()),
        }
    }

    /// Who holds the lock under a key, if it is one.
    pub(crate) fn grant(&self, key: &[u8]) -> Option<Grant> {
        let shared = self.engine.shared();
        let mut view = View::lock(&shared.keyspace, ShardSet::All, 0, shared.clock.now(), Events::default());
        view.locks().grant_of(key)
    }

    /// Bytes the interpreter holds: 0 until the first interpreted script.
    pub(crate) fn interpreter_bytes(&self) -> usize {
        self.engine.shared().scripts.interpreter.memory()
    }

    /// Builds a state, runs a script on it, and returns everything observable.
    pub(crate) fn run(
        &mut self,
        state: &[Vec<Vec<u8>>],
        script: &[u8],
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Seen {
        self.send(&[b"FLUSHALL"]);
        for command in state {
            self.send(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        self.send(&[b"CONFIG", b"RESETSTAT"]);
        self.log.0.lock().expect("no test has panicked here").clear();
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVAL", script, count.as_bytes()];
        words.extend_from_slice(keys);
        words.extend_from_slice(args);
        let reply = String::from_utf8_lossy(&self.send(&words)).into_owned();
        let effects = std::mem::take(&mut *self.log.0.lock().expect("no test has panicked here"));
        let mut messages = Vec::new();
        self.listener.client.collect(&mut messages);
        let mut left = vec![
            self.send(&[b"DBSIZE"]),
            without_times(&self.send(&[b"INFO", b"commandstats"])),
            self.send(&[b"INFO", b"errorstats"]),
        ];
        for key in keys {
            for words in LOOKS {
                let words: Vec<&[u8]> =
                    words.iter().map(|word| if *word == b"@" { *key } else { *word }).collect();
                left.push(self.send(&words));
            }
        }
        let show = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Seen {
            reply: without_sha(&reply),
            left: left.into_iter().map(show).collect(),
            messages: show(messages),
            effects,
        }
    }
}

/// Reads of a key of any type; `@` stands for the key.
const LOOKS: &[&[&[u8]]] = &[
    &[b"TYPE", b"@"],
    &[b"PTTL", b"@"],
    &[b"GET", b"@"],
    &[b"LRANGE", b"@", b"0", b"-1"],
    &[b"HGETALL", b"@"],
    &[b"ZRANGE", b"@", b"0", b"-1", b"WITHSCORES"],
    &[b"SMEMBERS", b"@"],
];

/// Everything observable of one run.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    reply: String,
    left: Vec<String>,
    messages: String,
    effects: Vec<String>,
}

/// Removes the SHA-1 from an error reply: the interpreted text has another one.
fn without_sha(reply: &str) -> String {
    match reply.split_once(" script: ") {
        Some((before, after)) => format!("{before} script: {}", after.get(40..).unwrap_or_default()),
        None => reply.to_owned(),
    }
}

/// INFO commandstats without durations: calls and failures of each command.
fn without_times(info: &[u8]) -> Vec<u8> {
    let info = String::from_utf8_lossy(info);
    let lines = info.lines().map(|line| match (line.find(",usec"), line.find(",rejected")) {
        (Some(from), Some(to)) => format!("{}{}\n", &line[..from], &line[to..]),
        _ => format!("{line}\n"),
    });
    // The first line is the length, which depends on the removed digits.
    lines.skip(1).collect::<String>().into_bytes()
}

/// The script behind a statement without effect that no native script has, so that it runs in the interpreter.
pub(crate) fn interpreted(script: &[u8]) -> Vec<u8> {
    let text = [b"local unseen = function() end ", script].concat();
    assert!(Program::read(&text).is_none(), "native: {}", text.escape_ascii());
    text
}
