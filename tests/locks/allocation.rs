//! One of several things: many owners, few keys, ANY.
//!
//! Belongs here  no thing is given to two owners, none is lost, and nobody waits while one is free for it.
//! Time          stands still until a test moves it.

use std::collections::BTreeMap;

use redlatch_core::engine::Flow;
use redlatch_core::keyspace::Due;
use redlatch_core::state::session::Session;
use redlatch_proto::resp::Request;

use crate::simulation::parts::Machine;
use crate::support::reply::Reply;
use crate::support::rng::Rng;

const THINGS: usize = 10;
const OWNERS: usize = 60;
const STEPS: usize = 4_000;
const LEASE_MS: u64 = 50;

struct Pool {
    machine: Machine,
    rng: Rng,
    sessions: Vec<Session>,
    /// The owner of each thing, its token, and the last millisecond of its lease.
    held: BTreeMap<String, (usize, u64, u64)>,
    last_token: u64,
    /// Who waits, first come first, and for how many things. All wait in the queues of all things.
    queue: Vec<(usize, usize)>,
}

impl Pool {
    fn new(seed: u64) -> Self {
        let machine = Machine::unrecorded(seed);
        let sessions = (0..OWNERS).map(|_| machine.connect()).collect();
        let (held, queue) = (BTreeMap::new(), Vec::new());
        Self { machine, rng: Rng::new(seed), sessions, held, last_token: 0, queue }
    }

    fn is_waiting(&self, who: usize) -> bool {
        self.queue.iter().any(|(other, _)| *other == who)
    }

    /// Sends a line; the reply is empty if the request waits.
    fn say(&mut self, who: usize, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let (mut batch, mut out) = (self.machine.engine.batch(), Vec::new());
        let session = &mut self.sessions[who];
        let flow = self.machine.engine.execute(session, Request::listed(&words), &mut batch, &mut out);
        assert!(matches!(flow, Flow::Next | Flow::Wait), "{flow:?}");
        self.machine.engine.end_batch(session, batch);
        String::from_utf8(out).expect("an answer in ASCII")
    }

    /// Asks for any of all things, beginning with another one each time.
    fn ask(&mut self, who: usize) {
        let (from, count) = (self.rng.below(THINGS), if self.rng.one_in(4) { 2 } else { 1 });
        let names: Vec<String> = (0..THINGS).map(|at| format!("thing:{}", (from + at) % THINGS)).collect();
        let names = names.join(" ");
        let wait = if self.rng.one_in(4) { "" } else { " WAIT 100000" };
        let any = format!("ANY {count} LEASE {LEASE_MS} JUSTTOKEN{wait}");
        let reply = self.say(who, &format!("LOCK.MACQUIRE {THINGS} {names} owner-{who} {any}"));
        match &reply[..] {
            "" => self.queue.push((who, count)),
            "*-1\r\n" => {}
            granted => self.granted(who, count, granted),
        }
    }

    /// An owner has got things: all others have lost them, and their tokens are the highest.
    fn granted(&mut self, who: usize, count: usize, reply: &str) {
        let Ok(Some((Reply::List(_, fields), _))) = Reply::read(reply.as_bytes()) else { panic!("{reply}") };
        assert_eq!(fields.len(), 2 * count, "{reply}");
        let now_ms = self.machine.clock.now_ms();
        for pair in fields.chunks(2) {
            let [Reply::Bulk(key), Reply::Int(token)] = pair else { panic!("{reply}") };
            let (key, token) = (String::from_utf8_lossy(key).into_owned(), *token as u64);
            match self.held.get(&key) {
                Some((owner, held, _)) if *owner == who => assert_eq!(token, *held, "{key}: its own again"),
                Some((owner, ..)) => panic!("{key} is held by {owner} and {who}"),
                None => assert!(token > self.last_token, "{token} after {}", self.last_token),
            }
            self.last_token = self.last_token.max(token);
            self.held.insert(key, (who, token, now_ms + LEASE_MS));
        }
    }

    /// Hears what those were answered that wait.
    fn listen(&mut self) {
        // What was granted first has the lower token.
        let mut heard = Vec::new();
        for (who, count) in std::mem::take(&mut self.queue) {
            let reply = self.machine.resume(&mut self.sessions[who]);
            match reply.is_empty() {
                true => self.queue.push((who, count)),
                false => heard.push((last_token(&reply), who, count, reply)),
            }
        }
        heard.sort();
        heard.into_iter().for_each(|(_, who, count, reply)| self.granted(who, count, &reply));
    }

    fn release(&mut self) {
        let at = self.rng.below(THINGS);
        let held = self.held.iter().nth(at).map(|(key, held)| (key.clone(), *held));
        // Its client may wait for more: another connection sends this.
        let session = (0..OWNERS).find(|other| !self.is_waiting(*other));
        if let (Some((key, (who, token, _))), Some(session)) = (held, session) {
            let line = format!("LOCK.RELEASE {key} owner-{who} TOKEN {token}");
            assert_eq!(self.say(session, &line), ":1\r\n", "{line}: it is held");
            self.held.remove(&key);
        }
    }

    fn pass(&mut self) {
        self.machine.clock.advance(1 + self.rng.below_u64(20));
        let now_ms = self.machine.clock.now_ms();
        self.held.retain(|_, (.., until_ms)| *until_ms >= now_ms);
        while self.machine.tick() == Due::More {}
    }

    fn leave(&mut self, who: usize) {
        let mut session = std::mem::replace(&mut self.sessions[who], self.machine.connect());
        self.machine.engine.disconnect(&mut session);
        self.queue.retain(|(other, _)| *other != who);
    }

    /// The first of the queue waits only while it cannot have as many things as it needs, with those that it has.
    fn check(&mut self) {
        if let Some((first, count)) = self.queue.first() {
            let own = self.held.values().filter(|(owner, ..)| owner == first).count();
            let free = THINGS - self.held.len();
            assert!(own + free < *count, "{first} has {own}, waits for {count}, and {free} are free");
        }
        self.machine.keyspace().assert_laws();
    }
}

/// The highest token of a reply.
fn last_token(reply: &str) -> u64 {
    let numbers = reply.lines().filter_map(|line| line.strip_prefix(':'));
    numbers.map(|number| number.parse().expect("a number")).max().expect("a token")
}

#[test]
fn many_owners_share_ten_things_and_no_thing_is_given_twice_or_lost() {
    for seed in 1..=8 {
        let mut pool = Pool::new(seed);
        for _ in 0..STEPS {
            let who = pool.rng.below(OWNERS);
            match pool.rng.below(8) {
                0..=3 if !pool.is_waiting(who) => pool.ask(who),
                4 | 5 => pool.release(),
                6 => pool.leave(who),
                _ => pool.pass(),
            }
            pool.listen();
            pool.check();
        }
        let granted = pool.last_token;
        assert!(granted > 1_000, "seed {seed}: {granted} grants");
        (0..OWNERS).for_each(|who| pool.leave(who));
        pool.machine.clock.advance(LEASE_MS + 1);
        while pool.machine.tick() == Due::More {}
        assert_eq!(pool.machine.keyspace().size(0).0, 0, "seed {seed}: all things are free");
        assert_eq!(pool.machine.keyspace().parked(), 0, "seed {seed}: nobody waits");
    }
}
