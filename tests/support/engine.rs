//! The engine itself as a target: no socket, no thread, and a clock that only transcripts move.
//!
//! Time     `advance` steps from one due moment to the next, so that all that is due happens in order.
//! Knows    the shell's duties for a connection: frames, the outbox, waits, the end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redlatch_core::commands::Shared;
use redlatch_core::engine::{Engine, Flow};
use redlatch_core::keyspace::{Due, Keyspace, Layout};
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::Settings;
use redlatch_proto::clock::{Clock, LockTime, Now};
use redlatch_proto::error::ProtocolError;
use redlatch_proto::resp::{Decoder, Reply};
use redlatch_testing::commands::table;

use super::backend;
use super::clock::StillClock;
use super::interpreter::INTERPRETER;
use super::target::{Heard, Link, Target, Wait};

/// An engine and its clients.
pub(crate) struct EngineTarget {
    engine: Engine,
    clock: Arc<StillClock>,
    connections: Vec<Connection>,
}

struct Connection {
    session: Session,
    decoder: Decoder,
    input: Vec<u8>,
    output: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Open,
    /// The request at the front of the input may not run before that.
    Held(LockTime),
    /// A call of the session waits.
    Waiting,
    /// Gone, once its output has been read.
    Closed,
}

impl EngineTarget {
    /// A server that has just started, in November 2023.
    pub(crate) fn start() -> Self {
        Self::start_at(START_UNIX_MS)
    }

    /// A server that has just started, at a time since 1970 in milliseconds.
    pub(crate) fn start_at(unix_ms: i64) -> Self {
        Self::start_with(LAYOUT, unix_ms)
    }

    /// A server that has just started, with TEST commands.
    pub(crate) fn start_with_tests() -> Self {
        Self::start_with_tests_and(LAYOUT)
    }

    /// Starts with TEST commands, and with another keyspace or a journal.
    pub(crate) fn start_with_tests_and(layout: Layout) -> Self {
        Self::start_as(layout, START_UNIX_MS, (true, "no"))
    }

    /// Starts with another keyspace, or with a journal.
    pub(crate) fn start_with(layout: Layout, unix_ms: i64) -> Self {
        Self::start_as(layout, unix_ms, (false, "no"))
    }

    /// A server in cluster mode that has just started.
    pub(crate) fn start_with_slots() -> Self {
        Self::start_with_slots_at(START_UNIX_MS)
    }

    /// A server in cluster mode that has just started, at a time since 1970 in milliseconds.
    pub(crate) fn start_with_slots_at(unix_ms: i64) -> Self {
        Self::start_as(LAYOUT, unix_ms, (false, "yes"))
    }

    fn start_as(layout: Layout, unix_ms: i64, (has_tests, cluster_enabled): (bool, &str)) -> Self {
        let wall_offset_ms = unix_ms - i64::try_from(START_MS).expect("a second fits");
        let clock = StillClock::new(START_MS, wall_offset_ms);
        let settings = Settings::default();
        settings.set("enable-debug-command", "yes").expect("DEBUG can be allowed");
        settings.set("cluster-enabled", cluster_enabled).expect("cluster mode can be chosen");
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let testing = has_tests.then(|| backend::testing(Arc::clone(&clock)));
        let mut keyspace = Keyspace::new(layout, || {});
        if let Some(testing) = &testing {
            keyspace.observe_locks(testing.recorder.observer(1, Arc::clone(&time)));
        }
        let shared =
            Shared::new(keyspace, settings, time, 7).with_commands(table()).with_interpreter(INTERPRETER);
        let shared = match testing {
            Some(testing) => shared.with_extension(Arc::new(testing)),
            None => shared,
        };
        Self { engine: Engine::new(Arc::new(shared)), clock, connections: Vec::new() }
    }

    /// Starts on a keyspace that a journal has restored, at this time. Clients get numbers above `client`.
    pub(crate) fn restarted(keyspace: Keyspace, now: Now, client: u64) -> Self {
        let clock = StillClock::new(now.lock.as_millis(), now.wall_offset_ms);
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let shared = Shared::new(keyspace, Settings::default(), time, 7).with_interpreter(INTERPRETER);
        shared.registries.clients.raise_ids(client);
        Self { engine: Engine::new(Arc::new(shared)), clock, connections: Vec::new() }
    }

    /// Lets every connection run until none can proceed.
    fn settle(&mut self) {
        let mut again = true;
        while again {
            again = false;
            for connection in &mut self.connections {
                again |= connection.go_on(&self.engine);
            }
            if self.engine.shared().stop.has_begun.load(Relaxed) {
                self.connections.iter_mut().for_each(|connection| connection.close(&self.engine));
            }
        }
    }

    /// The next moment at which something is due, expiry or a wait.
    fn next_due(&self, expiry: Option<LockTime>) -> Option<LockTime> {
        let waits = self.connections.iter().filter_map(|connection| match connection.state {
            State::Held(until) => Some(until),
            State::Waiting => connection.session.parked.as_ref().and_then(|parked| parked.until),
            State::Open | State::Closed => None,
        });
        waits.chain(expiry).min()
    }
}

