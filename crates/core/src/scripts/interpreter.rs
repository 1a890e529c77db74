//! The seam to the interpreter, which runs the scripts that are not native.
//!
//! Owns    what a server asks of an interpreter, and what a script asks of its server.
//! Knows   no language: the crate `redlatch-lua` is the interpreter, and the shell hands it in.

use std::fmt;
use std::sync::Arc;

use redlatch_proto::resp::{Protocol, Reply};

use super::Inputs;
use super::library::Loaded;

/// Creates an interpreter whose scripts may hold so many bytes each. Fails where even its sandbox does not fit.
pub type NewInterpreter = fn(memory_max: usize, host: Host) -> Result<Box<dyn Interpreter>, Failure>;

/// Runs one script at a time. Nothing of a script stays in it but its compiled form, and what a library has registered.
pub trait Interpreter: fmt::Debug + Send {
    /// Bytes that it holds.
    fn memory(&self) -> usize;

    /// Whether a fresh one can take its place: it has no library, and compiles scripts again when they come.
    fn is_replaceable(&self) -> bool;

    /// How many bytes each script may hold from now on.
    fn set_memory_max(&mut self, bytes: usize);

    /// Compiles a script, so that its first run does not have to.
    ///
    /// # Errors
    /// Why it does not compile.
    fn compile(&mut self, source: Source<'_>) -> Result<(), Failure>;

    /// Forgets the scripts that it has compiled.
    fn flush(&mut self);

    /// Runs a script over KEYS and ARGV and writes what it returns.
    ///
    /// # Errors
    /// Why it ended early. What it has done by then stays done.
    fn run(
        &mut self,
        source: Source<'_>,
        inputs: Inputs<'_>,
        commands: &mut dyn Commands,
        watchdog: Arc<dyn Watchdog>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure>;

    /// Runs a library, `body` of its text, and keeps what it registers.
    ///
    /// # Errors
    /// Why it does not compile, or ended early. Nothing of it is kept then.
    fn load(&mut self, body: &[u8], commands: &mut dyn Commands) -> Result<Loaded, Failure>;

    /// Forgets libraries, by their numbers.
    fn forget(&mut self, libraries: &[u32]);

    /// Calls a function, named by the number of its library and its own name, and writes what it returns.
    ///
    /// # Errors
    /// Why it ended early. What it has done by then stays done.
    fn call(
        &mut self,
        function: (u32, &str),
        inputs: Inputs<'_>,
        commands: &mut dyn Commands,
        watchdog: Arc<dyn Watchdog>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure>;
}

/// The error line of a script that failed, code first.
pub type Failure = Vec<u8>;

/// A script, ready to be compiled.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What errors call it, and how it is found again: the SHA-1 of its whole text, in hexadecimal.
    pub name: &'a str,
    /// Its text without its first line where that is a `#!` line, but with the line's end.
    pub text: &'a [u8],
}

/// What a script can learn of the server it runs in.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The version of Redis that the server says it has, in three numbers.
    pub version: [u8; 3],
    /// Whether these words name a command.
    pub knows: fn(&[&[u8]]) -> bool,
}

/// The server as a script sees it.
pub trait Commands {
    /// Carries out a command and appends its answer, in `protocol`, to `reply`. An error is an answer, too. Says whether the
    /// script goes on.
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Verdict;

    /// What the script's user may send of the commands that there are; `None`: all.
    fn limits(&self) -> Option<Limits> {
        None
    }

    /// `redis.log`.
    fn log(&mut self, level: Level, text: &[u8]);
}

/// Tells of a command, by its words, whether it may be sent.
pub struct Limits(pub Box<MaySend>);

type MaySend = dyn Fn(&[&[u8]]) -> bool + Send;

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Limits(..)")
    }
}

/// How important a line in the log is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// `redis.LOG_DEBUG`
    Debug,
    /// `redis.LOG_VERBOSE`
    Verbose,
    /// `redis.LOG_NOTICE`
    Notice,
    /// `redis.LOG_WARNING`
    Warning,
}

/// Looks after a script that runs. Asked from the script's own thread, every few microseconds.
pub trait Watchdog: Send + Sync {
    /// Whether the script goes on. May note that it runs long.
    fn poll(&self) -> Verdict;
}

/// Whether a script goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It does.
    GoOn,
    /// The script ends now: SCRIPT KILL.
    Kill,
}
