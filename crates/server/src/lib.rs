//! redlatch in a process: sockets, threads, files and the system clock around its core.
//!
//! Owns    [`Server`], a running server, and [`Builder`], its configuration.
//! Rule    nothing is process-global: many servers in one process are independent.
//!
//! This crate is a part of `redlatch`, which names what programs use of it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod audit_log;
mod blueprint;
mod check;
mod clock;
#[cfg(feature = "etcd")]
mod cluster;
#[cfg(not(feature = "etcd"))]
#[allow(missing_docs, reason = "documented in `cluster`")]
#[path = "cluster_none.rs"]
mod cluster;
mod connection;
mod context;
mod handle;
#[cfg(feature = "http")]
mod http;
#[cfg(not(feature = "http"))]
#[path = "http_none.rs"]
mod http;
mod inherited;
mod introduced;
mod journal;
mod journal_files;
mod keeper;
mod listener;
#[cfg(feature = "client")]
mod locks;
mod peer;
mod probe;
mod processor;
mod shadow;
mod spare_descriptor;
mod stored_files;
mod sync_mark;
#[cfg(feature = "testing")]
mod testing;
#[cfg(not(feature = "testing"))]
#[path = "testing_none.rs"]
mod testing;
mod ticker;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_none.rs"]
mod tls;
mod unix;
mod worker;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_platform::unix_socket::UnixListener;
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use blueprint::Blueprint;
use context::{Process, ServerContext};
use http::Http;
use listener::Listener;
use redlatch_core::journal::Journal;
use redlatch_core::state::beside::Beside;
use redlatch_core::state::cluster::ClusterFacts;
use redlatch_core::state::settings::{self, SettingError, Settings, shown};
use redlatch_proto::clock::WallTime;
use testing::Tests;
use tls::Tls;
use worker::{Threads, Workers};

use handle::Addresses;
pub use handle::{Keys, Server};
pub use redlatch_core::locks::Rule as LockRule;
#[cfg(feature = "testing")]
pub use redlatch_testing::handles::{
    Clock, Fault, FaultError, Faults, History, Namespace, NamespaceError, Nodes, When,
};
#[cfg(feature = "testing")]
pub use redlatch_testing::{Event, EventKind, Finding, NodeFacts, NodeState};
#[doc(hidden)]
pub use shadow::{Shadow, ShownLease};

use inherited::Inherited;
use worker::runtime;

/// What the program adds to a server: a node of several, sockets that another process has opened. Not part of the
/// interface: any version may change it.
#[doc(hidden)]
pub mod process {
    pub use crate::cluster::{Moved, Node, OnLead, accept_restored, export, import};
    pub use crate::handle::url;
    pub use crate::inherited::Inherited;
    pub use crate::worker::runtime;
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting has a value that is not allowed.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A setting cannot be used, for a reason that only the start can detect.
    #[error("{0}")]
    Unusable(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address, or the path of a socket.
        address: String,
        /// The system's error.
        error: io::Error,
    },
    /// A thread or a runtime cannot be created.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// The configuration of a server. Made by [`Server::builder`], checked once, at the start.
///
/// [`Builder::set`] accepts every setting of the command line. The defaults differ in one point: the port is a free
/// one.
pub struct Builder {
    settings: Vec<(String, String)>,
    users: Vec<stored_files::UserLine>,
    manual_start: Option<WallTime>,
    journal: Option<Arc<dyn Journal>>,
    /// Where the journal of a cluster is, and what is known of that, if the server leads one.
    replicated: Option<(Box<dyn journal::Place>, Arc<ClusterFacts>)>,
    seed: Option<u64>,
    config_file: Option<String>,
    allocator: &'static str,
    inherited: Inherited,
    beside: Option<Arc<Beside>>,
}

impl fmt::Debug for Builder {
    /// Leaves out passwords, users (their rules contain passwords) and the hash seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<_> = self.settings.iter().map(|(name, value)| (name, shown(name, value))).collect();
        f.debug_struct("Builder")
            .field("settings", &settings)
            .field("users", &self.users.len())
            .field("manual_start", &self.manual_start)
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new().set("port", "auto")
    }
}

impl Builder {
    /// All settings at the defaults of the command line: port 6379.
    pub fn new() -> Self {
        Self {
            settings: Vec::new(),
            users: Vec::new(),
            manual_start: None,
            journal: None,
            replicated: None,
            seed: None,
            config_file: None,
            allocator: "libc",
            inherited: Inherited::default(),
            beside: None,
        }
    }

