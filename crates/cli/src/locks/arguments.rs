//! Arguments that several subcommands for locks have.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::terms::{LockKind, check_owner};
use crate::common::Fault;

pub(super) fn key() -> Arg {
    let parser = OsStringValueParser::new().try_map(|key| match key.is_empty() {
        true => Err("the key is empty: is a variable not set?"),
        false => Ok(key),
    });
    Arg::new("key").value_name("KEY").required(true).value_parser(parser).help("Key of the lock.")
}

pub(super) fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Prints JSON.")
}

/// The owner of locks that outlive their processes.
pub(crate) fn owner() -> Arg {
    Arg::new("as")
        .long("as")
        .value_name("NAME")
        .required(true)
        .value_parser(value_parser!(OsString))
        .help("Name of the owner. Nobody else may use it.")
}

/// Adds the flags for the kind of a lock.
pub(super) fn with_kind(command: Command) -> Command {
    let shared = Arg::new("shared")
        .long("shared")
        .action(ArgAction::SetTrue)
        .conflicts_with("permits")
        .help("Shares the lock with other holders that use --shared.");
    command
        .arg(shared)
        .arg(number("permits", "Takes N permits of a semaphore.").requires("of"))
        .arg(number("of", "The semaphore has N permits in all.").requires("permits"))
}

/// Adds the flag for the notes of a holder.
pub(super) fn with_meta(command: Command) -> Command {
    let meta = Arg::new("meta")
        .long("meta")
        .value_name("FIELD=VALUE")
        .action(ArgAction::Append)
        .help("A note of the holder, for everybody that looks at the lock. May be repeated.");
    command.arg(meta)
}

/// The help of `--wait`.
pub(super) const WAIT_HELP: &str =
    "Longest wait for a lock that is held, or for a server that does not answer.";

fn number(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64).range(1..)).help(help)
}

/// The bytes of an argument that there must be.
pub(super) fn bytes_of(matches: &ArgMatches, name: &str) -> Vec<u8> {
    matches.get_one::<OsString>(name).map(|text| text.as_encoded_bytes().to_vec()).unwrap_or_default()
}

/// What the flags of [`with_kind`] say.
pub(super) fn kind_of(matches: &ArgMatches) -> LockKind {
    let number = |name| matches.get_one::<u64>(name).copied();
    match (number("permits"), number("of")) {
        (Some(count), Some(limit)) => LockKind::Permits { count, limit },
        _ if matches.get_flag("shared") => LockKind::Shared,
        _ => LockKind::Exclusive,
    }
}

/// What the flag of [`with_meta`] says.
///
/// # Errors
/// A text without a field.
pub(super) fn meta_of(matches: &ArgMatches) -> Result<Vec<(String, String)>, Fault> {
    matches.get_many::<String>("meta").unwrap_or_default().map(|meta| field(meta)).collect()
}

fn field(meta: &str) -> Result<(String, String), Fault> {
    let parts = meta.split_once('=').filter(|(field, _)| !field.is_empty());
    let (field, value) = parts.ok_or_else(|| format!("--meta '{meta}': must be FIELD=VALUE"))?;
    Ok((field.to_owned(), value.to_owned()))
}

/// The owner that the arguments name.
///
/// # Errors
/// The server would refuse it.
pub(crate) fn owner_of(matches: &ArgMatches) -> Result<Vec<u8>, Fault> {
    check_owner(bytes_of(matches, "as")).map_err(|fault| format!("--as: {fault}"))
}
