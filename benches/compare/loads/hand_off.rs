//! The time from the release of a lock to its next holder, with many waiting clients: in BLPOP, or subscribed to a channel.
//!
//! Owns    both ways to wait, with plain commands: a woken client takes the lock by SET NX.
//! Rule    the server's share is the wake-up time minus the round trip of a PING on the same connections.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::Instant;

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::Race;
use crate::generator::{nanoseconds, record};
use crate::options::Scale;
use crate::servers::{REPLY_TIMEOUT, Running, Server};
use crate::wire::{self, Answer, OWNER, Template};

/// Runs both ways on a fresh process in each round.
pub(super) fn run(race: &mut Race, name: &str) {
    race.rounds(name, race.options.scale.long_rounds, |server, options, results| {
        // A server without a store cannot block clients.
        if !server.row.has_store {
            return Ok(());
        }
        let ways: [(&str, Way); 2] = [("BLPOP", by_signal), ("pub/sub", by_channel)];
        for (way, hand_over) in ways {
            for (what, value) in turn(server, &options.scale, hand_over)? {
                results.add(name, &format!("{way}, {what}"), "us", server.row.name, value);
            }
        }
        Ok(())
    });
}

/// Hands the lock over `scale.hand_offs` times.
type Way = fn(&Running, &Scale) -> io::Result<Times>;

fn turn(server: &Server, scale: &Scale, way: Way) -> io::Result<Vec<(&'static str, f64)>> {
    let running = server.start()?;
    let before = running.cpu_time()?;
    let times = way(&running, scale)?;
    let cpu = (running.cpu_time()? - before).as_secs_f64() * 1e6 / scale.hand_offs as f64;
    let micros = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
    let share = micros(&times.woken, 0.5) - micros(&times.pinged, 0.5);
    Ok(vec![
        ("wake-up, p50", micros(&times.woken, 0.5)),
        ("wake-up, p99", micros(&times.woken, 0.99)),
        ("next holder, p50", micros(&times.held, 0.5)),
        ("server's share, p50", share.max(0.0)),
        ("CPU per hand-off", cpu),
    ])
}

/// Nanoseconds of each hand-off.
struct Times {
    /// A PING and its PONG, just before.
    pinged: Histogram<u64>,
    /// From the release to the first woken client.
    woken: Histogram<u64>,
    /// From the release to the next holder's OK.
    held: Histogram<u64>,
}

impl Times {
    fn new() -> io::Result<Self> {
        Ok(Self { pinged: nanoseconds()?, woken: nanoseconds()?, held: nanoseconds()? })
    }
}

const LOCK: &str = "lock:hand-off";
const SIGNAL: &str = "signal:hand-off";
const TAKE: &[&str] = &["SET", LOCK, OWNER, "NX", "PX", "300000"];
const RELEASE: &[&str] = &["DEL", LOCK];

fn by_signal(running: &Running, scale: &Scale) -> io::Result<Times> {
    const WAIT: &[&str] = &["BLPOP", SIGNAL, "0"];
    let (mut connections, mut times) = (Connections::new(running, scale.waiters + 1)?, Times::new()?);
    (1..=scale.waiters).try_for_each(|waiter| connections.send(waiter, &[WAIT]))?;
    let mut holder = 0;
    connections.expect(holder, TAKE, Answer::Simple)?;
    for _ in 0..scale.hand_offs {
        connections.ping(holder, &mut times.pinged)?;
        let begun = Instant::now();
        connections.send(holder, &[RELEASE, &["RPUSH", SIGNAL, "1"]])?;
        let (mut next, mut owed) = (None, 2);
        while next.is_none() || owed > 0 {
            match connections.receive()? {
                (by, Answer::Integer(_)) if by == holder => owed -= 1,
                (by, Answer::Array) => {
                    record(&mut times.woken, begun);
                    connections.send(by, &[TAKE])?;
                }
                (by, Answer::Simple) if next.is_none() => {
                    record(&mut times.held, begun);
                    next = Some(by);
                }
                (_, other) => return Err(unexpected(other)),
            }
        }
        connections.send(holder, &[WAIT])?;
        holder = next.unwrap_or(holder);
    }
    Ok(times)
}

