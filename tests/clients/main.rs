//! Real lock clients, in their own languages, against a server process: each runs its users' usual calls.
//!
//! Owns    the table of projects, the order of a run, and its report.
//! Knows   the table of clients and the projects in `tests/clients/`, and how to start a server; nothing of
//!         the library.
//! Time    is real: these clients wait for leases to end on their own clocks. Every child has a time limit.
//!
//! A project finds the server by `REDLATCH_HOST`, `REDLATCH_PORT`, `REDLATCH_PORTS` and
//! `REDLATCH_PIDS` (the last two separated by commas, one entry a server), prints `ok <check>` for each check
//! and `done` after the last one, and exits with a status other than 0 at the first failure. A TLS client also
//! gets `REDLATCH_TLS_PORT` and `REDLATCH_TLS_FILES`, the directory of the files that [`identity`] lists. A client of
//! HTTP gets `REDLATCH_HTTP_PORT`.
//!
//! | variable | effect |
//! |---|---|
//! | `REDLATCH_INSTALL_CLIENTS=1` | packages that are missing are installed, below cargo's target directory |
//! | `REDLATCH_REQUIRE_CLIENTS=1` | a skipped client fails the run |
//! | `UPDATE_README=1` | the browser writes docs/page.png |
//! | `REDLATCH_SERVER=PATH` | this server instead of redlatch: `redis-server`, to check the checks that need no redlatch |

mod identity;
mod installer;
mod process;
mod restarts;
#[allow(dead_code, reason = "some columns are for docs/clients.md alone")]
mod table;

#[allow(dead_code, unused_imports, reason = "the suite uses the rest")]
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use identity::Identity;
use installer::{Installer, is_set};
use process::{Finished, run};
use restarts::Pair;
use support::server::Server;
use table::{Client, clients};

/// The result of one client.
enum Verdict {
    Failed(String),
    Passed { checks: usize },
    Skipped(String),
}

fn main() -> ExitCode {
    let selection = Selection::from_args(std::env::args().skip(1));
    let chosen: Vec<&'static Client> =
        clients().iter().filter(|client| selection.takes(&client.name)).collect();
    if selection.only_list {
        chosen.iter().for_each(|client| println!("{}: test", client.name));
        return ExitCode::SUCCESS;
    }

    if is_set("REDLATCH_INSTALL_CLIENTS") {
        install_ahead(&chosen);
    }
    let verdicts = report_all(&chosen);

    let failed = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Failed(_))).count();
    let skipped = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Skipped(_))).count();
    let skips_allowed = !is_set("REDLATCH_REQUIRE_CLIENTS");
    if skipped > 0 && !skips_allowed {
        println!("REDLATCH_REQUIRE_CLIENTS is set: a skipped client fails the run");
    }
    println!("\n{} passed, {failed} failed, {skipped} skipped", verdicts.len() - failed - skipped);
    if failed == 0 && (skipped == 0 || skips_allowed) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Installs the packages of projects while the clients of projects before them run, which wait for leases most of the time.
