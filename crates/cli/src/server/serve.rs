//! The process around one server: its start, its signals, its end.
//!
//! Rule    the signals are caught before the log says that connections are accepted, so that a harness that waits for
//!         that line can end the process in good order at once.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use redlatch_core::state::directives;
use redlatch_core::state::settings::{self, Settings};
use redlatch_platform::signals::{Caught, Signals};
use redlatch_platform::unix_socket::SocketFile;
use redlatch_server::Server;
use redlatch_server::process::Inherited;
use tokio::runtime::Runtime;

use super::arguments::ServerArguments;
use super::configuration::{Configuration, Sources};
use super::harness::HarnessFlags;
use super::log_file::LogFile;
use super::otlp::Exporter;
use super::served::{Listening, Served};
use super::systemd::Supervisor;
use super::{descriptors, harness, log};
use crate::common::{Fault, print, signals};

/// What the process brings along, besides the settings.
pub(super) struct Process<'p> {
    /// The name that it was started by.
    pub(super) program: &'p str,
    /// Its arguments: what its harness asks for, and the settings that are read again.
    pub(super) arguments: &'p ServerArguments,
    /// Sockets that it was started with.
    pub(super) inherited: Inherited,
    pub(super) log: Log,
    /// What sends its spans, if anything does.
    pub(super) exporter: Option<Exporter>,
}

/// The log of the process.
pub(super) struct Log {
    /// Where it goes, if it goes anywhere.
    pub(super) file: Option<Arc<LogFile>>,
    pub(super) set_level: log::SetLevel,
}

/// Serves until a signal, SHUTDOWN or a failed sync of the journal ends it. Returns the status of the process.
///
/// # Errors
/// The reason why the server does not start.
pub(super) fn serve(process: Process<'_>, configuration: Configuration) -> Result<ExitCode, Fault> {
    let Process { program, arguments, inherited, log, exporter } = process;
    let flags = &arguments.harness;
    flags.check()?;
    let settings = Settings::default();
    let mut builder = configuration.builder(&settings)?;
    check_reachable(&settings, &inherited)?;
    log_start(program, &configuration.ignored);
    let supervisor = Supervisor::find(&settings.get(settings::SUPERVISED))?;
    let unix = unix_paths(&settings, &inherited);
    let for_others = descriptors::for_others(&settings, &inherited);
    builder = builder.inherited(inherited);
    let clients = descriptors::client_limit(&settings, for_others)?;
    builder = builder.set("maxclients", clients.to_string());
    let threads = match settings.get(settings::THREADS) {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let runtime = redlatch_server::process::runtime().map_err(|error| format!("cannot start: {error}"))?;
    // A signal is registered with the runtime that waits for it.
    let entered = runtime.enter();
    let mut signals = signals()?;
    drop(entered);
    let Log { file, set_level } = log;
    let set_level = Arc::new(set_level);
    let watch_settings = move |server: &Server| watch_settings(server, &set_level, for_others);
    let start = Served::start(builder, &settings, threads, watch_settings);
    // The start may wait for others.
    let started = runtime.block_on(async {
        tokio::select! {
            biased;
            started = start => Some(started),
            () = signals.end() => None,
        }
    });
    let Some(server) = started.transpose()? else { return Ok(ExitCode::SUCCESS) };
    write_pid(&settings.get(settings::PIDFILE));
    let listening = server.listening(&settings);
    let status = log_ready(&listening, &unix);
    supervisor.tell_ready(Some(&status));
    let is_harness_there = !flags.is_ready_told || print(harness::ready_line(&listening, &unix).as_bytes())?;
    let reason = match is_harness_there {
        true => {
            let reload = || {
                reload(&server, file.as_deref(), &supervisor);
                reread_etcd(&server, arguments);
            };
            let end = reason_to_end(&mut signals, &server, flags, reload);
            runtime.block_on(unless_forever(end, watch(&server, &supervisor, file.as_deref())))
        }
        false => "nobody reads the standard output",
    };
    tracing::info!(reason, "Ending");
    supervisor.tell_stopping();
    Ok(end(server, &settings, (runtime, signals, exporter)))
}

/// Ends the server, and what serves it. Returns the status of the process.
fn end(
    server: Served,
    settings: &Settings,
    (runtime, mut signals, exporter): (Runtime, Signals, Option<Exporter>),
) -> ExitCode {
    server.stop();
    let mut is_hurried = runtime.block_on(async {
        tokio::select! {
            () = server.finished() => false,
            () = signals.end() => true,
        }
    });
    let failure = server.failure();
    runtime.shutdown_background();
    if !is_hurried {
        server.join();
    }
    let files = [settings::PORT_FILE, settings::TLS_PORT_FILE, settings::HTTP_PORT_FILE, settings::PIDFILE];
    for file in files.map(|file| settings.get(file)) {
        if !file.is_empty() {
            // A harness that waits for the file of the next server must not find this one's.
            let _ = std::fs::remove_file(file);
        }
    }
    if let Some(exporter) = exporter {
        tracing::info!("The last spans are sent");
        let was_hurried = is_hurried;
        is_hurried = exporter.end(async {
            if !was_hurried {
                signals.end().await;
            }
        });
    }
    if is_hurried {
        tracing::warn!("A second signal ends the process at once");
        return ExitCode::FAILURE;
    }
    if let Some(status) = failure {
        return status.into();
    }
    tracing::info!("Ended");
    ExitCode::SUCCESS
}

/// Tells the supervisor that the server lives, and the log which of its lines were left out. Has no end.
async fn watch(server: &Served, supervisor: &Supervisor, log: Option<&LogFile>) {
    let told = async {
        if let Some(log) = log {
            log.tell_left_out().await;
        }
    };
    tokio::join!(supervisor.watch(server), told);
}

/// Waits for `end`, and meanwhile runs `work`, which has no end.
async fn unless_forever<T>(end: impl Future<Output = T>, work: impl Future<Output = ()>) -> T {
    let work = async {
        work.await;
        std::future::pending().await
    };
    tokio::select! {
        ended = end => ended,
        never = work => never,
    }
}

/// Checks that there is an address to connect to.
///
/// # Errors
/// There is none.
pub(super) fn check_reachable(settings: &Settings, inherited: &Inherited) -> Result<(), Fault> {
    let has_port = [settings::PORT, settings::TLS_PORT].into_iter().any(|port| settings.get(port) != "0");
    if has_port || !settings.get(settings::UNIXSOCKET).is_empty() || inherited.is_any() {
        return Ok(());
    }
    let expected = "must be above 0, or auto, where neither tls-port nor unixsocket is set";
    Err(format!("port '0': {expected}: no client could connect"))
}

/// The paths of the Unix sockets, separated by spaces.
fn unix_paths(settings: &Settings, inherited: &Inherited) -> String {
    if !inherited.replaces_port() {
        return settings.get(settings::UNIXSOCKET);
    }
    let files = inherited.unix.iter().map(SocketFile::of_another);
    let paths = files.map(|file| file.path().display().to_string()).filter(|path| !path.is_empty());
    paths.collect::<Vec<_>>().join(" ")
}

/// Waits until the server is to end; returns why. It outlives its terminal, as Redis does: SIGHUP has it read its
/// certificates and open its log file again.
async fn reason_to_end(
    signals: &mut Signals,
    server: &Served,
    flags: &HarnessFlags,
    reload: impl Fn(),
) -> &'static str {
    let mut end_of_process = std::pin::pin!(flags.reason_to_end());
    loop {
        tokio::select! {
            caught = signals.next() => match caught {
                Caught::End(ending) => return ending.name,
                Caught::Hangup => reload(),
            },
            () = server.stopped() => return "SHUTDOWN",
            reason = &mut end_of_process => return reason,
        }
    }
}

