//! Clock jumps against everything that waits: random waits and leases, random jumps, and a model of what is due when.
//!
//! Rule    when ADVANCE has answered, all that fell due is in the sockets, in the order of the deadlines, and nothing else.
//! Canary  the same check must fail for an ADVANCE that answers before the waiters have been told.

use std::collections::BTreeMap;

use super::*;
use crate::support::rng::{Rng, number as env_number};

const RUNS: u64 = 12;
const JUMPS: usize = 12;
const WAITERS: usize = 6;

/// When ADVANCE is taken to have answered.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Answered {
    /// When its reply has come.
    Truly,
    /// At once.
    TooEarly,
}

/// Clients that wait on a server whose clock stands still, and what the model says about them.
struct Run {
    rng: Rng,
    test: Client,
    events: Client,
    waiters: Vec<Client>,
    /// For each waiter that waits: when it is told, and the first line that it is told.
    due: BTreeMap<usize, (u64, &'static str)>,
    /// Keys by the first millisecond in which they are gone.
    leases: BTreeMap<u64, String>,
    now: u64,
}

impl Run {
    async fn begin(server: &Server, seed: u64) -> Self {
        let (mut test, mut events) = (client(server, 1).await, client(server, 1).await);
        number(&mut test, &["TEST.CLOCK", "FREEZE"]).await;
        test.ask(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]).await;
        events.say(&["SUBSCRIBE", "__keyevent@0__:expired"]).await;
        events.lines(6).await;
        let mut waiters = Vec::new();
        for _ in 0..WAITERS {
            waiters.push(client(server, 1).await);
        }
        let rng = Rng::new(seed);
        Self { rng, test, events, waiters, due: BTreeMap::new(), leases: BTreeMap::new(), now: 0 }
    }

    /// Lets every waiter wait for something, and begins some leases.
    async fn wait(&mut self) {
        for waiter in 0..WAITERS {
            if self.due.contains_key(&waiter) {
                continue;
            }
            let millis = self.rng.below(500) as u64 + 1;
            let told = if self.rng.below(2) == 0 {
                self.wait_for_a_timeout(waiter, millis).await
            } else {
                self.wait_for_a_lock(waiter, millis).await
            };
            self.due.insert(waiter, told);
        }
        for _ in 0..self.rng.below(4) {
            let gone = self.now + self.rng.below(500) as u64 + 2;
            let key = format!("key:{gone}");
            if self.leases.contains_key(&gone) {
                continue;
            }
            let lease = (gone - self.now - 1).to_string();
            assert_eq!(self.test.ask(&["SET", &key, "v", "PX", &lease]).await, "+OK");
            self.leases.insert(gone, key);
        }
        until_blocked(&mut self.test, WAITERS).await;
    }

    async fn wait_for_a_timeout(&mut self, waiter: usize, millis: u64) -> (u64, &'static str) {
        self.waiters[waiter].say(&["BLPOP", "list", &format!("0.{millis:03}")]).await;
        (self.now + millis, "*-1")
    }

    /// The lock is held by nobody who would give it back: its lease ends.
    async fn wait_for_a_lock(&mut self, waiter: usize, millis: u64) -> (u64, &'static str) {
        let key = format!("lock:{waiter}");
        self.test.ask(&["DEL", &key]).await;
        assert_eq!(self.test.ask(&["SET", &key, "other", "NX", "PX", &millis.to_string()]).await, "+OK");
        self.waiters[waiter]
            .say(&["LOCK.ACQUIRE", &key, "me", "LEASE", "86400000", "WAIT", "86400000"])
            .await;
        (self.now + millis + 1, "*6")
    }

    /// Jumps ahead, and checks what has arrived.
    ///
    /// # Errors
    /// What is missing, or is there too early.
    async fn jump(&mut self, answered: Answered) -> Result<(), String> {
        let by = self.rng.below(300) as u64;
        self.test.say(&["TEST.CLOCK", "ADVANCE", &by.to_string()]).await;
        self.now += by;
        if answered == Answered::Truly {
            self.test.line().await;
        }
        let mut faults = Vec::new();
        for (waiter, (at, line)) in self.due.clone() {
            let received = self.waiters[waiter].received().await;
            let is_told = received.starts_with(line);
            if is_told != (at <= self.now) {
                faults
                    .push(format!("{}: waiter {waiter} is due at {at} and received {received:?}", self.now));
            }
            if is_told {
                self.due.remove(&waiter);
            }
        }
        let mut expected = Vec::new();
        while let Some(first) = self.leases.first_entry().filter(|first| *first.key() <= self.now) {
            expected.push(first.remove());
        }
        let received = self.events.received().await;
        let expired: Vec<&str> = received.lines().filter(|line| line.starts_with("key:")).collect();
        if expired != expected {
            faults.push(format!("{}: {expected:?} are due, and {expired:?} have expired", self.now));
        }
        if answered == Answered::TooEarly {
            self.test.line().await;
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
    }
}

async fn run(seed: u64, answered: Answered) -> Result<(), String> {
    let server = server(1).await;
    let mut run = Run::begin(&server, seed).await;
    for _ in 0..JUMPS {
        run.wait().await;
        run.jump(answered).await.map_err(|fault| format!("SEED={seed}: {fault}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn all_that_falls_due_has_been_told_when_advance_answers() {
    let seeds = env_number("SEED").map_or(1..=RUNS, |seed| seed..=seed);
    for seed in seeds {
        run(seed, Answered::Truly).await.unwrap();
    }
}

#[tokio::test]
async fn an_advance_that_answers_before_a_waiter_is_told_is_caught() {
    let fault = run(1, Answered::TooEarly).await.unwrap_err();
    assert!(fault.contains("is due at"), "{fault}");
}
