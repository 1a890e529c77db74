//! The parts of every simulation: a clock and a journal that can be made wrong, and the state of a keyspace as a
//! value.
//!
//! Time     moves only by calls of the simulation. A fault is the only way in which a server sees another time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use redlatch_core::commands::Shared;
use redlatch_core::engine::{Batch, Engine, Flow};
use redlatch_core::journal::{Journal, Mutation, Record};
use redlatch_core::keyspace::{Keyspace, Layout, ShardSet, View};
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::{Events, Settings};
use redlatch_core::types::{Object, Shape};
use redlatch_proto::clock::{Clock, LockTime, Now};
use redlatch_proto::resp::Request;

use crate::support::interpreter::INTERPRETER;

pub(crate) const DATABASES: u16 = 3;

/// The defect of a server. All but the first are canaries: a run with one must break a law.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    None,
    /// Leases follow the wall clock.
    FollowsTheWall,
    /// Keys are removed in the last millisecond of their leases.
    ExpiresOneEarly,
    /// The clock is a millisecond late when it is read for a command.
    AnswersOneLate,
    /// Expired keys are removed only when a command touches them.
    NeverTicks,
    /// The ticker is never woken.
    SleepsThroughTheAlarm,
    /// The journal loses one record in fifty.
    LosesRecords,
    /// The journal exchanges one record in fifty with its predecessor.
    SwapsRecords,
    /// The journal does not record expired keys.
    LosesExpiries,
    /// The journal does not record new deadlines.
    LosesDeadlines,
    /// TIME panics: no canary, but a defect of one command.
    PanicsAtTime,
}

/// The true lock time and wall time, and the times that the server sees.
#[derive(Debug)]
pub(crate) struct SimulatedClock {
    lock_ms: AtomicU64,
    wall_offset_ms: AtomicI64,
    is_ticking: AtomicBool,
    fault: Fault,
}

impl SimulatedClock {
    pub(crate) fn now_ms(&self) -> u64 {
        self.lock_ms.load(Relaxed)
    }

    pub(crate) fn advance(&self, millis: u64) {
        self.lock_ms.fetch_add(millis, Relaxed);
    }

    pub(crate) fn step_wall(&self, millis: i64) {
        self.wall_offset_ms.fetch_add(millis, Relaxed);
    }

    /// The true time, whatever the server sees.
    pub(crate) fn truth(&self) -> Now {
        Now { lock: LockTime::from_millis(self.now_ms()), wall_offset_ms: self.wall_offset_ms.load(Relaxed) }
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Now {
        let truth = self.truth();
        let lock_ms = match (self.fault, self.is_ticking.load(Relaxed)) {
            (Fault::FollowsTheWall, _) => {
                self.now_ms().saturating_add_signed(truth.wall_offset_ms - WALL_OFFSET_MS)
            }
            (Fault::ExpiresOneEarly, true) => self.now_ms() + 1,
            (Fault::AnswersOneLate, false) => self.now_ms() - 1,
            _ => return truth,
        };
        Now { lock: LockTime::from_millis(lock_ms), ..truth }
    }

    fn micros(&self) -> u64 {
        self.now_ms() * 1_000
    }

    fn wall_micros(&self) -> u64 {
        assert!(self.fault != Fault::PanicsAtTime, "a defect of TIME");
        self.truth().wall().as_millis() * 1_000
    }
}

/// Every record, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Log {
    records: Mutex<Vec<Vec<Mutation>>>,
    fault: Fault,
}

impl Log {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { records: Mutex::default(), fault }
    }

    /// The records from `first` on.
    pub(crate) fn since(&self, first: usize) -> Vec<Vec<Mutation>> {
        self.records.lock().expect("no test panics in the journal")[first..].to_vec()
    }
}

impl Journal for Log {
    fn append(&self, record: &Record<'_>) {
        let mut records = self.records.lock().expect("no test panics in the journal");
        let (number, mut heard) = (records.len(), record.mutations.to_vec());
        match self.fault {
            Fault::LosesRecords if number % 50 == 49 => heard.clear(),
            Fault::SwapsRecords if number % 50 == 49 => {
                let before = records.last_mut().expect("not the first record");
                std::mem::swap(before, &mut heard);
            }
            Fault::LosesExpiries => {
                heard.retain(|what| !matches!(what, Mutation::Remove { expired: true, .. }))
            }
            Fault::LosesDeadlines => heard.retain(|what| !matches!(what, Mutation::SetDeadline { .. })),
            _ => {}
        }
        records.push(heard);
    }
}

