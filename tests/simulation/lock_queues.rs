//! LOCK commands: queues, sessions, kinds of locks, and every way in which a lock or a wait ends.
//!
//! Laws     each step grants what the model grants, in its order and with its tokens; every holder that loses a lock is told
//!          why; each client is told exactly what the model says; the replayed journal equals the state; grants less ends
//!          are holders; at the end no request, session or key is left.
//! Faults   clients crash in the queue, are killed with an unread grant, use the name of another, and step the wall clock.
//! Canaries servers and shells that are broken on purpose.

use redlatch_core::keyspace::Due;
use redlatch_core::state::session::Session;

use super::lock_balance::{Balance, Counted};
use super::lock_model::{AGEING_MS, Held, Kind, Model, Request, Term, Told};
use super::parts::{Fault, Machine, Replica, standing};
use crate::support::reply::Reply;
use crate::support::rng::Rng;

/// The defect of the queue. All but the first are canaries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Defect {
    None,
    /// A renewal is counted as a grant.
    CountsRenewals,
    /// One end in some is neither counted nor remembered.
    ForgetsEnds,
    /// A lease that ends hands nothing over.
    ForgetsLeases,
    /// A crashed client stays in the queue, and is granted locks.
    GrantsToTheGone,
    /// The first request of a queue is sometimes moved to the end.
    LetsOthersPass,
    /// One request in some is never woken.
    LosesWakeUps,
    /// One grant in some repeats the token of the grant before it.
    ReusesTokens,
    /// Nobody is told that a lock is lost.
    TellsNobody,
    /// A priority moves no request forward.
    TreatsAllAlike,
}

pub(crate) const DEFECTS: &[Defect] = &[
    Defect::CountsRenewals,
    Defect::ForgetsEnds,
    Defect::ForgetsLeases,
    Defect::GrantsToTheGone,
    Defect::LetsOthersPass,
    Defect::LosesWakeUps,
    Defect::ReusesTokens,
    Defect::TellsNobody,
    Defect::TreatsAllAlike,
];

/// What all runs of one kind have in common.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Names {
    /// Every client has a name of its own, and circles are refused.
    Own,
    /// Clients sometimes use the name of another, as after a lost connection.
    Shared,
}

const CLIENTS: usize = 8;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: u32 = 600;
/// After so many steps the whole history is looked at.
const STEPS_PER_HISTORY: u32 = 100;
/// More ends of locks than a run has, however few shards they are in.
const ENDS_MAX: usize = 16_000;
const RELEASE_SCRIPT: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

pub(crate) struct LockQueueSimulation {
    machine: Machine,
    rng: Rng,
    defect: Defect,
    names: Names,
    model: Model,
    replica: Replica,
    balance: Balance,
    /// Renewals, and ends, that the defects count wrongly.
    miscounted: (u64, u64),
    clients: Vec<Session>,
    /// The last request of each client.
    asked: Vec<Vec<String>>,
    /// It reads no replies but its own, and never waits.
    operator: Session,
    /// It hears the channels of all locks.
    listener: Session,
    /// The ids of the sessions of the model.
    sessions: Vec<String>,
    /// Sessions that are still open.
    ghosts: Vec<Session>,
    last_token: Option<String>,
}

impl LockQueueSimulation {
    pub(crate) fn new(seed: u64, names: Names, defect: Defect) -> Self {
        let machine = Machine::new(seed, Fault::None);
        let mut simulation = Self {
            operator: machine.connect(),
            listener: machine.connect(),
            rng: Rng::new(seed),
            defect,
            names,
            model: Model { now_ms: machine.clock.now_ms(), ..Model::default() },
            replica: Replica::new(),
            balance: Balance::default(),
            miscounted: (0, 0),
            clients: Vec::new(),
            asked: vec![Vec::new(); CLIENTS],
            sessions: Vec::new(),
            ghosts: Vec::new(),
            last_token: None,
            machine,
        };
        simulation.model.refuses_circles = names == Names::Own;
        let policy = if names == Names::Own { "refuse" } else { "off" };
        let settings = &simulation.machine.engine.shared().settings;
        settings.set("lock-deadlock", policy).expect("a policy");
        let ageing_ms = if defect == Defect::TreatsAllAlike { 0 } else { AGEING_MS };
        settings.set("lock-priority-ageing", &ageing_ms.to_string()).expect("milliseconds");
        let listens = ["PSUBSCRIBE", "__lock__:*"];
        simulation.machine.keyspace().keep_history(ENDS_MAX);
        simulation.operate(&["LOCK.HISTORY"]);
        let mut batch = simulation.machine.engine.batch();
        simulation.machine.offer(&mut simulation.listener, &mut batch, &listens);
        for who in 0..CLIENTS {
            simulation.clients.push(simulation.machine.connect());
            simulation.model.connections.push(Default::default());
            simulation.greet(who);
        }
        simulation
    }

