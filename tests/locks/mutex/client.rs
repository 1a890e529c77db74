//! A process of lock clients: threads that take, extend, abandon and release locks, and one that only reads the holder.
//!
//! Owns    the behaviour of the clients, and the file of their history.
//! Rule    each call is made at random with a native command or with SET NX and the usual scripts, also on one lock.
//! Knows   the server's address and a seed, from the environment; see [`Orders`]. Where other servers have some of the locks,
//!         it goes to the one that MOVED names.
//! Time    real: clients pause, and stall past their leases.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use redis_protocol::resp2::types::OwnedFrame;

use super::history::{Answer, Ask, got, sent};
use super::takers::Taker;
use crate::support::rng::Rng;
use crate::support::waits::PATIENCE;
use crate::support::wire::Link;

/// What the processes of this program do in a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    /// Use a few locks in all ways.
    Clients,
    /// Take any one of several keys with SET NX, and release it by its name alone.
    NaiveTakers,
    /// Take any one of several keys with LOCK.MACQUIRE.
    Takers,
}

/// The parameters of the process.
pub(crate) struct Orders {
    pub(crate) role: Role,
    pub(crate) server: SocketAddr,
    /// Whether the server has the commands `LOCK.*`.
    pub(crate) is_native: bool,
    /// Whether the server is killed and started again during the run: then connections end, and leases outlive a start.
    pub(crate) is_killed: bool,
    /// Whether clients are told of the end of a connection before a session of it may end.
    pub(crate) is_told: bool,
    /// Whether the server is attacked during the run: then clients log in, from an address of their own.
    pub(crate) is_attacked: bool,
    pub(crate) history: String,
    pub(crate) seed: u64,
    pub(crate) lasts: Duration,
}

impl Orders {
    /// Reads the parameters from the environment; `None` if the variables are not set.
    pub(crate) fn received() -> Option<Self> {
        let word = |name: &str| std::env::var(name).ok();
        let role = word(ROLE)?;
        let roles = [Role::Clients, Role::NaiveTakers, Role::Takers];
        Some(Self {
            role: roles.into_iter().find(|other| format!("{other:?}") == role).expect("a role"),
            server: word(SERVER)?.parse().expect("an address"),
            is_native: word(NATIVE)? == "true",
            is_killed: word(KILLED)? == "true",
            is_told: word(TOLD)? == "true",
            is_attacked: word(ATTACKED)? == "true",
            history: word(HISTORY)?,
            seed: word(SEED)?.parse().expect("a seed"),
            lasts: Duration::from_millis(word(MILLIS)?.parse().expect("milliseconds")),
        })
    }

    pub(crate) fn environment(&self) -> [(&'static str, String); 9] {
        [
            (ROLE, format!("{:?}", self.role)),
            (SERVER, self.server.to_string()),
            (NATIVE, self.is_native.to_string()),
            (KILLED, self.is_killed.to_string()),
            (TOLD, self.is_told.to_string()),
            (ATTACKED, self.is_attacked.to_string()),
            (HISTORY, self.history.clone()),
            (SEED, self.seed.to_string()),
            (MILLIS, self.lasts.as_millis().to_string()),
        ]
    }

    /// Runs the clients.
    ///
    /// # Errors
    /// When the server is unreachable, or closes a connection that no fault has cut.
    pub(crate) fn carry_out(&self) -> io::Result<()> {
        if self.role != Role::Clients {
            return Taker::new(self)?.carry_out();
        }
        let file = OpenOptions::new().create(true).append(true).open(&self.history)?;
        let (book, end) = (Mutex::new(file), Instant::now() + self.lasts);
        scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let mut client = Client::new(self, number, &book);
                    scope.spawn(move || {
                        while Instant::now() < end {
                            let held = client.held.clone();
                            let done = if number == 0 { client.watch() } else { client.act() };
                            done.or_else(|error| client.lose_connection(held, error))?;
                        }
                        client.leave()
                    })
                })
                .collect();
            clients.into_iter().try_for_each(|client| client.join().expect("a client that does not panic"))
        })
    }
}

/// A lease that a client believes it holds.
#[derive(Clone)]
struct Held {
    lock: &'static str,
    token: String,
    /// It ends with the connection, and has no lease.
    is_session: bool,
    until: Instant,
}

/// How a call is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// By a command `LOCK.*`.
    Native { wait_ms: u64 },
    /// By SET NX or a script.
    Plain,
    /// By SET NX GET, whose refusal names the holder.
    TellsHolder,
}

