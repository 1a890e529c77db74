//! Seeded worlds: clients that take, extend, lose and give back locks on the engine itself, with checks after each step.
//!
//! Belongs here  what must hold in every run: mutual exclusion, leases kept to the millisecond, replay = state.
//! Time          a clock that only the world moves; one world per seed, `SEED=17 cargo test --test simulation`.
//! Canaries      clients with a broken protocol, which the same checks must catch; a check that misses one is no check.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use redlatch::clock::{Clock, LockTime, Now};
use redlatch::commands::Shared;
use redlatch::engine::{Engine, Flow};
use redlatch::journal::{Journal, Mutation};
use redlatch::keyspace::{Due, Keyspace, Layout, Reach, View};
use redlatch::resp::Request;
use redlatch::state::clients::Client;
use redlatch::state::session::Session;
use redlatch::state::settings::{Events, Settings};

const CLIENTS: usize = 5;
const LOCKS: usize = 3;
const STEPS: u32 = 4_000;
const SEEDS: u64 = 40;
/// What four empty shards may keep for the next key: their smallest tables.
const FLOOR_BYTES: usize = 8 * 1024;
const LAYOUT: fn(Option<Arc<dyn Journal>>) -> Layout =
    |journal| Layout { shards: 4, databases: 2, seed: 3, journal };
const RELEASE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const EXTEND: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
                      return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// How the clients of a world lock. All but the first are canaries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Protocol {
    Sound,
    /// Takes the lock without NX.
    GrabsWithoutLooking,
    /// Looks with GET, then stores with SET, and lets others in between.
    LooksThenSets,
    /// Gives back whatever lock is there, its own or not.
    ReleasesWithoutComparing,
    /// Believes in its lease for a millisecond longer than it lasts.
    OverstaysByOne,
    /// Extends whatever lock is there, and believes that it is its own.
    ExtendsWithoutComparing,
}

const CANARIES: &[Protocol] = &[
    Protocol::GrabsWithoutLooking,
    Protocol::LooksThenSets,
    Protocol::ReleasesWithoutComparing,
    Protocol::OverstaysByOne,
    Protocol::ExtendsWithoutComparing,
];

/// xorshift64*: small, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

#[derive(Default)]
struct WorldClock {
    lock_ms: AtomicU64,
    wall_offset_ms: AtomicI64,
}

impl Clock for WorldClock {
    fn now(&self) -> Now {
        let lock = LockTime::from_millis(self.lock_ms.load(Relaxed));
        Now { lock, wall_offset_ms: self.wall_offset_ms.load(Relaxed) }
    }

    fn micros(&self) -> u64 {
        self.lock_ms.load(Relaxed) * 1_000
    }

    fn wall_micros(&self) -> u64 {
        self.now().wall().as_millis() * 1_000
    }
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<(u64, Vec<Mutation>)>>);

impl Journal for Log {
    fn append(&self, number: u64, mutations: &[Mutation]) {
        self.0.lock().expect("no test panicked with the log").push((number, mutations.to_vec()));
    }
}

/// A lease that a client believes in, until the last millisecond it was granted.
#[derive(Clone, Debug)]
struct Lease {
    token: String,
    until_ms: u64,
}

struct Worker {
    session: Session,
    /// What the client believes to hold, by lock.
    leases: BTreeMap<usize, Lease>,
    /// A lock seen free by a client that looks first.
    seen_free: Option<usize>,
    tokens: u64,
}

struct World {
    protocol: Protocol,
    dice: Dice,
    clock: Arc<WorldClock>,
    engine: Engine,
    log: Arc<Log>,
    workers: Vec<Worker>,
    scripts: [String; 2],
}

impl World {
    fn new(seed: u64, protocol: Protocol) -> Self {
        let clock = Arc::new(WorldClock { lock_ms: AtomicU64::new(1_000), ..WorldClock::default() });
        let log = Arc::new(Log::default());
        let layout = LAYOUT(Some(Arc::clone(&log) as Arc<dyn Journal>));
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let shared = Shared::new(Keyspace::new(layout, || {}), Settings::default(), time, seed);
        let engine = Engine::new(Arc::new(shared));
        let worker = |id: usize| Worker {
            session: engine.connect(Client::new(
                id as u64 + 1,
                "w".into(),
                "s".into(),
                false,
                clock.now().lock,
            )),
            leases: BTreeMap::new(),
            seen_free: None,
            tokens: 0,
        };
        let workers = (0..CLIENTS).map(worker).collect();
        let mut world = Self {
            protocol,
            dice: Dice::new(seed),
            clock,
            engine,
            log,
            workers,
            scripts: Default::default(),
        };
        world.scripts = [RELEASE, EXTEND].map(|script| {
            let answer = world.call(0, &["SCRIPT", "LOAD", script]);
            answer.lines().nth(1).expect("a digest").to_owned()
        });
        world
    }