    /// Runs to the end or to the first broken law.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        for step in 0..STEPS {
            let what = self.step();
            self.check().map_err(|why| format!("step {step}, {what}: {why}"))?;
            if step % STEPS_PER_HISTORY == 0 {
                self.check_tokens().map_err(|why| format!("step {step}, {what}: {why}"))?;
            }
        }
        self.end()
    }

    /// A client that has just connected chooses its protocol.
    fn greet(&mut self, who: usize) {
        if who.is_multiple_of(2) {
            self.model.connections[who].is_resp3 = true;
            self.offer(who, &["HELLO", "3"]);
        }
    }

    fn step(&mut self) -> String {
        let who = self.rng.below(CLIENTS);
        if self.model.connections[who].is_killed {
            return self.disconnect(who);
        }
        if self.model.waiters.iter().any(|waiter| waiter.request.who == who) {
            return self.meanwhile(who);
        }
        match self.rng.below(28) {
            0..=7 => self.acquire(who),
            8 | 9 => self.acquire_several(who),
            10..=13 => self.release(who),
            14 => self.extend(who),
            15 => self.break_lock(who),
            16 | 17 => self.as_unchanged_client(who),
            18 => self.write_over(who),
            19 => self.attach(who),
            20 => self.disconnect(who),
            21 | 22 => self.acquire_some(who),
            23 | 24 => self.transfer(who),
            _ => self.pass_time(),
        }
    }

    /// Something happens to a client that waits.
    fn meanwhile(&mut self, who: usize) -> String {
        match self.rng.below(8) {
            0 => self.disconnect(who),
            1 => {
                self.clients[who].client.cut("was killed");
                self.model.connections[who].is_killed = true;
                format!("client {who} is killed")
            }
            2 => {
                self.model.unblock(who);
                let id = self.clients[who].client.id.to_string();
                self.operate(&["CLIENT", "UNBLOCK", &id]);
                format!("client {who} is unblocked")
            }
            _ => self.pass_time(),
        }
    }

    fn key(&mut self) -> String {
        self.rng.pick(&KEYS).to_owned()
    }

    fn owner(&mut self, who: usize) -> String {
        match self.names {
            Names::Shared if self.rng.one_in(4) => format!("owner-{}", self.rng.below(CLIENTS)),
            _ => format!("owner-{who}"),
        }
    }

    /// LEASE or SESSION, as words and for the model.
    fn term(&mut self, who: usize) -> (Vec<String>, Term) {
        if !self.rng.one_in(4) {
            let lease_ms = 1 + self.rng.below_u64(40);
            return (vec!["LEASE".to_owned(), lease_ms.to_string()], Term::Lease(lease_ms));
        }
        let delay_ms = [0, 0, 9][self.rng.below(3)];
        let words = ["SESSION".to_owned(), "DELAY".to_owned(), delay_ms.to_string()];
        (words.to_vec(), Term::Session { session: self.session(who), delay_ms })
    }

    /// The session of a client; it begins one if it has none.
    fn session(&mut self, who: usize) -> usize {
        if let Some(own) = self.model.connections[who].session
            && self.model.sessions[own] == Some(who)
        {
            return own;
        }
        let answer = self.offer(who, &["LOCK.SESSION", "ID"]);
        self.sessions.push(answer.lines().nth(1).expect("a bulk string").to_owned());
        self.model.sessions.push(Some(who));
        let session = self.sessions.len() - 1;
        self.model.connections[who].session = Some(session);
        session
    }

    fn wait(&mut self, words: &mut Vec<String>) -> u64 {
        let wait_ms = [0, 5, 20, 60][self.rng.below(4)];
        if wait_ms > 0 {
            words.extend(["WAIT".to_owned(), wait_ms.to_string()]);
        }
        wait_ms
    }

    fn priority(&mut self, words: &mut Vec<String>) -> u64 {
        let priority = if self.rng.one_in(3) { self.rng.below_u64(10) } else { 0 };
        if priority > 0 {
            words.extend(["PRIORITY".to_owned(), priority.to_string()]);
        }
        priority
    }

    fn why(&mut self, words: &mut Vec<String>) -> bool {
        let says_why = self.rng.one_in(2);
        words.extend(says_why.then(|| "WHY".to_owned()));
        says_why
    }

    fn acquire(&mut self, who: usize) -> String {
        let (key, owner) = (self.key(), self.owner(who));
        let (term_words, term) = self.term(who);
        let mut words = vec!["LOCK.ACQUIRE".to_owned(), key.clone(), owner.clone()];
        words.extend(term_words);
        let (wait_ms, says_why) = (self.wait(&mut words), self.why(&mut words));
        let priority = self.priority(&mut words);
        let (mut kind, mut permits) = (Kind::Exclusive, 1);
        match self.rng.below(8) {
            0..=2 => {}
            3 => {
                kind = Kind::Reentrant;
                words.push("REENTRANT".to_owned());
            }
            4 | 5 => {
                kind = Kind::Shared;
                words.push("SHARED".to_owned());
            }
            _ => {
                let limit = if self.rng.one_in(20) { 4 } else { 3 };
                (kind, permits) = (Kind::Permits(limit), 1 + self.rng.below(3) as u32);
                words.extend(["PERMITS", &permits.to_string(), "OF", &limit.to_string()].map(str::to_owned));
            }
        }
        let (modes, any) = (vec![(kind, permits)], None);
        let keys = vec![key];
        let request =
            Request { who, keys, owner, modes, any, priority, term, says_why, is_just_token: false };
        self.model.acquire(request, wait_ms);
        self.ask(who, words)
    }

    fn acquire_several(&mut self, who: usize) -> String {
        let owner = self.owner(who);
        let mut keys: Vec<String> = (0..1 + self.rng.below(3)).map(|_| self.key()).collect();
        let mut words = vec!["LOCK.MACQUIRE".to_owned(), keys.len().to_string()];
        words.extend(keys.iter().cloned());
        words.push(owner.clone());
        let (term_words, term) = self.term(who);
        words.extend(term_words);
        let (wait_ms, says_why) = (self.wait(&mut words), self.why(&mut words));
        let priority = self.priority(&mut words);
        keys.sort();
        keys.dedup();
        let (modes, any) = (vec![(Kind::Exclusive, 1); keys.len()], None);
        let request =
            Request { who, keys, owner, modes, any, priority, term, says_why, is_just_token: false };
        self.model.acquire(request, wait_ms);
        self.ask(who, words)
    }

    /// LOCK.MACQUIRE with ANY, MODE or both. Of two connections of one owner that wait, one may not see what the other gets:
    /// so each client has a name of its own.
    fn acquire_some(&mut self, who: usize) -> String {
        let owner = format!("some-{who}");
        let mut keys: Vec<String> = KEYS.map(str::to_owned).to_vec();
        for at in (1..keys.len()).rev() {
            keys.swap(at, self.rng.below(at + 1));
        }
        keys.truncate(1 + self.rng.below(keys.len()));
        let mut words = vec!["LOCK.MACQUIRE".to_owned(), keys.len().to_string()];
        words.extend(keys.iter().cloned());
        words.push(owner.clone());
        let (term_words, term) = self.term(who);
        words.extend(term_words);
        let any = (!self.rng.one_in(3)).then(|| 1 + self.rng.below(keys.len()));
        words.extend(any.iter().flat_map(|any| ["ANY".to_owned(), any.to_string()]));
        let (wait_ms, says_why) = (self.wait(&mut words), self.why(&mut words));
        let (priority, is_just_token) = (self.priority(&mut words), self.rng.one_in(4));
        words.extend(is_just_token.then(|| "JUSTTOKEN".to_owned()));
        let modes = (1..=keys.len()).map(|at| self.mode(at, any.is_none(), &mut words)).collect();
        let request = Request { who, keys, owner, modes, any, priority, term, says_why, is_just_token };
        self.model.acquire(request, wait_ms);
        self.ask(who, words)
    }

    /// How a request for several locks asks for one of them, as words and for the model. `must`: the first has a MODE.
    fn mode(&mut self, at: usize, must: bool, words: &mut Vec<String>) -> (Kind, u32) {
        let (kind, permits) = match self.rng.below(4) {
            0 | 1 if !must || at > 1 => return (Kind::Exclusive, 1),
            2 => (Kind::Permits(3), 1 + self.rng.below(3) as u32),
            _ => (Kind::Shared, 1),
        };
        words.extend(["MODE".to_owned(), at.to_string()]);
        words.extend(match kind {
            Kind::Permits(limit) => {
                format!("PERMITS {permits} OF {limit}").split(' ').map(str::to_owned).collect()
            }
            _ => vec!["SHARED".to_owned()],
        });
        (kind, permits)
    }

    /// A key that is held, its first owner and its token, if there is one.
    fn held(&mut self) -> Option<(String, String, u64)> {
        let locks = self.model.keys.iter().filter_map(|(key, held)| match held {
            Held::Lock(_, holders) => Some((key, holders)),
            Held::List => None,
        });
        let holders = locks.flat_map(|(key, holders)| holders.iter().map(move |holder| (key, holder)));
        let all: Vec<_> =
            holders.map(|(key, holder)| (key.clone(), holder.owner.clone(), holder.token)).collect();
        (!all.is_empty()).then(|| all[self.rng.below(all.len())].clone())
    }

    fn release(&mut self, who: usize) -> String {
        let (key, owner, token) = self.held().unwrap_or(("a".to_owned(), "nobody".to_owned(), 7));
        let key = if self.rng.one_in(8) { self.key() } else { key };
        if self.defect == Defect::LosesWakeUps && self.rng.one_in(2) {
            let waiter = self.model.waiters.iter().find(|waiter| waiter.request.keys.contains(&key));
            let parked = waiter.and_then(|waiter| self.clients[waiter.request.who].parked.as_ref());
            parked.map(|parked| parked.claim.take());
        }
        let mut words = vec!["LOCK.RELEASE".to_owned(), key.clone(), owner.clone()];
        let token = self.rng.one_in(4).then_some(token);
        words.extend(token.iter().flat_map(|token| ["TOKEN".to_owned(), token.to_string()]));
        self.model.release(who, &key, &owner, token);
        self.ask(who, words)
    }

    fn extend(&mut self, who: usize) -> String {
        let (key, owner, _) = self.held().unwrap_or(("a".to_owned(), "nobody".to_owned(), 7));
        let lease_ms = 1 + self.rng.below_u64(40);
        self.model.extend(who, &key, &owner, lease_ms);
        self.ask(who, ["LOCK.EXTEND", &key, &owner, "LEASE", &lease_ms.to_string()].map(str::to_owned).into())
    }

    fn break_lock(&mut self, who: usize) -> String {
        let (key, _, token) = self.held().unwrap_or(("a".to_owned(), "nobody".to_owned(), 7));
        let key = if self.rng.one_in(8) { self.key() } else { key };
        self.model.break_lock(who, &key, token);
        self.ask(who, ["LOCK.BREAK", &key, "TOKEN", &token.to_string()].map(str::to_owned).into())
    }

    /// To a client that waits, or to any.
    fn transfer(&mut self, who: usize) -> String {
        let (key, owner, token) = self.held().unwrap_or(("a".to_owned(), "nobody".to_owned(), 7));
        let waiting: Vec<String> =
            self.model.waiters.iter().map(|waiter| waiter.request.owner.clone()).collect();
        let new = match waiting.is_empty() || self.rng.one_in(3) {
            true => format!("owner-{}", self.rng.below(CLIENTS)),
            false => waiting[self.rng.below(waiting.len())].clone(),
        };
        let mut words = ["LOCK.TRANSFER", &key, &owner, "TO", &new].map(str::to_owned).to_vec();
        if self.rng.one_in(4) {
            words.extend(["TOKEN".to_owned(), token.to_string()]);
        }
        let lease_ms = self.rng.one_in(2).then(|| 1 + self.rng.below_u64(40));
        words.extend(lease_ms.iter().flat_map(|lease_ms| ["LEASE".to_owned(), lease_ms.to_string()]));
        self.model.transfer(who, (&key, &owner), &new, lease_ms);
        self.ask(who, words)
    }

    /// SET NX PX, or the release script of a client of Redis.
    fn as_unchanged_client(&mut self, who: usize) -> String {
        let key = self.key();
        if self.rng.one_in(2) {
            let lease_ms = 1 + self.rng.below_u64(40);
            self.model.set_nx(who, &key, &format!("redis-{who}"), lease_ms);
            let value = format!("redis-{who}");
            let words = ["SET", &key, &value, "NX", "PX", &lease_ms.to_string()].map(str::to_owned);
            return self.ask(who, words.into());
        }
        // Only a string can be compared.
        match self.model.keys.get(&key) {
            Some(Held::Lock(Kind::Exclusive, holders)) => {
                let owner = holders[0].owner.clone();
                // A script that compares the value releases the lock: nobody is told of a loss.
                self.model.release(who, &key, &owner, None);
                self.ask(who, ["EVAL", RELEASE_SCRIPT, "1", &key, &owner].map(str::to_owned).into())
            }
            _ => self.pass_time(),
        }
    }

    /// A command of Redis that knows nothing of locks.
    fn write_over(&mut self, who: usize) -> String {
        let (key, other) = (self.key(), self.key());
        match self.rng.below(4) {
            0 | 1 => {
                let keys = if key == other { vec![key] } else { vec![key, other] };
                self.model.delete(who, &keys);
                self.ask(who, [vec!["DEL".to_owned()], keys].concat())
            }
            2 => {
                self.model.make_list(who, &key);
                self.offer(who, &["MULTI"]);
                self.offer(who, &["DEL", &key]);
                self.offer(who, &["RPUSH", &key, "element"]);
                self.ask(who, vec!["EXEC".to_owned()])
            }
            _ if !matches!(self.model.keys.get(&key), Some(Held::Lock(Kind::Exclusive, _)) | None) => {
                self.pass_time()
            }
            _ => {
                let lease_ms = self.rng.one_in(2).then(|| 1 + self.rng.below_u64(40));
                self.model.set_end(who, &key, lease_ms);
                let words = match lease_ms {
                    Some(lease_ms) => vec!["PEXPIRE".to_owned(), key, lease_ms.to_string()],
                    None => vec!["PERSIST".to_owned(), key],
                };
                self.ask(who, words)
            }
        }
    }

    fn attach(&mut self, who: usize) -> String {
        if self.sessions.is_empty() {
            return self.pass_time();
        }
        let session = self.sessions.len() - 1 - self.rng.below(self.sessions.len().min(6));
        self.model.attach(who, session);
        let id = self.sessions[session].clone();
        self.ask(who, ["LOCK.SESSION".to_owned(), "ATTACH".to_owned(), id].into())
    }

    fn disconnect(&mut self, who: usize) -> String {
        let waits = self.clients[who].parked.is_some();
        let mut session = std::mem::replace(&mut self.clients[who], self.machine.connect());
        self.model.disconnect(who);
        match self.defect {
            Defect::GrantsToTheGone if waits => self.ghosts.push(session),
            _ => self.machine.engine.disconnect(&mut session),
        }
        self.greet(who);
        format!("client {who} disconnects")
    }

    fn pass_time(&mut self) -> String {
        if self.rng.one_in(10) {
            self.machine.clock.step_wall(self.rng.below_u64(200_000) as i64 - 100_000);
        }
        self.machine.clock.advance(1);
        self.model.now_ms += 1;
        let due = self.model.due();
        // The order in which the ticker meets the shards is its own: only keys that end alone are left to it. Others end
        // in one command, before any request that waits for them is looked at.
        match &due[..] {
            _ if self.defect == Defect::ForgetsLeases => {}
            [] | [_] => while self.machine.tick() == Due::More {},
            several => {
                let words: Vec<&str> =
                    ["EXISTS"].into_iter().chain(several.iter().map(String::as_str)).collect();
                self.operate(&words);
            }
        }
        self.model.expire(&due);
        self.model.time_out();
        format!("time passes, {due:?} end")
    }

    /// Sends a request; the model knows of it already.
    fn ask(&mut self, who: usize, words: Vec<String>) -> String {
        let text = format!("client {who}: {}", words.join(" "));
        let reply = self.offer(who, &words.iter().map(String::as_str).collect::<Vec<_>>());
        self.asked[who] = words;
        self.clients[who].client.deliver_next(reply.as_bytes());
        self.let_others_pass(who);
        text
    }

    /// The defect's effect on a client that waits before this one.
    fn let_others_pass(&mut self, who: usize) {
        let Some(parked) = &self.clients[who].parked else { return };
        let key = String::from_utf8_lossy(&parked.keys[0]).into_owned();
        if self.defect != Defect::LetsOthersPass {
            return;
        }
        let Some(first) = self.model.waiters.iter().find(|waiter| waiter.request.keys.contains(&key)) else {
            return;
        };
        let first = first.request.who;
        if first == who || self.clients[first].parked.is_none() || self.model.connections[first].is_killed {
            return;
        }
        let id = self.clients[first].client.id.to_string();
        self.operate(&["CLIENT", "UNBLOCK", &id]);
        self.machine.resume(&mut self.clients[first]);
        let words = self.asked[first].clone();
        self.offer(first, &words.iter().map(String::as_str).collect::<Vec<_>>());
    }

    fn offer(&mut self, who: usize, words: &[&str]) -> String {
        let mut batch = self.machine.engine.batch();
        let answer = self.machine.offer(&mut self.clients[who], &mut batch, words);
        self.machine.engine.end_batch(&mut self.clients[who], batch);
        answer
    }

    fn operate(&mut self, words: &[&str]) -> String {
        let mut batch = self.machine.engine.batch();
        let answer = self.machine.call(&mut self.operator, &mut batch, words);
        self.machine.engine.end_batch(&mut self.operator, batch);
        answer
    }

    /// Every client was told what the model says, and waits if the model says so.
    fn check(&mut self) -> Result<(), String> {
        let mut heard = vec![String::new(); CLIENTS];
        // The end of one wait may let another begin to end.
        for _ in 0..3 {
            for (who, text) in heard.iter_mut().enumerate() {
                if !self.model.connections[who].is_killed {
                    text.push_str(&self.machine.resume(&mut self.clients[who]));
                    text.push_str(&collected(&self.clients[who]));
                }
            }
        }
        for (who, text) in heard.iter().enumerate() {
            if self.model.connections[who].is_killed {
                self.model.connections[who].told = Told::default();
                continue;
            }
            let told = self.heard(text)?;
            let expected = &mut self.model.connections[who].told;
            expected.pushes.sort();
            if told != *expected {
                return Err(format!("client {who} was told {told:?} instead of {expected:?}"));
            }
            *expected = Told::default();
            let waits = self.model.waiters.iter().any(|waiter| waiter.request.who == who);
            if self.clients[who].parked.is_some() != waits {
                return Err(format!("client {who} waits: {}", !waits));
            }
        }
        self.check_channels()?;
        self.check_registers()?;
        let records = self.replica.follow(&self.machine.log);
        self.machine.keyspace().assert_laws();
        let counted = self.counted();
        self.balance.check(&records, (self.machine.keyspace(), self.machine.clock.truth()), counted)?;
        let there = standing(self.machine.keyspace(), self.machine.clock.truth());
        let replayed = self.replica.remains();
        if there == replayed { Ok(()) } else { Err(format!("replayed {replayed:?}, but there is {there:?}")) }
    }

    /// The counters, with the defect's effect.
    fn counted(&mut self) -> Counted {
        let mut counted = Counted::of(self.machine.keyspace());
        let (renewals, ends) = &mut self.miscounted;
        match self.defect {
            Defect::CountsRenewals if self.rng.one_in(100) => *renewals += 1,
            Defect::ForgetsEnds if counted.ended > *ends && self.rng.one_in(100) => *ends += 1,
            _ => {}
        }
        counted.granted[0] += *renewals;
        counted.ended -= *ends;
        counted
    }

    /// Every token is held, or in the history.
    fn check_tokens(&mut self) -> Result<(), String> {
        let history = self.operate(&["LOCK.HISTORY", "COUNT", &ENDS_MAX.to_string()]);
        let Some((Reply::List(_, ends), _)) = Reply::read(history.as_bytes())? else {
            return Err(format!("no history: {history}"));
        };
        let end = |end: &Reply| match end {
            Reply::List(_, fields) => match &fields[..] {
                [_, Reply::Bulk(key), _, _, _, Reply::Int(token), ..] => Some((key.clone(), *token as u64)),
                _ => None,
            },
            _ => None,
        };
        let ends: Option<Vec<_>> = ends.iter().map(end).collect();
        let ends = ends.ok_or_else(|| format!("not a history: {history}"))?;
        self.balance.check_tokens((self.machine.keyspace(), self.machine.clock.truth()), &ends)
    }

    fn check_channels(&mut self) -> Result<(), String> {
        let mut heard: Vec<String> = frames(&collected(&self.listener))?;
        heard.sort();
        let mut expected = std::mem::take(&mut self.model.published);
        expected.sort();
        if heard == expected { Ok(()) } else { Err(format!("published {heard:?} instead of {expected:?}")) }
    }

    fn check_registers(&self) -> Result<(), String> {
        let shared = self.machine.engine.shared();
        let places: usize = self.model.waiters.iter().map(|waiter| waiter.request.keys.len()).sum();
        let unread = self.clients.iter().filter(|session| session.parked.is_some()).count();
        let (queued, waiting) = (shared.keyspace.parked(), self.model.waiters.len());
        let ghosts = self.ghosts.len();
        if queued < places || shared.locks.waits.len() != unread + ghosts {
            return Err(format!("{queued} queued of {places}, {unread} clients wait of {waiting}"));
        }
        Ok(())
    }

    /// Every client disconnects; nothing of them is left when the last lease is over.
    fn end(&mut self) -> Result<(), String> {
        (0..CLIENTS).for_each(|who| drop(self.disconnect(who)));
        for key in KEYS {
            self.operate(&["DEL", key]);
        }
        let clients = std::mem::take(&mut self.clients);
        clients.into_iter().for_each(|mut session| self.machine.engine.disconnect(&mut session));
        let shared = self.machine.engine.shared();
        let left =
            (shared.keyspace.parked(), shared.locks.waits.len(), shared.registries.lock_sessions.len());
        if left != (0, 0, 0) {
            return Err(format!("{left:?} queued, waiting and sessions are left"));
        }
        match shared.keyspace.size(0) {
            (0, 0) => Ok(()),
            left => Err(format!("{left:?} keys are left")),
        }
    }

    /// What a client has heard, as the model says it.
    fn heard(&mut self, text: &str) -> Result<Told, String> {
        let mut told = Told::default();
        for frame in frames(text)? {
            let frame = self.bent(frame);
            match frame.as_bytes()[0] {
                b'>' if self.defect == Defect::TellsNobody => {}
                b'>' => told.pushes.push(frame),
                _ if frame.starts_with("-DEADLOCK ") => told.replies.push("-DEADLOCK".to_owned()),
                _ => told.replies.push(frame),
            }
        }
        told.pushes.sort();
        Ok(told)
    }

    /// The defect's effect on a grant.
    fn bent(&mut self, frame: String) -> String {
        let is_grant = frame.contains("waited");
        let Some(token) = frame.lines().nth(3).filter(|_| is_grant).map(str::to_owned) else { return frame };
        match self.last_token.replace(token.clone()) {
            Some(last) if self.defect == Defect::ReusesTokens && self.rng.one_in(5) => {
                frame.replacen(&token, &last, 1)
            }
            _ => frame,
        }
    }
}

/// The replies and messages in a text.
fn frames(mut text: &str) -> Result<Vec<String>, String> {
    let mut frames = Vec::new();
    while !text.is_empty() {
        let (_, bytes) = Reply::read(text.as_bytes())?.ok_or_else(|| format!("half a frame: {text:?}"))?;
        let (frame, rest) = text.split_at(bytes);
        frames.push(frame.to_owned());
        text = rest;
    }
    Ok(frames)
}

fn collected(session: &Session) -> String {
    let mut out = Vec::new();
    session.client.collect(&mut out);
    String::from_utf8(out).expect("messages in ASCII")
}
