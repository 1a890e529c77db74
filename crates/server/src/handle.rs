//! The handle of a running server: its addresses, its keys, its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redlatch_core::keyspace::{Lease, ShardSet, View};
use redlatch_core::state::clients::ClientId;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings;
use tokio::io::DuplexStream;

use super::Builder;
use super::connection::Connection;
use super::context::ServerContext;
use super::listener::{self, Closed};
use super::testing::Tests;
use super::tls::Tls;
use super::worker::{Threads, Workers};

/// A running server. Dropping it ends it: its listeners, its connections, its threads. The ports of a server that has
/// threads of its own ([`Builder::start_blocking`], [`Builder::start_on_threads`]) are closed then; in a runtime of the
/// caller they close as soon as its tasks run.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use redlatch::Server;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let server = Server::builder().start().await?;
/// let mut client = tokio::net::TcpStream::connect(server.addr()).await?;
/// client.write_all(b"SET lock:stock me NX PX 30000\r\n").await?;
/// let mut answer = [0; 5];
/// client.read_exact(&mut answer).await?;
/// assert_eq!(&answer, b"+OK\r\n");
/// assert_eq!(server.keys().get("lock:stock").as_deref(), Some(&b"me"[..]));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Server {
    context: ServerContext,
    /// The namespaces, if the clock is a test's.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "there are none"))]
    pub(super) tests: Option<Tests>,
    addresses: Addresses,
    /// Addresses of the TLS port, and its certificates.
    tls: Option<(Vec<SocketAddr>, Arc<Tls>)>,
    pub(super) workers: Arc<Workers>,
    threads: Threads,
    closed: Closed,
    /// Whether the listeners run on threads of this server, so that the end of the handle may wait for them.
    pub(super) waits_for_listeners: bool,
}

/// Where a server listens without TLS.
#[derive(Debug)]
pub(super) struct Addresses {
    /// For each node, the addresses of its TCP port; none without one.
    pub(super) tcp: Vec<Vec<SocketAddr>>,
    /// The addresses of the HTTP port; none without one.
    pub(super) http: Vec<SocketAddr>,
}

