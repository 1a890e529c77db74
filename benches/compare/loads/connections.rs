//! Many connections of one thread, on each of which answers may arrive at any time.
//!
//! Owns    the connections, and the answers that have arrived and were not asked for yet.
//! Rule    a connection is read when its answer is asked for, not with all others that are ready. So a client is not delayed
//!         by the reading of the others.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::servers::{REPLY_TIMEOUT, Running};
use crate::wire::{self, Answer, Template};

/// Connections to one server, by number.
pub(super) struct Connections {
    poll: Poll,
    events: Events,
    streams: Vec<(TcpStream, Vec<u8>)>,
    /// Connections to read.
    readable: VecDeque<usize>,
    /// Answers that have been read.
    received: VecDeque<(usize, Answer)>,
}

/// More than the answers that are under way to one client.
const READ_BYTES: usize = 4096;

impl Connections {
    /// Opens this many connections.
    pub(super) fn new(running: &Running, count: usize) -> io::Result<Self> {
        let (poll, mut streams) = (Poll::new()?, Vec::with_capacity(count));
        for index in 0..count {
            let stream = running.connect()?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
            streams.push((stream, Vec::new()));
        }
        let (events, readable, received) = (Events::with_capacity(count), VecDeque::new(), VecDeque::new());
        Ok(Self { poll, events, streams, readable, received })
    }

    /// Sends requests in one packet, small enough for an empty socket buffer. [`wire::KEY`] in them is the key of the
    /// connection's number.
    pub(super) fn send(&mut self, connection: usize, requests: &[&[&str]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        requests.iter().for_each(|words| Template::new(words).write(connection as u64, &mut bytes));
        self.streams[connection].0.write_all(&bytes)
    }

    /// The next answer, and its connection.
    pub(super) fn receive(&mut self) -> io::Result<(usize, Answer)> {
        let answer = self.receive_within(REPLY_TIMEOUT)?;
        answer.ok_or_else(|| io::Error::other("the server has stopped answering"))
    }

    /// An answer that has arrived already, and its connection.
    pub(super) fn pending(&mut self) -> io::Result<Option<(usize, Answer)>> {
        self.receive_within(Duration::ZERO)
    }

    /// Sends a request whose answer is the next to arrive.
    pub(super) fn expect(&mut self, connection: usize, words: &[&str], wanted: Answer) -> io::Result<()> {
        self.send(connection, &[words])?;
        match self.receive()? {
            answer if answer == (connection, wanted) => Ok(()),
            (by, answer) => {
                let asked = words[0];
                Err(io::Error::other(format!(
                    "{answer:?} on connection {by} instead of {wanted:?} to {asked}"
                )))
            }
        }
    }

    fn receive_within(&mut self, timeout: Duration) -> io::Result<Option<(usize, Answer)>> {
        loop {
            if let Some(answer) = self.received.pop_front() {
                return Ok(Some(answer));
            }
            if let Some(connection) = self.readable.pop_front() {
                self.read(connection)?;
                continue;
            }
            self.poll.poll(&mut self.events, Some(timeout))?;
            if self.events.is_empty() {
                return Ok(None);
            }
            self.readable.extend(self.events.iter().map(|event| event.token().0));
        }
    }

    /// Reads what has arrived on a connection.
    fn read(&mut self, connection: usize) -> io::Result<()> {
        let ((stream, input), mut piece) = (&mut self.streams[connection], [0; READ_BYTES]);
        loop {
            let count = match stream.read(&mut piece) {
                Ok(0) => return Err(io::Error::other("the server has closed a connection")),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            input.extend_from_slice(&piece[..count]);
            while let Some((answer, length)) = wire::answer(input)? {
                input.drain(..length);
                self.received.push_back((connection, answer));
            }
            // A short read means that the socket is empty; the next event reports more.
            if count < piece.len() {
                return Ok(());
            }
        }
    }
}