    fn now_ms(&self) -> u64 {
        self.clock.lock_ms.load(Relaxed)
    }

    fn call(&mut self, worker: usize, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let (mut out, mut batch) = (Vec::new(), self.engine.batch());
        let session = &mut self.workers[worker].session;
        let flow = self.engine.execute(session, Request::listed(&words), &mut batch, &mut out);
        assert_eq!(flow, Flow::Next);
        self.engine.end_batch(session, batch);
        String::from_utf8(out).expect("an answer in ASCII")
    }

    /// Runs to the end or to the first broken law.
    fn run(&mut self) -> Result<(), String> {
        for step in 0..STEPS {
            self.step().and_then(|()| self.check()).map_err(|what| format!("step {step}: {what}"))?;
        }
        self.end()
    }

    fn step(&mut self) -> Result<(), String> {
        let worker = self.dice.below(CLIENTS as u64) as usize;
        let lock = self.dice.below(LOCKS as u64) as usize;
        match self.dice.below(10) {
            0..=3 => self.acquire(worker, lock)?,
            4 => self.release(worker, lock),
            5 => self.extend(worker, lock)?,
            6 => {
                let jump = self.dice.below(200_000) as i64 - 100_000;
                self.clock.wall_offset_ms.fetch_add(jump, Relaxed);
            }
            7 => drop(self.engine.tick()),
            _ => {
                // Mostly small steps, so that the last millisecond of a lease is often met exactly.
                let by = if self.dice.below(4) == 0 { self.dice.below(40) } else { self.dice.below(3) };
                self.clock.lock_ms.fetch_add(by, Relaxed);
            }
        }
        Ok(())
    }

    fn acquire(&mut self, worker: usize, lock: usize) -> Result<(), String> {
        let lease_ms = 1 + self.dice.below(30);
        let (key, px) = (format!("lock:{lock}"), lease_ms.to_string());
        self.workers[worker].tokens += 1;
        let token = format!("{worker}-{}", self.workers[worker].tokens);
        let answer = match self.protocol {
            Protocol::GrabsWithoutLooking => self.call(worker, &["SET", &key, &token, "PX", &px]),
            Protocol::LooksThenSets => {
                let is_seen = self.workers[worker].seen_free.take() == Some(lock);
                if !is_seen {
                    if self.call(worker, &["GET", &key]) == "$-1\r\n" {
                        self.workers[worker].seen_free = Some(lock);
                    }
                    return Ok(());
                }
                self.call(worker, &["SET", &key, &token, "PX", &px])
            }
            _ => self.call(worker, &["SET", &key, &token, "NX", "PX", &px]),
        };
        match answer.as_str() {
            "+OK\r\n" => {
                let until_ms =
                    self.now_ms() + lease_ms + u64::from(self.protocol == Protocol::OverstaysByOne);
                self.workers[worker].leases.insert(lock, Lease { token, until_ms });
                Ok(())
            }
            // Refused: then somebody's lease must be running still, or the key outlives its deadline.
            "$-1\r\n" if self.call(worker, &["EXISTS", &key]) == ":1\r\n" => Ok(()),
            other => Err(format!("client {worker} asked for {key} and heard {other:?}")),
        }
    }

    fn release(&mut self, worker: usize, lock: usize) {
        let key = format!("lock:{lock}");
        // A client that stalled releases late, and one that resends releases twice.
        let Some(lease) = self.workers[worker].leases.remove(&lock) else { return };
        let script = self.scripts[0].clone();
        for _ in 0..=self.dice.below(2) {
            match self.protocol {
                Protocol::ReleasesWithoutComparing => self.call(worker, &["DEL", &key]),
                _ => self.call(worker, &["EVALSHA", &script, "1", &key, &lease.token]),
            };
        }
    }

    fn extend(&mut self, worker: usize, lock: usize) -> Result<(), String> {
        let (key, by) = (format!("lock:{lock}"), 1 + self.dice.below(40));
        let Some(lease) = self.workers[worker].leases.get(&lock).cloned() else { return Ok(()) };
        let (script, px) = (self.scripts[1].clone(), by.to_string());
        let answer = match self.protocol {
            Protocol::ExtendsWithoutComparing => self.call(worker, &["PEXPIRE", &key, &px]),
            _ => self.call(worker, &["EVALSHA", &script, "1", &key, &lease.token, &px]),
        };
        let was_running = lease.until_ms >= self.now_ms();
        match answer.as_str() {
            ":1\r\n" => {
                let until_ms = self.now_ms() + by;
                self.workers[worker].leases.insert(lock, Lease { until_ms, ..lease });
            }
            _ if was_running => {
                return Err(format!("client {worker} lost {key} within its lease: {answer:?}"));
            }
            _ => drop(self.workers[worker].leases.remove(&lock)),
        }
        Ok(())
    }