    /// Sets a setting by the name it has in redis.conf. Default: as in `redlatch --help`.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// The TCP port; 0: no TCP. Default: a free one.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.set("port", port.to_string())
    }

    /// Listens for TLS on a free port, with the certificates and the key in these PEM files. Default: no TLS.
    /// Needs the feature `tls`.
    #[must_use]
    pub fn tls(self, certificates: impl Into<String>, key: impl Into<String>) -> Self {
        let files = self.set("tls-cert-file", certificates).set("tls-key-file", key);
        files.set("tls-port", "auto").set("tls-auth-clients", "no")
    }

    /// Requires clients of the TLS port to show a certificate from one of the authorities in this PEM file. Call it
    /// after [`Builder::tls`]. Default: no client certificates.
    #[must_use]
    pub fn tls_clients(self, authorities: impl Into<String>) -> Self {
        self.set("tls-ca-cert-file", authorities).set("tls-auth-clients", "yes")
    }

    /// The password that clients must send. Default: none.
    #[must_use]
    pub fn password(self, password: impl Into<String>) -> Self {
        self.set("requirepass", password)
    }

    /// A user, by rules as those of ACL SETUSER: `["on", ">secret", "~lock:*", "+@all"]`. Default: the user
    /// `default`, which may do everything, with [`Builder::password`] if there is one. Naming `default` here resets
    /// it first.
    #[must_use]
    pub fn user<R: Into<String>>(
        mut self,
        name: impl Into<String>,
        rules: impl IntoIterator<Item = R>,
    ) -> Self {
        self.users.push((name.into(), rules.into_iter().map(Into::into).collect()));
        self
    }

    /// The file that CONFIG REWRITE rewrites; it is not read at the start. Default: none, CONFIG REWRITE is refused.
    #[must_use]
    pub fn config_file(mut self, path: impl Into<String>) -> Self {
        self.config_file = Some(path.into());
        self
    }

    /// The name of the program's allocator, for INFO. Default: `libc`.
    #[must_use]
    pub fn allocator(mut self, name: &'static str) -> Self {
        self.allocator = name;
        self
    }

    /// Sockets to use instead of binding addresses. Default: none.
    #[doc(hidden)]
    pub fn inherited(self, inherited: Inherited) -> Self {
        Self { inherited, ..self }
    }

    /// Shows the locks of another server, as [`Server::shadow`] is told of them, and takes none. Default: none.
    #[doc(hidden)]
    pub fn beside(self, beside: Arc<Beside>) -> Self {
        Self { beside: Some(beside), ..self }
    }

    /// Shards of the keyspace, rounded up to a power of two; at most 1024. Default: eight per core.
    #[must_use]
    pub fn shards(self, shards: usize) -> Self {
        self.set("shards", shards.to_string())
    }

    /// The journal that receives every effect on the keyspace. Default: none.
    #[must_use]
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Seeds hashing and every random choice, so that a run repeats. Default: the system's entropy, so that clients
    /// cannot choose keys that collide.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the server in the caller's runtime, with one task per connection.
    ///
    /// # Errors
    /// [`StartError`]: a setting out of bounds, an address in use.
    pub async fn start(self) -> Result<Server, StartError> {
        self.start_on(&[Handle::current()], None)
    }

    /// Starts the server on a thread of its own, for callers without a runtime.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start_blocking(self) -> Result<Server, StartError> {
        self.start_on_threads(1)
    }

    /// Starts the server on `threads` threads of its own, each with a runtime. Connections are assigned in turn.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start_on_threads(self, threads: usize) -> Result<Server, StartError> {
        self.start_among(None, threads.max(1))
    }

    /// Starts the server in the caller's runtime and on `threads` additional threads. With 0, the process stays
    /// single-threaded, and its system calls on sockets are cheaper.
    ///
    /// # Errors
    /// As [`Builder::start`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start_here_and_on(self, threads: usize) -> Result<Server, StartError> {
        self.start_among(Some(Handle::current()), threads)
    }

    fn start_among(self, here: Option<Handle>, threads: usize) -> Result<Server, StartError> {
        let is_here = here.is_some();
        let runtimes: Vec<_> = std::iter::repeat_with(runtime).take(threads).collect::<Result<_, _>>()?;
        let others = runtimes.iter().map(|runtime| runtime.handle().clone());
        let handles: Vec<_> = here.into_iter().chain(others).collect();
        let first = handles[0].clone();
        let entered = first.enter();
        let threads = Threads::default();
        let mut server = match self.start_on(&handles, Some(threads.clone())) {
            Ok(server) => server,
            Err(error) => {
                // A runtime that is simply dropped waits for its tasks, which must not happen inside another runtime.
                runtimes.into_iter().for_each(|runtime| runtime.shutdown_background());
                return Err(error);
            }
        };
        drop(entered);
        for runtime in runtimes {
            let context = server.context().clone();
            threads.start(runtime, async move { context.finished().await })?;
        }
        server.waits_for_listeners = !is_here;
        Ok(server)
    }

    fn blueprint(self) -> Blueprint {
        Blueprint {
            settings: self.settings,
            users: self.users,
            seed: self.seed.unwrap_or_else(system_entropy),
            journal: self.journal,
            replicated: self.replicated,
            config_file: self.config_file,
            allocator: self.allocator,
            process: Arc::new(Process::new()),
            beside: self.beside,
        }
    }

    fn start_on(mut self, runtimes: &[Handle], threads: Option<Threads>) -> Result<Server, StartError> {
        let (inherited, manual_start) = (std::mem::take(&mut self.inherited), self.manual_start);
        let mut blueprint = self.blueprint();
        let settings = blueprint.settings()?;
        if !settings.get(settings::CLUSTER_ETCD).is_empty() && blueprint.replicated.is_none() {
            cluster::check(&settings).map_err(StartError::Unusable)?;
            let text = "cluster-etcd: only the program is a node of a cluster";
            return Err(StartError::Unusable(text.into()));
        }
        check::cluster_mode(&settings)?;
        check::doubles(&settings)?;
        testing::check(&settings)?;
        let listeners = Listeners::open(&settings, settings.get(settings::NODES), inherited)?;
        let (contexts, tests) = if manual_start.is_none() && !testing::is_wanted(&settings) {
            let context = blueprint.server(settings)?;
            Handle::current().spawn(ticker::run(context.clone()));
            if let Some(keeper) = context.keeper() {
                Handle::current().spawn(Arc::clone(keeper).run(context.clone()));
            }
            (vec![context], None)
        } else {
            if journal::wanted(&settings)?.is_some() {
                return Err(StartError::Unusable(NO_JOURNAL_IN_TESTS.into()));
            }
            let tests = Tests::start(blueprint, &settings, manual_start)?;
            (tests.contexts(), Some(tests))
        };
        let started = listeners.serve(&contexts, tests, runtimes, threads);
        // What has begun ends: the runtimes may be of others, and go on.
        started.inspect_err(|_| contexts[0].stop())
    }
}

