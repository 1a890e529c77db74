//! Listening sockets that another program has opened and handed over.

use std::net::TcpListener;

use redlatch_platform::unix_socket::blocking::UnixListener;

/// Sockets to use instead of binding addresses. They do not block.
#[derive(Debug, Default)]
pub struct Inherited {
    /// For connections without TLS. With one of these or of `unix`, neither `port` nor `unixsocket` is bound.
    pub tcp: Vec<TcpListener>,
    /// For connections with TLS. With one of these, `tls-port` is not bound.
    pub tls: Vec<TcpListener>,
    /// For HTTP. With one of these, `http-port` is not bound.
    pub http: Vec<TcpListener>,
    /// Like `tcp`, as Unix sockets. Their files are left to the program that made them.
    pub unix: Vec<UnixListener>,
}

impl Inherited {
    /// Whether there is a socket for clients of locks.
    pub fn is_any(&self) -> bool {
        self.replaces_port() || !self.tls.is_empty()
    }

    /// Whether `port` and `unixsocket` are not to be bound.
    pub fn replaces_port(&self) -> bool {
        !self.tcp.is_empty() || !self.unix.is_empty()
    }
}
