//! The server: sockets, threads and the system clock around the engine.
//!
//! Owns    [`Server`], a running server, and [`Builder`], its configuration.
//! Rule    nothing is process-global: many servers in one process are independent.

mod clock;
mod connection;
mod context;
mod handle;
mod listener;
mod probe;
mod processor;
mod recording;
mod spare_descriptor;
mod stored_files;
mod tested;
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
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::WallTime;
use crate::commands::Shared;
use crate::engine::Engine;
use crate::journal::Journal;
use crate::keyspace::{Keyspace, Layout};
use crate::state::settings::{SettingError, Settings, shown};
use clock::{ManualClock, SystemClock};
use context::{AnyClock, ServerContext};
use listener::Listener;
use tls::Tls;
use worker::{Threads, Workers};

pub use handle::{Clock, Keys, Server};
pub(crate) use worker::runtime;

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
    seed: Option<u64>,
    config_file: Option<String>,
    allocator: &'static str,
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
            seed: None,
            config_file: None,
            allocator: "libc",
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

    /// Shards of the keyspace, rounded up to a power of two; at most 1024. Default: eight per core.
    #[must_use]
    pub fn shards(self, shards: usize) -> Self {
        self.set("shards", shards.to_string())
    }

    /// Time stands still at `start` until [`Clock::advance`] moves it. Default: the system's clocks.
    #[must_use]
    pub fn manual_clock(mut self, start: WallTime) -> Self {
        self.manual_start = Some(start);
        self
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
        let runtimes: Vec<_> = std::iter::repeat_with(runtime).take(threads).collect::<Result<_, _>>()?;
        let others = runtimes.iter().map(|runtime| runtime.handle().clone());
        let handles: Vec<_> = here.into_iter().chain(others).collect();
        let first = handles[0].clone();
        let entered = first.enter();
        let threads = Threads::default();
        let server = match self.start_on(&handles, Some(threads.clone())) {
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
        Ok(server)
    }

    fn start_on(self, runtimes: &[Handle], threads: Option<Threads>) -> Result<Server, StartError> {
        let settings = Settings::default();
        for (name, value) in &self.settings {
            settings.set(name, value)?;
        }
        let clock = match self.manual_start {
            Some(start) => AnyClock::Manual(Arc::new(ManualClock::new(start))),
            None => AnyClock::System(Arc::new(SystemClock::new())),
        };
        let listeners = Listeners::open(&settings)?;
        let seed = self.seed.unwrap_or_else(system_entropy);
        let ticker = Arc::new(Notify::new());
        let layout = Layout {
            shards: shards(&settings),
            databases: settings.integer("databases") as u16,
            seed,
            journal: self.journal,
        };
        let earlier = Arc::clone(&ticker);
        let keyspace = Keyspace::new(layout, move || earlier.notify_one());
        let shared = Shared::new(keyspace, settings, clock.shared(), seed)
            .with_probe(Arc::new(probe::SystemProbe(self.allocator)));
        let shared = match shared.settings.text("aclfile") {
            name if name.is_empty() => shared,
            name => shared.with_acl_file(Arc::new(stored_files::AclFile::new(name))),
        };
        let shared = match self.config_file {
            Some(name) => {
                shared.with_config_file(Arc::new(stored_files::ConfigFile(stored_files::AclFile::new(name))))
            }
            None => shared,
        };
        stored_files::install_users(&shared, &self.users)?;
        let stopping = Arc::clone(&ticker);
        shared.on_stop(move || stopping.notify_one());
        let context = ServerContext::new(Engine::new(Arc::new(shared)), clock, ticker);
        listeners.serve(context, runtimes, threads)
    }
}

/// The sockets that a server listens on.
struct Listeners {
    tcp: Port,
    tls: Option<(Port, Arc<Tls>)>,
    unix: Option<unix::Bound>,
}

/// One port, on every address of `bind`.
#[derive(Default)]
struct Port {
    listeners: Vec<std::net::TcpListener>,
    /// The file that its number is written to once connections are accepted.
    file: Option<PathBuf>,
}

