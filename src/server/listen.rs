//! Sockets: where connections come from.
//!
//! Rule    a port is bound exclusively, so that a second server on it fails.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;

use super::connection::Connection;
use super::house::House;
use super::tls::Tls;
use super::unix::SocketFile;
use crate::state::clients::Client;
use crate::state::session::Session;

/// Connections that may wait to be accepted; Redis' `tcp-backlog` is 511.
pub(super) const BACKLOG: i32 = 1024;

/// Runtimes that connections are dealt out to, one after the other.
#[derive(Debug)]
pub(super) struct Workers {
    handles: Vec<Handle>,
    next: AtomicUsize,
}

impl Workers {
    pub(super) fn new(handles: Vec<Handle>) -> Self {
        Self { handles, next: AtomicUsize::new(0) }
    }

    pub(super) fn next(&self) -> &Handle {
        &self.handles[self.next.fetch_add(1, Relaxed) % self.handles.len()]
    }
}

/// A TCP socket that listens on `address`; port 0 takes a free one.
///
/// # Errors
/// When the address is not ours or the port is in use.
pub(super) fn tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Lets a port be bound whose old connections linger; not one that somebody listens on.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Accepts TCP connections until the server ends.
pub(super) async fn accept_tcp(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    house: House,
    workers: Arc<Workers>,
) {
    loop {
        let accepted = tokio::select! {
            () = house.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Ok(stream) = stream.into_std() {
                    deal_tcp(stream, peer, tls.clone(), &house, &workers);
                }
            }
            Err(error) => rest(&error).await,
        }
    }
}

/// Accepts connections through a Unix socket until the server ends; then its file goes.
pub(super) async fn accept_unix(
    listener: UnixListener,
    file: SocketFile,
    house: House,
    workers: Arc<Workers>,
) {
    loop {
        let accepted = tokio::select! {
            () = house.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let Ok(stream) = stream.into_std() else { continue };
                let (house, name) = (house.clone(), file.path().display().to_string());
                workers.next().spawn(async move {
                    if let Ok(stream) = UnixStream::from_std(stream) {
                        serve(stream, house, format!("{name}:0"), format!("{name}:0"), true).await;
                    }
                });
            }
            Err(error) => rest(&error).await,
        }
    }
}

fn deal_tcp(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Tls>>,
    house: &House,
    workers: &Workers,
) {
    let (house, peer) = (house.clone(), peer.to_string());
    workers.next().spawn(async move {
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let local = stream.local_addr().map_or_else(|_| String::new(), |local| local.to_string());
        prepare(&stream, &house);
        match tls {
            None => serve(stream, house, peer, local, false).await,
            // Who is turned away here is turned away in silence: there is no handshake for the sake of a refusal.
            Some(tls) => {
                if let Some(session) = admit(&house, peer, local, false) {
                    Connection::new(tls.seal(stream), house, session).await;
                }
            }
        }
    });
}

/// Small answers leave at once, and a peer that vanished is noticed. Neither is worth losing a connection over.
fn prepare(stream: &TcpStream, house: &House) {
    let _ = stream.set_nodelay(true);
    let seconds = house.engine.shared().settings.integer("tcp-keepalive");
    if seconds > 0 {
        let time = Duration::from_secs(seconds as u64);
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(time / 3 + Duration::from_secs(1));
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}

/// Serves one connection until it ends.
pub(super) async fn serve<S>(mut stream: S, house: House, peer: String, local: String, is_unix: bool)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    use tokio::io::AsyncWriteExt;
    match admit(&house, peer, local, is_unix) {
        Some(session) => Connection::new(stream, house, session).await,
        // Best effort: the peer is being turned away.
        None => drop(stream.write_all(b"-ERR max number of clients reached\r\n").await),
    }
}

/// The session of a new connection, unless there are too many or the server has ended. From here on the client is
/// known: whoever moves the clock waits for it.
pub(super) fn admit(house: &House, peer: String, local: String, is_unix: bool) -> Option<Session> {
    let shared = house.engine.shared();
    if house.has_stopped() || shared.audience.clients.len() as i64 >= shared.settings.integer("maxclients") {
        shared.metrics.rejected_connections.add(1);
        return None;
    }
    let since = house.clock().now().lock;
    let client = Client::new(shared.audience.clients.next_id(), peer, local, is_unix, since);
    let session = house.engine.connect(client);
    if house.has_stopped() {
        // It has entered too late to be told.
        session.client.close();
    }
    Some(session)
}

/// Out of descriptors or memory: accepting at once again would only spin.
async fn rest(error: &io::Error) {
    tracing::warn!(%error, "accept failed");
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// The addresses that the words of `bind` name; a leading `-` allows one to be missing.
pub(super) fn addresses(bind: &str) -> Result<Vec<(IpAddr, bool)>, String> {
    bind.split_whitespace()
        .map(|word| {
            let (word, may_fail) = word.strip_prefix('-').map_or((word, false), |word| (word, true));
            let ip: IpAddr = match word {
                "*" => IpAddr::from([0, 0, 0, 0]),
                "::*" => IpAddr::from([0_u16; 8]),
                "localhost" => IpAddr::from([127, 0, 0, 1]),
                word => word
                    .parse()
                    .map_err(|_| format!("bind '{word}': must be IP addresses separated by spaces"))?,
            };
            Ok((ip, may_fail))
        })
        .collect()
}
