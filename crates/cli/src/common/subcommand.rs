//! A subcommand as a row: its name, its arguments as clap knows them, and what they ask for.

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::exit::{MISUSED, OF_ASKING};
use super::process::Fault;

/// The work of a subcommand whose arguments have been read.
pub(crate) type Task = Box<dyn FnOnce() -> Result<ExitCode, Fault>>;

/// A row of the table of subcommands. Each folder has those of its own.
pub(crate) struct Subcommand {
    /// `ls`; or two words, of which the first is the name of several: `cluster status`.
    pub(crate) name: &'static str,
    /// What it does, in a sentence.
    pub(crate) about: &'static str,
    /// Adds its arguments.
    pub(crate) arguments: fn(Command) -> Command,
    pub(crate) reader: Reader,
    /// The exit status for wrong arguments.
    pub(crate) misused: u8,
    /// The exit statuses, which the help lists.
    statuses: [&'static [u8]; 2],
}

/// How the arguments of a subcommand are read.
#[derive(Clone, Copy)]
pub(crate) enum Reader {
    Clap(fn(&ArgMatches) -> Result<Task, Fault>),
    /// As those of the server, in the syntax of redis-server. Clap knows them for the help alone.
    Server(fn(&[String]) -> Result<Task, Fault>),
}

impl Subcommand {
    /// A subcommand that clap reads; misused, it exits with [`MISUSED`].
    pub(crate) const fn new(
        name: &'static str,
        about: &'static str,
        arguments: fn(Command) -> Command,
        read: fn(&ArgMatches) -> Result<Task, Fault>,
    ) -> Self {
        Self::read_by(Reader::Clap(read), name, about, arguments)
    }

    /// A subcommand with the arguments of a server.
    pub(crate) const fn of_server(
        name: &'static str,
        about: &'static str,
        arguments: fn(Command) -> Command,
        read: fn(&[String]) -> Result<Task, Fault>,
    ) -> Self {
        Self::read_by(Reader::Server(read), name, about, arguments)
    }

    const fn read_by(
        reader: Reader,
        name: &'static str,
        about: &'static str,
        arguments: fn(Command) -> Command,
    ) -> Self {
        Self { name, about, arguments, reader, misused: MISUSED, statuses: [OF_ASKING, &[]] }
    }

    pub(crate) const fn misused(self, code: u8) -> Self {
        Self { misused: code, ..self }
    }

    /// With these exit statuses, in addition to those of a subcommand that asks a server.
    pub(crate) const fn also(self, statuses: &'static [u8]) -> Self {
        Self { statuses: [OF_ASKING, statuses], ..self }
    }

    /// With these exit statuses only.
    pub(crate) const fn only(self, statuses: &'static [u8]) -> Self {
        Self { statuses: [statuses, &[]], ..self }
    }

    pub(crate) fn can_exit_with(&self, status: u8) -> bool {
        self.statuses.iter().any(|statuses| statuses.contains(&status))
    }
}

/// A task whose result is its exit code.
pub(crate) fn task(run: impl FnOnce() -> u8 + 'static) -> Task {
    Box::new(move || Ok(run().into()))
}