struct Client<'b> {
    server: SocketAddr,
    is_native: bool,
    is_killed: bool,
    is_told: bool,
    is_attacked: bool,
    /// Where a lock was found, if not at the server.
    moved: HashMap<&'static str, SocketAddr>,
    links: HashMap<SocketAddr, Link>,
    rng: Rng,
    book: &'b Mutex<File>,
    /// Unique among all clients of the run.
    name: String,
    calls: u64,
    /// A moment at which the connection was certainly open: the last answer, or later.
    open_ns: u64,
    /// The lock that was asked for last until the connection ends.
    session: Option<(&'static str, String)>,
    held: Option<Held>,
}

impl<'b> Client<'b> {
    fn new(orders: &Orders, number: usize, book: &'b Mutex<File>) -> Self {
        Self {
            server: orders.server,
            is_native: orders.is_native,
            is_killed: orders.is_killed,
            is_told: orders.is_told,
            is_attacked: orders.is_attacked,
            moved: HashMap::new(),
            links: HashMap::new(),
            rng: Rng::new(orders.seed * CLIENTS as u64 + number as u64),
            book,
            name: format!("{}-{number}", std::process::id()),
            calls: 0,
            open_ns: now_ns(),
            session: None,
            held: None,
        }
    }

    /// Reads the holder of a random lock, repeatedly.
    fn watch(&mut self) -> io::Result<()> {
        let lock = self.rng.pick(LOCKS);
        sleep(Duration::from_micros(self.rng.below(1_000) as u64));
        self.call(lock, Ask::Look, "-").map(drop)
    }

    fn act(&mut self) -> io::Result<()> {
        sleep(Duration::from_micros(self.rng.below(4_000) as u64));
        let Some(Held { lock, token, is_session, until }) = self.held.take() else { return self.acquire() };
        if is_session {
            return self.act_in_session(lock, token);
        }
        let ask = match self.rng.below(12) {
            0..=4 => Ask::Release,
            5 | 6 => Ask::Extend(self.lease_ms()),
            7 => Ask::Look,
            8 if self.is_native_on(lock) => Ask::Token,
            8 => Ask::Look,
            // It crashes: the lock stays held until its lease ends.
            9 => return Ok(()),
            // It stalls past its lease, and then still believes it holds the lock.
            10 => {
                let late = Duration::from_millis(self.rng.below(20) as u64);
                sleep(until.saturating_duration_since(Instant::now()) + late);
                if self.rng.one_in(2) { Ask::Release } else { Ask::Extend(self.lease_ms()) }
            }
            _ => {
                let ask = if self.rng.one_in(2) { Ask::Release } else { Ask::Extend(self.lease_ms()) };
                return self.cut(lock, ask, &token);
            }
        };
        let answer = self.call(lock, ask, &token)?;
        let until = match (ask, answer) {
            (Ask::Extend(lease_ms), Answer::Yes) => Instant::now() + Duration::from_millis(lease_ms),
            (Ask::Look, Answer::Holder(holder)) if holder == token => until,
            (Ask::Token, Answer::YesWithFence(_)) => until,
            _ => return Ok(()),
        };
        self.held = Some(Held { lock, token, is_session, until });
        Ok(())
    }

    fn act_in_session(&mut self, lock: &'static str, token: String) -> io::Result<()> {
        // A fault meets a session only if it lasts.
        let ask = match self.rng.below(if self.is_told { 200 } else { 4 }) {
            0 => return self.hang_up(lock, &token),
            1 => Ask::Release,
            even if even % 2 == 0 => Ask::Token,
            _ => Ask::Look,
        };
        self.call(lock, ask, &token)?;
        if ask != Ask::Release {
            self.held = Some(Held { lock, token, is_session: true, until: Instant::now() });
        }
        Ok(())
    }

    /// Ends the connection, and thereby the lock. Where servers are killed, it may have ended before.
    fn hang_up(&mut self, lock: &'static str, token: &str) -> io::Result<()> {
        let from_ns = if self.is_killed { self.open_ns } else { now_ns() };
        let id = self.announce_at(from_ns, lock, Ask::Hangup, token)?;
        self.links.clear();
        self.write(&got(&id, now_ns(), &Answer::Yes))
    }

    /// After a kill of the server a client goes on with the lease that it had, and the call without an answer stays so. A
    /// session has ended.
    fn lose_connection(&mut self, held: Option<Held>, error: io::Error) -> io::Result<()> {
        if !self.is_killed {
            return Err(error);
        }
        self.links.clear();
        self.moved.clear();
        self.held = held.filter(|held| !held.is_session);
        if let Some((lock, token)) = self.session.take() {
            self.hang_up(lock, &token)?;
        }
        sleep(RECONNECT);
        Ok(())
    }