impl Server {
    /// Configures a server. Default: 127.0.0.1 and a free port.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(super) fn new(
        context: ServerContext,
        tests: Option<Tests>,
        addresses: Addresses,
        tls: Option<(Vec<SocketAddr>, Arc<Tls>)>,
        workers: Arc<Workers>,
        (threads, closed): (Threads, Closed),
    ) -> Self {
        let waits_for_listeners = false;
        Self { context, tests, addresses, tls, workers, threads, closed, waits_for_listeners }
    }

    pub(super) fn context(&self) -> &ServerContext {
        &self.context
    }

    /// The address to connect to.
    ///
    /// # Panics
    /// When the server was built with port 0, without TCP.
    pub fn addr(&self) -> SocketAddr {
        *self.addrs().first().expect("a server with a TCP port")
    }

    /// The address as Redis clients write it: `redis://127.0.0.1:40000`, with the password if one is needed.
    ///
    /// # Panics
    /// When the server was built with port 0, without TCP.
    pub fn url(&self) -> String {
        self.url_of("redis", self.addr())
    }

    /// The address to connect to with TLS.
    ///
    /// # Panics
    /// When the server was built without [`Builder::tls`].
    pub fn tls_addr(&self) -> SocketAddr {
        *self.tls_addrs().first().expect("a server with a TLS port")
    }

    /// The TLS address as Redis clients write it: `rediss://127.0.0.1:40001`, with the password if one is needed.
    ///
    /// # Panics
    /// When the server was built without [`Builder::tls`].
    pub fn tls_url(&self) -> String {
        self.url_of("rediss", self.tls_addr())
    }

    fn url_of(&self, scheme: &str, address: SocketAddr) -> String {
        url(scheme, &self.password(), address)
    }

    /// The password that clients must send; empty if there is none.
    pub fn password(&self) -> String {
        self.context.engine.shared().settings.get(settings::REQUIREPASS)
    }

    /// Reads the files of certificates and keys again, as SIGHUP does; new connections use them. Without a TLS port
    /// there is nothing to do.
    ///
    /// # Errors
    /// Which setting cannot be used, and why. The certificates in use stay.
    pub fn reload_certificates(&self) -> Result<(), String> {
        let Some((_, tls)) = &self.tls else { return Ok(()) };
        self.context
            .engine
            .shared()
            .settings
            .undisturbed(|settings| tls.renew(&|setting| settings.get(setting)))
    }

    /// Has the audit log leave a file that was renamed, as SIGHUP does.
    #[doc(hidden)]
    pub fn reopen_audit_log(&self) {
        self.context.engine.shared().access.audit.reopen();
    }

    /// Every address of the TCP port: one for each that the setting `bind` names. Empty without TCP.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addresses.tcp[0]
    }

    /// For each node, its address; empty without TCP. A server has one node, unless the setting `nodes` says more.
    pub fn node_addrs(&self) -> Vec<SocketAddr> {
        self.addresses.tcp.iter().filter_map(|node| node.first().copied()).collect()
    }

    /// Every address of the TLS port. Empty without TLS.
    pub fn tls_addrs(&self) -> &[SocketAddr] {
        self.tls.as_ref().map_or(&[], |(addresses, _)| addresses)
    }

    /// The address of the HTTP port.
    ///
    /// # Panics
    /// When the server was built without the setting `http-port`.
    pub fn http_addr(&self) -> SocketAddr {
        *self.http_addrs().first().expect("a server with an HTTP port")
    }

    /// Every address of the HTTP port. Empty without `http-port`.
    pub fn http_addrs(&self) -> &[SocketAddr] {
        &self.addresses.http
    }

    #[doc(hidden)]
    pub fn settings(&self) -> &redlatch_core::state::settings::Settings {
        &self.context.engine.shared().settings
    }

    /// Resolves when every thread that serves connections has run a task since the call.
    #[doc(hidden)]
    pub async fn workers_answer(&self) {
        self.workers.answer().await;
    }

    /// A connection without a socket.
    pub fn stream(&self) -> DuplexStream {
        open_stream(&self.context, &self.workers)
    }

    /// Typed access to the keys, without a connection.
    pub fn keys(&self) -> Keys<'_> {
        Keys { context: &self.context, database: 0 }
    }

    /// Ends the server: it accepts no more connections, and open connections close once their replies are sent.
    pub fn stop(&self) {
        self.context.stop();
    }

    /// Resolves when the server has been ended, by [`Server::stop`] or by SHUTDOWN.
    pub async fn stopped(&self) {
        self.context.stopped().await;
    }

    /// Resolves when the server has been ended and its connections have their last replies, or do not read them.
    pub async fn finished(&self) {
        self.context.finished().await;
    }

    /// Whether the server has ended because a sync of its journal has failed.
    #[doc(hidden)]
    pub fn has_failed(&self) -> bool {
        self.context.keeper().is_some_and(|keeper| keeper.has_failed())
    }

    /// Waits until the server has been ended and its threads are done. Only for servers that have threads of their
    /// own.
    pub fn join(self) {
        self.threads.join();
    }

    /// Panics if the keyspace contradicts itself. For tests.
    #[doc(hidden)]
    pub fn assert_laws(&self) {
        self.context.engine.shared().keyspace.assert_laws();
    }
}

/// A connection without a socket. One beyond `maxclients` is closed at once.
pub(super) fn open_stream(context: &ServerContext, workers: &Workers) -> DuplexStream {
    let enter = || listener::enter(context, String::new(), String::new(), false);
    open_stream_as(context, workers, false, enter)
}

