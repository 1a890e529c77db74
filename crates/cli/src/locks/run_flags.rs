//! The arguments of `redlatch run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use redlatch_proto::lock::LEASE_DEFAULT;

use super::arguments::{kind_of, meta_of, with_kind, with_meta};
use super::run::{self, IfHeld, OnLost, RunOptions};
use super::terms::Terms;
use crate::common::arguments::{command_to_run, time};
use crate::common::{Fault, ServerAddress, Subcommand, Task, task, with_url};

pub(super) const RUN: Subcommand = Subcommand::new("run", "Runs a command under a lock.", arguments, read);

fn arguments(command: Command) -> Command {
    let run = command
        .after_help(RUN_HELP)
        .arg(
            Arg::new("key")
                .value_name("KEY")
                .required(true)
                .num_args(1..)
                .value_parser(value_parser!(OsString))
                .help("The lock. Several are taken all or none."),
        )
        .arg(command_to_run())
        .arg(time(
            "wait",
            "How long to wait for a lock that is held, or for a server that does not serve.",
            "no limit; 0 with --if-held skip and fail",
        ))
        .arg(
            Arg::new("no-wait")
                .long("no-wait")
                .action(ArgAction::SetTrue)
                .conflicts_with("wait")
                .help("As --wait 0."),
        )
        .arg(time("lease", "How long the lock lasts if it is not renewed.", "30s"))
        .arg(one_of(
            "if-held",
            &["wait", "skip", "fail"],
            "What to do while the lock is held: wait, exit with 0, or exit with 75.",
            "wait",
        ))
        .arg(one_of(
            "on-lost",
            &["term", "kill", "warn"],
            "What the command gets when the lock is lost: SIGTERM and later SIGKILL, SIGKILL, or nothing.",
            "term",
        ))
        .arg(time("kill-grace", "The time between SIGTERM and SIGKILL.", "5s"))
        .arg(time("min-hold", "The lock stays held for at least so long after it was taken.", "0"));
    with_url(with_meta(with_kind(run)))
}

fn one_of(name: &'static str, words: &'static [&str], help: &'static str, default: &'static str) -> Arg {
    let parser = PossibleValuesParser::new(words).map(|word| word);
    Arg::new(name).long(name).value_name("WORD").value_parser(parser).default_value(default).help(help)
}

fn read(matches: &ArgMatches) -> Result<Task, Fault> {
    let words = |name| matches.get_many::<OsString>(name).unwrap_or_default().cloned().collect::<Vec<_>>();
    let time = |name, default| matches.get_one::<Duration>(name).copied().unwrap_or(default);
    let word = |name| matches.get_one::<String>(name).map_or("", String::as_str);
    let if_held = match word("if-held") {
        "fail" => IfHeld::Fail,
        "skip" => IfHeld::Skip,
        _ => IfHeld::Wait,
    };
    let wait = match (matches.get_one::<Duration>("wait"), if_held) {
        (Some(wait), _) => Some(*wait),
        (None, IfHeld::Wait) if !matches.get_flag("no-wait") => None,
        (None, _) => Some(Duration::ZERO),
    };
    let lease = time("lease", LEASE_DEFAULT);
    if lease < LEASE_MIN {
        return Err(format!("--lease {lease:?}: must be at least {LEASE_MIN:?}; see redlatch run --help"));
    }
    let options = RunOptions {
        server: ServerAddress::read(matches),
        terms: Terms {
            keys: words("key").iter().map(|key| key.as_encoded_bytes().to_vec()).collect(),
            kind: kind_of(matches),
            lease,
            meta: meta_of(matches)?,
        },
        command: words("command"),
        wait,
        if_held,
        on_lost: match word("on-lost") {
            "kill" => OnLost::Kill,
            "warn" => OnLost::Warn,
            _ => OnLost::Term,
        },
        kill_grace: time("kill-grace", Duration::from_secs(5)),
        min_hold: time("min-hold", Duration::ZERO),
    };
    Ok(task(move || run::run(options)))
}

/// A lease is renewed at each third of it.
const LEASE_MIN: Duration = Duration::from_millis(100);

const RUN_HELP: &str = "\
The exit status is that of the command: 128 and the signal's number if a signal ended it. Own codes:
  64   the options do not fit together
  69   no server could be asked
  75   the lock was not taken; the command did not run
  76   the lock was lost, and the command was ended for it
  126  the command could not be run
  127  there is no such command

The environment of the command has REDLATCH_KEY (several keys are separated by newlines), REDLATCH_OWNER, REDLATCH_TOKEN (the
fencing token; a server without LOCK commands has none) and REDLATCH_DEADLINE (Unix time in milliseconds at which the lock
ends unless it is renewed, which redlatch does at each third of the lease).

A server that restarts, or answers BUSY or OOM, is asked again until --wait has passed. Without --wait it is asked without a
limit, once it has answered at all; a server that has never answered is given up at once.

When renewals fail, SIGTERM reaches the command before the lock ends: by --kill-grace, but at most a third of the lease, and
a little more. SIGKILL follows after --kill-grace. So with a lease of three times --kill-grace the command has ended
before the server grants the lock to anybody else.";
