//! The process around one server: its start, its signals, its end.
//!
//! Rule    the signals are caught before the log says that connections are accepted, so that a harness that waits for
//!         that line can end the process in good order at once.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::sources::Configuration;
use super::{Fault, descriptors, directives, harness, log, print};
use crate::server::{self, Builder, Server};
use crate::state::proposal::Proposal;
use crate::state::settings::{SettingError, Settings};

/// The allocator of the binary: see `main.rs`.
const ALLOCATOR: &str = if cfg!(target_env = "musl") { "mimalloc" } else { "libc" };

/// Serves until a signal, SHUTDOWN or a failed sync of the journal ends it. Returns the status of the process.
///
/// # Errors
/// The reason why the server does not start.
pub(super) fn serve(
    program: &str,
    configuration: Configuration,
    flags: &harness::Flags,
    level: log::Level,
) -> Result<ExitCode, Fault> {
    flags.check()?;
    let settings = Settings::default();
    let mut builder = configured(&configuration, &settings)?;
    log_start(program, &configuration.ignored);
    let clients = client_limit(&settings)?;
    builder = builder.set("maxclients", clients.to_string());
    let threads = match settings.integer("threads") as usize {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let runtime = server::runtime().map_err(|error| format!("cannot start: {error}"))?;
    // A signal is registered with the runtime that waits for it.
    let entered = runtime.enter();
    let mut signals = Signals::catch().map_err(|error| format!("cannot catch signals: {error}"))?;
    // This thread is one of the workers.
    let server = builder.start_here_and_on(threads - 1).map_err(|refused| refused.to_string())?;
    drop(entered);
    server.settings().on_change(move |settings| level(&settings.text("loglevel")));
    server.settings().on_proposal(check_maxclients);
    let unix = settings.text("unixsocket");
    log_ready(&server, &unix);
    let is_harness_there = !flags.is_ready_told || print(harness::ready_line(&server, &unix).as_bytes())?;
    let reason = match is_harness_there {
        true => runtime.block_on(signals.reason_to_end(&server, flags)),
        false => "nobody reads the standard output",
    };
    tracing::info!(reason, "Ending");
    server.stop();
    runtime.block_on(server.finished());
    let has_failed = server.has_failed();
    runtime.shutdown_background();
    server.join();
    for port_file in ["port-file", "tls-port-file", "http-port-file"].map(|name| settings.text(name)) {
        if !port_file.is_empty() {
            // A harness that waits for the file of the next server must not find this one's.
            let _ = std::fs::remove_file(port_file);
        }
    }
    match has_failed {
        true => Ok(DISK_FAILED.into()),
        false => {
            tracing::info!("Ended");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The status of a process that ends because the disk cannot be trusted: EX_IOERR of `sysexits.h`.
const DISK_FAILED: u8 = 74;

/// The server that the configuration describes. Stores its settings in `settings`, too.
///
/// # Errors
/// A value is not allowed, or the server has no address to connect to.
fn configured(configuration: &Configuration, settings: &Settings) -> Result<Builder, Fault> {
    let mut builder = Builder::new().allocator(ALLOCATOR);
    for (name, value) in &configuration.settings {
        settings.set(name, value).map_err(|refused| refused.to_string())?;
        builder = builder.set(*name, value);
    }
    for (name, rules) in &configuration.users {
        builder = builder.user(name, rules);
    }
    if let Some(file) = &configuration.file {
        // A relative path would be another file after a change of the working directory.
        let path = std::path::absolute(file).map_err(|error| format!("{file}: {error}"))?;
        builder = builder.config_file(path.to_string_lossy());
    }
    let has_port = ["port", "tls-port"].iter().any(|name| settings.text(name) != "0");
    if !has_port && settings.text("unixsocket").is_empty() {
        let expected = "must be above 0, or auto, where neither tls-port nor unixsocket is set";
        return Err(format!("port '0': {expected}: no client could connect"));
    }
    Ok(builder)
}

/// The signals that concern a running server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The server outlives its terminal, as Redis does, and reads its certificates again.
    hangup: Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until the server is to end; returns why.
    async fn reason_to_end(&mut self, server: &Server, flags: &harness::Flags) -> &'static str {
        let mut end_of_process = std::pin::pin!(flags.reason_to_end());
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                () = server.stopped() => return "SHUTDOWN",
                reason = &mut end_of_process => return reason,
                _ = self.hangup.recv() => reload(server),
            }
        }
    }
}

/// Raises the limit of open files for `maxclients`. Returns how many clients it allows; the log says so if it is
/// fewer.
fn client_limit(settings: &Settings) -> Result<u64, Fault> {
    let wanted = settings.integer("maxclients") as u64;
    let fit = descriptors::raise_limit(wanted).map_err(|error| format!("maxclients: {error}"))?;
    match fit {
        0 => Err("the limit of open files leaves no room for a client: raise 'ulimit -n'".into()),
        _ if fit < wanted => {
            tracing::warn!(wanted, maxclients = fit, "maxclients lowered to what 'ulimit -n' allows");
            Ok(fit)
        }
        _ => Ok(wanted),
    }
}

/// CONFIG SET may set no `maxclients` that the system does not allow.
fn check_maxclients(proposal: &Proposal<'_>) -> Result<(), SettingError> {
    let Some(name) = proposal.first("maxclients") else { return Ok(()) };
    let value = proposal.text(name);
    let wanted = value.parse().unwrap_or(u64::MAX);
    match descriptors::raise_limit(wanted) {
        Ok(fit) if fit < wanted => {
            let reply = format!(
                "The operating system is not able to handle the specified number of clients, try with {fit}"
            );
            Err(SettingError::Value { name, value, expected: format!("must be at most {fit}"), reply })
        }
        _ => Ok(()),
    }
}

/// Reads renewed certificates again; the log says if they cannot be used.
fn reload(server: &Server) {
    match server.reload_certificates() {
        Ok(()) => tracing::info!("Certificates have been read again"),
        Err(reason) => tracing::warn!(reason, "Certificates stay as they were"),
    }
}

/// Logs the banner that harnesses wait for, in the name of the program that they think they started, and the ignored
/// directives.
fn log_start(program: &str, ignored: &[String]) {
    let name = match Path::new(program).file_name().and_then(|name| name.to_str()) {
        Some("redis-server") => "Redis",
        Some("valkey-server") => "Valkey",
        _ => "redlatch",
    };
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    tracing::info!(version, pid, "oO0OoO0OoO0Oo {name} is starting oO0OoO0OoO0Oo");
    if !ignored.is_empty() {
        tracing::warn!(settings = ignored.join(" "), "Settings that do not apply are ignored");
    }
    let protections: Vec<&str> =
        ignored.iter().map(String::as_str).filter(|name| directives::is_protection(name)).collect();
    if !protections.is_empty() {
        tracing::warn!(
            settings = protections.join(" "),
            "Ignored settings leave the server less protected than Redis"
        );
    }
}

/// Says that the server accepts connections, and where: several addresses of one port are separated by spaces.
fn log_ready(server: &Server, unix: &str) {
    let listed =
        |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let [tcp, tls, http] = [server.addrs(), server.tls_addrs(), server.http_addrs()].map(listed);
    tracing::info!(tcp, tls, unix, http, "Ready to accept connections");
}
