//! `redlatch beside`: a server on a port of this machine that shows the locks of another server.

use std::sync::Arc;

use redlatch_core::state::beside::Beside;
use redlatch_server::{Builder, Server, ShownLease};
use tokio::time::Instant;

use super::changes::Changes;
use super::login::Login;
use super::observed::{Observed, Reading};
use super::sweep::{Sweep, Viewer};
use crate::common::exit::{self, DONE, Failure};
use crate::common::{print, signals};
use crate::server::log_to_stdout;

#[derive(Debug)]
pub(super) struct ShadowOptions {
    pub(super) login: Login,
    /// Requests in a second.
    pub(super) rate: u32,
    /// The keys that are locks, whatever their names.
    pub(super) pattern: Option<String>,
    /// Whether the server is asked to say which of these keys change.
    pub(super) is_tracking: bool,
    /// The ports to listen on: numbers, or `auto`.
    pub(super) port: String,
    pub(super) http_port: String,
}

/// Keys from which on `--match` is asked for.
const KEYS_MAX: i64 = 100_000;

/// Shows the locks until a signal or SHUTDOWN ends it; returns the exit status.
pub(super) fn run(options: ShadowOptions) -> u8 {
    exit::run(serve(options))
}

async fn serve(options: ShadowOptions) -> Result<u8, Failure> {
    let ShadowOptions { login, rate, pattern, is_tracking, port, http_port } = options;
    let (url, beside) = (login.url(), Arc::new(Beside::new(login.url())));
    let mut signals = signals()?;
    log_to_stdout()?;
    let changes = Changes::of(pattern.clone().filter(|_| is_tracking));
    let mut observed = Observed::connect(login, rate, Arc::clone(&beside), changes).await?;
    check(&mut observed, &url, pattern.is_some()).await?;
    let builder = Builder::new().beside(beside).set("lock-lint", "yes").set("bind", "127.0.0.1");
    let builder = builder.set("port", port).set("http-port", http_port).set("http-bind", "127.0.0.1");
    let server = builder.start().await.map_err(|error| error.to_string())?;
    let http: String = server.http_addrs().iter().map(|at| format!(", http://{at}")).collect();
    print(format!("The locks of {url} are shown at {}{http}\n", server.url()).as_bytes())?;
    let mut sweep = Sweep::new(observed, pattern, &server);
    tokio::select! {
        error = sweep.run() => return Err(error.into()),
        ending = signals.leave() => tracing::info!(reason = ending.name, "Ending"),
        () = server.stopped() => tracing::info!(reason = "SHUTDOWN", "Ending"),
    }
    server.stop();
    server.finished().await;
    Ok(DONE)
}

/// Checks that reading can show the locks of the server.
///
/// # Errors
/// It is one of several, or has too many keys to read all of them.
pub(super) async fn check(observed: &mut Observed, url: &str, has_pattern: bool) -> Result<(), Failure> {
    let server = observed.info("server").await?;
    let mode = server.iter().find(|(name, _)| name == "redis_mode" || name == "server_mode");
    let mode = mode.map(|(_, mode)| &mode[..]).or(observed.is_in_cluster().then_some("cluster"));
    if let Some(mode) = mode.filter(|mode| *mode != "standalone") {
        return Err(Failure::misused(format!("{url} is in {mode} mode, which is not read")));
    }
    let keys = observed.keys().await?.filter(|keys| *keys > KEYS_MAX && !has_pattern);
    match keys {
        Some(keys) => Err(Failure::misused(format!(
            "{url} has {keys} keys: name those that are locks, with --match PATTERN"
        ))),
        None => Ok(()),
    }
}

impl Viewer for &Server {
    fn held(&mut self, key: &[u8], before: Option<&Reading>, now: &Reading) {
        let is_same = before.is_some_and(|before| before.has_lease_of(now));
        if is_same && before.is_some_and(|before| before.value == now.value) {
            return;
        }
        let lease = match now.ends {
            _ if is_same => ShownLease::Same,
            None => ShownLease::Never,
            Some((end, _)) => ShownLease::Left(end.saturating_duration_since(Instant::now())),
        };
        let has_expired = before.is_some_and(Reading::has_expired);
        self.shadow().show(key, &now.value, lease, has_expired);
    }

    fn gone(&mut self, key: &[u8], before: &Reading) {
        self.shadow().hide(key, before.has_expired());
    }
}
