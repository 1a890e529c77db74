//! An engine with one client, for counting and timing. While a request of it waits, another client sends the next.
//!
//! Time     stands still until [`Bare::pass`] moves it.
//! Rule     after [`Bare::new`] its own share of a request costs no allocation: buffers are kept.

use std::io;
use std::sync::Arc;

use redlatch_core::commands::Shared;
use redlatch_core::engine::{Engine, Flow};
use redlatch_core::journal::item::Horizon;
use redlatch_core::journal::log::{Log, Start, Storage};
use redlatch_core::journal::{Journal, Mode};
use redlatch_core::keyspace::{Due, Keyspace, Layout, ShardSet, View};
use redlatch_core::locks::Grant;
use redlatch_core::state::clients::Client;
use redlatch_core::state::polling::Polls;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::{Events, Settings};
use redlatch_proto::clock::{Clock, LockTime};
use redlatch_proto::resp::Decoder;

use super::clock::StillClock;
use super::interpreter::INTERPRETER;
pub(crate) use super::words::request;

/// The engine, its client, another one, and their buffers.
pub(crate) struct Bare {
    engine: Engine,
    clock: Arc<StillClock>,
    session: Session,
    /// The client that does not send now. If a request of it waits, it waits for the answer.
    other: Session,
    decoder: Decoder,
    output: Vec<u8>,
    log: Option<Arc<Log>>,
}

impl Bare {
    pub(crate) fn new() -> Self {
        Self::on(None)
    }

    /// With a journal, which is written after each batch, to nowhere.
    pub(crate) fn with_journal() -> Self {
        let horizon = Horizon { lease_ms_max: 60_000, ..Horizon::default() };
        let start = Start::of_first_file([7; 20], None, Mode::EverySecond, horizon);
        let log = Log::start(Box::new(Nowhere), start).expect("this storage takes everything");
        log.sync(LockTime::from_millis(0), 0).expect("this storage takes everything");
        Self::on(Some(Arc::new(log)))
    }

    fn on(log: Option<Arc<Log>>) -> Self {
        let clock = StillClock::new(1_700_000_000_000, 0);
        let layout = Layout {
            shards: SHARDS,
            databases: 16,
            seed: 7,
            journal: log.clone().map(|log| log as Arc<dyn Journal>),
        };
        let keyspace = Keyspace::new(layout, || {});
        let shared = Shared::new(keyspace, Settings::default(), Arc::clone(&clock) as Arc<dyn Clock>, 7)
            .with_interpreter(INTERPRETER);
        let engine = Engine::new(Arc::new(shared));
        let connect = || {
            let id = engine.shared().registries.clients.next_id();
            engine.connect(Client::new(id, String::new(), String::new(), false, clock.now().lock))
        };
        let (session, other) = (connect(), connect());
        let output = Vec::with_capacity(OUTPUT_BYTES);
        Self { engine, clock, session, other, decoder: Decoder::new(), output, log }
    }

    /// Sends whole requests as one batch; returns the replies. The answer to a request that has waited comes after the reply
    /// to the one that it has waited for.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> &[u8] {
        self.output.clear();
        let mut batch = self.engine.batch();
        while !bytes.is_empty() {
            let trust = self.engine.trust(&self.session);
            let taken = self.decoder.next(bytes, trust).expect("a good request").expect("a whole request");
            let request = self.decoder.request(bytes);
            let flow = self.engine.execute(&mut self.session, request, &mut batch, &mut self.output);
            assert!(matches!(flow, Flow::Next | Flow::Wait), "nothing here closes");
            bytes = &bytes[taken..];
            if flow == Flow::Wait {
                assert!(self.other.parked.is_none() && bytes.is_empty(), "one client goes on");
                std::mem::swap(&mut self.session, &mut self.other);
            } else if self.other.parked.is_some() {
                self.engine.resume(&mut self.other, &mut self.output);
            }
        }
        self.engine.end_batch(&mut self.session, batch);
        if let Some(log) = &self.log {
            log.write();
        }
        &self.output
    }

    /// Who holds the lock under a key of database 0, if it is one.
    pub(crate) fn grant(&self, key: &str) -> Option<Grant> {
        let shared = self.engine.shared();
        let now = self.clock.now();
        let mut view = View::lock(&shared.keyspace, ShardSet::All, 0, now, Events::default());
        view.locks().grant_of(key.as_bytes())
    }

    /// How the client polls the lock under a key of database 0, if it does.
    pub(crate) fn polls(&self, key: &str) -> Option<Polls> {
        let (shared, now) = (self.engine.shared(), self.clock.now());
        let view = View::lock(&shared.keyspace, ShardSet::All, 0, now, Events::default());
        let pollers = shared.registries.clients.polling(view.key_hash(key.as_bytes()), now.lock);
        pollers
            .into_iter()
            .map(|(client, polls)| (client.id, polls))
            .find(|(id, _)| *id == self.session.client.id)
            .map(|(_, polls)| polls)
    }

    /// Its time, in milliseconds of lock time.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Connects another client.
    pub(crate) fn connect(&self) -> Session {
        let id = self.engine.shared().registries.clients.next_id();
        self.engine.connect(Client::new(id, String::new(), String::new(), false, self.clock.now().lock))
    }

    /// Sends a request of a client of [`Bare::connect`]; returns the reply, which is empty if the request waits.
    pub(crate) fn say(&mut self, session: &mut Session, bytes: &[u8]) -> &[u8] {
        std::mem::swap(&mut self.session, session);
        let mut batch = self.engine.batch();
        let trust = self.engine.trust(&self.session);
        self.decoder.next(bytes, trust).expect("a good request").expect("a whole request");
        let request = self.decoder.request(bytes);
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES);
        self.engine.execute(&mut self.session, request, &mut batch, &mut self.output);
        self.engine.end_batch(&mut self.session, batch);
        std::mem::swap(&mut self.session, session);
        &self.output
    }

    /// Takes the answer to a request of a client that has waited; empty if the request waits still.
    pub(crate) fn answer(&mut self, session: &mut Session) -> &[u8] {
        self.output.clear();
        self.engine.resume(session, &mut self.output);
        &self.output
    }

    /// Ends the connection of a client of [`Bare::connect`].
    pub(crate) fn disconnect(&self, session: &mut Session) {
        self.engine.disconnect(session);
    }

    /// The state that all clients share.
    pub(crate) fn shared(&self) -> &Shared {
        self.engine.shared()
    }

    /// Lets time pass, and does all that has come due.
    pub(crate) fn pass(&mut self, millis: u64) {
        self.clock.set_ms(self.clock.now_ms() + millis);
        while matches!(self.engine.tick(), Due::More) {}
    }
}

/// A storage that keeps nothing.
#[derive(Debug)]
struct Nowhere;

impl Storage for Nowhere {
    fn write(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn begin(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn remove_before(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of output that it has room for in any case.
const OUTPUT_BYTES: usize = 64 * 1024;

pub(crate) const SHARDS: usize = 8;

/// Compare-and-delete, as most lock clients send it.
pub(crate) const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

pub(crate) const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

/// The SHA-1 that SCRIPT LOAD of this text answers.
pub(crate) fn load(bare: &mut Bare, text: &str) -> String {
    let answer = bare.send(&request(&["SCRIPT", "LOAD", text]));
    let answer = std::str::from_utf8(answer).expect("hexadecimal digits");
    answer.strip_prefix("$40\r\n").expect("a native script").trim_end().to_owned()
}