/// The view of the session fuzzer.
#[allow(dead_code, reason = "transcripts see what clients see, and no more")]
impl EngineTarget {
    pub(crate) fn keyspace(&self) -> &Keyspace {
        &self.engine.shared().keyspace
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.engine.shared()
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// When something is due next, after what is due now has been done.
    pub(crate) fn due(&mut self) -> Option<LockTime> {
        loop {
            if let Due::Next(due) = self.engine.tick() {
                return self.next_due(due);
            }
        }
    }

    /// Whether the connection is open and every request on it has its reply.
    pub(crate) fn is_idle(&self, link: Link) -> bool {
        let connection = &self.connections[link];
        connection.state == State::Open && connection.input.is_empty()
    }

    /// Cuts the connection, blocked or not.
    pub(crate) fn cut(&mut self, link: Link) {
        self.connections[link].close(&self.engine);
        self.settle();
    }
}

impl Target for EngineTarget {
    fn name(&self) -> &'static str {
        "redlatch"
    }

    fn clock_is_manual(&self) -> bool {
        true
    }

    fn unix_ms(&self) -> i64 {
        i64::try_from(self.clock.now().wall().as_millis()).expect("it is not that late")
    }

    fn connect(&mut self) -> Link {
        let link = self.connections.len();
        let id = self.engine.shared().registries.clients.next_id();
        let peer = format!("127.0.0.1:{}", 50_000 + link);
        let client = Client::new(id, peer, "127.0.0.1:6379".to_owned(), false, self.clock.now().lock);
        self.connections.push(Connection {
            session: self.engine.connect(client),
            decoder: Decoder::new(),
            input: Vec::new(),
            output: Vec::new(),
            state: State::Open,
        });
        link
    }

    fn send(&mut self, link: Link, bytes: &[u8]) {
        let connection = &mut self.connections[link];
        if connection.state != State::Closed {
            connection.input.extend_from_slice(bytes);
        }
        self.settle();
    }

    fn receive(&mut self, link: Link, _: Wait, into: &mut Vec<u8>) -> Heard {
        let connection = &mut self.connections[link];
        if !connection.output.is_empty() {
            into.append(&mut connection.output);
            return Heard::Bytes;
        }
        if connection.state == State::Closed { Heard::Closed } else { Heard::Silence }
    }

    fn advance(&mut self, step: Duration) {
        let step = u64::try_from(step.as_millis()).expect("a step of a transcript is short");
        let end = self.clock.now_ms() + step;
        loop {
            let expiry = match self.engine.tick() {
                Due::More => continue,
                Due::Next(expiry) => expiry,
            };
            self.settle();
            let now = self.clock.now_ms();
            if now == end {
                break;
            }
            let due = self.next_due(expiry).map_or(end, LockTime::as_millis);
            self.clock.set_ms(due.clamp(now + 1, end));
            self.settle();
        }
    }
}

impl Connection {
    /// Executes the available input; returns true if it made progress.
    fn go_on(&mut self, engine: &Engine) -> bool {
        if self.state == State::Closed {
            return false;
        }
        let before = (self.input.len(), self.output.len(), self.state);
        if !self.session.client.is_closing() && self.may_run(engine) {
            self.carry_out(engine);
        }
        if self.session.client.has_messages() {
            self.session.client.collect(&mut self.output);
        }
        if self.session.client.is_closing() {
            self.close(engine);
        }
        before != (self.input.len(), self.output.len(), self.state)
    }

    fn may_run(&mut self, engine: &Engine) -> bool {
        match self.state {
            State::Open => {}
            // The engine decides whether the connection is still paused: a pause may end early.
            State::Held(_) => self.state = State::Open,
            State::Waiting => match engine.resume(&mut self.session, &mut self.output) {
                Flow::Next => self.state = State::Open,
                _ => return false,
            },
            State::Closed => return false,
        }
        true
    }

    fn carry_out(&mut self, engine: &Engine) {
        let mut batch = engine.batch();
        let mut taken = 0;
        while self.state == State::Open {
            let buffer = &self.input[taken..];
            match self.decoder.next(buffer, engine.trust(&self.session)) {
                Ok(Some(bytes)) => {
                    let request = self.decoder.request(buffer);
                    backend::note_request(engine, &self.session, request);
                    let mark = self.output.len();
                    let flow = engine.execute(&mut self.session, request, &mut batch, &mut self.output);
                    backend::note_reply(engine, &self.session, flow, &self.output[mark..]);
                    match flow {
                        Flow::Next => {}
                        Flow::Close => self.session.client.close(),
                        Flow::Again(until) => {
                            self.state = State::Held(until);
                            break;
                        }
                        Flow::Offload => unreachable!("a session that may be held"),
                        Flow::Wait => self.state = State::Waiting,
                    }
                    taken += bytes;
                }
                Ok(None) => break,
                Err(error) => {
                    if error != ProtocolError::RequestTooLarge {
                        let text = format!("ERR Protocol error: {error}");
                        Reply::new(&mut self.output, self.session.protocol).error(&text);
                    }
                    self.session.client.close();
                }
            }
            if self.session.client.is_closing() {
                break;
            }
        }
        self.input.drain(..taken.min(self.input.len()));
        engine.end_batch(&mut self.session, batch);
    }

    fn close(&mut self, engine: &Engine) {
        if self.state != State::Closed {
            self.state = State::Closed;
            engine.disconnect(&mut self.session);
        }
    }
}

/// The lock time at which a server starts.
const START_MS: u64 = 1_000;
/// The wall time at which it starts.
const START_UNIX_MS: i64 = 1_700_000_001_000;
/// The keyspace of most servers.
const LAYOUT: Layout = Layout { shards: 8, databases: 16, seed: 7, journal: None };
