//! Clients that take, extend, lose and release locks, each with its own rhythm and its own clock error.
//!
//! Faults  clients crash while they hold locks, stall past their leases, resend, and lose their connections
//!         between request and reply.
//! Laws    mutual exclusion in server time, also towards crashed clients; fencing numbers rise; a lease lasts exactly to
//!         its millisecond whatever the wall clock does; the ticker learns of every deadline; the replayed journal
//!         equals the state; memory returns when all leases have ended.

use std::collections::BTreeMap;

use redlatch_core::engine::Batch;
use redlatch_core::keyspace::{Due, ShardSet, View};
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::Events;
use redlatch_proto::clock::{LockTime, Now};

use super::effects::FLOOR_BYTES;
use super::parts::{Fault, Log, Machine, Replica, state_of};
use crate::support::bare::{EXTEND, RELEASE};
use crate::support::rng::Rng;

const CLIENTS: usize = 5;
const LOCKS: usize = 3;
const STEPS: u32 = 3_000;

/// The protocol of the clients. All but the first are canaries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    Sound,
    /// Assumes a grant when the connection was lost before the reply.
    BelievesWithoutLooking,
    /// Releases with GET and DEL instead of one script.
    ComparesThenDeletes,
    /// Extends without comparing the token.
    ExtendsWithoutComparing,
    /// Takes the lock without NX.
    GrabsWithoutLooking,
    /// Acquires with GET and SET instead of SET NX.
    LooksThenSets,
    /// Draws its number in one call and takes the lock in a later one.
    NumbersFirst,
    /// Trusts its lease for one millisecond too long.
    OverstaysByOne,
    /// Releases without comparing the token.
    ReleasesWithoutComparing,
}

pub(crate) const BROKEN_PROTOCOLS: &[Protocol] = &[
    Protocol::BelievesWithoutLooking,
    Protocol::ComparesThenDeletes,
    Protocol::ExtendsWithoutComparing,
    Protocol::GrabsWithoutLooking,
    Protocol::LooksThenSets,
    Protocol::NumbersFirst,
    Protocol::OverstaysByOne,
    Protocol::ReleasesWithoutComparing,
];

/// A lease that a client believes in.
#[derive(Clone, Debug)]
struct Lease {
    token: String,
    /// Its last millisecond by the client's count, from the sending of the request.
    until_ms: u64,
    /// Its last millisecond by the server's count, from the execution of the request.
    until_ms_max: u64,
}

struct Worker {
    session: Session,
    /// The read time of a batch in progress; its requests may be executed later.
    batch: Option<(Batch, u64)>,
    /// The leases that the client believes it holds, by lock.
    leases: BTreeMap<usize, Lease>,
    /// A lock that a check-then-take client saw free.
    seen_free: Option<usize>,
    /// A lock that a check-then-delete client saw as its own.
    seen_own: Option<usize>,
    /// A number that a client drew before taking the lock.
    drawn: Option<(usize, u64)>,
    /// The client is idle until this moment.
    stalls_until_ms: u64,
    tokens: u64,
}

impl Worker {
    fn new(session: Session) -> Self {
        Self {
            session,
            batch: None,
            leases: BTreeMap::new(),
            seen_free: None,
            seen_own: None,
            drawn: None,
            stalls_until_ms: 0,
            tokens: 0,
        }
    }
}

pub(crate) struct LockSimulation {
    protocol: Protocol,
    rng: Rng,
    machine: Machine,
    workers: Vec<Worker>,
    /// Leases by lock granted to crashed clients, or to clients that got no reply.
    owed: Vec<(usize, Lease)>,
    /// The highest number granted so far, by lock.
    numbers: [u64; LOCKS],
    scripts: [String; 2],
    replica: Replica,
    /// When the ticker wakes; never if `None`.
    sleeps_until: Option<LockTime>,
}

