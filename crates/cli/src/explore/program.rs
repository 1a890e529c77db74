//! The explored program as one run has it: a command that is started for the run, or a runner that stays for all of them.
//!
//! Owns    its process group, and what it prints.
//! Form    a runner reads a line of JSON for each run, `{"env": {NAME: VALUE, ...}}`, runs the test with these variables, and
//!         answers with a line on its standard output: `{"passed": BOOL, "output": TEXT}`, of which TEXT may be left out.
//! Rule    a program ends when it is dropped, with all that it has started. A runner that breaks the form fails the run, and
//!         is not used again.
//! Bounds  the end of what it prints, [`OUTPUT_BYTES_MAX`] of each stream; an answer, [`ANSWER_BYTES_MAX`].

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redlatch_platform::command::Group;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::options::{ExploreOptions, INJECTED_VARIABLE};

/// Variables of a run, and their values.
pub(super) type Variables = Vec<(String, String)>;

/// How a run of the program has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ending {
    /// With exit code 0, or the runner says so.
    Passed,
    /// With this exit code, which is not 0.
    Exited(i32),
    /// By a signal.
    Killed,
    /// The runner says so, or does not answer as it should.
    Failed,
    /// It ran longer than it may.
    Hung,
}

impl Ending {
    fn of(status: io::Result<ExitStatus>) -> Self {
        match status.ok().and_then(|status| status.code()) {
            Some(0) => Self::Passed,
            Some(code) => Self::Exited(code),
            None => Self::Killed,
        }
    }

    pub(super) fn has_failed(self) -> bool {
        matches!(self, Self::Exited(_) | Self::Killed | Self::Failed)
    }

