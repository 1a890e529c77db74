//! Clients that block on lists: the order of service, and the end of each wait.
//!
//! Laws     first come, first served; an element that is moved serves on; a push wakes exactly as many clients as it
//!          has elements; no client waits past its limit or is unblocked before it; a client that is gone is not in the
//!          queue; the replayed journal equals the state; memory returns.
//! Faults   clients crash in the queue, are cut between request and reply, and read late.
//! Oracle   a model of waiters and lists: every reply is compared byte for byte.
//! Canaries servers and shells that are broken on purpose.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;

use redlatch_core::keyspace::Due;
use redlatch_core::state::session::Session;

use super::effects::FLOOR_BYTES;
use super::parts::{Fault, Machine, Replica, standing};
use crate::support::rng::Rng;

/// The defect of the queue. All but the first are canaries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Disorder {
    None,
    /// A crashed client stays in the queue.
    ForgetsNoDead,
    /// The first client is sometimes moved to the end.
    LetsOthersPass,
    /// One reply in twenty is lost.
    LosesAnswers,
    /// One push in ten is repeated, as by a client that resends.
    ServesTwice,
    /// Timeouts are noticed only when the client asks.
    WakesLate,
}

pub(crate) const DISORDERS: &[Disorder] = &[
    Disorder::ForgetsNoDead,
    Disorder::LetsOthersPass,
    Disorder::LosesAnswers,
    Disorder::ServesTwice,
    Disorder::WakesLate,
];

const CLIENTS: usize = 6;
/// The client that pushes and unblocks others.
const PRODUCER: usize = CLIENTS;
const LISTS: &[&str] = &["a", "b", "c"];
const STEPS: u32 = 2_000;

pub(crate) struct QueueSimulation {
    machine: Machine,
    rng: Rng,
    disorder: Disorder,
    replica: Replica,
    /// The producer is the last one.
    clients: Vec<Session>,
    model: Model,
    /// Sessions that are still open.
    ghosts: Vec<Session>,
    elements: u64,
}

impl QueueSimulation {
    pub(crate) fn new(seed: u64, disorder: Disorder) -> Self {
        let machine = Machine::new(seed, Fault::None);
        Self {
            clients: (0..=PRODUCER).map(|_| machine.connect()).collect(),
            machine,
            rng: Rng::new(seed),
            disorder,
            replica: Replica::new(),
            model: Model { told: vec![String::new(); PRODUCER + 1], ..Model::default() },
            ghosts: Vec::new(),
            elements: 0,
        }
    }