/// Why a server with test commands has no `dir`.
const NO_JOURNAL_IN_TESTS: &str =
    "dir: a server with test commands or a manual clock keeps nothing on the disk";

/// The sockets that a server listens on.
struct Listeners {
    /// One for each node.
    tcp: Vec<Port>,
    tls: Option<(Port, Arc<Tls>)>,
    unix: Vec<unix::Bound>,
    http: Http,
}

/// One port, on every address of `bind`.
#[derive(Default)]
struct Port {
    listeners: Vec<std::net::TcpListener>,
    is_inherited: bool,
}

impl Listeners {
    fn open(settings: &Settings, nodes: usize, inherited: Inherited) -> Result<Self, StartError> {
        let has_main = inherited.replaces_port();
        if has_main && nodes > 1 {
            let text = "nodes: sockets that another program has opened serve one node";
            return Err(StartError::Unusable(text.into()));
        }
        let tcp = match has_main {
            true => vec![Port::inherited(inherited.tcp)],
            false => {
                (0..nodes).map(|node| Port::open(settings, settings::PORT, node)).collect::<Result<_, _>>()?
            }
        };
        let tls = match inherited.tls.is_empty() {
            true => Port::open(settings, settings::TLS_PORT, 0)?,
            false => Port::inherited(inherited.tls),
        };
        let tls = if tls.listeners.is_empty() {
            None
        } else {
            let identity = Tls::open(&|setting| settings.get(setting)).map_err(StartError::Unusable)?;
            Some((tls, Arc::new(identity)))
        };
        let unix = match has_main {
            true => inherited.unix.into_iter().map(unix::Bound::inherited).collect(),
            false => unix::Bound::open(settings, settings::UNIXSOCKET)?.into_iter().collect(),
        };
        Ok(Self { tcp, tls, unix, http: Http::open(settings, inherited.http)? })
    }