impl LockSimulation {
    pub(crate) fn new(seed: u64, protocol: Protocol, fault: Fault) -> Self {
        let machine = Machine::new(seed, fault);
        let workers = (0..CLIENTS).map(|_| Worker::new(machine.connect())).collect();
        let (rng, replica, scripts) = (Rng::new(seed), Replica::new(), Default::default());
        let (owed, numbers, sleeps_until) = (Vec::new(), [0; LOCKS], None);
        let mut simulation =
            Self { protocol, rng, machine, workers, owed, numbers, scripts, replica, sleeps_until };
        simulation.scripts = [RELEASE, EXTEND].map(|script| {
            let answer = simulation.call(0, &["SCRIPT", "LOAD", script]);
            answer.lines().nth(1).expect("a digest").to_owned()
        });
        simulation
    }

    pub(crate) fn log(&self) -> &Log {
        &self.machine.log
    }

    fn now_ms(&self) -> u64 {
        self.machine.clock.now_ms()
    }

    fn call(&mut self, worker: usize, words: &[&str]) -> String {
        let worker = &mut self.workers[worker];
        let mut batch = worker.batch.map_or_else(|| self.machine.engine.batch(), |(batch, _)| batch);
        let answer = self.machine.call(&mut worker.session, &mut batch, words);
        self.machine.engine.end_batch(&mut worker.session, batch);
        answer
    }

