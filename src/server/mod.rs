//! The shell: sockets, threads and the system clock around the engine.
//!
//! Owns    [`Server`], a running one, and [`Builder`], what it is made from.
//! Rule    nothing is process-global: a hundred servers in one test binary do not meet.

mod clock;
mod connection;
mod crew;
mod descriptors;
mod desk;
mod handle;
mod house;
mod listen;
mod probe;
mod ticker;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_none.rs"]
mod tls;
mod unix;
mod users;
mod wire;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;

use crate::clock::WallTime;
use crate::commands::Shared;
use crate::engine::Engine;
use crate::journal::Journal;
use crate::keyspace::{Keyspace, Layout};
use crate::state::settings::{SettingError, Settings, shown};
use clock::{ManualClock, SystemClock};
use house::{AnyClock, House};
use listen::Workers;
use tls::Tls;

pub use handle::{Clock, Keys, Server};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is not what it may be.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A setting is not what it may be, for a reason that only the start can see.
    #[error("{0}")]
    Unusable(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address, or the path of a socket.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// A thread or a runtime cannot be had.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// What a server is made from. Made by [`Server::builder`], checked once, at the start.
///
/// Every setting of the command line can be given by [`Builder::set`]; the defaults differ in one point: the port is a
/// free one.
pub struct Builder {
    settings: Vec<(String, String)>,
    users: Vec<users::Line>,
    manual_start: Option<WallTime>,
    journal: Option<Arc<dyn Journal>>,
    seed: Option<u64>,
    config_file: Option<String>,
    allocator: &'static str,
}

impl fmt::Debug for Builder {
    /// Passwords are not shown, nor users, whose rules and mistaken names have them, nor what hashing is seeded with.
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

    /// Sets a setting by the name it has in redis.conf. Default: what `redlatch --help` says.
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

    /// A free port for TLS, as whom the certificates and the key in these PEM files say; whoever trusts them may come in.
    /// Default: no TLS. Needs the feature `tls`.
    #[must_use]
    pub fn tls(self, certificates: impl Into<String>, key: impl Into<String>) -> Self {
        let files = self.set("tls-cert-file", certificates).set("tls-key-file", key);
        files.set("tls-port", "auto").set("tls-auth-clients", "no")
    }

    /// Clients of the TLS port must show a certificate from one of the authorities in this PEM file; to be called after
    /// [`Builder::tls`]. Default: they need none.
    #[must_use]
    pub fn tls_clients(self, authorities: impl Into<String>) -> Self {
        self.set("tls-ca-cert-file", authorities).set("tls-auth-clients", "yes")
    }

    /// The password that clients must show. Default: none.
    #[must_use]
    pub fn password(self, password: impl Into<String>) -> Self {
        self.set("requirepass", password)
    }

    /// A user, by rules as those of ACL SETUSER: `["on", ">secret", "~lock:*", "+@all"]`. Default: the user `default`,
    /// which may do everything, with [`Builder::password`] if there is one; naming it here starts it from nothing.
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

    /// What INFO says of the program's allocator, which is the program's to choose. Default: `libc`.
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

    /// Who is told of every effect on the keyspace. Default: nobody.
    #[must_use]
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Seeds hashing and every draw, so that a run repeats. Default: from the system's entropy, which strangers who
    /// choose keys cannot foresee.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the server in the caller's runtime, where its connections share as many tasks as there are threads.
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

    /// Starts the server on `threads` threads of its own, each with a runtime that connections are dealt out to.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start_on_threads(self, threads: usize) -> Result<Server, StartError> {
        self.start_among(None, threads.max(1))
    }

    /// Starts the server in the caller's runtime, which others may share, and on `threads` threads beside it. A process
    /// with one thread in all is spared what the system charges for sharing files among threads.
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
        let threads = handle::Threads::default();
        let server = match self.start_on(&handles, Some(threads.clone())) {
            Ok(server) => server,
            Err(error) => {
                // Dropped where they are, they would wait for their tasks, which asynchronous callers must not.
                runtimes.into_iter().for_each(|runtime| runtime.shutdown_background());
                return Err(error);
            }
        };
        drop(entered);
        for (index, runtime) in runtimes.into_iter().enumerate() {
            let house = server.house().clone();
            let body = move || {
                runtime.block_on(house.finished());
                runtime.shutdown_background();
            };
            threads.push(std::thread::Builder::new().name(format!("redlatch-{index}")).spawn(body)?);
        }
        Ok(server)
    }

    fn start_on(self, runtimes: &[Handle], threads: Option<handle::Threads>) -> Result<Server, StartError> {
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
        let bell = Arc::new(Notify::new());
        let layout = Layout {
            shards: shards(&settings),
            databases: settings.integer("databases") as u16,
            seed,
            journal: self.journal,
        };
        let ring = Arc::clone(&bell);
        let keyspace = Keyspace::new(layout, move || ring.notify_one());
        let shared = Shared::new(keyspace, settings, clock.shared(), seed)
            .with_probe(Arc::new(probe::SystemProbe(self.allocator)));
        let shared = match shared.settings.text("aclfile") {
            name if name.is_empty() => shared,
            name => shared.with_acl_file(Arc::new(users::UserFile::new(name))),
        };
        let shared = match self.config_file {
            Some(name) => shared.with_config_file(Arc::new(users::ConfigFile(users::UserFile::new(name)))),
            None => shared,
        };
        users::install(&shared, &self.users)?;
        let ring = Arc::clone(&bell);
        shared.on_stop(move || ring.notify_one());
        let house = House::new(Engine::new(Arc::new(shared)), clock, bell);
        listeners.serve(house, runtimes, threads)
    }
}

