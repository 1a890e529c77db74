//! The arguments of `redlatch run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use redlatch_proto::lock::LEASE_DEFAULT;

use super::arguments::{WAIT_HELP, key_or_one_of};
use super::run::{self, IfHeld, OnLost, RunOptions};
use super::terms::{terms_of, with_options};
use crate::common::arguments::{command_to_run, time};
use crate::common::exit::{HELD, LOST, NOT_FOUND, NOT_RUN, SIGNALLED};
use crate::common::{Fault, ServerAddress, Subcommand, Task, task, with_url};

pub(super) const RUN: Subcommand = Subcommand::new("run", "Runs a command under a lock.", arguments, read)
    .also(&[HELD, LOST, NOT_RUN, NOT_FOUND, SIGNALLED]);

fn arguments(command: Command) -> Command {
    let [key, one_of_keys] = key_or_one_of();
    let key =
        key.num_args(1..).help("Key of the lock. Of several keys, all or none are taken, without meta.");
    let run = command
        .after_help(RUN_HELP)
        .args([key, one_of_keys])
        .arg(command_to_run())
        .arg(time("wait", WAIT_HELP, "no limit; 0 with --if-held skip and fail"))
        .arg(
            Arg::new("no-wait")
                .long("no-wait")
                .action(ArgAction::SetTrue)
                .conflicts_with("wait")
                .help("Same as --wait 0."),
        )
        .arg(time("lease", "Lease: how long the lock lasts without a renewal.", "30s"))
        .arg(one_of(
            "if-held",
            &["wait", "skip", "fail"],
            "If another owner has the lock: wait, exit with 0, or exit with 75.",
            "wait",
        ))
        .arg(one_of(
            "on-lost",
            &["term", "kill", "warn"],
            "If the lock is lost, the command gets: SIGTERM and later SIGKILL, SIGKILL, or nothing.",
            "term",
        ))
        .arg(time("kill-grace", "Time between SIGTERM and SIGKILL.", "5s"))
        .arg(time(
            "min-hold",
            "Least time for which the lock stays held, even if the command ends before.",
            "0",
        ));
    with_url(with_options(run))
}

fn one_of(name: &'static str, words: &'static [&str], help: &'static str, default: &'static str) -> Arg {
    let parser = PossibleValuesParser::new(words).map(|word| word);
    Arg::new(name).long(name).value_name("WORD").value_parser(parser).default_value(default).help(help)
}

fn read(matches: &ArgMatches) -> Result<Task, Fault> {
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
        terms: terms_of(matches, lease)?,
        command: matches.get_many::<OsString>("command").unwrap_or_default().cloned().collect(),
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
The environment of the command has:
  REDLATCH_KEY       the key; with --one-of the key that redlatch got; newlines separate several keys
  REDLATCH_OWNER     the owner
  REDLATCH_TOKEN     the fencing token; not set if the server has no LOCK commands
  REDLATCH_DEADLINE  the end of the lease without a renewal, as Unix time in milliseconds

redlatch renews the lock at each third of the lease.

If the server restarts, or answers BUSY or OOM, redlatch retries until --wait has passed. Without --wait, redlatch retries
without a limit. If the server has never answered, redlatch gives up after a few tries.

If renewals fail, SIGTERM reaches the command before the lock ends. SIGTERM comes earlier by more than --kill-grace, or by
more than a third of the lease if that is shorter. SIGKILL follows after --kill-grace. With a lease of at least three times
--kill-grace, the command has ended before the server grants the lock to another owner.

If the command ran and ended without a signal, redlatch returns the exit status of the command.";
