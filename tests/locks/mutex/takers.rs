//! A process of one taker: again and again it takes any one of ten keys, holds it for a moment, and gives it back.
//!
//! Owns    the behaviour of the taker, and its history: a call for each key of a request, of which at most one is granted.
//! Rule    each take has an owner of its own, and is sent again until it is answered. A naive taker does what programs do
//!         without ANY: SET NX on one key after the other, and a release that compares nothing.
//! Time    real: takers pause, and stall past their leases.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use super::client::{Orders, RECONNECT, Role, is_closed, now_ns};
use super::history::{Answer, Ask, got, sent};
use crate::support::rng::Rng;
use crate::support::waits::{PATIENCE, wait_until};
use crate::support::wire::Link;

/// Waits until each key can be taken again: none is lost, whatever has become of those who took it.
pub(crate) fn take_each_key_again(server: SocketAddr) {
    for key in KEYS {
        let request = ["LOCK.ACQUIRE", key, "the last one", "WAIT", "1000"];
        let take = || Link::to(server)?.ask(&request);
        wait_until(key, || matches!(take(), Ok(OwnedFrame::Array(_))));
    }
}

pub(super) struct Taker<'o> {
    orders: &'o Orders,
    link: Option<Link>,
    rng: Rng,
    book: File,
    calls: u64,
}

impl<'o> Taker<'o> {
    /// # Errors
    /// A history that cannot be written.
    pub(super) fn new(orders: &'o Orders) -> io::Result<Self> {
        let book = OpenOptions::new().create(true).append(true).open(&orders.history)?;
        Ok(Self { orders, link: None, rng: Rng::new(orders.seed), book, calls: 0 })
    }

    /// Takes keys until the time is over, and until the last take is answered.
    ///
    /// # Errors
    /// A take that is not answered, or not with a key.
    pub(super) fn carry_out(mut self) -> io::Result<()> {
        let end = Instant::now() + self.orders.lasts;
        while Instant::now() < end {
            if self.rng.one_in(4) {
                self.look()?;
            }
            let lease_ms_max = self.rng.pick(LEASES_MS_MAX);
            let lease_ms = 1 + self.rng.below_u64(lease_ms_max);
            let until = Instant::now() + Duration::from_millis(lease_ms);
            let is_naive = self.orders.role == Role::NaiveTakers;
            let taken = if is_naive { self.try_next(lease_ms)? } else { Some(self.take(lease_ms)?) };
            if let Some((key, owner)) = taken {
                self.hold(key, &owner, until)?;
            }
        }
        Ok(())
    }

    fn hold(&mut self, key: &'static str, owner: &str, until: Instant) -> io::Result<()> {
        match self.rng.below(16) {
            // It crashes: the key stays held until its lease ends.
            0 => return Ok(()),
            // It stalls past its lease, and then still believes that it holds the key.
            1 => sleep(until.saturating_duration_since(Instant::now()) + self.below_ms(20)),
            _ => sleep(self.below_ms(4)),
        }
        let call = self.announce(&[key], Ask::Release, owner)?;
        let (native, naive) = (["LOCK.RELEASE", key, owner], ["DEL", key]);
        let words = if self.orders.role == Role::NaiveTakers { &naive[..] } else { &native };
        match self.ask_once(words)? {
            Some(OwnedFrame::Integer(1)) => self.note(call, &Answer::Yes),
            Some(OwnedFrame::Integer(0)) => self.note(call, &Answer::No),
            Some(other) => Err(unexpected(words, &other)),
            None => Ok(()),
        }
    }

    /// Takes any of the keys, beginning with another one each time. Without an answer it asks again, under the same owner.
    fn take(&mut self, lease_ms: u64) -> io::Result<(&'static str, String)> {
        let mut keys = KEYS;
        keys.rotate_left(self.rng.below(KEYS.len()));
        let owner = self.owner();
        let first = self.announce(&keys, Ask::Acquire(lease_ms), &owner)?;
        let (count, lease) = (KEYS.len().to_string(), lease_ms.to_string());
        let options = [&owner[..], "ANY", "1", "LEASE", &lease, "WAIT", WAIT_MS];
        let words = [&["LOCK.MACQUIRE", &count][..], &keys, &options].concat();

        let (frame, is_repeated) = self.ask(&words)?;

        let (name, fence, waited_ms) = granted(&frame).ok_or_else(|| unexpected(&words, &frame))?;
        let at = keys.iter().position(|key| *key == name).ok_or_else(|| unexpected(&words, &frame))?;
        // An earlier request, whose reply was lost, may have been granted this key before, or another one.
        if is_repeated {
            self.note(first + at as u64, &Answer::YesWithFence(fence))?;
        } else {
            let granted = Answer::YesAfter { fence, waited_ms };
            let answers = (0..keys.len()).map(|key| if key == at { granted.clone() } else { Answer::No });
            (first..).zip(answers).try_for_each(|(call, answer)| self.note(call, &answer))?;
        }
        Ok((keys[at], owner))
    }