/// A project that is not ready in time, or cannot be, is prepared again by its first client, which reports why.
fn install_ahead(chosen: &[&'static Client]) {
    let mut projects: Vec<&'static str> = chosen.iter().map(|client| client.project.as_str()).collect();
    projects.dedup();
    thread::spawn(move || projects.into_iter().for_each(|project| drop(Installer::open(project))));
}

/// Runs the clients, some beside each other, because they wait for leases most of the time.
fn report_all(chosen: &[&'static Client]) -> Vec<Verdict> {
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let reporter = || {
        while let Some(client) = chosen.get(next.fetch_add(1, Relaxed)) {
            let verdict = report(client);
            verdicts.lock().expect("no reporter panics with it").push(verdict);
        }
    };
    thread::scope(|scope| (0..CLIENTS_AT_ONCE).for_each(|_| drop(scope.spawn(reporter))));
    verdicts.into_inner().expect("a reporter that panics ends the program")
}

/// Runs one client and prints its result.
fn report(client: &Client) -> Verdict {
    let start = Instant::now();
    let verdict = check(client);
    let seconds = start.elapsed().as_secs_f64();
    match &verdict {
        Verdict::Failed(why) => println!("client {} ... FAILED ({seconds:.1} s)\n{why}", client.name),
        Verdict::Passed { checks } => {
            println!("client {} ... passed ({checks} checks, {seconds:.1} s)", client.name);
        }
        Verdict::Skipped(reason) => println!("client {} ... skipped ({reason})", client.name),
    }
    verdict
}

/// Prepares the installation of the client's project, and runs the client.
fn check(client: &Client) -> Verdict {
    let installer = match Installer::open(&client.project) {
        Ok(installer) => installer,
        Err(installer::Closed::Broken(why)) => return Verdict::Failed(why),
        Err(installer::Closed::Missing(what)) => return Verdict::Skipped(what),
    };
    run_programs(client, &installer).unwrap_or_else(Verdict::Failed)
}

/// Runs the client's programs one after another, until one does not pass.
fn run_programs(client: &Client, installer: &Installer) -> Result<Verdict, String> {
    let verdict = run_on_servers(client, &client.command, installer)?;
    if std::env::var_os("REDLATCH_SERVER").is_some() {
        return Ok(verdict);
    }
    let verdict = verdict.then(&client.native, |program| run_on_servers(client, program, installer))?;
    verdict.then(&client.restarts, |program| run_through_restarts(program, installer))
}

impl Verdict {
    /// If this has passed and there is a `next` program: the verdict on both.
    fn then(
        self,
        next: &[String],
        run: impl FnOnce(&[String]) -> Result<Self, String>,
    ) -> Result<Self, String> {
        match self {
            Self::Passed { checks: earlier } if !next.is_empty() => Ok(match run(next)? {
                Self::Passed { checks } => Self::Passed { checks: checks + earlier },
                verdict => verdict,
            }),
            verdict => Ok(verdict),
        }
    }
}

/// Starts the servers, and runs one program of the client.
fn run_on_servers(client: &Client, program: &[String], installer: &Installer) -> Result<Verdict, String> {
    let identity = if client.has_tls { Some(Identity::new(installer.dir())?) } else { None };
    let mut more = identity.as_ref().map(Identity::arguments).unwrap_or_default();
    if client.has_slots {
        more.push("--cluster-enabled=yes".to_owned());
    }
    if client.nodes > 1 {
        more.extend([format!("--nodes={}", client.nodes), "--enable-test-commands=local".to_owned()]);
    }
    let http_port = installer.dir().join(format!("http-port-{}", client.name));
    if client.has_http {
        let file = http_port.display().to_string();
        more.extend(["--http-port=auto", "--http-admin=yes", "--lock-lint=yes"].map(str::to_owned));
        more.extend(["--http-port-file".to_owned(), file]);
    }
    let servers = (0..client.servers).map(|_| Server::start(installer.dir(), &more));
    let servers = servers.collect::<Result<Vec<_>, _>>()?;
    let mut command = told(installer.command(program), &servers);
    if let Some(identity) = &identity {
        command.env("REDLATCH_TLS_PORT", identity.port()?.to_string());
        command.env("REDLATCH_TLS_FILES", identity.files());
    }
    if client.has_http {
        let port = std::fs::read_to_string(&http_port).map_err(|error| format!("port file: {error}"))?;
        command.env("REDLATCH_HTTP_PORT", port.trim());
        if is_set("UPDATE_README") {
            command.env("REDLATCH_PICTURE", Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/page.png"));
        }
    }
    Ok(verdict(&run(command, CLIENT_TIME_MAX)?, &servers))
}

/// Runs a program of a client that ends its servers. They are started again until it is done.
fn run_through_restarts(program: &[String], installer: &Installer) -> Result<Verdict, String> {
    let pair = Pair::start()?;
    let command = told(installer.command(program), pair.servers());
    let (finished, servers) = pair.kept_up(|| run(command, CLIENT_TIME_MAX));
    Ok(verdict(&finished?, &servers))
}

/// The command of a client that knows where the servers are.
fn told(mut command: Command, servers: &[Server]) -> Command {
    let list =
        |of: fn(&Server) -> u32| servers.iter().map(|s| of(s).to_string()).collect::<Vec<_>>().join(",");
    command
        .env("REDLATCH_HOST", "127.0.0.1")
        .env("REDLATCH_PORT", servers.first().map_or(0, Server::port).to_string())
        .env("REDLATCH_PORTS", list(|server| server.port().into()))
        .env("REDLATCH_PIDS", list(Server::pid));
    command
}

/// Checks the output of a client.
fn verdict(finished: &Finished, servers: &[Server]) -> Verdict {
    let checks = finished.lines.iter().filter(|line| line.starts_with("ok ")).count();
    let is_done = finished.lines.iter().any(|line| line == "done");
    match finished.failure() {
        None if is_done && checks > 0 => Verdict::Passed { checks },
        None => Verdict::Failed(format!("exit status 0 without `done`\n{}", story(finished, servers))),
        Some(why) => Verdict::Failed(format!("{why}\n{}", story(finished, servers))),
    }
}

/// The last output of the client and its servers, indented below the verdict.
fn story(finished: &Finished, servers: &[Server]) -> String {
    let client = finished.lines.iter().rev().take(LINES_SHOWN).rev().map(|line| format!("    {line}\n"));
    let servers = servers.iter().flat_map(|server| {
        server
            .last_words(LINES_SHOWN)
            .into_iter()
            .map(|line| format!("    server {}: {line}\n", server.port()))
    });
    client.chain(servers).collect()
}

/// The arguments of `cargo test`: words of which a name must contain one, and flags.
#[derive(Default)]
struct Selection {
    words: Vec<String>,
    skips: Vec<String>,
    is_exact: bool,
    only_list: bool,
    only_ignored: bool,
}

impl Selection {
    /// Flags of the standard harness that have no meaning here are accepted and ignored.
    fn from_args(args: impl Iterator<Item = String>) -> Self {
        let mut selection = Self::default();
        let mut args = args;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--exact" => selection.is_exact = true,
                "--ignored" => selection.only_ignored = true,
                "--list" => selection.only_list = true,
                "--skip" => selection.skips.extend(args.next()),
                "--color" | "--format" | "--logfile" | "--test-threads" | "-Z" => drop(args.next()),
                flag if flag.starts_with('-') => {}
                word => selection.words.push(word.to_owned()),
            }
        }
        selection
    }

    fn takes(&self, name: &str) -> bool {
        let fits = |word: &String| if self.is_exact { name == word } else { name.contains(word.as_str()) };
        !self.only_ignored
            && !self.skips.iter().any(fits)
            && (self.words.is_empty() || self.words.iter().any(fits))
    }
}

/// A client's checks take a few seconds, Redisson's half a minute; a machine under load is given many times that.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(300);
/// Two fill two cores; with more, clients that wait for a moment of their own clock would be late.
const CLIENTS_AT_ONCE: usize = 2;
const LINES_SHOWN: usize = 40;