/// An engine, the time it sees, and its journal.
pub(crate) struct Machine {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<SimulatedClock>,
    pub(crate) log: Arc<Log>,
    /// Set when a deadline was armed that ends before the ticker wakes.
    rung: Arc<AtomicBool>,
}

impl Machine {
    pub(crate) fn new(seed: u64, fault: Fault) -> Self {
        let log = Arc::new(Log::new(fault));
        let journal = Arc::clone(&log) as Arc<dyn Journal>;
        Self::with(seed, fault, log, Some(journal))
    }

    /// A machine that keeps no journal.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "the hostile tests use it"))]
    pub(crate) fn unrecorded(seed: u64) -> Self {
        Self::with(seed, Fault::None, Arc::new(Log::new(Fault::None)), None)
    }

    fn with(seed: u64, fault: Fault, log: Arc<Log>, journal: Option<Arc<dyn Journal>>) -> Self {
        let clock = Arc::new(SimulatedClock {
            lock_ms: AtomicU64::new(1_000_000),
            wall_offset_ms: AtomicI64::new(WALL_OFFSET_MS),
            is_ticking: AtomicBool::new(false),
            fault,
        });
        let rung = Arc::new(AtomicBool::new(false));
        let rung_by_keyspace = Arc::clone(&rung);
        let ring = move || rung_by_keyspace.store(fault != Fault::SleepsThroughTheAlarm, Relaxed);
        let keyspace = Keyspace::new(layout(journal), ring);
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let shared = Shared::new(keyspace, Settings::default(), time, seed).with_interpreter(INTERPRETER);
        shared.expires_actively.store(fault != Fault::NeverTicks, Relaxed);
        Self { engine: Engine::new(Arc::new(shared)), clock, log, rung }
    }

    pub(crate) fn connect(&self) -> Session {
        let id = self.shared().registries.clients.next_id();
        self.engine.connect(Client::new(id, "w".into(), "s".into(), false, self.clock.truth().lock))
    }

    /// Runs one command in a batch; returns its reply.
    pub(crate) fn call(&self, session: &mut Session, batch: &mut Batch, words: &[&str]) -> String {
        let answer = self.offer(session, batch, words);
        assert!(session.parked.is_none(), "{words:?}: this command must not block");
        answer
    }

    /// Runs a command that may block; its reply is empty if it does.
    pub(crate) fn offer(&self, session: &mut Session, batch: &mut Batch, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut out = Vec::new();
        let flow = self.engine.execute(session, Request::listed(&words), batch, &mut out);
        assert!(matches!(flow, Flow::Next | Flow::Wait), "no command closes");
        String::from_utf8(out).expect("an answer in ASCII")
    }

    /// Resumes a blocked session if its reply has arrived; returns the received bytes.
    pub(crate) fn resume(&self, session: &mut Session) -> String {
        let mut out = Vec::new();
        if session.parked.is_some() {
            self.engine.resume(session, &mut out);
            session.client.collect(&mut out);
        }
        String::from_utf8(out).expect("an answer in ASCII")
    }

    /// One round of the ticker; returns whether work is left.
    pub(crate) fn tick(&self) -> redlatch_core::keyspace::Due {
        self.clock.is_ticking.store(true, Relaxed);
        self.rung.store(false, Relaxed);
        let due = self.engine.tick();
        self.clock.is_ticking.store(false, Relaxed);
        due
    }

    pub(crate) fn has_rung(&self) -> bool {
        self.rung.load(Relaxed)
    }

    pub(crate) fn keyspace(&self) -> &Keyspace {
        &self.shared().keyspace
    }

    pub(crate) fn wall_ms(&self) -> u64 {
        self.clock.truth().wall().as_millis()
    }

