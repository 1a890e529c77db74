//! Sockets: where connections come from.
//!
//! Rule    a port is bound exclusively, so that a second server on it fails; a Unix socket has its permissions before
//!         anybody can connect.

use std::future::Future;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;

use super::connection::Connection;
use super::descriptors::{Spare, is_of_the_peer};
use super::house::{House, Seat};
use crate::state::clients::Client;
use crate::state::session::Session;

/// Connections that may wait to be accepted; Redis' `tcp-backlog` is 511.
const BACKLOG: i32 = 1024;

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

/// A Unix socket that listens at `path`, replacing a dead one that was left there.
///
/// # Errors
/// When the path cannot be bound, or another server listens there.
pub(super) fn unix(path: &Path, permissions: Option<u32>) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    if let Some(mode) = permissions {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Accepts TCP connections until the server ends.
pub(super) async fn accept_tcp(listener: TcpListener, house: House, workers: std::sync::Arc<Workers>) {
    let mut spare = Spare::new();
    loop {
        let accepted = tokio::select! {
            () = house.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                spare.all_is_well();
                let Ok(stream) = stream.into_std() else { continue };
                match house.seat() {
                    Some(seat) => deal_tcp(stream, peer, seat, &house, &workers),
                    None => refuse(stream),
                }
            }
            Err(error) if is_of_the_peer(&error) => tokio::task::yield_now().await,
            Err(error) => {
                let next = async { listener.accept().await?.0.into_std() };
                cannot_accept(&error, &mut spare, next, &house).await;
            }
        }
    }
}

/// The file of a Unix socket, removed when nobody listens there any more: also when the runtime of the listener ends
/// before its task does.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Nobody is harmed when it is gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Accepts connections through a Unix socket until the server ends; then removes the socket.
pub(super) async fn accept_unix(
    listener: UnixListener,
    path: PathBuf,
    house: House,
    workers: std::sync::Arc<Workers>,
) {
    let (file, mut spare) = (SocketFile(path), Spare::new());
    loop {
        let accepted = tokio::select! {
            () = house.stopped() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                spare.all_is_well();
                let Ok(stream) = stream.into_std() else { continue };
                let Some(seat) = house.seat() else {
                    refuse(stream);
                    continue;
                };
                let (house, name) = (house.clone(), file.0.display().to_string());
                workers.next().spawn(async move {
                    if let Ok(stream) = UnixStream::from_std(stream) {
                        serve(stream, seat, house, format!("{name}:0"), format!("{name}:0"), true).await;
                    }
                });
            }
            Err(error) if is_of_the_peer(&error) => tokio::task::yield_now().await,
            Err(error) => {
                let next = async { listener.accept().await?.0.into_std() };
                cannot_accept(&error, &mut spare, next, &house).await;
            }
        }
    }
}

/// Accepting has failed: whoever is `next` is told so, if the spare descriptor helps.
async fn cannot_accept<W: Write>(
    error: &io::Error,
    spare: &mut Spare,
    next: impl Future<Output = io::Result<W>>,
    house: &House,
) {
    house.turn_away("the process is out of descriptors or memory");
    let mut is_told = false;
    if spare.give_up(error) {
        // Nobody may be there any more, which is not waited for.
        tokio::select! {
            biased;
            Ok(stream) = next => {
                refuse(stream);
                is_told = true;
            }
            () = std::future::ready(()) => {}
        }
    }
    tracing::debug!(%error, is_told, "accept failed");
    spare.recover(is_told).await;
}

/// Tells a newcomer that there is no room. Best effort: a fresh socket takes a line at once, or its peer has gone.
fn refuse(mut stream: impl Write) {
    let _ = stream.write_all(b"-ERR max number of clients reached\r\n");
}

fn deal_tcp(stream: std::net::TcpStream, peer: SocketAddr, seat: Seat, house: &House, workers: &Workers) {
    let house = house.clone();
    workers.next().spawn(async move {
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        let local = stream.local_addr().map_or_else(|_| String::new(), |local| local.to_string());
        prepare(&stream, &house);
        serve(stream, seat, house, peer.to_string(), local, false).await;
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

/// Serves one connection until it ends, and its seat is free again.
pub(super) async fn serve<S>(stream: S, seat: Seat, house: House, peer: String, local: String, is_unix: bool)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let session = enter(&house, peer, local, is_unix);
    Connection::new(stream, house, session).await;
    drop(seat);
}

/// The session of a new connection. From here on the client is known: whoever moves the clock waits for it.
pub(super) fn enter(house: &House, peer: String, local: String, is_unix: bool) -> Session {
    let shared = house.engine.shared();
    let since = house.clock().now().lock;
    let client = Client::new(shared.audience.clients.next_id(), peer, local, is_unix, since);
    let session = house.engine.connect(client);
    if house.has_stopped() {
        // It has entered too late to be told.
        session.client.close();
    }
    session
}

/// The socket addresses that the words of `bind` and a port name; a leading `-` allows one to be missing.
pub(super) fn addresses(bind: &str, port: u16) -> Result<Vec<(SocketAddr, bool)>, String> {
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
            Ok((SocketAddr::new(ip, port), may_fail))
        })
        .collect()
}