    /// The end of the run.
    fn leave(&mut self) -> io::Result<()> {
        match self.held.take() {
            Some(Held { lock, token, is_session: true, .. }) => self.hang_up(lock, &token),
            _ => Ok(()),
        }
    }

    fn acquire(&mut self) -> io::Result<()> {
        let (lock, lease_ms) = (self.rng.pick(LOCKS), self.lease_ms());
        let token = format!("{}-{}", self.name, self.calls);
        let until = Instant::now() + Duration::from_millis(lease_ms);
        let is_session = self.is_native_on(lock) && self.rng.one_in(if self.is_told { 3 } else { 6 });
        let is_granted = if is_session {
            self.session = Some((lock, token.clone()));
            self.call(lock, Ask::Session, &token)? != Answer::No
        } else if self.rng.one_in(30) {
            self.cut(lock, Ask::Acquire(lease_ms), &token)?;
            self.call(lock, Ask::Look, "-")? == Answer::Holder(token.clone())
        } else {
            let answer = self.call(lock, Ask::Acquire(lease_ms), &token)?;
            !matches!(answer, Answer::Holder(_) | Answer::No)
        };
        self.held = is_granted.then_some(Held { lock, token, is_session, until });
        Ok(())
    }

    /// Whether native commands may be used: the grants of [`FENCED`] have numbers of their own.
    fn is_native_on(&self, lock: &str) -> bool {
        self.is_native && lock != FENCED
    }

    fn form(&mut self, lock: &str, ask: Ask) -> Form {
        let must_be_native = matches!(ask, Ask::Session | Ask::Token);
        if must_be_native || (self.is_native_on(lock) && self.rng.one_in(2)) {
            let wait_ms = if self.rng.one_in(2) { 1 + self.rng.below(WAIT_MS_MAX) as u64 } else { 0 };
            return Form::Native { wait_ms };
        }
        let tells_holder = matches!(ask, Ask::Acquire(_)) && lock != FENCED && self.rng.one_in(2);
        if tells_holder { Form::TellsHolder } else { Form::Plain }
    }

    /// Where servers are killed, some leases are longer than another node takes to take over.
    fn lease_ms(&mut self) -> u64 {
        let most = self.rng.pick(if self.is_killed { &[40, 400, 4_000] } else { &[8, 40, 150] });
        1 + self.rng.below(most) as u64
    }

    fn call(&mut self, lock: &'static str, ask: Ask, token: &str) -> io::Result<Answer> {
        let id = self.announce(lock, ask, token)?;
        let form = self.form(lock, ask);
        let frame = self.ask(lock, ask, token, form)?;
        let answer = answer(ask, form, &frame)
            .ok_or_else(|| io::Error::other(format!("{ask:?} of {lock} was answered {frame:?}")))?;
        self.open_ns = now_ns();
        self.write(&got(&id, self.open_ns, &answer))?;
        Ok(answer)
    }

    /// Sends a call and resets the connection at once.
    fn cut(&mut self, lock: &'static str, ask: Ask, token: &str) -> io::Result<()> {
        self.announce(lock, ask, token)?;
        let form = self.form(lock, ask);
        self.link(lock)?;
        let link = self.links.remove(&self.server_of(lock)).expect("it has just been opened");
        let (lease, wait) = numbers(ask, form);
        link.ask_and_cut(&words(lock, ask, token, form, (&lease, &wait)))
    }

    fn ask(&mut self, lock: &'static str, ask: Ask, token: &str, form: Form) -> io::Result<OwnedFrame> {
        let (lease, wait) = numbers(ask, form);
        loop {
            self.link(lock)?.send(&words(lock, ask, token, form, (&lease, &wait)))?;
            let answer = self.next(lock)?;
            match &answer {
                OwnedFrame::Error(text) if text.starts_with("MOVED ") => {
                    self.moved.insert(lock, address_in(text)?);
                }
                // Its group has no leader at present.
                OwnedFrame::Error(text) if text.starts_with("CLUSTERDOWN ") => {
                    return Err(io::Error::other(text.clone()));
                }
                _ => return Ok(answer),
            }
        }
    }

    /// The answer of the server that has the lock.
    fn next(&mut self, lock: &'static str) -> io::Result<OwnedFrame> {
        let begun = Instant::now();
        loop {
            let now_ns = now_ns();
            match self.link(lock)?.next() {
                // A connection that had been closed before would not have kept the client waiting.
                Err(error)
                    if matches!(error.kind(), TimedOut | WouldBlock)
                        && self.is_told
                        && begun.elapsed() < PATIENCE =>
                {
                    self.open_ns = now_ns;
                }
                answer => return answer,
            }
        }
    }