    /// As a report tells it.
    pub(super) fn text(self) -> String {
        match self {
            Self::Passed => "it passed".to_owned(),
            Self::Exited(code) => format!("exit code {code}"),
            Self::Killed => "a signal".to_owned(),
            Self::Failed => "it failed".to_owned(),
            Self::Hung => "it hung".to_owned(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Program {
    group: Group,
    printed: Vec<Printed>,
    runner: Option<Runner>,
}

impl Program {
    /// Starts the command, or has a runner run the test: one of those that wait in `runners`, or another one.
    ///
    /// # Errors
    /// The command cannot be run.
    pub(super) async fn run(
        options: &ExploreOptions,
        runners: &Runners,
        variables: Variables,
    ) -> io::Result<Self> {
        if !options.is_runner {
            return Self::start(options, Some(variables));
        }
        let waiting = runners.0.lock().pop();
        let mut program = waiting.map_or_else(|| Self::start(options, None), Ok)?;
        if let Some(runner) = &mut program.runner {
            runner.ask(variables).await;
        }
        Ok(program)
    }

    /// Starts the command with these variables; without any, as a runner.
    fn start(options: &ExploreOptions, variables: Option<Variables>) -> io::Result<Self> {
        let (name, arguments) = options.command.split_first().expect("a command has a name");
        let mut command = Command::new(name);
        let is_runner = variables.is_none();
        command.args(arguments).env(INJECTED_VARIABLE, "").envs(variables.unwrap_or_default());
        command.stdin(if is_runner { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = Group::start(command)?;
        let (stdin, (stdout, stderr)) = (group.take_input(), group.take_output());
        let mut printed: Vec<_> = stderr.into_iter().map(Printed::of).collect();
        let runner = match (is_runner, stdin, stdout) {
            (true, Some(stdin), Some(stdout)) => Some(Runner::new(stdin, stdout)),
            (_, _, stdout) => {
                printed.extend(stdout.map(Printed::of));
                None
            }
        };
        Ok(Self { group, printed, runner })
    }

    /// Waits for the end of the run. Nothing is lost if this is not awaited to its end, and called again.
    pub(super) async fn ended(&mut self) -> Ending {
        let Some(runner) = &mut self.runner else {
            return Ending::of(self.group.wait().await);
        };
        match runner.answer().await {
            Ok(true) => Ending::Passed,
            Ok(false) => Ending::Failed,
            Err(fault) => {
                runner.said = format!("redlatch: the runner {fault}\n");
                runner.is_broken = true;
                Ending::Failed
            }
        }
    }

    /// Ends the run. A runner goes back to those that wait, unless it is broken or has not answered. Returns the end of what
    /// the program has printed.
    pub(super) async fn end(mut self, ending: Ending, runners: &Runners) -> String {
        let text = self.runner.as_mut().map(|runner| std::mem::take(&mut runner.said)).unwrap_or_default();
        if ending != Ending::Hung && self.runner.as_ref().is_some_and(|runner| !runner.is_broken) {
            let printed: String = self.printed.iter().map(Printed::take).collect();
            runners.0.lock().push(self);
            return text + &printed;
        }
        drop(self.group);
        let mut printed = String::new();
        for stream in &mut self.printed {
            stream.closed().await;
            printed += &stream.take();
        }
        text + &printed
    }
}

/// Runners that wait for a run.
#[derive(Debug, Default)]
pub(super) struct Runners(Mutex<Vec<Program>>);

/// The two ends of a runner's conversation.
#[derive(Debug)]
struct Runner {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    /// What has come of the answer.
    line: Vec<u8>,
    /// The output in the last answer, or why there is none.
    said: String,
    is_broken: bool,
}

impl Runner {
    fn new(stdin: ChildStdin, stdout: ChildStdout) -> Self {
        let stdout = BufReader::new(stdout);
        Self { stdin, stdout, line: Vec::new(), said: String::new(), is_broken: false }
    }

    async fn ask(&mut self, variables: Variables) {
        let variables: Map<_, _> = variables.into_iter().map(|(name, value)| (name, value.into())).collect();
        let line = format!("{}\n", json!({ "env": variables }));
        // One that has ended does not answer, which says it.
        let _ = self.stdin.write_all(line.as_bytes()).await;
    }

    /// Whether the test has passed.
    async fn answer(&mut self) -> Result<bool, String> {
        while !self.line.ends_with(b"\n") {
            let bytes = self.stdout.fill_buf().await.map_err(|error| format!("cannot be read: {error}"))?;
            if bytes.is_empty() {
                return Err("has ended".to_owned());
            }
            let len = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            self.line.extend_from_slice(&bytes[..len]);
            self.stdout.consume(len);
            if self.line.len() > ANSWER_BYTES_MAX {
                return Err(format!("answers with more than {ANSWER_BYTES_MAX} bytes"));
            }
        }
        let line = std::mem::take(&mut self.line);
        let answer: Value = serde_json::from_slice(&line).unwrap_or_default();
        self.said = answer["output"].as_str().unwrap_or_default().to_owned();
        answer["passed"].as_bool().ok_or_else(|| {
            format!(
                "answers with {:?}, where 'passed' is true or false",
                String::from_utf8_lossy(&line).trim_end()
            )
        })
    }
}

/// What a program prints to one stream, read as it comes, so that the program is never held up.
#[derive(Debug)]
struct Printed {
    kept: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl Printed {
    fn of(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let kept = Arc::default();
        Self { reading: tokio::spawn(keep_end_of(stream, Arc::clone(&kept))), kept }
    }

    /// Waits until the stream is closed. What a process outside of the group keeps open is not waited for.
    async fn closed(&mut self) {
        if timeout(CLOSES_WITHIN, &mut self.reading).await.is_err() {
            self.reading.abort();
        }
    }

    fn take(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *self.kept.lock())).into_owned()
    }
}

async fn keep_end_of(mut stream: impl AsyncRead + Unpin, kept: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; OUTPUT_BYTES_MAX];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
        let mut kept = kept.lock();
        kept.extend_from_slice(&buffer[..bytes]);
        let excess = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
        kept.drain(..excess);
    }
}

/// How long the streams of a program that has ended may stay open.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of each stream that are kept.
const OUTPUT_BYTES_MAX: usize = 8 << 10;
/// Bytes of a runner's answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