/// Has a server that starts follow CONFIG SET where that concerns the process.
fn watch_settings(server: &Server, set_level: &Arc<log::SetLevel>, for_others: u64) {
    let set_level = Arc::clone(set_level);
    server.settings().on_change(move |settings| set_level(&settings.get(settings::LOGLEVEL)));
    server.settings().on_proposal(move |proposal| descriptors::check_maxclients(proposal, for_others));
}

/// Opens the log file and the audit log again, which may have been renamed, and reads renewed certificates; the log says if
/// they cannot be used.
fn reload(server: &Served, log: Option<&LogFile>, supervisor: &Supervisor) {
    supervisor.tell_reloading();
    if let Some(Err(error)) = log.map(LogFile::reopen) {
        tracing::warn!(%error, "The log stays in its old file");
    }
    server.reopen_audit_log();
    match server.reload_certificates() {
        Ok(()) => tracing::info!("Certificates are reloaded"),
        Err(reason) => tracing::warn!(reason, "Certificates cannot be reloaded: the old ones stay in use"),
    }
    supervisor.tell_ready(None);
}

/// Reads `cluster-etcd` again: a member of etcd may have another address. What comes from the standard input, a flag or the
/// environment stays.
fn reread_etcd(server: &Served, arguments: &ServerArguments) {
    if matches!(server, Served::Alone(_)) || arguments.reads_stdin {
        return;
    }
    let endpoints = Sources::read(arguments).value("cluster-etcd");
    match server.set_etcd(&endpoints) {
        Ok(()) => tracing::info!(endpoints, "The endpoints of etcd are reloaded"),
        Err(reason) => {
            tracing::warn!(reason, "The endpoints of etcd cannot be reloaded: the old ones stay in use")
        }
    }
}

/// The name of the server that a harness thinks it has started by this name of the program, if that is another one.
pub(super) fn name_of_peer(program: &str) -> Option<&'static str> {
    match Path::new(program).file_name()?.to_str()? {
        "redis-server" => Some("Redis"),
        "valkey-server" => Some("Valkey"),
        _ => None,
    }
}

/// Logs the banner that harnesses wait for, in the name of the program that they think they started, and the ignored
/// directives.
pub(super) fn log_start(program: &str, ignored: &[String]) {
    let name = name_of_peer(program).unwrap_or("redlatch");
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

/// Writes the number of this process to a file, if there is a path. As in Redis, the server also runs without it.
fn write_pid(path: &str) {
    if path.is_empty() {
        return;
    }
    if let Err(error) = std::fs::write(path, format!("{}\n", std::process::id())) {
        tracing::warn!(path, %error, "The pidfile cannot be written");
    }
}

/// Says that the server accepts connections, and where: several addresses of one port are separated by spaces. Returns that
/// in one sentence.
fn log_ready(at: &Listening, unix: &str) -> String {
    let listed =
        |addresses: &[SocketAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let [tcp, tls, http] = [&at.tcp, &at.tls, &at.http].map(|addresses| listed(addresses));
    tracing::info!(tcp, tls, unix, http, "Ready to accept connections");
    let named = [("tcp", &*tcp), ("tls", &*tls), ("unix", unix), ("http", &*http)];
    let named = named.iter().filter(|(_, addresses)| !addresses.is_empty());
    let addresses: Vec<_> = named.map(|(kind, addresses)| format!("{kind} {addresses}")).collect();
    format!("Accepts connections: {}", addresses.join(", "))
}
