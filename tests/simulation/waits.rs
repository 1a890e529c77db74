//! Clients that block on lists: the order of service, and the end of each wait.
//!
//! Laws     first come, first served; a push wakes exactly as many clients as it has elements; no client waits past its
//!          limit or is unblocked before it; a client that is gone is not in the queue;
//!          the replayed journal equals the state; memory returns.
//! Faults   clients crash in the queue, are cut between request and reply, and read late.
//! Oracle   a model of queue and lists: every reply is compared byte for byte.
//! Canaries servers and shells that are broken on purpose.

use std::collections::{BTreeMap, VecDeque};

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
const QUEUES: u64 = 3;
const STEPS: u32 = 2_000;

/// The state of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
enum At {
    Rest,
    /// Blocked: since which call, and until when.
    InLine {
        queues: Vec<String>,
        since: u64,
        until_ms: Option<u64>,
    },
    /// The expected reply, not yet read.
    Answered(String),
}

pub(crate) struct QueueSimulation {
    machine: Machine,
    rng: Rng,
    disorder: Disorder,
    replica: Replica,
    clients: Vec<(Session, At)>,
    producer: Session,
    lists: BTreeMap<String, VecDeque<String>>,
    /// Sessions that are still open.
    ghosts: Vec<Session>,
    calls: u64,
}

impl QueueSimulation {
    pub(crate) fn new(seed: u64, disorder: Disorder) -> Self {
        let machine = Machine::new(seed, Fault::None);
        Self {
            clients: (0..CLIENTS).map(|_| (machine.connect(), At::Rest)).collect(),
            producer: machine.connect(),
            machine,
            rng: Rng::new(seed),
            disorder,
            replica: Replica::new(),
            lists: BTreeMap::new(),
            ghosts: Vec::new(),
            calls: 0,
        }
    }

