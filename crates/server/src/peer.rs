//! The streams that a connection reads and writes.

use std::time::Duration;

use redlatch_platform::unix_socket::UnixStream;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;

/// A stream of bytes to and from a client.
pub(super) trait Peer: AsyncRead + AsyncWrite + Unpin {
    /// Lets the close of the stream be a TCP reset, if it is a TCP connection.
    fn reset_when_closed(&self) {}

    /// The address of the client, if another node has passed it on. `Some` once, before the first byte of the client.
    fn take_client(&mut self) -> Option<String> {
        None
    }

    /// The names of users under which the client may log in without a password, those in its certificate. `Some` once,
    /// after the handshake.
    fn take_names(&mut self) -> Option<Vec<Vec<u8>>> {
        None
    }
}

impl Peer for TcpStream {
    fn reset_when_closed(&self) {
        // A socket that lingers for no time at all is reset. An error leaves an ordinary close.
        let _ = SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

impl Peer for UnixStream {}

impl Peer for DuplexStream {}
