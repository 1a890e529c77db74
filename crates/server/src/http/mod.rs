//! HTTP on a port of its own: metrics, health, a page of locks and its interface in JSON.
//!
//! Owns    the sockets of HTTP, their thread, and [`HttpContext`], which all requests share.
//! Rule    HTTP has a thread and a runtime of its own, so that a slow request delays no lock. It serves the first node.
//! Rule    what `/api` tells and does goes through commands, which are no client: [`questions`]. Only what takes, renews and
//!         releases locks is one, because it may wait: [`lock_client`].
//! Rule    a connection is bounded in time and in bytes, and so is the number of connections: `limits`.

mod access;
mod api;
mod connection;
mod contention;
mod events;
mod groups;
mod health;
mod hold_request;
mod holds;
mod json;
mod limits;
mod lock_client;
mod metrics;
mod page;
mod parameters;
mod places;
mod questions;
mod refusal;
mod responses;
mod routes;
mod runtime;
mod sampler;
#[cfg(feature = "etcd")]
pub(super) mod standby;
mod timed_stream;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use redlatch_core::state::log_limiter::LogLimiter;
use redlatch_core::state::settings::{self, Settings};
use redlatch_platform::unix_socket::UnixListener;
use redlatch_proto::limits::HTTP_WAITS_MAX;
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::time::Instant;

use super::context::ServerContext;
use super::listener::{self, Listener, Open};
use super::worker::{Threads, Workers, runtime};
use super::{StartError, listen, numbered, unix};
use connection::Acceptor;
use events::Viewers;

/// The sockets that HTTP listens on; none if the settings do not ask for it.
pub(super) struct Http {
    tcp: Vec<std::net::TcpListener>,
    is_inherited: bool,
    unix: Option<unix::Bound>,
    names: Vec<String>,
}

/// What every request may use.
#[derive(Debug)]
pub(super) struct HttpContext {
    pub(super) server: ServerContext,
    /// Run the commands of HTTP.
    workers: Arc<Workers>,
    /// Host names that requests may be for, beside addresses and `localhost`.
    names: Vec<String>,
    /// Limits the requests that run on blocking threads.
    blocking: Arc<Semaphore>,
    /// Limits the requests that wait for a lock.
    waits: Semaphore,
    /// Limits the log lines about wrong passwords and tokens.
    denials: LogLimiter,
    /// Who follows `/api/events`.
    viewers: Viewers,
    /// Whether a write is answered: when it was tried last, and why it was not.
    probed: AsyncMutex<Option<(Instant, Option<String>)>>,
}

impl Http {
    /// Checks the settings, as far as no address has to be bound for it.
    ///
    /// # Errors
    /// There is a port, and `http-bind` has no address.
    pub(super) fn check(settings: &Settings) -> Result<(), StartError> {
        let bind = settings.get(settings::HTTP_BIND);
        let is_on = settings.get(settings::HTTP_PORT) != "0";
        // Names alone are for requests at the Unix socket, or at a socket of systemd. Else they are a mistake.
        let has_socket = !settings.get(settings::HTTP_UNIXSOCKET).is_empty();
        let may_be_names = has_socket || settings.get(settings::SUPERVISED) != "no" || bind.trim().is_empty();
        if Self::addresses(settings).is_empty() && (is_on || !may_be_names) {
            let text = format!("http-bind '{bind}': must name at least one IP address to listen on");
            return Err(StartError::Unusable(text));
        }
        Ok(())
    }

    /// The addresses that `http-bind` names.
    pub(super) fn addresses(settings: &Settings) -> Vec<(IpAddr, bool)> {
        addresses_and_names(&settings.get(settings::HTTP_BIND)).0
    }

    /// Binds what `http-port`, `http-bind` and `http-unixsocket` ask for. With inherited sockets, the port is not bound.
    ///
    /// # Errors
    /// An address is in use, or `http-bind` has no address.
    pub(super) fn open(
        settings: &Settings,
        inherited: Vec<std::net::TcpListener>,
    ) -> Result<Self, StartError> {
        if inherited.is_empty() {
            Self::check(settings)?;
        }
        let (_, names) = addresses_and_names(&settings.get(settings::HTTP_BIND));
        let is_inherited = !inherited.is_empty();
        let tcp = listeners(settings, inherited, 0)?;
        Ok(Self { tcp, is_inherited, unix: unix::Bound::open(settings, settings::HTTP_UNIXSOCKET)?, names })
    }

