//! The load generator: one thread, many connections, each of which sends a wave of requests and awaits them.
//!
//! Owns    the connections and their buffers; every answer is looked at, and a wrong one ends the run.
//! Rule    a closed loop: a connection's next wave begins after the last reply of its wave. Only with a pace, waves begin at
//!         fixed times, as long as a connection is free.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::servers::{REPLY_TIMEOUT, Running};
use crate::wire::{self, Answer, Template};

/// One or more requests that are sent together, and their required replies.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) request: Template,
    pub(crate) answers: Vec<Answer>,
}

/// Work for all connections together: for each key, each step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    /// The steps for one key, in order; those of several groups one behind the other.
    pub(crate) steps: &'a [Step],
    /// The number of the first key.
    pub(crate) first: u64,
    /// The number of keys, each used once; rounded up to whole waves.
    pub(crate) keys: u64,
    pub(crate) depth: usize,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) requests: u64,
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// Nanoseconds from the first request of a wave's keys to the answer to their last.
    pub(crate) latency: Histogram<u64>,
}

impl Run {
    /// Both runs as one.
    pub(crate) fn and(mut self, next: &Self) -> io::Result<Self> {
        self.latency.add(&next.latency).map_err(io::Error::other)?;
        let (requests, wall) = (self.requests + next.requests, self.wall + next.wall);
        Ok(Self { requests, wall, cpu: self.cpu + next.cpu, ..self })
    }
}

pub(crate) struct Generator {
    poll: Poll,
    events: Events,
    lanes: Vec<Lane>,
    /// Whether every answer is `+OK`, as that of a server without a store.
    is_deaf: bool,
    /// Groups of slots that the connections are shared out to.
    groups: usize,
    /// The time between the beginnings of two waves; zero: each begins when a connection is free.
    every: Duration,
}

struct Lane {
    /// Its group of slots.
    group: usize,
    stream: TcpStream,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// The filled length of `input`.
    filled: usize,
    /// Answers still to come in this wave.
    awaited: usize,
    step: usize,
    /// Which keys this lane is at, in units of waves.
    wave: u64,
    begun: Instant,
}

impl Generator {
    pub(crate) fn new(server: &Running, connections: usize, is_deaf: bool) -> io::Result<Self> {
        Ok(Self { is_deaf, ..Self::of_groups(server, connections, 1)? })
    }

    /// The first group is at the port of the server, and each further one at the next port.
    pub(crate) fn of_groups(server: &Running, connections: usize, groups: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut lanes = Vec::with_capacity(connections);
        for index in 0..connections {
            let group = index % groups;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port + group as u16));
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
            lanes.push(Lane::new(stream, group));
        }
        let events = Events::with_capacity(connections.max(1));
        Ok(Self { poll, events, lanes, is_deaf: false, groups, every: Duration::ZERO })
    }

    /// Begins waves at fixed times from now on, so many in a second, if a connection is free.
    pub(crate) fn paced(self, rate: f64) -> Self {
        Self { every: Duration::from_secs_f64(1.0 / rate), ..self }
    }

    /// Does the work; the server must have no other clients during the run.
    pub(crate) fn run(&mut self, server: &Running, work: &Work<'_>) -> io::Result<Run> {
        let waves = work.keys.div_ceil(work.depth as u64);
        let cpu_before = server.cpu_time()?;
        let begun = Instant::now();
        let mut turn = Turn {
            work,
            steps_each: work.steps.len() / self.groups,
            next: 0,
            done: 0,
            is_deaf: self.is_deaf,
            latency: nanoseconds()?,
        };
        let mut free: VecDeque<usize> = (0..self.lanes.len()).collect();
        let mut last = begun;
        while turn.done < waves {
            // Without a pace all that are free begin.
            let mut pause = REPLY_TIMEOUT;
            while let Some(at) = free.front().copied().filter(|_| turn.next < waves) {
                let due = self.every * u32::try_from(turn.next).map_err(io::Error::other)?;
                pause = due.saturating_sub(begun.elapsed());
                if !pause.is_zero() {
                    break;
                }
                pause = REPLY_TIMEOUT;
                free.pop_front();
                turn.begin(&mut self.lanes[at])?;
            }
            // A pause ends up to a millisecond late. What was due in it begins together.
            self.poll.poll(&mut self.events, Some(pause))?;
            if self.events.is_empty() && last.elapsed() > REPLY_TIMEOUT {
                return Err(io::Error::other("the server has stopped answering"));
            }
            for event in &self.events {
                last = Instant::now();
                let lane = &mut self.lanes[event.token().0];
                match turn.advance(lane)? {
                    true if self.every.is_zero() && turn.next < waves => turn.begin(lane)?,
                    true => free.push_back(event.token().0),
                    false => {}
                }
            }
        }
        let wall = begun.elapsed();
        // The server's work after its last reply belongs to the run, too.
        crate::machine::rest(SETTLING);
        let cpu = server.cpu_time()? - cpu_before;
        Ok(Run { requests: waves * (work.depth * turn.steps_each) as u64, wall, cpu, latency: turn.latency })
    }
}