    /// Serves each node's port with its engine, and the other sockets with that of the first node.
    fn serve(
        self,
        contexts: &[ServerContext],
        tests: Option<Tests>,
        runtimes: &[Handle],
        threads: Option<Threads>,
    ) -> Result<Server, StartError> {
        let (workers, threads) = (Arc::new(Workers::new(runtimes)), threads.unwrap_or_default());
        // Before there is a client: the log has all of them.
        audit_log::start(contexts, &threads)?;
        let context = contexts[0].clone();
        let shared = context.engine.shared();
        let (open, closed) = listener::tracked();
        let mut addresses = Vec::new();
        for (node, (port, context)) in self.tcp.into_iter().zip(contexts).enumerate() {
            let bound = port.serve(context, &workers, None, &open)?;
            if let Some(address) = bound.first() {
                context.engine.shared().instance.port.store(u64::from(address.port()), Relaxed);
                if let Some(tests) = &tests {
                    tests.set_port(node, address.port());
                }
            }
            addresses.push(bound);
        }
        write_ports(&shared.settings.get(settings::PORT_FILE), &addresses)?;
        let mut tls_port = None;
        if let Some((port, tls)) = self.tls {
            let addresses = vec![port.serve(&context, &workers, Some(&tls), &open)?];
            if let Some(address) = addresses[0].first() {
                shared.instance.tls_port.store(u64::from(address.port()), Relaxed);
            }
            write_ports(&shared.settings.get(settings::TLS_PORT_FILE), &addresses)?;
            check_certificates(&shared.settings, Arc::clone(&tls));
            let _ = shared.instance.certificates_end.set(tls.ends());
            tls_port = Some((addresses.into_iter().flatten().collect(), tls));
        }
        for unix in self.unix {
            let listener = UnixListener::from_std(unix.listener)?;
            let listener = Listener::Unix(listener, unix.file);
            listener.spawn(&context, &workers, &open);
        }
        let http = self.http.serve(&context, &workers, &threads, &open)?;
        write_ports(&shared.settings.get(settings::HTTP_PORT_FILE), std::slice::from_ref(&http))?;
        let addresses = Addresses { tcp: addresses, http };
        Ok(Server::new(context, tests, addresses, tls_port, workers, (threads, closed)))
    }
}

impl Port {
    /// The port that a setting asks for: none for 0. Each further node has the next number, or a free one.
    fn open(settings: &Settings, port: settings::Handle<String>, node: usize) -> Result<Self, StartError> {
        let number = match settings.get(port).as_str() {
            "0" => return Ok(Self::default()),
            number => numbered(port.name(), number, node)?,
        };
        let addresses = listener::addresses(&settings.get(settings::BIND)).map_err(StartError::Unusable)?;
        Ok(Self { listeners: listen(&addresses, number)?, is_inherited: false })
    }

    /// One that another program has opened.
    fn inherited(listeners: Vec<std::net::TcpListener>) -> Self {
        Self { listeners, is_inherited: true }
    }

    /// Accepts connections, inside TLS where `tls` is given.
    fn serve(
        self,
        context: &ServerContext,
        workers: &Arc<Workers>,
        tls: Option<&Arc<Tls>>,
        open: &listener::Open,
    ) -> Result<Vec<SocketAddr>, StartError> {
        let listeners = self.listeners.iter();
        let addresses: Vec<_> = listeners.map(std::net::TcpListener::local_addr).collect::<Result<_, _>>()?;
        for listener in self.listeners {
            let (socket, tls) = (TcpListener::from_std(listener)?, tls.cloned());
            let listener = Listener::Tcp { socket, tls, is_inherited: self.is_inherited };
            listener.spawn(context, workers, open);
        }
        Ok(addresses)
    }
}

/// The port so many numbers behind the one that the setting `name` has; 0 for `auto`.
///
/// # Errors
/// It is beyond the last port.
fn numbered(name: &str, number: &str, behind: usize) -> Result<u16, StartError> {
    if number == "auto" {
        return Ok(0);
    }
    let first: usize = number.parse().expect("the settings table has checked the port");
    let beyond = || StartError::Unusable(format!("{name} '{first}': there are not {behind} ports behind it"));
    u16::try_from(first.saturating_add(behind)).map_err(|_| beyond())
}

/// Free ports that are tried in search of one that is free at all addresses.
const FREE_PORTS_MAX: usize = 100;

/// Listens on a port of these addresses; port 0 is one that is free at all of them. Addresses that may be missing are left
/// out if they are.
///
/// # Errors
/// Another address cannot be listened on, or the port is in use.
fn listen(addresses: &[(IpAddr, bool)], port: u16) -> Result<Vec<std::net::TcpListener>, StartError> {
    let mut left = if port == 0 { FREE_PORTS_MAX } else { 1 };
    loop {
        left -= 1;
        match listen_once(addresses, port) {
            Err(StartError::Listen { error, .. }) if left > 0 && error.kind() == io::ErrorKind::AddrInUse => {
            }
            listened => return listened,
        }
    }
}

