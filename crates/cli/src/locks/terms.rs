//! What a subcommand asks for when it takes a lock, and the flags that say it.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use redlatch_client::{Acquire, Locks};
use redlatch_proto::lock::OWNER_BYTES_MAX;
use redlatch_proto::options::Takes::{Fields, Flag, Number, Text};
use redlatch_proto::options::{Given, Options, ROWS, Row};

use crate::common::Fault;

/// The locks to take, and how they are held.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) lease: Duration,
    pub(crate) options: Options,
}

impl Terms {
    /// The request for them. `wait`: `None` without a limit.
    pub(crate) fn acquire(&self, locks: &Locks, owner: &[u8], wait: Option<Duration>) -> Acquire {
        let acquire = locks.lock_all(self.keys.iter().cloned()).acquire().owner(owner).lease(self.lease);
        let acquire = match wait {
            Some(wait) => acquire.wait(wait),
            None => acquire.wait_forever(),
        };
        acquire.options(self.options.clone())
    }
}

/// Adds a flag for each option that all faces have.
pub(super) fn with_options(command: Command) -> Command {
    command.args(ROWS.map(flag))
}

fn flag(row: Row) -> Arg {
    let flag = Arg::new(row.name).long(row.name).help(row.help);
    match row.takes {
        Fields(_) => {
            let help = format!("{} May be repeated.", row.help);
            flag.value_name("FIELD=VALUE").action(ArgAction::Append).help(help)
        }
        Flag(_) => flag.action(ArgAction::SetTrue),
        Number(least, most, _) => flag.value_name("N").value_parser(value_parser!(u64).range(least..=most)),
        Text(_) => flag.value_name("TEXT"),
    }
}

/// What the flags of [`with_options`] say.
///
/// # Errors
/// Two exclude each other, or META has no field or too much.
pub(super) fn options_of(matches: &ArgMatches) -> Result<Options, Fault> {
    let mut given = Given::default();
    for Row { name, takes, .. } in ROWS {
        match takes {
            Fields(note) => {
                let texts = matches.get_many::<String>(name).unwrap_or_default();
                note(&mut given, texts.map(|text| field(name, text)).collect::<Result<_, _>>()?);
            }
            Flag(note) => note(&mut given, matches.get_flag(name)),
            Number(_, _, note) => note(&mut given, matches.get_one(name).copied()),
            Text(note) => note(&mut given, matches.get_one(name).cloned()),
        }
    }
    given.options(|name| format!("--{name}"))
}

fn field(name: &str, text: &str) -> Result<(String, String), Fault> {
    let parts = text.split_once('=').filter(|(field, _)| !field.is_empty());
    let (field, value) = parts.ok_or_else(|| format!("--{name} '{text}': must be FIELD=VALUE"))?;
    Ok((field.to_owned(), value.to_owned()))
}

/// Returns the lease, if there can be one.
///
/// # Errors
/// It ends at once.
pub(crate) fn check_lease(lease: Duration) -> Result<Duration, Fault> {
    match lease.is_zero() {
        true => Err("0: must be at least 1ms".to_owned()),
        false => Ok(lease),
    }
}

/// Returns the owner, if the server takes it.
///
/// # Errors
/// It is empty, or too long.
pub(crate) fn check_owner(owner: Vec<u8>) -> Result<Vec<u8>, Fault> {
    match owner.len() {
        1..=OWNER_BYTES_MAX => Ok(owner),
        _ => Err(format!("a name has 1 to {OWNER_BYTES_MAX} bytes")),
    }
}
