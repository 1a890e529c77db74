//! Arguments that several subcommands for locks have.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, value_parser};

use super::terms::check_owner;
use crate::common::Fault;

pub(super) fn key() -> Arg {
    let parser = OsStringValueParser::new().try_map(|key| match key.is_empty() {
        true => Err("the key is empty: is a variable not set?"),
        false => Ok(key),
    });
    Arg::new("key").value_name("KEY").required(true).value_parser(parser).help("Key of the lock.")
}

/// The key, or `--one-of`.
pub(super) fn key_or_one_of() -> [Arg; 2] {
    let help = "Takes one of these keys: 'port:{5173..5199}', 'gpu:{a,b}'. May be repeated.";
    let one_of = Arg::new("one-of").long("one-of").value_name("KEYS").action(ArgAction::Append).help(help);
    let one_of = one_of.value_parser(value_parser!(OsString)).conflicts_with("key");
    [key().required(false).required_unless_present("one-of"), one_of]
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

/// The help of `--wait`.
pub(super) const WAIT_HELP: &str =
    "Longest wait for a lock that is held, or for a server that does not answer.";

/// The bytes of an argument that there must be.
pub(super) fn bytes_of(matches: &ArgMatches, name: &str) -> Vec<u8> {
    matches.get_one::<OsString>(name).map(|text| text.as_encoded_bytes().to_vec()).unwrap_or_default()
}

/// The owner that the arguments name.
///
/// # Errors
/// The server would refuse it.
pub(crate) fn owner_of(matches: &ArgMatches) -> Result<Vec<u8>, Fault> {
    check_owner(bytes_of(matches, "as")).map_err(|fault| format!("--as: {fault}"))
}
