//! The subcommands `take`, `renew` and `release`: their flags, and what they ask for.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};

use super::arguments::{WAIT_HELP, bytes_of, json, key, key_or_one_of, owner, owner_of};
use super::hold::{self, HoldOptions, HoldRequest, Step};
use super::terms::{self, terms_of, with_options};
use crate::common::arguments::time;
use crate::common::exit::{HELD, LOST};
use crate::common::{Fault, ServerAddress, Subcommand, Task, duration, task, with_url};

pub(super) const TAKE: Subcommand =
    Subcommand::new("take", "Takes a lock that outlives this process.", take_arguments, |matches| {
        let step = take(matches)?;
        request(matches, step)
    })
    .also(&[HELD]);
pub(super) const RENEW: Subcommand = Subcommand::new(
    "renew",
    "Renews a lock of redlatch take.",
    |command| {
        let term = term("for", "New length of the lease. [default: its present length]");
        with_answer(command.arg(key()).arg(owner()).arg(term).arg(token()))
    },
    |matches| {
        let step = Step::Renew { token: token_of(matches), lease: lease(matches)? };
        request(matches, step)
    },
)
.also(&[LOST]);
pub(super) const RELEASE: Subcommand = Subcommand::new(
    "release",
    "Releases a lock of redlatch take.",
    |command| with_answer(command.arg(key()).arg(owner()).arg(token())),
    |matches| request(matches, Step::Release { token: token_of(matches) }),
)
.also(&[LOST]);

fn take_arguments(command: Command) -> Command {
    let wait = time("wait", WAIT_HELP, "0");
    let take = command
        .args(key_or_one_of())
        .arg(owner())
        .arg(term("for", "Lease: how long the lock lasts without a renewal.").required(true))
        .arg(wait);
    with_answer(with_options(take))
}

fn with_answer(command: Command) -> Command {
    with_url(command.arg(json()).after_help("See docs/shell.md."))
}

fn token() -> Arg {
    let token = value_parser!(u64).range(1..);
    let help = "Only if the owner still has this token, and has not taken the lock again.";
    Arg::new("token").long("token").value_name("TOKEN").value_parser(token).help(help)
}

fn term(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("TIME").value_parser(duration::read).help(help)
}

fn token_of(matches: &ArgMatches) -> Option<u64> {
    matches.get_one::<u64>("token").copied()
}

/// Asks for a step with the lock and the owner that the arguments name.
fn request(matches: &ArgMatches, step: Step) -> Result<Task, Fault> {
    let key = step.key().unwrap_or_else(|| bytes_of(matches, "key"));
    let request = HoldRequest { key, owner: owner_of(matches)?, step };
    let options =
        HoldOptions { server: ServerAddress::read(matches), json: matches.get_flag("json"), request };
    Ok(task(move || hold::run(options)))
}

fn take(matches: &ArgMatches) -> Result<Step, Fault> {
    let terms = terms_of(matches, lease(matches)?.unwrap_or_default())?;
    let wait = matches.get_one::<Duration>("wait").copied().unwrap_or_default();
    Ok(Step::Take { terms, wait })
}

fn lease(matches: &ArgMatches) -> Result<Option<Duration>, Fault> {
    let lease = matches.get_one::<Duration>("for").copied();
    lease.map(terms::check_lease).transpose().map_err(|fault| format!("--for {fault}"))
}