impl Listeners {
    fn open(settings: &Settings) -> Result<Self, StartError> {
        let tcp = Port::open(settings, "port", "port-file")?;
        let tls = Port::open(settings, "tls-port", "tls-port-file")?;
        let tls = if tls.listeners.is_empty() {
            None
        } else {
            let identity = Tls::open(&|name| settings.text(name)).map_err(StartError::Unusable)?;
            Some((tls, Arc::new(identity)))
        };
        let path = settings.text("unixsocket");
        let unix = if path.is_empty() {
            None
        } else {
            let mode = unix::permissions(&settings.text("unixsocketperm")).map_err(StartError::Unusable)?;
            let bound = unix::Bound::new(path.as_ref(), mode);
            Some(bound.map_err(|error| StartError::Listen { address: path, error })?)
        };
        Ok(Self { tcp, tls, unix })
    }

    fn serve(
        self,
        context: ServerContext,
        runtimes: &[Handle],
        threads: Option<Threads>,
    ) -> Result<Server, StartError> {
        let workers = Arc::new(Workers::new(runtimes));
        let shared = context.engine.shared();
        let addresses = self.tcp.serve(&context, &workers, None, &shared.port)?;
        let mut tls_port = None;
        if let Some((port, tls)) = self.tls {
            let addresses = port.serve(&context, &workers, Some(&tls), &shared.tls_port)?;
            check_certificates(&shared.settings, Arc::clone(&tls));
            tls_port = Some((addresses, tls));
        }
        if let Some(unix) = self.unix {
            let listener = UnixListener::from_std(unix.listener)?;
            let listener = Listener::Unix(listener, unix.file);
            Handle::current().spawn(listener.run(context.clone(), Arc::clone(&workers)));
        }
        Handle::current().spawn(ticker::run(context.clone()));
        Ok(Server::new(context, addresses, tls_port, workers, threads))
    }
}

impl Port {
    /// The port that the setting `name` asks for: none for 0.
    fn open(settings: &Settings, name: &'static str, file: &'static str) -> Result<Self, StartError> {
        let mut number = match settings.text(name).as_str() {
            "0" => return Ok(Self::default()),
            "auto" => 0,
            number => number.parse().expect("the settings table has checked the port"),
        };
        let mut listeners = Vec::new();
        for (ip, may_fail) in listener::addresses(&settings.text("bind")).map_err(StartError::Unusable)? {
            // All addresses share the free port that the first one got.
            let address = SocketAddr::new(ip, number);
            match listener::tcp(address) {
                Ok(listener) => {
                    number = listener.local_addr()?.port();
                    listeners.push(listener);
                }
                Err(_) if may_fail => {}
                Err(error) => return Err(StartError::Listen { address: address.to_string(), error }),
            }
        }
        let file = settings.text(file);
        Ok(Self { listeners, file: (!file.is_empty()).then(|| file.into()) })
    }

    /// Accepts connections, inside TLS where `tls` is given. `number` gets the port, for INFO.
    fn serve(
        self,
        context: &ServerContext,
        workers: &Arc<Workers>,
        tls: Option<&Arc<Tls>>,
        number: &AtomicU64,
    ) -> Result<Vec<SocketAddr>, StartError> {
        let listeners = self.listeners.iter();
        let addresses: Vec<_> = listeners.map(std::net::TcpListener::local_addr).collect::<Result<_, _>>()?;
        for listener in self.listeners {
            let listener = Listener::Tcp(TcpListener::from_std(listener)?, tls.cloned());
            Handle::current().spawn(listener.run(context.clone(), Arc::clone(workers)));
        }
        if let Some(address) = addresses.first() {
            number.store(u64::from(address.port()), Relaxed);
            if let Some(path) = self.file {
                write_whole(&path, &format!("{}\n", address.port()))?;
            }
        }
        Ok(addresses)
    }
}

/// Makes CONFIG SET check certificates before it accepts them.
fn check_certificates(settings: &Settings, tls: Arc<Tls>) {
    settings.on_proposal(move |proposal| {
        let Some(name) = proposal.first("tls-") else { return Ok(()) };
        tls.renew(&|name| proposal.text(name)).map_err(|expected| {
            tracing::warn!(reason = expected, "Certificates stay as they were");
            let reply = "Unable to update TLS configuration. Check server logs.".to_owned();
            SettingError::Value { name, value: proposal.text(name), expected, reply }
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
    match settings.integer("shards") as usize {
        // While a million leases end in one second, the 99th percentile of GET is 0.4 ms. With four shards per core
        // it is 1.4 ms. Sixteen shards per core do not lower it, and take one more byte per lock.
        0 => (cores() * 8).next_power_of_two().min(crate::limits::SHARDS_MAX),
        shards => shards.next_power_of_two(),
    }
}

/// Randomness from the system, taken from the standard library's hash seeds.
fn system_entropy() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
