//! Listeners: binding addresses, accepting connections, rejecting those that cannot be served.
//!
//! Rule    a port is bound exclusively, so that a second server on it fails.

use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings;
use redlatch_platform::ports;
use redlatch_platform::unix_socket::{SocketFile, UnixListener, UnixStream, blocking};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::connection::Connection;
use super::context::ServerContext;
use super::introduced::Introduced;
use super::spare_descriptor::{SpareDescriptor, is_peer_error};
use super::tls::Tls;
use super::worker::Workers;

/// Connections that may wait to be accepted; Redis' `tcp-backlog` is 511.
pub(super) const BACKLOG: i32 = 1024;

/// A TCP socket that listens on `address`; port 0 takes a free one.
///
/// # Errors
/// The address does not belong to this machine, or the port is in use.
pub(super) fn tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    ports::allow_restart(&socket)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// A socket that accepts connections.
pub(super) enum Listener {
    /// `is_inherited`: another program has opened it, and may go on with it.
    Tcp {
        socket: TcpListener,
        tls: Option<Arc<Tls>>,
        is_inherited: bool,
    },
    Unix(UnixListener, SocketFile),
}

/// A connection that was accepted and is not registered with a runtime yet.
pub(super) enum Accepted {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(blocking::UnixStream),
}

impl Listener {
    /// Accepts connections in a task of the current runtime until the server ends.
    pub(super) fn spawn(self, context: &ServerContext, workers: &Arc<Workers>, open: &Open) {
        let (context, workers, open) = (context.clone(), Arc::clone(workers), open.clone());
        Handle::current().spawn(async move {
            self.run(context, workers).await;
            drop(open);
        });
    }

    /// Accepts connections until the server ends. Then the file of a Unix socket is removed.
    async fn run(self, context: ServerContext, workers: Arc<Workers>) {
        let mut spare = SpareDescriptor::new();
        loop {
            let accepted = tokio::select! {
                () = context.stopped() => return,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => {
                    spare.accept_succeeded();
                    self.admit(accepted, &context, &workers);
                }
                Err(error) if is_peer_error(&error) => tokio::task::yield_now().await,
                Err(error) => self.cannot_accept(&error, &mut spare, &context).await,
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        Ok(match self {
            Self::Tcp { socket, .. } => {
                let (stream, peer) = socket.accept().await?;
                Accepted::Tcp(stream.into_std()?, peer)
            }
            Self::Unix(listener, _) => Accepted::Unix(listener.accept().await?.0.into_std()?),
        })
    }

    /// Opens the connection on a worker, unless it is denied or there are too many.
    fn admit(&self, accepted: Accepted, context: &ServerContext, workers: &Workers) {
        if accepted.is_denied(context) {
            context.reject("protected mode is on and there is no password");
            return self.refuse(accepted, PROTECTED);
        }
        let permit = context.connection_permit(accepted.is_local());
        let Some(permit) = permit else { return self.refuse(accepted, FULL) };
        match accepted {
            Accepted::Tcp(stream, peer) => {
                let local = stream.local_addr().map_or_else(|_| String::new(), |local| local.to_string());
                let seconds = context.engine.shared().settings.get(settings::TCP_KEEPALIVE);
                set_options(&SockRef::from(&stream), seconds);
                let session = || enter(context, peer.to_string(), local, false);
                match self {
                    Self::Tcp { tls: Some(tls), .. } => workers.spawn(|| {
                        let stream = tls.accept(Introduced::new(TcpStream::from_std(stream)?, context));
                        Ok(Connection::new(stream, context.clone(), session(), permit))
                    }),
                    _ => workers.spawn(|| {
                        let stream = Introduced::new(TcpStream::from_std(stream)?, context);
                        Ok(Connection::new(stream, context.clone(), session(), permit))
                    }),
                }
            }
            Accepted::Unix(stream) => workers.spawn(|| {
                let stream = UnixStream::from_std(stream)?;
                let session = enter(context, self.address(), self.address(), true);
                Ok(Connection::new(stream, context.clone(), session, permit))
            }),
        }
    }

    /// The address of both ends of a connection through a Unix socket, as in Redis.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Unix(_, file) => format!("{}:0", file.path().display()),
            Self::Tcp { .. } => String::new(),
        }
    }

