//! The load generator: one thread, many connections, each of which sends a wave of requests and awaits them.
//!
//! Owns    the connections and their buffers; every answer is looked at, and a wrong one ends the run.
//! Rule    a closed loop: a connection's next wave begins after the last reply of its wave.

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
    /// The steps for one key, in order.
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

pub(crate) struct Generator {
    poll: Poll,
    events: Events,
    lanes: Vec<Lane>,
    /// Whether every answer is `+OK`, as that of a server without a store.
    is_deaf: bool,
}

struct Lane {
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
        let poll = Poll::new()?;
        let mut lanes = Vec::with_capacity(connections);
        for index in 0..connections {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port));
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
            lanes.push(Lane::new(stream));
        }
        Ok(Self { poll, events: Events::with_capacity(connections.max(1)), lanes, is_deaf })
    }

    /// Does the work; the server must have no other clients during the run.
    pub(crate) fn run(&mut self, server: &Running, work: &Work<'_>) -> io::Result<Run> {
        let waves = work.keys.div_ceil(work.depth as u64);
        let cpu_before = server.cpu_time()?;
        let begun = Instant::now();
        let mut turn = Turn { work, waves, next: 0, done: 0, is_deaf: self.is_deaf, latency: nanoseconds()? };
        for lane in &mut self.lanes {
            turn.begin(lane)?;
        }
        while turn.done < waves {
            self.poll.poll(&mut self.events, Some(REPLY_TIMEOUT))?;
            if self.events.is_empty() {
                return Err(io::Error::other("the server has stopped answering"));
            }
            for event in &self.events {
                turn.advance(&mut self.lanes[event.token().0])?;
            }
        }
        let wall = begun.elapsed();
        // The server's work after its last reply belongs to the run, too.
        crate::machine::rest(SETTLING);
        let cpu = server.cpu_time()? - cpu_before;
        Ok(Run { requests: waves * (work.depth * work.steps.len()) as u64, wall, cpu, latency: turn.latency })
    }
}

impl Lane {
    fn new(stream: TcpStream) -> Self {
        Self {
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
    waves: u64,
    /// The first wave that no lane has taken.
    next: u64,
    /// Waves of which all steps are done.
    done: u64,
    is_deaf: bool,
    latency: Histogram<u64>,
}

impl Turn<'_> {
    /// Gives the lane its next keys, if any are left.
    fn begin(&mut self, lane: &mut Lane) -> io::Result<()> {
        lane.awaited = 0;
        if self.next == self.waves {
            return Ok(());
        }
        (lane.wave, lane.step, lane.begun) = (self.next, 0, Instant::now());
        self.next += 1;
        self.send(lane)
    }

    fn send(&self, lane: &mut Lane) -> io::Result<()> {
        lane.output.clear();
        lane.sent = 0;
        let first = self.work.first + lane.wave * self.work.depth as u64;
        for n in first..first + self.work.depth as u64 {
            self.work.steps[lane.step].request.write(n, &mut lane.output);
        }
        lane.awaited = self.work.depth * self.work.steps[lane.step].answers.len();
        lane.flush()
    }

    /// Writes pending output, and reads available input.
    fn advance(&mut self, lane: &mut Lane) -> io::Result<()> {
        lane.flush()?;
        loop {
            let room = lane.input.len() - lane.filled;
            match lane.stream.read(&mut lane.input[lane.filled..]) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(count) => {
                    lane.filled += count;
                    self.take(lane)?;
                    // A short read means that the socket is empty; the next event reports more.
                    if count < room {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, lane: &mut Lane) -> io::Result<()> {
        let mut at = 0;
        let wanted = &self.work.steps[lane.step].answers;
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
            return Ok(());
        }
        lane.step += 1;
        if lane.step < self.work.steps.len() {
            return self.send(lane);
        }
        record(&mut self.latency, lane.begun);
        self.done += 1;
        self.begin(lane)
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