/// What a server listens on.
struct Listeners {
    tcp: Port,
    tls: Option<(Port, Arc<Tls>)>,
    unix: Option<unix::Bound>,
}

/// One port, on every address of `bind`.
#[derive(Default)]
struct Port {
    listeners: Vec<std::net::TcpListener>,
    /// Where its number is written once connections are accepted.
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
        house: House,
        runtimes: &[Handle],
        threads: Option<handle::Threads>,
    ) -> Result<Server, StartError> {
        let workers = Arc::new(Workers::new(&house.engine, runtimes));
        let shared = house.engine.shared();
        let addresses = self.tcp.serve(&house, &workers, None, &shared.port)?;
        let mut sealed = None;
        if let Some((port, tls)) = self.tls {
            let addresses = port.serve(&house, &workers, Some(&tls), &shared.tls_port)?;
            judge_certificates(&shared.settings, Arc::clone(&tls));
            sealed = Some((addresses, tls));
        }
        if let Some(unix) = self.unix {
            let listener = UnixListener::from_std(unix.listener)?;
            let accept = listen::accept_unix(listener, unix.file, house.clone(), Arc::clone(&workers));
            Handle::current().spawn(accept);
        }
        Handle::current().spawn(ticker::run(house.clone()));
        Ok(Server::new(house, addresses, sealed, workers, threads))
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
        for (ip, may_fail) in listen::addresses(&settings.text("bind")).map_err(StartError::Unusable)? {
            // All addresses share the free port that the first one got.
            let address = SocketAddr::new(ip, number);
            match listen::tcp(address) {
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

    /// Accepts connections, which `tls` seals; its number is stored for whoever asks the server for it.
    fn serve(
        self,
        house: &House,
        workers: &Arc<Workers>,
        tls: Option<&Arc<Tls>>,
        number: &AtomicU64,
    ) -> Result<Vec<SocketAddr>, StartError> {
        let listeners = self.listeners.iter();
        let addresses: Vec<_> = listeners.map(std::net::TcpListener::local_addr).collect::<Result<_, _>>()?;
        for listener in self.listeners {
            let listener = TcpListener::from_std(listener)?;
            let accept = listen::accept_tcp(listener, tls.cloned(), house.clone(), Arc::clone(workers));
            Handle::current().spawn(accept);
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

/// Has CONFIG SET try out certificates before it takes them.
fn judge_certificates(settings: &Settings, tls: Arc<Tls>) {
    settings.on_proposal(move |proposal| {
        let Some(name) = proposal.first("tls-") else { return Ok(()) };
        tls.renew(&|name| proposal.text(name)).map_err(|expected| {
            tracing::warn!(reason = expected, "Certificates stay as they were");
            let reply = "Unable to update TLS configuration. Check server logs.".to_owned();
            SettingError::Value { name, value: proposal.text(name), expected, reply }
        })
    });
}

/// Writes a file so that a reader sees nothing or all of it.
fn write_whole(path: &std::path::Path, text: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    std::fs::write(&draft, text)?;
    std::fs::rename(draft, path)
}

fn shards(settings: &Settings) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    match settings.integer("shards") as usize {
        // When a million leases end in one second, a GET beside them has a 99th percentile of 0.4 ms. With four shards per
        // core it is 1.4 ms; sixteen give no more, and take a byte more per lock.
        0 => (cores() * 8).next_power_of_two().min(crate::limits::SHARDS_MAX),
        shards => shards.next_power_of_two(),
    }
}

/// Randomness from the system, by way of the standard library's own hash seeds.
fn system_entropy() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// One thread's runtime, with threads that may be held beside it for as long as they are needed.
///
/// # Errors
/// When the system has no descriptor left for it.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().thread_keep_alive(ASIDE_KEPT).enable_all().build()
}

/// How long a thread that may be held waits for more: with a second thread in the process, the system charges each read and
/// write for sharing files.
const ASIDE_KEPT: Duration = Duration::from_millis(100);
