//! One run of the explored program, against a server of its own.
//!
//! Owns    the server.
//! Rule    nothing is left when a run has ended: what a command has started ends with it, and so does the server.
//! Bounds  the time of a run.

use std::time::{Duration, Instant};

use redlatch_platform::command::kill_all_with;
use redlatch_server::Server;
use redlatch_testing::{Event, Finding, check};
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep_until};

use super::case::Case;
use super::options::{ExploreOptions, INJECTED_VARIABLE};
use super::program::{Ending, Program, Runners, Variables};
use super::servers::Servers;
use crate::common::exit::{Failure, NOT_EXPLORED};
use crate::server::SERVER_VARIABLE;

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) ending: Ending,
    pub(super) servers: Servers,
    pub(super) events: Vec<Event>,
    /// Whether every failure has been met.
    pub(super) is_met: bool,
    /// The end of what the program has printed.
    pub(super) output: String,
    pub(super) took: Duration,
}

impl Attempt {
    /// Runs the program once. The server fails as the case says.
    ///
    /// # Errors
    /// The server or the command cannot be started.
    pub(super) async fn make(
        options: &ExploreOptions,
        runners: &Runners,
        case: &Case,
    ) -> Result<Self, Failure> {
        let could_not = |fault: String| Failure(NOT_EXPLORED, fault);
        let server = options.servers.start().await;
        let server = server.map_err(|error| could_not(format!("the server cannot start: {error}")))?;
        if options.is_clock_auto {
            server.clock().auto(IDLE).await;
        }
        let mut unmet = Vec::new();
        for injection in &case.injections {
            unmet.push((injection, injection.arm(&server).await?));
        }
        let daemons = Daemons { urls: urls(&server), are_gone: false };
        let begin = Instant::now();
        let mut program = Program::run(options, runners, variables(options, &server, case))
            .await
            .map_err(|error| could_not(format!("{}: {error}", options.command[0].to_string_lossy())))?;
        let deadline = tokio::time::Instant::now() + options.timeout;
        let mut look = interval(LOOK);
        let ending = loop {
            tokio::select! {
                ending = program.ended() => break ending,
                () = sleep_until(deadline) => break Ending::Hung,
                _ = look.tick(), if !unmet.is_empty() => {
                    let met: Vec<_> = unmet.extract_if(.., |(_, fault)| fault.hits() > 0).collect();
                    for (injection, _) in met {
                        injection.follow(&server, options.servers).await;
                    }
                }
            }
        };
        let took = begin.elapsed();
        let is_met = unmet.iter().all(|(_, fault)| fault.hits() > 0);
        let output = program.end(ending, runners).await;
        let events = server.history().events();
        daemons.end().await;
        Ok(Self { ending, servers: options.servers, events, is_met, output, took })
    }

    /// What the checker says of the locks.
    pub(super) fn findings(&self) -> Vec<Finding> {
        check(&self.events)
    }
}

/// What a run has started and its process group has not any more. It ends when this is dropped.
struct Daemons {
    /// The value of [`URLS_VARIABLE`], which no other run has.
    urls: String,
    are_gone: bool,
}

impl Daemons {
    /// Ends them while other runs go on.
    async fn end(mut self) {
        let urls = self.urls.clone();
        self.are_gone = spawn_blocking(move || kill_all_with(URLS_VARIABLE, &urls)).await.is_ok();
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        if !self.are_gone {
            kill_all_with(URLS_VARIABLE, &self.urls);
        }
    }
}

/// The URLs of all servers, with commas.
fn urls(server: &Server) -> String {
    let urls: Vec<String> = server.node_addrs().iter().map(|address| format!("redis://{address}")).collect();
    urls.join(",")
}

/// What tells the program where its servers are, and what happens in its run.
fn variables(options: &ExploreOptions, server: &Server, case: &Case) -> Variables {
    let address = server.node_addrs()[0];
    let injected = (!case.injections.is_empty()).then(|| format!("{case}: {}", case.sentences()));
    let fixed = [
        ("REDIS_HOST", address.ip().to_string()),
        ("REDIS_PORT", address.port().to_string()),
        (URLS_VARIABLE, urls(server)),
        (INJECTED_VARIABLE, injected.unwrap_or_default()),
        (SERVER_VARIABLE, address.to_string()),
    ];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value));
    let named = options.variables.iter().map(|name| (name.clone(), format!("redis://{address}")));
    fixed.into_iter().chain(named).collect()
}

/// The variable with the URLs of all servers.
const URLS_VARIABLE: &str = "REDIS_URLS";
/// How often is looked whether a failure has been met.
const LOOK: Duration = Duration::from_millis(1);
/// Real time without a request after which a clock that runs by itself goes to the next deadline.
const IDLE: Duration = Duration::from_millis(20);
