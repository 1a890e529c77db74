//! Sockets: where connections come from.
//!
//! Rule    a port is bound exclusively, so that a second server on it fails.

use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Handle;

use super::connection::Connection;
use super::crew::{Member, Roster};
use super::descriptors::{Spare, is_of_the_peer};
use super::house::{House, Seat};
use super::tls::Tls;
use super::unix::SocketFile;
use super::wire::Wire;
use crate::engine::Engine;
use crate::state::clients::Client;
use crate::state::session::Session;

/// Connections that may wait to be accepted; Redis' `tcp-backlog` is 511.
pub(super) const BACKLOG: i32 = 1024;

/// Crews that connections are dealt out to, one after the other. When it is dropped, nobody will come any more.
pub(super) struct Workers {
    crews: Vec<Arc<Roster>>,
    next: AtomicUsize,
}

impl Workers {
    /// A crew for each thread of these runtimes.
    pub(super) fn new(engine: &Engine, runtimes: &[Handle]) -> Self {
        let threads = |runtime: &Handle| runtime.metrics().num_workers();
        let each = runtimes.iter().flat_map(|runtime| std::iter::repeat_n(runtime, threads(runtime)));
        let crews = each.map(|runtime| Roster::muster(engine.clone(), runtime)).collect();
        Self { crews, next: AtomicUsize::new(0) }
    }

    /// Has the next crew take a connection in.
    pub(super) fn deal(&self, newcomer: impl FnOnce() -> Option<Box<dyn Member>> + Send + 'static) {
        self.crews[self.next.fetch_add(1, Relaxed) % self.crews.len()].enter(newcomer);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.crews.iter().for_each(|crew| crew.close());
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("crews", &self.crews.len()).finish_non_exhaustive()
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
                if is_kept_out(&house, peer.ip()) {
                    house.turn_away("protected mode is on and there is no password");
                    if tls.is_none() {
                        refuse(stream, PROTECTED);
                    }
                    continue;
                }
                match (house.seat(), &tls) {
                    (Some(seat), _) => deal_tcp(stream, peer, tls.clone(), seat, &house, &workers),
                    (None, None) => refuse(stream, FULL),
                    // There is no handshake for the sake of a refusal.
                    (None, Some(_)) => drop(stream),
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

/// Accepts connections through a Unix socket until the server ends; then its file goes.
pub(super) async fn accept_unix(
    listener: UnixListener,
    file: SocketFile,
    house: House,
    workers: Arc<Workers>,
) {
    let mut spare = Spare::new();
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
                    refuse(stream, FULL);
                    continue;
                };
                let (house, name) = (house.clone(), file.path().display().to_string());
                workers.deal(move || {
                    let stream = Wire(UnixStream::from_std(stream).ok()?);
                    let session = enter(&house, format!("{name}:0"), format!("{name}:0"), true);
                    Some(Box::new(Connection::new(stream, house, session, seat)))
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
                refuse(stream, FULL);
                is_told = true;
            }
            () = std::future::ready(()) => {}
        }
    }
    tracing::debug!(%error, is_told, "accept failed");
    spare.recover(is_told).await;
}

/// Tells a newcomer why it is not let in. Best effort: a fresh socket takes a line at once, or its peer has gone.
fn refuse(mut stream: impl Write, why: &str) {
    let _ = stream.write_all(why.as_bytes());
}

fn deal_tcp(
    stream: std::net::TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<Tls>>,
    seat: Seat,
    house: &House,
    workers: &Workers,
) {
    let (house, peer) = (house.clone(), peer.to_string());
    workers.deal(move || {
        let local = stream.local_addr().map_or_else(|_| String::new(), |local| local.to_string());
        prepare(&stream, &house);
        let stream = Wire(TcpStream::from_std(stream).ok()?);
        let session = enter(&house, peer, local, false);
        Some(match tls {
            None => Box::new(Connection::new(stream, house, session, seat)),
            Some(tls) => Box::new(Connection::new(tls.seal(stream), house, session, seat)),
        })
    });
}

/// Whether protected mode keeps this peer out: it is on another machine, and everybody could come in.
fn is_kept_out(house: &House, peer: IpAddr) -> bool {
    let shared = house.engine.shared();
    !peer.to_canonical().is_loopback()
        && shared.settings.is_protected()
        && shared.acl.default_account().user().needs_none()
}

/// What is said where there is no room.
const FULL: &str = "-ERR max number of clients reached\r\n";

/// What protected mode says, in the words of Redis 7.0, which operators look for.
const PROTECTED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is \
set for the default user. In this mode connections are only accepted from the loopback interface. If you want to connect \
from external computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode sending the \
command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host the server \
is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG REWRITE to make \
this change permanent. 2) Alternatively you can just disable the protected mode by editing the Redis configuration file, \
and setting the protected mode option to 'no', and then restarting the server. 3) If you started the server manually \
just for testing, restart it with the '--protected-mode no' option. 4) Setup a an authentication password for the \
default user. NOTE: You only need to do one of the above things in order for the server to start accepting connections \
from the outside.\r\n";

/// Probes that may stay unanswered before a peer counts as gone, as in Redis.
const PROBES: u32 = 3;

/// Small answers leave at once, and a peer that vanished is noticed. Neither is worth losing a connection over.
fn prepare<S: std::os::fd::AsFd>(stream: &S, house: &House) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_nodelay(true);
    let seconds = house.engine.shared().settings.integer("tcp-keepalive");
    if seconds > 0 {
        let time = Duration::from_secs(seconds as u64);
        let interval = Duration::from_secs((seconds as u64 / 3).max(1));
        let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(PROBES);
        let _ = socket.set_tcp_keepalive(&keepalive);
    }
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

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;
    use crate::server::Server;

    fn server(seconds: &str) -> Server {
        Server::builder().set("tcp-keepalive", seconds).start_blocking().unwrap()
    }

    #[test]
    fn a_connection_is_probed_as_often_as_the_setting_says() {
        for (setting, time, interval) in [("300", 300, 100), ("7", 7, 2), ("1", 1, 1)] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            prepare(&stream, server(setting).house());
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap().as_secs(), time);
            assert_eq!(socket.tcp_keepalive_interval().unwrap().as_secs(), interval);
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        }
    }

    /// Whether the system has a timer for probes on the server's end of a connection.
    fn is_probed(server: &Server) -> bool {
        let address = server.addr();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
        let end = |address: SocketAddr| format!("0100007F:{:04X}", address.port());
        let ends = format!(" {} {} 01 ", end(address), end(stream.local_addr().unwrap()));
        let all = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let line = all.lines().find(|line| line.contains(&ends)).unwrap();
        // Local and remote end, state, queues, then the timer: 02 is that of probes.
        let timer = line.split_whitespace().nth(5).unwrap();
        timer.starts_with("02:")
    }

    #[test]
    fn what_is_accepted_is_probed_unless_the_setting_is_zero() {
        assert!(is_probed(&server("300")));
        assert!(!is_probed(&server("0")));
    }
}