    /// Runs to the end or to the first broken law.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for step in 0..STEPS {
            let client = self.rng.below(CLIENTS);
            let outcome = match self.rng.below(12) {
                0..=3 => self.ask(client),
                4 | 5 => self.bring(),
                6 => self.crash(client),
                7 => self.unblock(client),
                8 | 9 => self.read(client),
                10 => {
                    self.machine.clock.step_wall(self.rng.below_u64(200_000) as i64 - 100_000);
                    Ok(())
                }
                _ => self.pass_time(),
            };
            outcome.and_then(|()| self.check()).map_err(|what| format!("step {step}: {what}"))?;
        }
        self.end()
    }

    /// A client that has read its last reply sends a request, which may wait.
    fn ask(&mut self, at: usize) -> Result<(), String> {
        if self.model.is_busy(at) {
            return Ok(());
        }
        let (list, other) = (self.rng.pick(LISTS), self.rng.pick(LISTS));
        let limit = self.rng.pick(&["0", "0.005", "0.020"]);
        let side = self.rng.pick(&["LEFT", "RIGHT"]);
        let words = match self.rng.below(8) {
            0..=2 => vec!["BLPOP", list, other, limit],
            3 => vec!["BRPOP", list, limit],
            4 => vec!["BLMOVE", list, other, side, "RIGHT", limit],
            5 => vec!["LPOP", list],
            6 => vec!["DEL", list],
            _ => vec!["LMOVE", list, other, "LEFT", side],
        };
        self.compare(at, &words)
    }

    /// Pushes one to three elements, which go to the waiting clients in order of arrival.
    fn bring(&mut self) -> Result<(), String> {
        let list = self.rng.pick(LISTS);
        if self.disorder == Disorder::LetsOthersPass && self.rng.one_in(4) {
            self.send_to_the_end(list);
        }
        let elements: Vec<String> =
            (0..=self.rng.below_u64(3)).map(|n| format!("{}-{n}", self.elements)).collect();
        self.elements += 1;
        let mut words = vec![self.rng.pick(&["LPUSH", "RPUSH"]), list];
        words.extend(elements.iter().map(String::as_str));
        let outcome = self.compare(PRODUCER, &words);
        if self.disorder == Disorder::ServesTwice && self.rng.one_in(10) {
            self.offer(PRODUCER, &words);
        }
        outcome
    }

    /// The client disconnects: in the queue, or before it has read its reply.
    fn crash(&mut self, at: usize) -> Result<(), String> {
        let mut session = std::mem::replace(&mut self.clients[at], self.machine.connect());
        self.model.leave(at);
        self.model.told[at].clear();
        match self.disorder {
            Disorder::ForgetsNoDead => self.ghosts.push(session),
            _ => self.machine.engine.disconnect(&mut session),
        }
        Ok(())
    }

    fn unblock(&mut self, at: usize) -> Result<(), String> {
        let id = self.clients[at].client.id.to_string();
        let (way, told) = self.rng.pick(&[("ERROR", UNBLOCKED), ("TIMEOUT", NOTHING)]);
        let answer = self.offer(PRODUCER, &["CLIENT", "UNBLOCK", &id, way]);
        let has_waited = self.model.leave(at);
        if has_waited {
            self.model.told[at].push_str(told);
        }
        same("CLIENT UNBLOCK", answer.as_str(), if has_waited { ":1\r\n" } else { ":0\r\n" })
    }

    /// The client reads its reply; a client in the queue has none.
    fn read(&mut self, at: usize) -> Result<(), String> {
        if !self.model.is_busy(at) {
            return Ok(());
        }
        let mut answer = self.machine.resume(&mut self.clients[at]);
        if self.disorder == Disorder::LosesAnswers && self.rng.one_in(20) {
            answer.clear();
        }
        same(&format!("client {at}"), answer, std::mem::take(&mut self.model.told[at]))
    }

    fn pass_time(&mut self) -> Result<(), String> {
        self.machine.clock.advance(self.rng.below_u64(8));
        while self.machine.tick() == Due::More {}
        if self.disorder == Disorder::WakesLate {
            return Ok(());
        }
        let ended = self.model.pass(self.machine.clock.now_ms());
        ended.into_iter().try_for_each(|at| self.read(at))
    }

    /// The lists are those of the model and of the replayed journal, and no client waits past its limit.
    fn check(&mut self) -> Result<(), String> {
        self.machine.keyspace().assert_laws();
        let now_ms = self.machine.clock.now_ms();
        for (at, session) in self.clients.iter().enumerate() {
            let until = session.parked.as_ref().and_then(|parked| parked.until);
            if self.model.told[at].is_empty() && until.is_some_and(|until| until.as_millis() <= now_ms) {
                return Err(format!("client {at} waits past its limit: {until:?} at {now_ms}"));
            }
        }
        self.replica.follow(&self.machine.log);
        let there = standing(self.machine.keyspace(), self.machine.clock.truth());
        same("lists with elements", there.len(), self.model.lists.len())?;
        same("the replayed journal", self.replica.remains(), there)
    }

    /// Only clients that wait are in a queue, and nothing is left when all have gone.
    fn end(&mut self) -> Result<(), String> {
        (0..CLIENTS).try_for_each(|at| self.read(at))?;
        same("places in queues", self.machine.keyspace().parked(), self.model.places())?;
        (0..CLIENTS).try_for_each(|at| self.crash(at))?;
        same("places in queues when nobody waits", self.machine.keyspace().parked(), 0)?;
        self.offer(PRODUCER, &["FLUSHALL"]);
        let bytes = self.machine.keyspace().counts().bytes;
        if bytes <= FLOOR_BYTES { Ok(()) } else { Err(format!("{bytes} bytes are left when nobody is")) }
    }

    /// The defect's effect on the first client in the queue.
    fn send_to_the_end(&mut self, list: &str) {
        let Some(at) = self.model.first(list).map(|first| self.model.waiters[first].who) else { return };
        let id = self.clients[at].client.id.to_string();
        self.offer(PRODUCER, &["CLIENT", "UNBLOCK", &id]);
        self.machine.resume(&mut self.clients[at]);
        self.offer(at, &["BLPOP", list, "0"]);
    }

    /// Sends a request to the server and to the model.
    fn compare(&mut self, at: usize, words: &[&str]) -> Result<(), String> {
        let answer = self.offer(at, words);
        self.model.call(at, words, self.machine.clock.now_ms());
        same(&words.join(" "), answer, std::mem::take(&mut self.model.told[at]))
    }

    fn offer(&mut self, at: usize, words: &[&str]) -> String {
        let mut batch = self.machine.engine.batch();
        let answer = self.machine.offer(&mut self.clients[at], &mut batch, words);
        self.machine.engine.end_batch(&mut self.clients[at], batch);
        answer
    }
}

/// The model: the expected behaviour in its simplest form.
#[derive(Default)]
struct Model {
    lists: BTreeMap<String, VecDeque<String>>,
    /// In the order of arrival.
    waiters: Vec<Waiter>,
    /// What each client is told and has not read.
    told: Vec<String>,
}

#[derive(Clone, Debug)]
struct Waiter {
    who: usize,
    keys: Vec<String>,
    want: Want,
    until: Option<u64>,
}

#[derive(Clone, Debug)]
enum Want {
    Pop { from_head: bool },
    Move { from_head: bool, to: String, to_head: bool },
}

impl Model {
    /// Whether the client waits, or has a reply that it has not read.
    fn is_busy(&self, who: usize) -> bool {
        !self.told[who].is_empty() || self.waiters.iter().any(|waiter| waiter.who == who)
    }