    /// Sends the reason to a rejected peer, except on a TLS port, where that would take a handshake.
    fn refuse(&self, accepted: Accepted, why: &str) {
        if !matches!(self, Self::Tcp { tls: Some(_), .. }) {
            accepted.refuse(why);
        }
    }

    /// Handles a failed accept: rejects the next connection in the backlog, if the spare descriptor allows it.
    async fn cannot_accept(&self, error: &io::Error, spare: &mut SpareDescriptor, context: &ServerContext) {
        context.reject("the process is out of descriptors or memory");
        let mut has_rejected = false;
        if spare.release(error) {
            // The peer may be gone by now: accepting is polled once.
            tokio::select! {
                biased;
                Ok(accepted) = self.accept() => {
                    self.refuse(accepted, FULL);
                    has_rejected = true;
                }
                () = std::future::ready(()) => {}
            }
        }
        tracing::debug!(%error, has_rejected, "accept failed");
        spare.recover(has_rejected).await;
    }
}

/// Frees the port at once. A process that this one starts has a copy of the socket until its own program runs: if the socket
/// were merely closed, it would listen until then.
impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Tcp { socket, is_inherited: false, .. } = self {
            // Linux alone does this to a socket that listens; elsewhere the port is free when the copy is gone.
            drop(SockRef::from(&*socket).shutdown(Shutdown::Both));
        }
    }
}

/// Held for a listener until its socket is closed.
#[derive(Clone, Debug)]
pub(super) struct Open {
    #[allow(dead_code, reason = "it is dropped, and nothing else")]
    open: Sender<()>,
    /// Whether somebody has a handle of the server; without a sender nobody has.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "HTTP alone asks for it"))]
    pub(super) has_handle: watch::Receiver<bool>,
}

/// The end of all listeners of a server.
#[derive(Debug)]
pub(super) struct Closed {
    closed: Mutex<Receiver<()>>,
    has_handle: watch::Sender<bool>,
}

/// A token for listeners, and what waits until its last copy is gone.
pub(super) fn tracked() -> (Open, Closed) {
    let (open, closed) = channel();
    let (gone, has_handle) = watch::channel(true);
    (Open { open, has_handle }, Closed { closed: Mutex::new(closed), has_handle: gone })
}

impl Closed {
    /// Waits until all sockets are closed. Not for the thread that drives the listeners.
    pub(super) fn wait(&self) {
        self.has_handle.send_replace(false);
        // Nobody sends: an error says that nobody is left who could.
        while self.closed.lock().recv().is_ok() {}
    }
}

impl Accepted {
    /// Sends the reason to a rejected peer and closes its connection. A new socket takes a short text without blocking.
    /// Errors are ignored, because the peer may be gone.
    pub(super) fn refuse(self, why: &str) {
        let _ = match self {
            Self::Tcp(mut stream, _) => stream.write_all(why.as_bytes()),
            Self::Unix(mut stream) => stream.write_all(why.as_bytes()),
        };
    }

    /// Whether the peer is on this machine.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(_, peer) => peer.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Whether protected mode denies this peer: the peer is on another machine, and no password is set.
    pub(super) fn is_denied(&self, context: &ServerContext) -> bool {
        let shared = context.engine.shared();
        !self.is_local()
            && shared.settings.get(settings::PROTECTED_MODE)
            && shared.access.acl.default_account().user().needs_none()
    }
}

/// Redis' reply where `maxclients` connections are open.
pub(super) const FULL: &str = "-ERR max number of clients reached\r\n";

/// Redis 7.0's reply in protected mode, which operators search for.
pub(super) const PROTECTED: &str = "\
-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default \
user. In this mode connections are only accepted from the loopback interface. If you want to connect from external \
computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode sending the command \
'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host the server is \
running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG REWRITE to make \
this change permanent. 2) Alternatively you can just disable the protected mode by editing the Redis configuration \
file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started the server \
manually just for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication password for \
the default user. NOTE: You only need to do one of the above things in order for the server to start accepting \
connections from the outside.\r\n";

/// Unanswered keepalive probes after which a peer counts as gone, as in Redis.
const PROBES: u32 = 3;