fn by_channel(running: &Running, scale: &Scale) -> io::Result<Times> {
    let count = scale.waiters + 1;
    // Each client has one connection to subscribe and one for commands.
    let (mut connections, mut times) = (Connections::new(running, 2 * count)?, Times::new()?);
    (0..count).try_for_each(|ear| connections.expect(ear, &["SUBSCRIBE", SIGNAL], Answer::Array))?;
    let mut holder = count;
    connections.expect(holder, TAKE, Answer::Simple)?;
    for _ in 0..scale.hand_offs {
        connections.ping(holder, &mut times.pinged)?;
        let begun = Instant::now();
        connections.send(holder, &[RELEASE, &["PUBLISH", SIGNAL, "1"]])?;
        // Expected: two integers, a message per client, and a reply to each attempt of all but the old holder.
        let (mut next, mut heard, mut is_first) = (None, 0, true);
        while heard < 2 + count + (count - 1) {
            heard += 1;
            match connections.receive()? {
                (by, Answer::Integer(_)) if by == holder => {}
                (ear, Answer::Array) => {
                    if std::mem::take(&mut is_first) {
                        record(&mut times.woken, begun);
                    }
                    if ear + count != holder {
                        connections.send(ear + count, &[TAKE])?;
                    }
                }
                (by, Answer::Simple) if next.is_none() => {
                    record(&mut times.held, begun);
                    next = Some(by);
                }
                (_, Answer::Nil) => {}
                (_, other) => return Err(unexpected(other)),
            }
        }
        holder = next.ok_or_else(|| io::Error::other("no client got the lock"))?;
    }
    Ok(times)
}

fn unexpected(answer: Answer) -> io::Error {
    io::Error::other(format!("{answer:?} came instead of what the hand-off takes"))
}

/// Many connections, read together.
struct Connections {
    poll: Poll,
    events: Events,
    streams: Vec<(TcpStream, Vec<u8>)>,
    /// Replies that have arrived and not been returned.
    received: VecDeque<(usize, Answer)>,
}

impl Connections {
    fn new(running: &Running, count: usize) -> io::Result<Self> {
        let (poll, mut streams) = (Poll::new()?, Vec::with_capacity(count));
        for index in 0..count {
            let stream = running.connect()?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
            streams.push((stream, Vec::new()));
        }
        Ok(Self { poll, events: Events::with_capacity(count), streams, received: VecDeque::new() })
    }

    /// Sends requests in one packet, small enough for an empty socket buffer.
    fn send(&mut self, connection: usize, requests: &[&[&str]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        requests.iter().for_each(|words| Template::new(words).write(0, &mut bytes));
        self.streams[connection].0.write_all(&bytes)
    }

    /// The next reply, and its connection.
    fn receive(&mut self) -> io::Result<(usize, Answer)> {
        loop {
            if let Some(answer) = self.received.pop_front() {
                return Ok(answer);
            }
            self.poll.poll(&mut self.events, Some(REPLY_TIMEOUT))?;
            if self.events.is_empty() {
                return Err(io::Error::other("the server has stopped replying"));
            }
            for event in &self.events {
                let connection = event.token().0;
                let (stream, input) = &mut self.streams[connection];
                read_all(stream, input)?;
                while let Some((answer, length)) = wire::answer(input)? {
                    input.drain(..length);
                    self.received.push_back((connection, answer));
                }
            }
        }
    }

    fn expect(&mut self, connection: usize, words: &[&str], wanted: Answer) -> io::Result<()> {
        self.send(connection, &[words])?;
        let answer = self.receive()?;
        if answer == (connection, wanted) { Ok(()) } else { Err(unexpected(answer.1)) }
    }

    fn ping(&mut self, connection: usize, times: &mut Histogram<u64>) -> io::Result<()> {
        let begun = Instant::now();
        self.expect(connection, &["PING"], Answer::Simple)?;
        record(times, begun);
        Ok(())
    }
}

fn read_all(stream: &mut TcpStream, input: &mut Vec<u8>) -> io::Result<()> {
    match stream.read_to_end(input) {
        Ok(_) => Err(io::Error::other("the server has closed a connection")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}