    /// Runs to the end or to the first broken law.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for step in 0..STEPS {
            let mut outcome = self.step().and_then(|()| self.check());
            if step % 100 == 99 {
                outcome = outcome.and_then(|()| self.check_replay());
            }
            outcome.map_err(|what| format!("step {step}: {what}"))?;
        }
        self.end()
    }

    fn step(&mut self) -> Result<(), String> {
        let worker = self.rng.below(CLIENTS);
        let lock = self.rng.below(LOCKS);
        let stalls = self.workers[worker].stalls_until_ms > self.now_ms();
        match self.rng.below_u64(13) {
            0..=6 if stalls => {}
            0..=2 => self.acquire(worker, lock)?,
            3 => self.acquire_by_number(worker, lock)?,
            4 => self.release(worker, lock),
            5 => self.extend(worker, lock)?,
            6 => self.look(worker, lock)?,
            12 => self.strike(worker, lock)?,
            7 => self.machine.clock.step_wall(self.rng.below_u64(200_000) as i64 - 100_000),
            8 => self.tick(),
            9 => {
                let is_under_way = self.workers[worker].batch.is_some();
                let begun = (self.machine.engine.batch(), self.now_ms());
                self.workers[worker].batch = (!is_under_way).then_some(begun);
            }
            // Mostly small steps, so that the last millisecond of a lease is often hit exactly.
            _ if self.rng.below_u64(4) == 0 => self.machine.clock.advance(self.rng.below_u64(40)),
            _ => self.machine.clock.advance(self.rng.below_u64(3)),
        }
        Ok(())
    }

    fn acquire(&mut self, worker: usize, lock: usize) -> Result<(), String> {
        let lease_ms = 1 + self.rng.below_u64(30);
        let (key, px) = (format!("lock:{lock}"), lease_ms.to_string());
        let token = self.token(worker);
        if self.protocol == Protocol::LooksThenSets && self.workers[worker].seen_free.take() != Some(lock) {
            let is_free = self.call(worker, &["GET", &key]) == "$-1\r\n";
            self.workers[worker].seen_free = is_free.then_some(lock);
            return Ok(());
        }
        let answer = match self.protocol {
            Protocol::GrabsWithoutLooking | Protocol::LooksThenSets => {
                self.call(worker, &["SET", &key, &token, "PX", &px])
            }
            _ => self.call(worker, &["SET", &key, &token, "NX", "PX", &px]),
        };
        match answer.as_str() {
            "+OK\r\n" => {
                self.believe(worker, lock, token, lease_ms);
                Ok(())
            }
            // After a refusal the client must see the key in the same instant.
            "$-1\r\n" if self.call(worker, &["EXISTS", &key]) == ":1\r\n" => Ok(()),
            other => Err(format!("client {worker} asked for {key} and heard {other:?}")),
        }
    }

    /// Takes the lock and draws the fencing number in one transaction.
    fn acquire_by_number(&mut self, worker: usize, lock: usize) -> Result<(), String> {
        let lease_ms = 1 + self.rng.below_u64(30);
        let (key, numbers, px) = (format!("lock:{lock}"), format!("numbers:{lock}"), lease_ms.to_string());
        let token = self.token(worker);
        let set = ["SET", &key, &token, "NX", "PX", &px];
        if self.protocol == Protocol::NumbersFirst {
            let drawn = self.workers[worker].drawn.take().filter(|(of, _)| *of == lock);
            let Some((_, number)) = drawn else {
                let number = number_in(&self.call(worker, &["INCR", &numbers]))?;
                self.workers[worker].drawn = Some((lock, number));
                return Ok(());
            };
            return match self.call(worker, &set).as_str() {
                "+OK\r\n" => self.granted(worker, lock, token, lease_ms, number),
                _ => Ok(()),
            };
        }
        self.call(worker, &["MULTI"]);
        self.call(worker, &set);
        self.call(worker, &["INCR", &numbers]);
        let answer = self.call(worker, &["EXEC"]);
        match answer.strip_prefix("*2\r\n+OK\r\n") {
            Some(number) => self.granted(worker, lock, token, lease_ms, number_in(number)?),
            None => Ok(()),
        }
    }

    /// A later grant has a higher number.
    fn granted(
        &mut self,
        worker: usize,
        lock: usize,
        token: String,
        lease_ms: u64,
        number: u64,
    ) -> Result<(), String> {
        self.believe(worker, lock, token, lease_ms);
        let before = std::mem::replace(&mut self.numbers[lock], number);
        if number > before { Ok(()) } else { Err(format!("lock {lock} has number {number} after {before}")) }
    }

    /// The client crashes, stalls for longer than any lease, or loses its connection before it is answered.
    fn strike(&mut self, worker: usize, lock: usize) -> Result<(), String> {
        match self.rng.below_u64(3) {
            0 => {
                let leases = std::mem::take(&mut self.workers[worker].leases);
                self.owed.extend(leases);
                self.reconnect(worker);
            }
            1 => self.workers[worker].stalls_until_ms = self.now_ms() + self.rng.below_u64(80),
            _ => self.acquire_unheard(worker, lock)?,
        }
        Ok(())
    }

    /// Sends an acquisition and is cut off before the reply; then reads whether it holds the lock.
    fn acquire_unheard(&mut self, worker: usize, lock: usize) -> Result<(), String> {
        let lease_ms = 1 + self.rng.below_u64(30);
        let (key, px, token) = (format!("lock:{lock}"), lease_ms.to_string(), self.token(worker));
        let unheard = self.call(worker, &["SET", &key, &token, "NX", "PX", &px]);
        let is_granted = unheard == "+OK\r\n";
        if is_granted {
            // From here on the lease counts, whether or not the client learns of it.
            let lost = self.workers[worker].leases.remove(&lock);
            self.owed.extend(lost.map(|lease| (lock, lease)));
            self.believe(worker, lock, token.clone(), lease_ms);
        }
        let lease = self.workers[worker].leases.get(&lock).filter(|_| is_granted).cloned();
        self.reconnect(worker);
        let is_told = match self.protocol {
            Protocol::BelievesWithoutLooking => true,
            _ => self.rng.below_u64(2) == 0 && self.call(worker, &["GET", &key]).contains(&token),
        };
        match lease {
            Some(lease) if !is_told => {
                self.workers[worker].leases.remove(&lock);
                self.owed.push((lock, lease));
            }
            None if is_told => self.believe(worker, lock, token, lease_ms),
            _ => {}
        }
        Ok(())
    }

    fn reconnect(&mut self, worker: usize) {
        let session = self.machine.connect();
        let mut lost = std::mem::replace(&mut self.workers[worker].session, session);
        self.workers[worker].batch = None;
        self.machine.engine.disconnect(&mut lost);
    }

    fn token(&mut self, worker: usize) -> String {
        self.workers[worker].tokens += 1;
        format!("{worker}-{}", self.workers[worker].tokens)
    }

    fn believe(&mut self, worker: usize, lock: usize, token: String, lease_ms: u64) {
        let read_ms = self.workers[worker].batch.map_or(self.now_ms(), |(_, read_ms)| read_ms);
        let overstay = u64::from(self.protocol == Protocol::OverstaysByOne);
        let until_ms = read_ms + lease_ms + overstay;
        let until_ms_max = self.now_ms() + lease_ms + overstay;
        self.workers[worker].leases.insert(lock, Lease { token, until_ms, until_ms_max });
    }

    fn release(&mut self, worker: usize, lock: usize) {
        let key = format!("lock:{lock}");
        if self.protocol == Protocol::ComparesThenDeletes {
            return self.compare_then_delete(worker, lock, &key);
        }
        // A client that stalled releases late, and one that resends releases twice.
        let Some(Lease { token, .. }) = self.workers[worker].leases.remove(&lock) else { return };
        let script = self.scripts[0].clone();
        for _ in 0..=self.rng.below_u64(2) {
            match (self.protocol, self.rng.below_u64(3)) {
                (Protocol::ReleasesWithoutComparing, _) => self.call(worker, &["DEL", &key]),
                (_, 0) => self.call(worker, &["DELIFEQ", &key, &token]),
                (_, 1) => self.call(worker, &["DELEX", &key, "IFEQ", &token]),
                _ => self.call(worker, &["EVALSHA", &script, "1", &key, &token]),
            };
        }
    }

    fn compare_then_delete(&mut self, worker: usize, lock: usize, key: &str) {
        if self.workers[worker].seen_own.take() == Some(lock) {
            self.workers[worker].leases.remove(&lock);
            self.call(worker, &["DEL", key]);
        } else if let Some(lease) = self.workers[worker].leases.get(&lock).cloned() {
            let is_own = self.call(worker, &["GET", key]).contains(&lease.token);
            self.workers[worker].seen_own = is_own.then_some(lock);
        }
    }

    fn extend(&mut self, worker: usize, lock: usize) -> Result<(), String> {
        let (key, by) = (format!("lock:{lock}"), 1 + self.rng.below_u64(40));
        let Some(lease) = self.workers[worker].leases.get(&lock).cloned() else { return Ok(()) };
        let (script, px, token) = (self.scripts[1].clone(), by.to_string(), lease.token);
        let answer = match (self.protocol, self.rng.below_u64(2)) {
            (Protocol::ExtendsWithoutComparing, 0) => self.call(worker, &["PEXPIRE", &key, &px]),
            (Protocol::ExtendsWithoutComparing, _) => {
                self.call(worker, &["SET", &key, &token, "XX", "PX", &px])
            }
            (_, 0) => self.call(worker, &["SET", &key, &token, "IFEQ", &token, "PX", &px]),
            _ => self.call(worker, &["EVALSHA", &script, "1", &key, &token, &px]),
        };
        match answer.as_str() {
            ":1\r\n" | "+OK\r\n" => self.believe(worker, lock, token, by),
            _ if lease.until_ms >= self.now_ms() => {
                return Err(format!("client {worker} lost {key} within its lease: {answer:?}"));
            }
            _ => drop(self.workers[worker].leases.remove(&lock)),
        }
        Ok(())
    }

    /// The reply that a client would get now, from the stored state.
    fn look(&mut self, worker: usize, lock: usize) -> Result<(), String> {
        let key = format!("lock:{lock}");
        let held = self.living(lock);
        self.workers[worker].batch = None;
        let value = self.call(worker, &["GET", &key]);
        let ttl = self.call(worker, &["PTTL", &key]);
        let end = self.call(worker, &["PEXPIRETIME", &key]);
        let truth = self.machine.clock.truth();
        let expected = held.as_ref().map_or_else(
            || ("$-1\r\n".to_owned(), ":-2\r\n".to_owned(), ":-2\r\n".to_owned()),
            |(token, until_ms)| {
                let wall_ms = i128::from(*until_ms) + i128::from(truth.wall_offset_ms);
                let value = format!("${}\r\n{token}\r\n", token.len());
                (value, format!(":{}\r\n", until_ms - truth.lock.as_millis()), format!(":{wall_ms}\r\n"))
            },
        );
        if (&value, &ttl, &end) == (&expected.0, &expected.1, &expected.2) {
            return Ok(());
        }
        Err(format!("{key} at {truth:?}: {value:?} {ttl:?} {end:?}, but there is {held:?}"))
    }

    fn tick(&mut self) {
        // One round only: other clients act before the remaining work.
        self.sleeps_until = match self.machine.tick() {
            Due::More => Some(self.machine.clock.truth().lock),
            Due::Next(next) => next,
        };
    }

    /// A client that trusts a running lease holds the key alone, with the deadline it was told.
    fn check(&mut self) -> Result<(), String> {
        self.machine.keyspace().assert_laws();
        let now_ms = self.now_ms();
        self.owed.retain(|(_, lease)| lease.until_ms >= now_ms);
        for lock in 0..LOCKS {
            let believed = self.workers.iter().filter_map(|worker| worker.leases.get(&lock));
            let owed = self.owed.iter().filter(|(of, _)| *of == lock).map(|(_, lease)| lease);
            let leases = believed.chain(owed);
            let running: Vec<&Lease> = leases.filter(|lease| lease.until_ms >= now_ms).collect();
            let there = self.living(lock);
            match (&running[..], &there) {
                ([], _) => {}
                ([lease], Some((token, until_ms)))
                    if *token == lease.token && (lease.until_ms..=lease.until_ms_max).contains(until_ms) => {}
                ([lease], _) => return Err(format!("{lease:?} at {now_ms}, but there is {there:?}")),
                (several, _) => {
                    return Err(format!("lock {lock} has several holders at {now_ms}: {several:?}"));
                }
            }
            let Some((_, until_ms)) = there else { continue };
            let is_in_time = self.sleeps_until.is_some_and(|wakes| wakes.as_millis() <= until_ms + 1);
            if !is_in_time && !self.machine.has_rung() {
                let wakes = self.sleeps_until;
                return Err(format!("lock {lock} ends at {until_ms}, but the ticker sleeps until {wakes:?}"));
            }
        }
        Ok(())
    }

    /// Token and deadline of a lock whose deadline has not passed. A pure read.
    fn living(&self, lock: usize) -> Option<(String, u64)> {
        let key = format!("lock:{lock}");
        let long_ago = Now { lock: LockTime::from_millis(0), wall_offset_ms: 0 };
        let reach = ShardSet::One(key.as_bytes());
        let mut view = View::lock(self.machine.keyspace(), reach, 0, long_ago, Events::default());
        let mut is_there = false;
        view.whole().for_each_key(|name| is_there |= name == key.as_bytes());
        let found = view.entry(is_there.then_some(key.as_bytes())?).occupied()?;
        let value = String::from_utf8_lossy(found.string().ok()?).into_owned();
        let until_ms = found.deadline().map_or(u64::MAX, |deadline| deadline.as_millis());
        (until_ms >= self.now_ms()).then_some((value, until_ms))
    }

    fn check_replay(&mut self) -> Result<(), String> {
        self.replica.follow(&self.machine.log);
        let now = self.machine.clock.truth();
        let (state, replayed) = (state_of(self.machine.keyspace(), now), self.replica.living(now));
        if state == replayed { Ok(()) } else { Err(format!("replayed {replayed:?}, but there is {state:?}")) }
    }

    /// After the end of every lease neither the keyspace nor the journal's replica holds a key.
    fn end(&mut self) -> Result<(), String> {
        self.check_replay()?;
        for lock in 0..LOCKS {
            self.call(0, &["DEL", &format!("numbers:{lock}")]);
        }
        self.machine.clock.advance(1_000);
        while self.machine.tick() == Due::More {}
        self.replica.follow(&self.machine.log);
        let keyspace = self.machine.keyspace();
        match (keyspace.size(0), keyspace.counts().bytes, self.replica.remains().len()) {
            ((0, 0), 0..=FLOOR_BYTES, 0) => Ok(()),
            left => Err(format!("left when every lease is over: {left:?}")),
        }
    }
}

fn number_in(answer: &str) -> Result<u64, String> {
    let digits = answer.trim_start_matches(':').trim_end();
    digits.parse().map_err(|_| format!("a number was to be drawn, but there came {answer:?}"))
}