/// Sets TCP_NODELAY, so that small replies leave at once, and keepalive, so that a vanished peer is noticed. Errors
/// are ignored, because a connection works without these options.
pub(super) fn set_options(socket: &SockRef<'_>, keepalive_seconds: u64) {
    let _ = socket.set_tcp_nodelay(true);
    if keepalive_seconds > 0 {
        let time = Duration::from_secs(keepalive_seconds);
        let interval = Duration::from_secs((keepalive_seconds / 3).max(1));
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(PROBES);
        let _ = socket.set_tcp_keepalive(&keepalive);
    }
}

/// Registers the client of a new connection. From now on a step of a manual clock waits for it.
pub(super) fn enter(context: &ServerContext, peer: String, local: String, is_unix: bool) -> Session {
    let shared = context.engine.shared();
    let since = context.clock().now().lock;
    let client = Client::new(shared.registries.clients.next_id(), peer, local, is_unix, since);
    let session = context.engine.connect(client);
    if context.has_stopped() {
        // `ServerContext::stop` may have missed this client.
        session.client.close();
    }
    session
}

/// The addresses in the setting `bind`. A leading `-` marks an address that may be missing.
pub(super) fn addresses(bind: &str) -> Result<Vec<(IpAddr, bool)>, String> {
    bind.split_whitespace()
        .map(|word| {
            let (word, may_be_missing) = word.strip_prefix('-').map_or((word, false), |word| (word, true));
            let ip: IpAddr = match word {
                "*" => IpAddr::from([0, 0, 0, 0]),
                "::*" => IpAddr::from([0_u16; 8]),
                "localhost" => IpAddr::from([127, 0, 0, 1]),
                word => word
                    .parse()
                    .map_err(|_| format!("bind '{word}': must be IP addresses separated by spaces"))?,
            };
            Ok((ip, may_be_missing))
        })
        .collect()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;
    use crate::Server;

    fn server(seconds: &str) -> Server {
        Server::builder().set("tcp-keepalive", seconds).start_blocking().unwrap()
    }

    #[test]
    fn a_connection_is_probed_as_often_as_the_setting_says() {
        for (setting, time, interval) in [("300", 300, 100), ("7", 7, 2), ("1", 1, 1)] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            set_options(&SockRef::from(&stream), setting.parse().unwrap());
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), time);
            assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), interval);
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        }
    }

    /// Whether the system has a keepalive timer on the server's end of a connection.
    fn is_probed(server: &Server) -> bool {
        let address = server.addr();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
        let end = |address: SocketAddr| format!("0100007F:{:04X}", address.port());
        let ends = format!(" {} {} 01 ", end(address), end(stream.local_addr().unwrap()));
        let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let line = all.lines().find(|line| line.contains(&ends)).unwrap();
        // Local and remote end, state, queues, then the timer: 02 is the keepalive timer.
        let timer = line.split_whitespace().nth(5).unwrap();
        timer.starts_with("02:")
    }

    #[test]
    fn an_accepted_connection_is_probed_unless_the_setting_is_zero() {
        assert!(is_probed(&server("300")));
        assert!(!is_probed(&server("0")));
    }

    /// What a process that begins to start has of a listener, kept after the listener is dropped.
    fn copy_of_dropped(is_inherited: bool) -> TcpListener {
        let socket = tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let copy = TcpListener::from_std(socket.try_clone().unwrap()).unwrap();
        let socket = TcpListener::from_std(socket).unwrap();
        drop(Listener::Tcp { socket, tls: None, is_inherited });
        copy
    }

    #[tokio::test]
    async fn a_port_is_free_at_once_though_a_process_that_starts_has_a_copy_of_its_socket() {
        let copy = copy_of_dropped(false);
        let address = copy.local_addr().unwrap();
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let next = tcp(address).unwrap();
        assert!(TcpStream::connect(address).is_ok());
        drop((next, copy));
    }

    #[tokio::test]
    async fn a_socket_of_another_program_listens_after_the_server() {
        let copy = copy_of_dropped(true);
        let _client = TcpStream::connect(copy.local_addr().unwrap()).unwrap();
        copy.accept().await.unwrap();
    }
}
