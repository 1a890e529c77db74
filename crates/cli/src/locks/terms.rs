//! What a subcommand asks for when it takes a lock, and the flags that say it.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use redlatch_client::{Acquire, Held, Locks};
use redlatch_proto::lock::OWNER_BYTES_MAX;
use redlatch_proto::options::Takes::{Fields, Flag, Number, Text};
use redlatch_proto::options::{Given, Kind, Options, ROWS, Row};

use super::{one_of, texts};
use crate::common::Fault;

/// The locks to take, and how they are held.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) keys: Vec<Vec<u8>>,
    /// Whether one of the keys is enough.
    pub(crate) any: bool,
    pub(crate) lease: Duration,
    pub(crate) options: Options,
}

impl Terms {
    /// The request for them. `wait`: `None` without a limit.
    pub(crate) fn acquire(&self, locks: &Locks, owner: &[u8], wait: Option<Duration>) -> Acquire {
        let lock = match self.any {
            true => locks.any_of(self.keys.iter().cloned()),
            false => locks.lock_all(self.keys.iter().cloned()),
        };
        let acquire = lock.acquire().owner(owner).lease(self.lease);
        let acquire = match wait {
            Some(wait) => acquire.wait(wait),
            None => acquire.wait_forever(),
        };
        if !self.any {
            return acquire.options(self.options.clone());
        }
        // Each of the keys is of this kind.
        let kind = self.options.kind;
        let acquire = acquire.options(Options { kind: Kind::Exclusive, ..self.options.clone() });
        self.keys.iter().fold(acquire, |acquire, key| acquire.mode(key.clone(), kind))
    }

    /// The lock or the locks, for people.
    pub(crate) fn name(&self) -> String {
        match (self.any, &self.keys[..]) {
            (false, [key, ..]) => texts::readable(key),
            (_, keys) => format!("one of {} locks", keys.len()),
        }
    }

    /// Says that another owner has the lock. `what`: what did not happen.
    pub(crate) fn held(&self, what: &str, held: Option<&Held>) -> String {
        let what = match self.any {
            true => format!("{what}: none of {} locks is free", self.keys.len()),
            false => what.to_owned(),
        };
        texts::held(&what, self.keys.first().map_or(&[], Vec::as_slice), held)
    }
}

/// The terms that the flags say, for this lease.
///
/// # Errors
/// The keys of `--one-of` cannot be, or options exclude each other.
pub(super) fn terms_of(matches: &ArgMatches, lease: Duration) -> Result<Terms, Fault> {
    let words =
        |name| matches.get_many::<OsString>(name).unwrap_or_default().map(|word| word.as_encoded_bytes());
    let (any, options) = (matches.contains_id("one-of"), options_of(matches)?);
    if any && !options.meta.is_empty() {
        return Err("--one-of: excludes --why and --meta".to_owned());
    }
    let keys = match any {
        true => one_of::keys_of(words("one-of")).map_err(|fault| format!("--one-of {fault}"))?,
        false => words("key").map(<[u8]>::to_vec).collect(),
    };
    Ok(Terms { keys, any, lease, options })
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
fn options_of(matches: &ArgMatches) -> Result<Options, Fault> {
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