    /// Records that a call is about to be sent; returns its id.
    fn announce(&mut self, lock: &str, ask: Ask, token: &str) -> io::Result<String> {
        self.announce_at(now_ns(), lock, ask, token)
    }

    fn announce_at(&mut self, at_ns: u64, lock: &str, ask: Ask, token: &str) -> io::Result<String> {
        let id = format!("{}-{}", self.name, self.calls);
        self.calls += 1;
        self.write(&sent(&id, at_ns, lock, ask, token))?;
        Ok(id)
    }

    fn write(&self, line: &str) -> io::Result<()> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
    }

    fn server_of(&self, lock: &str) -> SocketAddr {
        self.moved.get(lock).copied().unwrap_or(self.server)
    }

    /// The connection to the server that has the lock.
    fn link(&mut self, lock: &str) -> io::Result<&mut Link> {
        let server = self.server_of(lock);
        while !self.links.contains_key(&server) {
            let link = if self.is_attacked { log_in(server)? } else { Some(Link::to(server)?) };
            if let Some(mut link) = link {
                if self.is_told {
                    link.set_patience(LOOK_EVERY);
                } else if server != self.server && self.rng.one_in(2) {
                    link.set_patience(MOVED_PATIENCE);
                }
                self.links.insert(server, link);
            }
        }
        Ok(self.links.get_mut(&server).expect("it is open"))
    }
}

/// The address in `MOVED slot address`.
fn address_in(moved: &str) -> io::Result<SocketAddr> {
    let address = moved.rsplit(' ').next().and_then(|address| address.parse().ok());
    address.ok_or_else(|| io::Error::other(moved.to_owned()))
}

/// Whether a connection ended because the server has closed it.
pub(super) fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// A connection that has logged in. `None` if the server has no place for it at present.
fn log_in(server: SocketAddr) -> io::Result<Option<Link>> {
    let mut link = Link::from(HONEST_ADDRESS, server)?;
    match link.ask(&["AUTH", HONEST_USER, HONEST_PASSWORD]) {
        Ok(OwnedFrame::SimpleString(_)) => return Ok(Some(link)),
        Ok(OwnedFrame::Error(text)) if text.starts_with("ERR max number of clients") => {}
        // A connection without a place may be closed before its request arrives.
        Err(error) if is_closed(&error) => {}
        Ok(other) => return Err(io::Error::other(format!("a login was answered {other:?}"))),
        Err(error) => return Err(error),
    }
    sleep(RECONNECT);
    Ok(None)
}

/// The lease and the wait of a call as text, empty where it has none.
fn numbers(ask: Ask, form: Form) -> (String, String) {
    let lease = match ask {
        Ask::Acquire(lease_ms) | Ask::Extend(lease_ms) => lease_ms.to_string(),
        Ask::Hangup | Ask::Look | Ask::Release | Ask::Session | Ask::Token => String::new(),
    };
    (lease, if let Form::Native { wait_ms } = form { wait_ms.to_string() } else { String::new() })
}

fn words<'a>(
    lock: &'a str,
    ask: Ask,
    token: &'a str,
    form: Form,
    numbers: (&'a str, &'a str),
) -> Vec<&'a str> {
    let ((lease, wait), is_native) = (numbers, matches!(form, Form::Native { .. }));
    match ask {
        Ask::Acquire(_) if is_native => vec!["LOCK.ACQUIRE", lock, token, "LEASE", lease, "WAIT", wait],
        Ask::Acquire(_) if lock == FENCED => vec!["EVAL", ACQUIRE, "2", lock, FENCES, token, lease],
        Ask::Acquire(_) if form == Form::TellsHolder => vec!["SET", lock, token, "NX", "GET", "PX", lease],
        Ask::Acquire(_) => vec!["SET", lock, token, "NX", "PX", lease],
        Ask::Extend(_) if is_native => vec!["LOCK.EXTEND", lock, token, "LEASE", lease],
        Ask::Extend(_) => vec!["EVAL", EXTEND, "1", lock, token, lease],
        Ask::Hangup => unreachable!("it is no request"),
        Ask::Look => vec!["GET", lock],
        Ask::Release if is_native => vec!["LOCK.RELEASE", lock, token],
        Ask::Release => vec!["EVAL", RELEASE, "1", lock, token],
        Ask::Session => vec!["LOCK.ACQUIRE", lock, token, "SESSION", "WAIT", wait],
        Ask::Token => vec!["LOCK.TOKEN", lock, token],
    }
}