/// Like [`open_stream`], with the session that `enter` makes. `is_local`: it may have a place of `maxclients-reserved`.
pub(super) fn open_stream_as(
    context: &ServerContext,
    workers: &Workers,
    is_local: bool,
    enter: impl FnOnce() -> Session,
) -> DuplexStream {
    const BUFFER_BYTES: usize = 64 * 1024;
    let (ours, theirs) = tokio::io::duplex(BUFFER_BYTES);
    // The client is registered before the caller can write, so that moving the clock waits for what has been
    // written.
    if let Some(permit) = context.connection_permit(is_local) {
        let session = enter();
        workers.spawn(|| Ok(Connection::new(ours, context.clone(), session, permit)));
    }
    theirs
}

/// A URL as Redis clients write it, with the password if there is one.
pub fn url(scheme: &str, password: &str, address: SocketAddr) -> String {
    match password {
        "" => format!("{scheme}://{address}"),
        password => format!("{scheme}://:{password}@{address}"),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.context.stop();
        if self.waits_for_listeners {
            self.closed.wait();
        }
    }
}

/// The holder of a lock that no client has taken.
const NO_CLIENT: ClientId = 0;

/// Typed access to the keys of one database, without a connection.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'s> {
    context: &'s ServerContext,
    database: u16,
}

impl Keys<'_> {
    /// The keys of another database. Default: 0.
    ///
    /// # Panics
    /// When the server has no such database.
    #[must_use]
    pub fn database(self, database: u16) -> Self {
        assert!(database < self.context.engine.shared().keyspace.databases(), "no database {database}");
        Self { database, ..self }
    }

    /// The string that a key holds.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Bytes> {
        let key = key.as_ref();
        self.with(key, |view| {
            let found = view.entry(key).occupied()?;
            found.string().ok().map(Bytes::copy_from_slice)
        })
    }

    /// Takes the lock of a key for the owner `value`, as SET NX would of a free key; what the key holds is overwritten. The
    /// lock ends with `lease`, or has none. It has a fencing token, and belongs to no client. If `value` holds the lock
    /// already, it keeps its grant, and its lease begins anew.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lease: Option<Duration>) {
        let (key, keyspace) = (key.as_ref(), &self.context.engine.shared().keyspace);
        self.with(key, |view| {
            let lease = lease.map_or(Lease::Never, |lease| {
                Lease::Until(view.now().deadline_in(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)))
            });
            let mut stored = view.entry(key).put(value.as_ref(), lease);
            if stored.granted().is_none() {
                stored.grant(keyspace.next_token(), NO_CLIENT, false);
            }
        });
    }

    /// Removes a key; false when it was not there.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> bool {
        self.with(key.as_ref(), |view| view.remove(key.as_ref()))
    }

    /// How long a key still lives: `None` when it does not exist, `Some(None)` when it has no lease.
    pub fn lease(&self, key: impl AsRef<[u8]>) -> Option<Option<Duration>> {
        let key = key.as_ref();
        self.with(key, |view| {
            let now = view.now();
            let found = view.entry(key).occupied()?;
            Some(found.deadline().map(|deadline| Duration::from_millis(now.millis_until(deadline) as u64)))
        })
    }

    /// The number of keys. A key whose lease has ended counts until its memory is released.
    pub fn len(&self) -> usize {
        self.context.engine.shared().keyspace.size(self.database).0
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn with<R>(&self, key: &[u8], act: impl FnOnce(&mut View<'_>) -> R) -> R {
        with_key(self.context, self.database, key, act)
    }
}

/// Acts on a key of a database, as a call of no client.
pub(super) fn with_key<R>(
    context: &ServerContext,
    database: u16,
    key: &[u8],
    act: impl FnOnce(&mut View<'_>) -> R,
) -> R {
    let shared = context.engine.shared();
    let now = shared.clock.now();
    let mut view = View::lock(&shared.keyspace, ShardSet::One(key), database, now, shared.events());
    let result = act(&mut view);
    view.finish(&shared.registries);
    if let Some(log) = &shared.log {
        log.write();
    }
    result
}