    /// Tries one of the keys as a naive taker does. If there is no reply, it goes on with another key.
    fn try_next(&mut self, lease_ms: u64) -> io::Result<Option<(&'static str, String)>> {
        let (key, owner, lease) = (self.rng.pick(&KEYS), self.owner(), lease_ms.to_string());
        let call = self.announce(&[key], Ask::Acquire(lease_ms), &owner)?;
        let words = ["SET", key, &owner, "NX", "PX", &lease];
        match self.ask_once(&words)? {
            Some(OwnedFrame::SimpleString(_)) => self.note(call, &Answer::Yes)?,
            Some(OwnedFrame::Null) => {
                self.note(call, &Answer::No)?;
                sleep(self.below_ms(20));
                return Ok(None);
            }
            Some(other) => return Err(unexpected(&words, &other)),
            None => return Ok(None),
        }
        Ok(Some((key, owner)))
    }

    /// Reads the holder of a key.
    fn look(&mut self) -> io::Result<()> {
        let key = self.rng.pick(&KEYS);
        let call = self.announce(&[key], Ask::Look, "-")?;
        match self.ask_once(&["GET", key])? {
            Some(OwnedFrame::Null) => self.note(call, &Answer::Nobody),
            Some(frame) => {
                let owner = frame.as_str().ok_or_else(|| unexpected(&["GET", key], &frame))?;
                self.note(call, &Answer::Holder(owner.to_owned()))
            }
            None => Ok(()),
        }
    }

    /// Asks until there is an answer. Returns it, and whether the request was sent more than once.
    fn ask(&mut self, words: &[&str]) -> io::Result<(OwnedFrame, bool)> {
        let (begun, mut is_repeated) = (Instant::now(), false);
        loop {
            if let Some(frame) = self.ask_once(words)? {
                return Ok((frame, is_repeated));
            }
            is_repeated = true;
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::new(ErrorKind::TimedOut, "a take is not answered"));
            }
        }
    }

    /// `None`: the connection has ended before the answer, by a kill of the server or by this client.
    fn ask_once(&mut self, words: &[&str]) -> io::Result<Option<OwnedFrame>> {
        let is_cut = self.rng.one_in(30);
        let mut ask = || {
            let mut link = self.link.take().map_or_else(|| Link::to(self.orders.server), Ok)?;
            if is_cut {
                return link.ask_and_cut(words).map(|()| None);
            }
            let frame = link.ask(words)?;
            self.link = Some(link);
            Ok(Some(frame))
        };
        match ask() {
            Err(error) if is_closed(&error) || error.kind() == ErrorKind::ConnectionRefused => {
                sleep(RECONNECT);
                Ok(None)
            }
            // Of several nodes, none leads at present.
            Ok(Some(OwnedFrame::Error(text))) if text.starts_with("MASTERDOWN ") => {
                self.link = None;
                Ok(None)
            }
            answer => answer,
        }
    }

    fn owner(&self) -> String {
        format!("{}-{}", std::process::id(), self.calls)
    }

    fn below_ms(&mut self, limit: u64) -> Duration {
        Duration::from_micros(self.rng.below_u64(limit * 1_000))
    }

    /// Records that a call is about to be sent for each of the keys; returns the number of the first call.
    fn announce(&mut self, keys: &[&str], ask: Ask, owner: &str) -> io::Result<u64> {
        let (first, now_ns) = (self.calls, now_ns());
        self.calls += keys.len() as u64;
        let lines = (first..).zip(keys).map(|(call, key)| sent(&id(call), now_ns, key, ask, owner));
        self.book.write_all(lines.collect::<String>().as_bytes())?;
        Ok(first)
    }

    fn note(&mut self, call: u64, answer: &Answer) -> io::Result<()> {
        self.book.write_all(got(&id(call), now_ns(), answer).as_bytes())
    }
}

/// The id of a call in the history of this process.
fn id(call: u64) -> String {
    call.to_string()
}

fn unexpected(words: &[&str], answer: &OwnedFrame) -> io::Error {
    io::Error::other(format!("{words:?} was answered {answer:?}"))
}

/// The key in the reply of LOCK.MACQUIRE, its token, and the milliseconds of the wait.
fn granted(frame: &OwnedFrame) -> Option<(&str, u64, u64)> {
    let OwnedFrame::Array(fields) = frame else { return None };
    let [_, OwnedFrame::Array(locks), _, _, _, OwnedFrame::Integer(waited_ms)] = &fields[..] else {
        return None;
    };
    let [key, OwnedFrame::Integer(fence)] = &locks[..] else { return None };
    Some((key.as_str()?, (*fence).try_into().ok()?, (*waited_ms).try_into().ok()?))
}

const KEYS: [&str; 10] =
    ["port:0", "port:1", "port:2", "port:3", "port:4", "port:5", "port:6", "port:7", "port:8", "port:9"];
/// Most are short, so that keys come back soon. Some are longer than another node takes to take over.
const LEASES_MS_MAX: &[u64] = &[40, 40, 40, 40, 400, 400, 400, 4_000];
/// Longer than any taker waits for its turn.
const WAIT_MS: &str = "50000";