fn answer(ask: Ask, form: Form, frame: &OwnedFrame) -> Option<Answer> {
    let holder = |token: &[u8]| String::from_utf8(token.to_vec()).ok().map(Answer::Holder);
    let fence = |number: &i64| (*number).try_into().ok().map(Answer::YesWithFence);
    let is_native = matches!(form, Form::Native { .. });
    match (ask, frame) {
        (Ask::Acquire(_) | Ask::Session, OwnedFrame::Array(grant)) => granted(grant),
        (Ask::Acquire(_), OwnedFrame::SimpleString(text)) => (text == b"OK").then_some(Answer::Yes),
        (Ask::Acquire(_), OwnedFrame::Integer(0)) => Some(Answer::No),
        (Ask::Acquire(_), OwnedFrame::Integer(number)) => fence(number),
        // With GET a refusal names the holder; a grant returns nil.
        (Ask::Acquire(_), OwnedFrame::Null) if form == Form::TellsHolder => Some(Answer::Yes),
        (Ask::Acquire(_) | Ask::Session | Ask::Token, OwnedFrame::Null) => Some(Answer::No),
        // Attackers have filled the memory. What exists can be extended and released.
        (Ask::Acquire(_) | Ask::Session, OwnedFrame::Error(text)) if text.starts_with("OOM ") => {
            Some(Answer::No)
        }
        (Ask::Look, OwnedFrame::Null) => Some(Answer::Nobody),
        (Ask::Acquire(_) | Ask::Look, OwnedFrame::BulkString(token)) => holder(token),
        (Ask::Extend(_), OwnedFrame::Array(_)) if is_native => Some(Answer::Yes),
        (Ask::Extend(_), OwnedFrame::Null) if is_native => Some(Answer::No),
        (Ask::Extend(_) | Ask::Release, OwnedFrame::Integer(0)) => Some(Answer::No),
        (Ask::Extend(_) | Ask::Release, OwnedFrame::Integer(1)) => Some(Answer::Yes),
        (Ask::Token, OwnedFrame::Integer(number)) => fence(number),
        _ => None,
    }
}

/// The reply of LOCK.ACQUIRE: `token`, `lease` and `waited`, each before its value.
fn granted(grant: &[OwnedFrame]) -> Option<Answer> {
    let [_, OwnedFrame::Integer(fence), _, _, _, OwnedFrame::Integer(waited_ms)] = grant else { return None };
    Some(Answer::YesAfter { fence: (*fence).try_into().ok()?, waited_ms: (*waited_ms).try_into().ok()? })
}

pub(crate) fn now_ns() -> u64 {
    let time = ClockId::CLOCK_MONOTONIC.now().expect("the system has this clock");
    Duration::from(time).as_nanos() as u64
}

/// The lock whose grants are numbered, in the slot of the numbers.
pub(crate) const FENCED: &str = "lock:{fences}";
pub(crate) const LOCKS: &[&str] = &["lock:one", "lock:two", "lock:three", FENCED];
pub(crate) const FENCES: &str = "fences";
/// Threads of a process; the first one only reads holders.
const CLIENTS: usize = 4;

pub(crate) const ACQUIRE: &str = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
     return redis.call('incr', KEYS[2]) else return 0 end";
pub(crate) const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
pub(crate) const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('del', KEYS[1]) else return 0 end";

/// How clients log in to a server that is attacked: from another address than those who guess passwords.
const HONEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub(crate) const HONEST_USER: &str = "honest";
pub(crate) const HONEST_PASSWORD: &str = "honest-password";

/// How often a client that waits looks whether its connection is open.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long half of the clients wait for a server that MOVED has named. Another one may have its locks by then; those who
/// go on waiting hear what it answers in the end.
const MOVED_PATIENCE: Duration = Duration::from_millis(300);
/// From a lost connection to the next call.
pub(super) const RECONNECT: Duration = Duration::from_millis(2);
/// How long a native request waits at most.
const WAIT_MS_MAX: usize = 60;

const ROLE: &str = "REDLATCH_MUTEX_ROLE";
const NATIVE: &str = "REDLATCH_MUTEX_NATIVE";
const KILLED: &str = "REDLATCH_MUTEX_KILLED";
const TOLD: &str = "REDLATCH_MUTEX_TOLD";
const ATTACKED: &str = "REDLATCH_MUTEX_ATTACKED";
const SERVER: &str = "REDLATCH_MUTEX_SERVER";
const HISTORY: &str = "REDLATCH_MUTEX_HISTORY";
const SEED: &str = "REDLATCH_MUTEX_SEED";
const MILLIS: &str = "REDLATCH_MUTEX_MILLIS";
