//! The subcommands `take`, `renew` and `release`: their flags, and what they ask for.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use redlatch_proto::lock::check_meta;

use super::flags::Action;
use super::hold::{Options, Request, Step};
use super::lock_flags::{bytes_of, json, key, kind_of, meta_of, time, with_kind, with_meta, with_url};
use super::place::Place;
use super::terms::{self, Terms};
use super::{Fault, duration};

/// The names of the subcommands.
pub(super) const NAMES: &[&str] = &["take", "renew", "release"];

pub(super) fn commands() -> Vec<Command> {
    let why = Arg::new("why").long("why").value_name("TEXT").help("As --meta reason=TEXT.");
    let take = Command::new("take")
        .about("Takes a lock that outlives this process.")
        .arg(key())
        .arg(owner())
        .arg(term("for", "How long the lock lasts if it is not renewed.").required(true))
        .arg(time(
            "wait",
            "How long to wait for a lock that is held, or for a server that does not serve.",
            "0",
        ))
        .arg(why);
    let renew = Command::new("renew")
        .about("Begins the lease of a lock anew that take has taken; exits with 76 if it is held no longer.")
        .arg(key())
        .arg(owner())
        .arg(term("for", "The new length of the lease. [default: that which the lock has]"))
        .arg(token());
    let release = Command::new("release")
        .about("Gives a lock back that take has taken; exits with 76 if it is held no longer.")
        .arg(key())
        .arg(owner())
        .arg(token());
    let commands = [with_meta(with_kind(take)), renew, release];
    commands.map(|command| with_url(command.arg(json()).after_help(HELP))).into()
}

/// The owner of locks that outlive their processes.
pub(super) fn owner() -> Arg {
    Arg::new("as")
        .long("as")
        .value_name("NAME")
        .required(true)
        .value_parser(value_parser!(OsString))
        .help("The owner: a name that nobody else uses.")
}

fn token() -> Arg {
    let token = value_parser!(u64).range(1..);
    let help = "Only the hold with this token, not a later one of the same owner.";
    Arg::new("token").long("token").value_name("TOKEN").value_parser(token).help(help)
}

fn term(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("TIME").value_parser(duration::read).help(help)
}

/// What the arguments of a subcommand ask for.
///
/// # Errors
/// Arguments that do not fit together.
pub(super) fn read(name: &str, matches: &ArgMatches) -> Result<Action, Fault> {
    let token = || matches.get_one::<u64>("token").copied();
    let key = bytes_of(matches, "key");
    let step = match name {
        "take" => take(matches, key.clone())?,
        "renew" => Step::Renew { token: token(), lease: lease(matches)? },
        _ => Step::Release { token: token() },
    };
    let (place, json, owner) = (Place::read(matches), matches.get_flag("json"), owner_of(matches)?);
    Ok(Action::Hold(Options { place, json, request: Request { key, owner, step } }))
}

fn take(matches: &ArgMatches, key: Vec<u8>) -> Result<Step, Fault> {
    let mut meta = meta_of(matches)?;
    meta.extend(matches.get_one::<String>("why").map(|why| ("reason".to_owned(), why.clone())));
    check_meta(&meta).map_err(|fault| format!("--meta and --why: {fault}"))?;
    let lease = lease(matches)?.unwrap_or_default();
    let terms = Terms { keys: vec![key], kind: kind_of(matches), lease, meta };
    let wait = matches.get_one::<Duration>("wait").copied().unwrap_or_default();
    Ok(Step::Take { terms, wait })
}

fn lease(matches: &ArgMatches) -> Result<Option<Duration>, Fault> {
    let lease = matches.get_one::<Duration>("for").copied();
    lease.map(terms::check_lease).transpose().map_err(|fault| format!("--for {fault}"))
}

/// The owner that the arguments name.
///
/// # Errors
/// The server would refuse it.
pub(super) fn owner_of(matches: &ArgMatches) -> Result<Vec<u8>, Fault> {
    terms::check_owner(bytes_of(matches, "as")).map_err(|fault| format!("--as: {fault}"))
}

const HELP: &str = "\
Exit codes: 0; 64 for bad options; 69 if no server could be asked; 75 if the lock was not taken, or the server refuses;
76 if NAME does not hold the lock, or not with this token. See docs/shell.md.";