impl Lane {
    fn new(stream: TcpStream, group: usize) -> Self {
        Self {
            group,
            stream,
            output: Vec::with_capacity(BUFFER_BYTES),
            sent: 0,
            input: vec![0; BUFFER_BYTES],
            filled: 0,
            awaited: 0,
            step: 0,
            wave: 0,
            begun: Instant::now(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

struct Turn<'a> {
    work: &'a Work<'a>,
    /// Steps of one group.
    steps_each: usize,
    /// The first wave that no lane has taken.
    next: u64,
    /// Waves of which all steps are done.
    done: u64,
    is_deaf: bool,
    latency: Histogram<u64>,
}

impl Turn<'_> {
    /// Gives the lane its next keys.
    fn begin(&mut self, lane: &mut Lane) -> io::Result<()> {
        (lane.wave, lane.step, lane.begun) = (self.next, 0, Instant::now());
        self.next += 1;
        self.send(lane)
    }

    /// What the lane is to send, and to be answered.
    fn step(&self, lane: &Lane) -> &Step {
        &self.work.steps[lane.group * self.steps_each + lane.step]
    }

    fn send(&self, lane: &mut Lane) -> io::Result<()> {
        lane.output.clear();
        lane.sent = 0;
        let first = self.work.first + lane.wave * self.work.depth as u64;
        for n in first..first + self.work.depth as u64 {
            self.step(lane).request.write(n, &mut lane.output);
        }
        lane.awaited = self.work.depth * self.step(lane).answers.len();
        lane.flush()
    }

    /// Writes pending output, and reads available input. Returns whether the wave has ended.
    fn advance(&mut self, lane: &mut Lane) -> io::Result<bool> {
        lane.flush()?;
        loop {
            let room = lane.input.len() - lane.filled;
            match lane.stream.read(&mut lane.input[lane.filled..]) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(count) => {
                    lane.filled += count;
                    // A short read means that the socket is empty; the next event reports more.
                    let has_ended = self.take(lane)?;
                    if has_ended || count < room {
                        return Ok(has_ended);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the answers that are there. Returns whether the wave has ended.
    fn take(&mut self, lane: &mut Lane) -> io::Result<bool> {
        let mut at = 0;
        let wanted = &self.step(lane).answers;
        while let Some((answer, length)) = wire::answer(&lane.input[at..lane.filled])? {
            let wanted = wanted[(wanted.len() - lane.awaited % wanted.len()) % wanted.len()];
            let is_right = if self.is_deaf { answer == Answer::Simple } else { answer == wanted };
            if !is_right || lane.awaited == 0 {
                let shown = lane.input[at..at + length].escape_ascii();
                return Err(io::Error::other(format!("answered {shown} instead of {wanted:?}")));
            }
            at += length;
            lane.awaited -= 1;
        }
        lane.input.copy_within(at..lane.filled, 0);
        lane.filled -= at;
        if lane.awaited > 0 {
            return Ok(false);
        }
        lane.step += 1;
        if lane.step < self.steps_each {
            self.send(lane)?;
            return Ok(false);
        }
        record(&mut self.latency, lane.begun);
        self.done += 1;
        Ok(true)
    }
}

/// A histogram of times in nanoseconds, to three digits.
pub(crate) fn nanoseconds() -> io::Result<Histogram<u64>> {
    Histogram::new_with_max(LATENCY_NS_MAX, 3).map_err(io::Error::other)
}

/// Adds the time from `begun` until now.
pub(crate) fn record(times: &mut Histogram<u64>, begun: Instant) {
    times.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

/// More than sixteen requests or answers of any load.
const BUFFER_BYTES: usize = 16 * 1024;
/// Latencies beyond count as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// A moment for a server to finish after its last answer.
const SETTLING: Duration = Duration::from_millis(2);
