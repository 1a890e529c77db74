//! Locks as such: LOCK.ACQUIRE and what belongs to it. docs/locks.md is the reference.
//!
//! Rule    an exclusive lock is the string key that SET NX PX would have made. Other kinds are values of the type `lock`.
//! Rule    every grant takes the next fencing token of the server.

mod acquire;
pub(in crate::commands) mod explain;
mod fair;
pub(in crate::commands) mod history;
pub(in crate::commands) mod holders;
pub(in crate::commands) mod lint;
pub(in crate::commands) mod reader;
mod release;
mod replies;
pub(in crate::commands) mod session;
pub(in crate::commands) mod slow;
pub(in crate::commands) mod spans;
mod transfer;
pub(in crate::commands) mod wait;
pub(in crate::commands) mod watch;

use redlatch_proto::error::Refusal;
use redlatch_proto::lock::{MILLIS_MAX, OWNER_BYTES_MAX};
pub(in crate::commands) use release::breaker_of;

use crate::commands::row::{Arg, Flags, Group, Row, integer, key, one_of, text, token, usage};
use crate::commands::{Args, Call, Outcome, table};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Lock, "LOCK.ACQUIRE", SINCE, acquire::acquire)
        .summary("Takes a lock, or waits for it in a queue.")
        .flags(TAKING)
        .args(acquire::ARGS),
    Row::new(Group::Lock, "LOCK.BREAK", SINCE, release::break_lock)
        .summary("Takes a lock from its holder, if it still has this token.")
        .flags(
            Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST).with(Flags::NOSCRIPT).with(Flags::DANGEROUS),
        )
        .args(&[key("key"), integer("token").after("TOKEN"), text("reason").after("REASON").maybe()]),
    Row::new(Group::Lock, "LOCK.EXTEND", SINCE, release::extend)
        .summary("Begins the lease of a lock anew.")
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::NOSCRIPT))
        .args(&[key("key"), text("owner"), EXTENSION.maybe(), TOKEN.maybe()]),
    Row::new(Group::Lock, "LOCK.GUARD", SINCE, release::guard)
        .summary("Refuses a fencing token that is lower than one it has seen for this resource.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST).with(Flags::NOSCRIPT))
        .args(&[key("resource"), integer("token")]),
    Row::new(Group::Lock, "LOCK.HELP", SINCE, help)
        .summary("Lists the LOCK commands and what they do.")
        .flags(Flags::LOADING.with(Flags::STALE)),
    Row::new(Group::Lock, "LOCK.MACQUIRE", SINCE, acquire::acquire_several)
        .summary("Takes several locks, all or none, or any of them, or waits for them.")
        .flags(TAKING)
        .args(acquire::ARGS_OF_SEVERAL),
    Row::new(Group::Lock, "LOCK.RELEASE", SINCE, release::release)
        .summary("Gives a lock back; returns 0 if the owner does not hold it.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST).with(Flags::NOSCRIPT))
        .args(&[key("key"), text("owner"), TOKEN.maybe()]),
    Row::new(Group::Lock, "LOCK.TRANSFER", SINCE, transfer::transfer)
        .summary("Hands a lock over to another owner, with a new token.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::NOSCRIPT).with(Flags::LINEAR))
        .args(&[key("key"), text("owner"), text("new-owner").after("TO"), TOKEN.maybe(), LEASE.maybe()]),
];

/// The version of redlatch that first had these commands.
pub(in crate::commands) const SINCE: &str = "0.1.0";

const TAKING: Flags = Flags::WRITE.with(Flags::DENYOOM).with(Flags::BLOCKING).with(Flags::NOSCRIPT);

const LEASE: Arg = integer("milliseconds").after("LEASE");
const EXTENSION: Arg = one_of("lease", &[LEASE, token("same", "SAME")]);
const TOKEN: Arg = integer("token").after("TOKEN");

fn help(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let commands =
        || table().all().filter(|command| command.row.group == Group::Lock && command.name_words == 1);
    call.reply.array(commands().count().saturating_mul(2));
    for command in commands() {
        let name = format!("{}{}", command.row.name, usage(command.row.args));
        call.reply.status_bytes(name.as_bytes());
        call.reply.status_bytes(format!("    {}", command.row.summary).as_bytes());
    }
    Ok(Outcome::Replied)
}

/// Reads the name of an owner.
fn owner_of(word: &[u8]) -> Result<&[u8], Refusal> {
    match word.len() {
        0 => Err(Refusal::said("ERR owner is empty")),
        1..=OWNER_BYTES_MAX => Ok(word),
        _ => Err(Refusal::said(format!("ERR owner is longer than {OWNER_BYTES_MAX} bytes"))),
    }
}

/// Reads the TOKEN that a hold must have.
fn take_token(args: &mut Args<'_>) -> Result<Option<u64>, Refusal> {
    match args.take("TOKEN") {
        true => Ok(Some(token_of(args.integer()?)?)),
        false => Ok(None),
    }
}

/// Reads a fencing token.
fn token_of(number: i64) -> Result<u64, Refusal> {
    let token = u64::try_from(number).ok().filter(|token| *token > 0);
    token.ok_or_else(|| Refusal::said("ERR token is not a positive number"))
}

/// Reads a number of milliseconds from `least` on.
fn millis_of(number: i64, least: u64, what: &str) -> Result<u64, Refusal> {
    let millis = u64::try_from(number).ok().filter(|millis| (least..=MILLIS_MAX).contains(millis));
    millis.ok_or_else(|| Refusal::said(format!("ERR {what} is out of range")))
}