    /// Serves HTTP until `server` has finished, or its handle is dropped. Returns the addresses of the port. Without a socket
    /// nothing is started.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub(super) fn serve(
        self,
        server: &ServerContext,
        workers: &Arc<Workers>,
        threads: &Threads,
        open: &Open,
    ) -> Result<Vec<SocketAddr>, StartError> {
        let addresses: Vec<_> =
            self.tcp.iter().map(std::net::TcpListener::local_addr).collect::<Result<_, _>>()?;
        if self.tcp.is_empty() && self.unix.is_none() {
            return Ok(addresses);
        }
        let runtime = runtime()?;
        let context = HttpContext::new(server.clone(), Arc::clone(workers), self.names);
        let acceptor = Acceptor::new(Arc::new(context));
        // A socket registers with the runtime that is entered.
        let entered = runtime.enter();
        for listener in self.tcp {
            let socket = TcpListener::from_std(listener)?;
            let listener = Listener::Tcp { socket, tls: None, is_inherited: self.is_inherited };
            runtime.spawn(acceptor.clone().run(listener, open.clone()));
        }
        if let Some(bound) = self.unix {
            let listener = Listener::Unix(UnixListener::from_std(bound.listener)?, bound.file);
            runtime.spawn(acceptor.run(listener, open.clone()));
        }
        drop(entered);
        let server = server.clone();
        threads.start_named("redlatch-http".to_owned(), runtime, async move { server.finished().await })?;
        Ok(addresses)
    }
}

/// Binds the port that `http-port` and `http-bind` ask for, unless there are inherited sockets.
///
/// # Errors
/// An address is in use, or `http-bind` has no address.
pub(super) fn listeners(
    settings: &Settings,
    inherited: Vec<std::net::TcpListener>,
    behind: usize,
) -> Result<Vec<std::net::TcpListener>, StartError> {
    match settings.get(settings::HTTP_PORT).as_str() {
        _ if !inherited.is_empty() => Ok(inherited),
        "0" => Ok(Vec::new()),
        number => {
            Http::check(settings)?;
            let (addresses, _) = addresses_and_names(&settings.get(settings::HTTP_BIND));
            listen(&addresses, numbered("http-port", number, behind)?)
        }
    }
}

impl HttpContext {
    fn new(server: ServerContext, workers: Arc<Workers>, names: Vec<String>) -> Self {
        let (denials, viewers) = (LogLimiter::default(), Viewers::default());
        let blocking = Arc::new(Semaphore::new(limits::BLOCKING_MAX));
        let waits = Semaphore::new(HTTP_WAITS_MAX);
        Self { server, workers, names, blocking, waits, denials, viewers, probed: AsyncMutex::default() }
    }

    /// How many requests wait for a lock.
    fn waiting(&self) -> usize {
        HTTP_WAITS_MAX.saturating_sub(self.waits.available_permits())
    }
}

/// The addresses in the setting `http-bind`, and its other words, which are host names, in lower case.
fn addresses_and_names(bind: &str) -> (Vec<(IpAddr, bool)>, Vec<String>) {
    let (mut addresses, mut names) = (Vec::new(), Vec::new());
    for word in bind.split_whitespace() {
        match listener::addresses(word) {
            Ok(found) => addresses.extend(found),
            Err(_) => names.push(word.to_ascii_lowercase()),
        }
    }
    (addresses, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_http_bind_that_are_no_addresses_are_host_names() {
        let (addresses, names) = addresses_and_names("127.0.0.1 -::1 Locks.example.com *");
        let shown: Vec<String> =
            addresses.iter().map(|(ip, may_be_missing)| format!("{ip} {may_be_missing}")).collect();
        assert_eq!(shown, ["127.0.0.1 false", "::1 true", "0.0.0.0 false"]);
        assert_eq!(names, ["locks.example.com"]);
    }
}