    /// Runs to the end or to the first broken law.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for step in 0..STEPS {
            let client = self.rng.below(CLIENTS);
            let outcome = match self.rng.below_u64(12) {
                0..=3 => self.wait(client),
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

    fn wait(&mut self, at: usize) -> Result<(), String> {
        if self.clients[at].1 != At::Rest {
            return Ok(());
        }
        let queues: Vec<String> = (0..=self.rng.below_u64(2)).map(|_| self.queue()).collect();
        let limit_ms = [0, 5, 20][self.rng.below_u64(3) as usize];
        let limit = format!("0.{limit_ms:03}");
        let mut words = vec!["BLPOP"];
        words.extend(queues.iter().map(String::as_str));
        words.push(&limit);
        let answer = self.offer(at, &words);
        let asked = words.join(" ");
        self.calls += 1;
        let ready = queues.iter().find(|queue| self.lists.contains_key(*queue)).cloned();
        let expected = ready.map_or(String::new(), |queue| self.take(&queue));
        if expected.is_empty() {
            let until_ms = (limit_ms > 0).then(|| self.machine.clock.now_ms() + limit_ms);
            self.clients[at].1 = At::InLine { queues, since: self.calls, until_ms };
        }
        same(&asked, &answer, &expected)
    }

    /// Pushes one to three elements, which go to the waiting clients in order of arrival.
    fn bring(&mut self) -> Result<(), String> {
        let queue = self.queue();
        let things: Vec<String> =
            (0..=self.rng.below_u64(3)).map(|n| format!("{}-{n}", self.calls)).collect();
        self.calls += 1;
        if self.disorder == Disorder::LetsOthersPass && self.rng.below_u64(4) == 0 {
            self.send_to_the_end(&queue);
        }
        let mut words = vec!["RPUSH", &queue];
        words.extend(things.iter().map(String::as_str));
        let answer = self.produce(&words);
        let list = self.lists.entry(queue.clone()).or_default();
        list.extend(things.iter().cloned());
        let expected = format!(":{}\r\n", list.len());
        if self.disorder == Disorder::ServesTwice && self.rng.below_u64(10) == 0 {
            self.produce(&words);
        }
        while self.lists.contains_key(&queue) {
            let Some(first) = self.first_in_line(&queue) else { break };
            let told = self.take(&queue);
            self.clients[first].1 = At::Answered(told);
        }
        same(&words.join(" "), &answer, &expected)
    }

    /// The client disconnects: in the queue, or before it has read its reply.
    fn crash(&mut self, at: usize) -> Result<(), String> {
        let (mut session, _) = std::mem::replace(&mut self.clients[at], (self.machine.connect(), At::Rest));
        match self.disorder {
            Disorder::ForgetsNoDead => self.ghosts.push(session),
            _ => self.machine.engine.disconnect(&mut session),
        }
        Ok(())
    }

    fn unblock(&mut self, at: usize) -> Result<(), String> {
        let id = self.clients[at].0.client.id.to_string();
        let is_in_line = matches!(self.clients[at].1, At::InLine { .. });
        let answer = self.produce(&["CLIENT", "UNBLOCK", &id, "ERROR"]);
        if is_in_line {
            self.clients[at].1 = At::Answered(UNBLOCKED.to_owned());
        }
        same("CLIENT UNBLOCK", &answer, if is_in_line { ":1\r\n" } else { ":0\r\n" })
    }

    /// The client reads its reply; a client in the queue has none.
    fn read(&mut self, at: usize) -> Result<(), String> {
        let mut answer = self.machine.resume(&mut self.clients[at].0);
        if self.disorder == Disorder::LosesAnswers && self.rng.below_u64(20) == 0 {
            answer.clear();
        }
        let expected = match &mut self.clients[at].1 {
            At::Answered(answer) => std::mem::take(answer),
            At::InLine { .. } => return same(&format!("client {at} in line"), &answer, ""),
            At::Rest => return Ok(()),
        };
        self.clients[at].1 = At::Rest;
        same(&format!("client {at}"), &answer, &expected)
    }

    fn pass_time(&mut self) -> Result<(), String> {
        self.machine.clock.advance(self.rng.below_u64(8));
        while self.machine.tick() == Due::More {}
        let now_ms = self.machine.clock.now_ms();
        for at in 0..CLIENTS {
            let At::InLine { until_ms: Some(until_ms), .. } = self.clients[at].1 else { continue };
            if until_ms > now_ms || self.disorder == Disorder::WakesLate {
                continue;
            }
            self.clients[at].1 = At::Answered("*-1\r\n".to_owned());
            self.read(at)?;
        }
        Ok(())
    }

    /// The queue has the length of the model, and no client in it is past its limit.
    fn check(&mut self) -> Result<(), String> {
        self.machine.keyspace().assert_laws();
        let now_ms = self.machine.clock.now_ms();
        for (at, (session, place)) in self.clients.iter().enumerate() {
            let until = session.parked.as_ref().and_then(|parked| parked.until);
            let is_answered = matches!(place, At::Answered(_));
            if !is_answered && until.is_some_and(|until| until.as_millis() <= now_ms) {
                return Err(format!("client {at} waits past its limit: {until:?} at {now_ms}"));
            }
        }
        self.replica.follow(&self.machine.log);
        let there = standing(self.machine.keyspace(), self.machine.clock.truth());
        let replayed = self.replica.remains();
        if there != replayed {
            return Err(format!("replayed {replayed:?}, but there is {there:?}"));
        }
        let (left, expected) = (there.len(), self.lists.len());
        if left == expected {
            Ok(())
        } else {
            Err(format!("{left} lists, but {expected} have something in them"))
        }
    }

    fn end(&mut self) -> Result<(), String> {
        (0..CLIENTS).try_for_each(|at| self.crash(at))?;
        self.produce(&["FLUSHALL"]);
        let bytes = self.machine.keyspace().counts().bytes;
        if bytes <= FLOOR_BYTES { Ok(()) } else { Err(format!("{bytes} bytes are left when nobody is")) }
    }

    /// The client that has waited for this list for the longest time.
    fn first_in_line(&self, queue: &String) -> Option<usize> {
        let waiting = self.clients.iter().enumerate().filter_map(|(at, (_, place))| match place {
            At::InLine { queues, since, .. } if queues.contains(queue) => Some((*since, at)),
            _ => None,
        });
        waiting.min().map(|(_, at)| at)
    }

    /// The reply of the client that gets the first element of the list.
    fn take(&mut self, queue: &str) -> String {
        let list = self.lists.get_mut(queue).expect("something is there");
        let thing = list.pop_front().expect("lists are not empty");
        if list.is_empty() {
            self.lists.remove(queue);
        }
        format!("*2\r\n${}\r\n{queue}\r\n${}\r\n{thing}\r\n", queue.len(), thing.len())
    }

    /// The defect's effect on the first client in the queue.
    fn send_to_the_end(&mut self, queue: &String) {
        let Some(at) = self.first_in_line(queue) else { return };
        let id = self.clients[at].0.client.id.to_string();
        self.produce(&["CLIENT", "UNBLOCK", &id]);
        self.machine.resume(&mut self.clients[at].0);
        self.offer(at, &["BLPOP", queue, "0"]);
    }

    fn offer(&mut self, at: usize, words: &[&str]) -> String {
        let mut batch = self.machine.engine.batch();
        let answer = self.machine.offer(&mut self.clients[at].0, &mut batch, words);
        self.machine.engine.end_batch(&mut self.clients[at].0, batch);
        answer
    }

    fn produce(&mut self, words: &[&str]) -> String {
        let mut batch = self.machine.engine.batch();
        let answer = self.machine.call(&mut self.producer, &mut batch, words);
        self.machine.engine.end_batch(&mut self.producer, batch);
        answer
    }

    fn queue(&mut self) -> String {
        format!("queue:{}", self.rng.below_u64(QUEUES))
    }
}

fn same(what: &str, answer: &str, expected: &str) -> Result<(), String> {
    if answer == expected { Ok(()) } else { Err(format!("{what}: {answer:?} instead of {expected:?}")) }
}

const UNBLOCKED: &str = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";
