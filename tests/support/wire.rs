//! One connection to a server, in requests and answers, which can be cut as a failing network or client cuts it.
//!
//! Owns    the socket and the received bytes that have not been read as replies.
//! Knows   redis-protocol, whose codec serves both sides: the clients here, and the broken servers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};
use redis_protocol::resp2::{decode, encode};
use socket2::{Domain, Socket, Type};

use super::waits::PATIENCE;

pub(crate) struct Link {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Link {
    pub(crate) fn to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Self::over(stream)
    }

    /// Connects from this address of the machine.
    pub(crate) fn from(source: Ipv4Addr, address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        socket.connect(&address.into())?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Self::over(socket.into())
    }

    pub(crate) fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, bytes: Vec::new() })
    }

    /// Waits for an answer no longer than this.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).expect("a patience above zero");
    }

    /// Sends one request and waits for its answer.
    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<OwnedFrame> {
        self.send(words)?;
        self.next()
    }

    /// Sends the words of a line and waits for the answer.
    pub(crate) fn ask_line(&mut self, line: &str) -> io::Result<OwnedFrame> {
        self.ask(&line.split(' ').collect::<Vec<_>>())
    }

    /// Sends one request and resets the connection: whether it arrived is unknown.
    pub(crate) fn ask_and_cut(mut self, words: &[&str]) -> io::Result<()> {
        self.send(words)?;
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))
    }

    /// Closes the sending side; replies still arrive.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Sends one request; [`Link::next`] reads its reply.
    pub(crate) fn send(&mut self, words: &[&str]) -> io::Result<()> {
        self.write(&OwnedFrame::Array(bulks(words)))
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn write(&mut self, frame: &OwnedFrame) -> io::Result<()> {
        let mut bytes = vec![0; frame.encode_len(false)];
        encode::encode(&mut bytes, frame, false).map_err(io::Error::other)?;
        self.stream.write_all(&bytes)
    }

    /// The next frame, from whichever side.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other side has closed.
    pub(crate) fn next(&mut self) -> io::Result<OwnedFrame> {
        let mut chunk = [0; 4096];
        loop {
            if let Some((frame, taken)) = decode::decode(&self.bytes).map_err(io::Error::other)? {
                self.bytes.drain(..taken);
                return Ok(frame);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                // A read with a timeout is interrupted when the process was stopped and continued.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Words as they are sent.
pub(crate) fn bulks(words: &[&str]) -> Vec<OwnedFrame> {
    words.iter().map(|word| OwnedFrame::BulkString(word.as_bytes().to_vec())).collect()
}