/// The same; a free port is one that is free at the first address.
fn listen_once(addresses: &[(IpAddr, bool)], port: u16) -> Result<Vec<std::net::TcpListener>, StartError> {
    let (mut port, mut listeners) = (port, Vec::new());
    for (ip, may_be_missing) in addresses {
        // All addresses share the free port that the first one got.
        let address = SocketAddr::new(*ip, port);
        match listener::tcp(address) {
            Ok(listener) => {
                port = listener.local_addr()?.port();
                listeners.push(listener);
            }
            // As in Redis, an address that is there counts.
            Err(error) if *may_be_missing && error.kind() != io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(StartError::Listen { address: address.to_string(), error }),
        }
    }
    Ok(listeners)
}

/// Writes the port of each node to a file, one a line. Nothing happens without a file or a port.
///
/// # Errors
/// The file cannot be written.
fn write_ports(file: &str, nodes: &[Vec<SocketAddr>]) -> Result<(), StartError> {
    let lines: String =
        nodes.iter().filter_map(|node| node.first()).map(|at| format!("{}\n", at.port())).collect();
    if file.is_empty() || lines.is_empty() {
        return Ok(());
    }
    let fault = |error| StartError::Unusable(format!("cannot write the port to '{file}': {error}"));
    write_whole(file.as_ref(), &lines).map_err(fault)
}

/// The settings that a TLS port reads, and again for each change of one.
const TLS_SETTINGS: [settings::Handle<String>; 7] = [
    settings::TLS_CERT_FILE,
    settings::TLS_KEY_FILE,
    settings::TLS_CA_CERT_FILE,
    settings::TLS_CA_CERT_DIR,
    settings::TLS_AUTH_CLIENTS,
    settings::TLS_AUTH_CLIENTS_USER,
    settings::TLS_PROTOCOLS,
];

/// Returns the value of a setting: the one in use, or the one that CONFIG SET proposes.
type ReadSetting<'r> = &'r dyn Fn(settings::Handle<String>) -> String;

/// Makes CONFIG SET check certificates before it accepts them.
fn check_certificates(settings: &Settings, tls: Arc<Tls>) {
    settings.on_proposal(move |proposal| {
        let Some(changed) = proposal.first(&TLS_SETTINGS) else { return Ok(()) };
        tls.renew(&|setting| proposal.get(setting)).map_err(|expected| {
            tracing::warn!(reason = expected, "Certificates cannot be reloaded: the old ones stay in use");
            let reply = "Unable to update TLS configuration. Check server logs.".to_owned();
            SettingError::Value { name: changed.name(), value: proposal.get(changed), expected, reply }
        })
    });
}

/// Writes a file atomically: a reader sees the whole file or no file.
fn write_whole(path: &std::path::Path, text: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    std::fs::write(&draft, text)?;
    std::fs::rename(draft, path)
}

fn shards(settings: &Settings) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    match settings.get(settings::SHARDS) {
        // While a million leases end in one second, the 99th percentile of GET is 0.4 ms. With four shards per core
        // it is 1.4 ms. Sixteen shards per core do not lower it, and take one more byte per lock.
        0 => (cores() * 8).next_power_of_two().min(redlatch_proto::limits::SHARDS_MAX),
        shards => shards.next_power_of_two(),
    }
}

/// An id that no other process has.
fn fresh_id() -> [u8; 20] {
    std::array::from_fn(|at| (system_entropy() >> (at % 8)) as u8)
}

/// Randomness from the system, taken from the standard library's hash seeds.
fn system_entropy() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

// macOS has one loopback address.
#[cfg(test)]
#[cfg(not(target_os = "macos"))]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_free_at_every_address() {
        // Without a second try, one of so many ports would be taken at the second address.
        let taken: Vec<_> = (0..300).map(|_| std::net::TcpListener::bind("127.0.0.2:0").unwrap()).collect();
        let taken_ports: Vec<u16> =
            taken.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        for _ in 0..300 {
            let addresses = listener::addresses("127.0.0.1 127.0.0.2").unwrap();
            let ports = listen(&addresses, 0).unwrap();
            let ports: Vec<u16> = ports.iter().map(|port| port.local_addr().unwrap().port()).collect();
            assert!(ports[0] == ports[1] && !taken_ports.contains(&ports[0]), "{ports:?}");
        }
    }
}
