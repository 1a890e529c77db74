//! The arguments of the subcommands that ask a server for its locks, and for the leader of its cluster.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgMatches, Command, value_parser};

use super::arguments::{bytes_of, json, key, owner, owner_of};
use super::views::{self, Question, View, Wanted};
use super::watch;
use crate::common::arguments::time;
use crate::common::exit::{HELD, NO};
use crate::common::{Fault, ServerAddress, Subcommand, Task, task, with_url};

pub(super) const LS: Subcommand = Subcommand::new(
    "ls",
    "Lists the locks that are held.",
    |command| view(command.arg(pattern())),
    |matches| ask(matches, Question::List(Wanted::Matching(pattern_of(matches)))),
);
pub(super) const WHO: Subcommand = Subcommand::new(
    "who",
    "Prints the holder of a lock, and how many clients wait for it.",
    |command| view(command.arg(key())),
    |matches| ask(matches, Question::Who(bytes_of(matches, "key"))),
)
.also(&[NO]);
pub(super) const MINE: Subcommand = Subcommand::new(
    "mine",
    "Lists the locks of one owner.",
    |command| view(command.arg(owner())),
    |matches| ask(matches, Question::List(Wanted::OfOwner(owner_of(matches)?))),
)
.also(&[NO]);
pub(super) const WAIT: Subcommand = Subcommand::new(
    "wait",
    "Waits until a lock is free, at most for --timeout.",
    |command| view(command.arg(key()).arg(time("timeout", "Longest wait.", "no limit"))),
    |matches| {
        let timeout = matches.get_one::<Duration>("timeout").copied();
        ask(matches, Question::Wait(bytes_of(matches, "key"), timeout))
    },
)
.also(&[HELD]);
pub(super) const BREAK: Subcommand = Subcommand::new(
    "break",
    "Takes a lock from its holder, if the holder has this token.",
    |command| view(command.arg(key()).arg(token_to_break()).arg(reason())),
    |matches| {
        let token = *matches.get_one::<u64>("token").expect("a required argument");
        let reason = matches.get_one::<String>("reason").cloned();
        ask(matches, Question::Break { key: bytes_of(matches, "key"), token, reason })
    },
)
.also(&[NO, HELD]);
pub(super) const WATCH: Subcommand = Subcommand::new(
    "watch",
    "Looks at the locks in an interval, and prints a line for each lock taken or freed.",
    |command| view(command.arg(pattern()).arg(time("interval", "Time between two looks.", "1s"))),
    |matches| {
        let interval = matches.get_one::<Duration>("interval").copied().unwrap_or(Duration::from_secs(1));
        let (server, json) = (ServerAddress::read(matches), matches.get_flag("json"));
        let pattern = pattern_of(matches);
        Ok(task(move || watch::run(server, (&pattern, interval), json)))
    },
);
pub(super) const CLUSTER_STATUS: Subcommand =
    Subcommand::new("cluster status", "Prints which node leads, and since when.", view, |matches| {
        ask(matches, Question::Cluster)
    });
pub(super) const CLUSTER_HAND_OVER: Subcommand = Subcommand::new(
    "cluster hand-over",
    "Makes another node the leader. The present leader becomes a standby.",
    view,
    |matches| ask(matches, Question::HandOver),
);

fn token_to_break() -> Arg {
    let help = "Token of the holder, as redlatch who prints it.";
    Arg::new("token")
        .long("token")
        .value_name("TOKEN")
        .required(true)
        .value_parser(value_parser!(u64))
        .help(help)
}

fn reason() -> Arg {
    Arg::new("reason")
        .long("reason")
        .value_name("TEXT")
        .help("Why you break it. The holder, LOCK.HISTORY and the log show it.")
}

/// A subcommand that asks a server.
fn view(command: Command) -> Command {
    with_url(command.arg(json()))
}

fn pattern() -> Arg {
    let parser = NonEmptyStringValueParser::new();
    Arg::new("pattern").value_name("PATTERN").value_parser(parser).help("Only keys that match, as in SCAN.")
}

fn pattern_of(matches: &ArgMatches) -> String {
    matches.get_one::<String>("pattern").cloned().unwrap_or_else(|| "*".into())
}

fn ask(matches: &ArgMatches, question: Question) -> Result<Task, Fault> {
    let view = View { server: ServerAddress::read(matches), json: matches.get_flag("json"), question };
    Ok(task(move || views::show(view)))
}