    /// Whoever believes in a running lease holds the key, alone, with the deadline it was told.
    fn check(&mut self) -> Result<(), String> {
        self.engine.shared().keyspace.assert_laws();
        let now_ms = self.now_ms();
        for lock in 0..LOCKS {
            let running = self.workers.iter().filter_map(|worker| worker.leases.get(&lock));
            let running: Vec<Lease> = running.filter(|lease| lease.until_ms >= now_ms).cloned().collect();
            let (value, until_ms) = self.peek(lock);
            match &running[..] {
                [] => {
                    if value.is_some() && until_ms.is_none_or(|until_ms| until_ms < now_ms) {
                        return Err(format!("lock {lock} is there after its deadline"));
                    }
                }
                [lease] if value.as_deref() == Some(&lease.token) && until_ms == Some(lease.until_ms) => {}
                [lease] => {
                    return Err(format!("{lease:?} at {now_ms}, but the key is {value:?} to {until_ms:?}"));
                }
                several => return Err(format!("lock {lock} has several holders at {now_ms}: {several:?}")),
            }
        }
        Ok(())
    }

    /// Value and deadline of a lock as any reader sees them.
    fn peek(&self, lock: usize) -> (Option<String>, Option<u64>) {
        let shared = self.engine.shared();
        let key = format!("lock:{lock}");
        let mut view =
            View::lock(&shared.keyspace, Reach::One(key.as_bytes()), 0, self.clock.now(), Events::default());
        let found = view.entry(key.as_bytes()).occupied().map(|found| {
            let value = found.string().ok().map(|value| String::from_utf8_lossy(value).into_owned());
            (value, found.deadline().map(|deadline| deadline.as_millis()))
        });
        view.finish(&shared.channels);
        found.unwrap_or_default()
    }

    /// The log tells the state; and once every lease is over nothing is left.
    fn end(&mut self) -> Result<(), String> {
        let state = dump(&self.engine.shared().keyspace, self.clock.now());
        if self.replayed() != state {
            return Err("the replayed log is another state".to_owned());
        }
        self.clock.lock_ms.fetch_add(1_000, Relaxed);
        while self.engine.tick() == Due::More {}
        let keyspace = &self.engine.shared().keyspace;
        match (keyspace.size(0), keyspace.counts().bytes, self.replayed().len()) {
            ((0, 0), 0..=FLOOR_BYTES, 0) => Ok(()),
            left => Err(format!("left when every lease is over: {left:?}")),
        }
    }

    fn replayed(&self) -> BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)> {
        let copy = Keyspace::new(LAYOUT(None), || {});
        for (place, (number, mutations)) in
            self.log.0.lock().expect("no test panicked with the log").iter().enumerate()
        {
            assert_eq!(*number, place as u64, "records of one thread arrive in order");
            mutations.iter().for_each(|mutation| copy.apply(mutation, self.clock.now()));
        }
        copy.assert_laws();
        // Read long ago, so that what is past its deadline and still there would be seen.
        dump(&copy, Now { lock: LockTime::from_millis(0), wall_offset_ms: 0 })
    }
}

/// Every key of database 0 with its value and deadline.
fn dump(keyspace: &Keyspace, now: Now) -> BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)> {
    let mut view = View::lock(keyspace, Reach::All, 0, now, Events::default());
    let mut keys = Vec::new();
    view.for_each_key(|key| keys.push(key.to_vec()));
    let mut entries = BTreeMap::new();
    for key in keys {
        let found = view.entry(&key).occupied().expect("a key just seen");
        let value = found.string().expect("a string").to_vec();
        let deadline = found.deadline().map(|deadline| deadline.as_millis());
        entries.insert(key, (value, deadline));
    }
    entries
}

fn seeds() -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (0..SEEDS).collect(),
    }
}

#[test]
fn no_two_clients_hold_the_same_lock() {
    for seed in seeds() {
        let outcome = World::new(seed, Protocol::Sound).run();
        assert_eq!(outcome, Ok(()), "replay with SEED={seed}");
    }
}

#[test]
fn every_canary_is_caught() {
    for canary in CANARIES {
        let caught = (0..SEEDS).filter(|seed| World::new(*seed, *canary).run().is_err()).count();
        assert!(caught as u64 > SEEDS / 2, "{canary:?} was caught in {caught} of {SEEDS} worlds");
    }
}

#[test]
fn a_seed_is_one_world() {
    let log = |seed| {
        let mut world = World::new(seed, Protocol::Sound);
        world.run().expect("a lawful world");
        std::mem::take(&mut *world.log.0.lock().unwrap())
    };
    assert_eq!(log(5), log(5));
    assert_ne!(log(5), log(6));
}
