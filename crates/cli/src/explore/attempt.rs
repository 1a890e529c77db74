//! One run of the explored command, against a server of its own.
//!
//! Owns    the server, the process group of the command, and what the command prints.
//! Rule    nothing is left when a run has ended: what the command has started ends with it, and so does the server.
//! Bounds  the end of the output, [`OUTPUT_BYTES_MAX`]; the time of a run.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use redlatch_core::testing::{Event, Finding, check};
use redlatch_platform::command::Group;
use redlatch_server::Server;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::{interval, sleep_until, timeout};

use super::super::exit::Failure;
use super::case::Case;
use super::{COULD_NOT_RUN, Options};

/// What a run was.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) ending: Ending,
    pub(super) events: Vec<Event>,
    /// Whether every failure has been met.
    pub(super) is_met: bool,
    /// The end of what the command has printed.
    pub(super) output: String,
    pub(super) took: Duration,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ending {
    /// With exit code 0.
    Passed,
    /// With this exit code; `None`: by a signal.
    Failed(Option<i32>),
    /// It ran longer than it may.
    Hung,
}

impl Ending {
    fn of(status: Option<ExitStatus>) -> Self {
        match status.and_then(|status| status.code()) {
            Some(0) => Self::Passed,
            code => Self::Failed(code),
        }
    }
}

impl Attempt {
    /// Runs the command once. With a case, the server fails as it says.
    ///
    /// # Errors
    /// The server or the command cannot be started.
    pub(super) async fn make(options: &Options, case: Option<&Case>) -> Result<Self, Failure> {
        let could_not = |fault: String| Failure(COULD_NOT_RUN, fault);
        let server = Server::builder().tests(options.nodes).start().await;
        let server = server.map_err(|error| could_not(format!("the server cannot start: {error}")))?;
        if options.is_clock_auto {
            server.clock().auto(IDLE).await;
        }
        let injections = case.map_or(&[][..], |case| &case.injections);
        let armed = injections.iter().map(|injection| injection.arm(&server).map(|fault| (injection, fault)));
        let mut unmet = armed.collect::<Result<Vec<_>, Failure>>()?;
        let begin = Instant::now();
        let mut group = start(options, &server, case)
            .map_err(|error| could_not(format!("{}: {error}", options.command[0].to_string_lossy())))?;
        let printed = Printed::of(&mut group);
        let deadline = tokio::time::Instant::now() + options.timeout;
        let mut look = interval(LOOK);
        let ending = loop {
            tokio::select! {
                ended = group.wait() => break Ending::of(ended.ok()),
                () = sleep_until(deadline) => break Ending::Hung,
                _ = look.tick(), if !unmet.is_empty() => {
                    let met: Vec<_> = unmet.extract_if(.., |(_, fault)| fault.hits() > 0).collect();
                    for (injection, _) in met {
                        injection.follow(&server).await;
                    }
                }
            }
        };
        let took = begin.elapsed();
        let is_met = unmet.iter().all(|(_, fault)| fault.hits() > 0);
        drop(group);
        Ok(Self { ending, events: server.history().events(), is_met, output: printed.end().await, took })
    }

    /// What the checker says of the locks.
    pub(super) fn findings(&self) -> Vec<Finding> {
        check(&self.events)
    }
}

fn start(options: &Options, server: &Server, case: Option<&Case>) -> io::Result<Group> {
    let (program, arguments) = options.command.split_first().expect("a command has a name");
    let addresses = server.node_addrs();
    let urls: Vec<String> = addresses.iter().map(|address| format!("redis://{address}")).collect();
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("REDIS_HOST", addresses[0].ip().to_string());
    command.env("REDIS_PORT", addresses[0].port().to_string());
    command.env("REDIS_URLS", urls.join(","));
    for name in &options.variables {
        command.env(name, &urls[0]);
    }
    let injected = case.map(|case| format!("{case}: {}", case.sentences()));
    command.env("REDLATCH_INJECTED", injected.unwrap_or_default());
    Group::start(command)
}

/// What a command prints, read as it comes, so that the command is never held up.
struct Printed([tokio::task::JoinHandle<Vec<u8>>; 2]);

impl Printed {
    fn of(group: &mut Group) -> Self {
        let (stdout, stderr) = group.take_output();
        Self([tokio::spawn(end_of(stdout)), tokio::spawn(end_of(stderr))])
    }

    /// The end of both. What a process outside of the group keeps open is not waited for.
    async fn end(self) -> String {
        let mut text = String::new();
        for mut reading in self.0 {
            match timeout(CLOSES_WITHIN, &mut reading).await {
                Ok(bytes) => text += &String::from_utf8_lossy(&bytes.unwrap_or_default()),
                Err(_) => reading.abort(),
            }
        }
        text
    }
}

async fn end_of(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let (mut kept, mut buffer) = (Vec::new(), vec![0; OUTPUT_BYTES_MAX]);
    let Some(mut stream) = stream else { return kept };
    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..bytes]);
        let excess = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
        kept.drain(..excess);
    }
    kept
}

/// How often is looked whether a failure has been met.
const LOOK: Duration = Duration::from_millis(1);
/// Real time without a request after which a clock that runs by itself goes to the next deadline.
const IDLE: Duration = Duration::from_millis(20);
/// How long the streams of a command that has ended may stay open.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of each stream that are kept.
const OUTPUT_BYTES_MAX: usize = 8 << 10;