    fn shared(&self) -> &Shared {
        self.engine.shared()
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    String(Vec<u8>),
    Object(Object),
}

impl Value {
    /// The live part of the value at `now_ms`; `None` if it is empty.
    fn living(&self, now_ms: u64) -> Option<Self> {
        if let Self::Object(Object::Lock(lock)) = self {
            let mut living = lock.clone();
            while let Some(ended) = living.due(LockTime::from_millis(now_ms)).cloned() {
                living.remove(&ended);
            }
            return (!living.is_empty()).then(|| Self::Object(living.into()));
        }
        Some(self.clone())
    }
}

/// Value and deadline by database and key.
pub(crate) type State = BTreeMap<(u16, Vec<u8>), (Value, Option<u64>)>;

/// Every key of every database, including expired ones that are not yet removed.
pub(crate) fn standing(keyspace: &Keyspace, now: Now) -> State {
    let mut state = State::new();
    for database in 0..DATABASES {
        let mut view = View::lock(keyspace, ShardSet::All, database, now, Events::default());
        view.whole().survey(|entry| {
            let string = || Value::String(entry.string.to_vec());
            let value = entry.object.map_or_else(string, |object| Value::Object(object.clone()));
            let deadline = entry.deadline.map(|deadline| deadline.as_millis());
            state.insert((database, entry.key.to_vec()), (value, deadline));
        });
    }
    state
}

/// Token, holder and origin of the grant of each key that is a lock, by database and key.
pub(crate) type Grants = BTreeMap<(u16, Vec<u8>), (u64, u64, bool)>;

/// The grant of every lock, expired or not.
pub(crate) fn grants(keyspace: &Keyspace, now: Now) -> Grants {
    let mut grants = Grants::new();
    for database in 0..DATABASES {
        let mut view = View::lock(keyspace, ShardSet::All, database, now, Events::default());
        view.whole().survey(|entry| {
            if let Some(grant) = entry.grant {
                let known = (grant.token, grant.holder, grant.is_native);
                grants.insert((database, entry.key.to_vec()), known);
            }
        });
    }
    grants
}

/// The part of a state that is live at `now`.
pub(crate) fn living(state: &State, now: Now) -> State {
    let now_ms = now.lock.as_millis();
    let lives = |until_ms: &Option<u64>| until_ms.is_none_or(|until_ms| until_ms >= now_ms);
    let alive = state.iter().filter(|(_, (_, until_ms))| lives(until_ms));
    alive
        .filter_map(|(key, (value, until_ms))| Some((key.clone(), (value.living(now_ms)?, *until_ms))))
        .collect()
}

/// Every live key of every database.
pub(crate) fn state_of(keyspace: &Keyspace, now: Now) -> State {
    living(&standing(keyspace, now), now)
}

/// A keyspace built from the journal alone.
#[derive(Debug)]
pub(crate) struct Replica {
    keyspace: Keyspace,
    applied: usize,
}

impl Replica {
    pub(crate) fn new() -> Self {
        Self { keyspace: Keyspace::new(layout(None), || {}), applied: 0 }
    }

    /// Applies the new records of the log; returns them.
    pub(crate) fn follow(&mut self, log: &Log) -> Vec<Vec<Mutation>> {
        let news = log.since(self.applied);
        news.iter().flatten().for_each(|mutation| self.keyspace.apply(mutation, BEFORE_ALL));
        self.applied += news.len();
        news
    }

    /// Every key that no record has removed, expired or not: the time of a replica stands still.
    pub(crate) fn remains(&self) -> State {
        self.keyspace.assert_laws();
        standing(&self.keyspace, BEFORE_ALL)
    }

    /// The grant of every lock that no record has removed, expired or not.
    pub(crate) fn grants(&self) -> Grants {
        grants(&self.keyspace, BEFORE_ALL)
    }

    /// The keys of [`Self::remains`] that are live at `now`.
    pub(crate) fn living(&self, now: Now) -> State {
        living(&self.remains(), now)
    }
}

pub(crate) fn layout(journal: Option<Arc<dyn Journal>>) -> Layout {
    Layout { shards: 4, databases: DATABASES, seed: 3, journal }
}

/// The wall time at lock time 0, in November 2023.
const WALL_OFFSET_MS: i64 = 1_700_000_000_000;

/// A time before every deadline.
const BEFORE_ALL: Now = Now { lock: LockTime::from_millis(0), wall_offset_ms: 0 };
