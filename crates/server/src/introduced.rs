//! The stream of a client that may come through another node of the cluster, which passes the client's address on.
//!
//! Form    the node sends [`HELLO`], this one a challenge, and the node the client's address with a proof for the challenge.
//!         The bytes of the client follow, with TLS if it speaks that.
//! Rule    who says HELLO without a right proof is no node: the connection ends, and the log tells it. No client begins like
//!         that: no request and no TLS record begins with a zero.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redlatch_core::state::node_key::{ADDRESS_BYTES, NodeKey, PROOF_BYTES};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::context::ServerContext;
use super::peer::Peer;

/// What a node begins with.
pub(super) const HELLO: &[u8; 16] = b"\0redlatch node 1";
/// Bytes of a challenge. The first is zero, which no reply to a client begins with.
pub(super) const CHALLENGE_BYTES: usize = 32;
/// Bytes of the address and its proof.
pub(super) const INTRODUCTION_BYTES: usize = ADDRESS_BYTES + PROOF_BYTES;

const NO_NODE: &str = "a client's address was passed on without the key of the cluster";

/// A stream, and what is left of its beginning.
pub(super) struct Introduced<S> {
    stream: S,
    /// `None`: the bytes are those of a client.
    beginning: Option<Box<Beginning>>,
    /// The address of the client, until it is taken.
    client: Option<String>,
}

/// The beginning of a connection, until it is known whether a node has made it.
struct Beginning {
    context: ServerContext,
    key: NodeKey,
    challenge: [u8; CHALLENGE_BYTES],
    /// Bytes of the challenge that were sent.
    sent: usize,
    received: Vec<u8>,
    /// The client's own bytes are next: they are not those of a node.
    is_over: bool,
}

impl<S> Introduced<S> {
    /// A stream to a server, which knows nodes if it leads a cluster.
    pub(super) fn new(stream: S, context: &ServerContext) -> Self {
        let shared = context.engine.shared();
        let key = shared.cluster.as_ref().and_then(|cluster| cluster.node_key());
        let mut challenge = [0; CHALLENGE_BYTES];
        let key = key.filter(|_| shared.fill_secret(&mut challenge[1..]).is_ok());
        let beginning = key.map(|key| {
            let (context, received) = (context.clone(), Vec::new());
            Box::new(Beginning { context, key, challenge, sent: 0, received, is_over: false })
        });
        Self { stream, beginning, client: None }
    }
}

impl Beginning {
    /// Goes on with a connection that begins with a zero. Returns the address of the client.
    fn poll_client<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<String>> {
        while self.sent < CHALLENGE_BYTES {
            ready!(self.poll_fill(HELLO.len(), stream, cx))?;
            if self.is_over || self.received != HELLO {
                return Poll::Ready(Err(self.refuse()));
            }
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.challenge[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        ready!(self.poll_fill(HELLO.len() + INTRODUCTION_BYTES, stream, cx))?;
        let client = self.key.client(&self.challenge, &self.received[HELLO.len()..]);
        Poll::Ready(client.map(|client| client.to_string()).ok_or_else(|| self.refuse()))
    }

    /// Receives until there are so many bytes, and not more.
    fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        length: usize,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.received.len() < length {
            let mut room = [0; HELLO.len() + INTRODUCTION_BYTES];
            let mut room = ReadBuf::new(&mut room[self.received.len()..length]);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.received.extend_from_slice(room.filled());
        }
        Poll::Ready(Ok(()))
    }

    fn refuse(&self) -> io::Error {
        self.context.reject(NO_NODE);
        io::ErrorKind::PermissionDenied.into()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Introduced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, beginning, client } = &mut *self;
        while let Some(begun) = beginning {
            if begun.received.is_empty() {
                let before = to.filled().len();
                ready!(Pin::new(&mut *stream).poll_read(cx, to))?;
                let read = &to.filled()[before..];
                if read.first() != HELLO.first() {
                    *beginning = None;
                    return Poll::Ready(Ok(()));
                }
                begun.received.extend_from_slice(read);
                to.set_filled(before);
            }
            *client = Some(ready!(begun.poll_client(stream, cx))?);
            begun.received.clear();
            (begun.sent, begun.is_over) = (0, true);
        }
        Pin::new(stream).poll_read(cx, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Introduced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Peer> Peer for Introduced<S> {
    fn reset_when_closed(&self) {
        self.stream.reset_when_closed();
    }

    fn take_client(&mut self) -> Option<String> {
        self.client.take()
    }
}