    /// The client waits no more; returns whether it did.
    fn leave(&mut self, who: usize) -> bool {
        let before = self.waiters.len();
        self.waiters.retain(|waiter| waiter.who != who);
        self.waiters.len() < before
    }

    /// The index of the waiter that is served next with elements of the list.
    fn first(&self, list: &str) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.keys.iter().any(|key| key == list))
    }

    /// The places in queues of all who wait: one for each key.
    fn places(&self) -> usize {
        let keys = |waiter: &Waiter| waiter.keys.iter().collect::<BTreeSet<_>>().len();
        self.waiters.iter().map(keys).sum()
    }

    fn call(&mut self, who: usize, words: &[&str], now: u64) {
        let until = |seconds: &str| match seconds {
            "0" => None,
            seconds => Some(now + (seconds.parse::<f64>().expect("a number") * 1_000.0).round() as u64),
        };
        let (key, last) = (words[1], words[words.len() - 1]);
        match words[0] {
            "BLPOP" | "BRPOP" => {
                let keys = words[1..words.len() - 1].iter().map(|key| (*key).to_owned()).collect();
                let want = Want::Pop { from_head: words[0] == "BLPOP" };
                self.take_or_wait(Waiter { who, keys, want, until: until(last) });
            }
            "BLMOVE" => {
                let want =
                    Want::Move { from_head: words[3] == "LEFT", to: words[2].to_owned(), to_head: false };
                self.take_or_wait(Waiter { who, keys: vec![key.to_owned()], want, until: until(last) });
            }
            "LMOVE" if self.lists.contains_key(key) => {
                let want =
                    Want::Move { from_head: true, to: words[2].to_owned(), to_head: words[4] == "LEFT" };
                self.take_or_wait(Waiter { who, keys: vec![key.to_owned()], want, until: None });
            }
            "LMOVE" => self.told[who].push_str("$-1\r\n"),
            "LPOP" => {
                let text = self.pop(key, true).map_or("$-1\r\n".to_owned(), |element| bulk(&element));
                self.told[who].push_str(&text);
            }
            "DEL" => {
                let was_there = u8::from(self.lists.remove(key).is_some());
                self.told[who].push_str(&format!(":{was_there}\r\n"));
            }
            _ => {
                for element in &words[2..] {
                    self.push(key, words[0] == "LPUSH", (*element).to_owned());
                }
                self.told[who].push_str(&format!(":{}\r\n", self.lists[key].len()));
                self.serve(key);
            }
        }
    }

    fn take_or_wait(&mut self, waiter: Waiter) {
        match waiter.keys.iter().find(|key| self.lists.contains_key(*key)).cloned() {
            Some(key) => {
                if let Some(key) = self.give(&waiter, &key) {
                    self.serve(&key);
                }
            }
            None => self.waiters.push(waiter),
        }
    }

    /// Serves the clients that wait for `key`, and those that the moved elements then serve.
    fn serve(&mut self, key: &str) {
        let mut ready = VecDeque::from([key.to_owned()]);
        while let Some(key) = ready.pop_front() {
            while self.lists.contains_key(&key)
                && let Some(first) = self.first(&key)
            {
                let waiter = self.waiters.remove(first);
                ready.extend(self.give(&waiter, &key));
            }
        }
    }

    /// Gives a client what it wants of `key`, which has it; returns the key to which an element was moved.
    fn give(&mut self, waiter: &Waiter, key: &str) -> Option<String> {
        let (text, moved_to) = match &waiter.want {
            Want::Pop { from_head } => {
                let element = self.pop(key, *from_head).expect("a list is never empty");
                (format!("*2\r\n{}{}", bulk(key), bulk(&element)), None)
            }
            Want::Move { from_head, to, to_head } => {
                let element = self.pop(key, *from_head).expect("a list is never empty");
                let text = bulk(&element);
                self.push(to, *to_head, element);
                (text, Some(to.clone()))
            }
        };
        self.told[waiter.who].push_str(&text);
        moved_to
    }

    fn push(&mut self, key: &str, at_head: bool, element: String) {
        let list = self.lists.entry(key.to_owned()).or_default();
        if at_head { list.push_front(element) } else { list.push_back(element) }
    }

    fn pop(&mut self, key: &str, from_head: bool) -> Option<String> {
        let list = self.lists.get_mut(key)?;
        let element = if from_head { list.pop_front() } else { list.pop_back() };
        if list.is_empty() {
            self.lists.remove(key);
        }
        element
    }

    /// Ends the waits whose limit has come; returns whose.
    fn pass(&mut self, now: u64) -> Vec<usize> {
        let is_over = |waiter: &Waiter| waiter.until.is_some_and(|until| until <= now);
        let over = self.waiters.iter().filter(|waiter| is_over(waiter));
        let ended: Vec<usize> = over.map(|waiter| waiter.who).collect();
        self.waiters.retain(|waiter| !is_over(waiter));
        ended.iter().for_each(|who| self.told[*who].push_str(NOTHING));
        ended
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn same<T: Debug + PartialEq>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}")) }
}

const NOTHING: &str = "*-1\r\n";
const UNBLOCKED: &str = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";
