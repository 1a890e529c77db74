//! OBJECT: encoding, idle time and reference count of a value, in Redis' terms.
//!
//! Source  Redis 7.0 `object.c`; the lengths at which a string counts as raw are Redis'.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;

use crate::commands::row::{Flags, Group, Row, key};
use crate::commands::{Call, Outcome};
use crate::keyspace::{Form, Occupied};

pub(in crate::commands) const ROWS: &[Row] =
    &[Row::container(Group::Generic, "OBJECT", "2.2.3", SUBCOMMANDS)
        .summary("A container for commands about the representation of a value.")];

const SUBCOMMANDS: &[Row] = &[
    Row::new(Group::Generic, "ENCODING", "2.2.3", encoding)
        .summary("Returns the name of the form in which Redis would keep the value.")
        .flags(Flags::READONLY)
        .args(&[key("key")]),
    Row::new(Group::Generic, "FREQ", "4.0.0", freq)
        .summary("Returns how often a key is used: refused, since no policy asks for it.")
        .flags(Flags::READONLY)
        .args(&[key("key")]),
    Row::new(Group::Generic, "HELP", "6.2.0", help)
        .summary("Lists the subcommands.")
        .flags(Flags::LOADING.with(Flags::STALE)),
    Row::new(Group::Generic, "IDLETIME", "2.2.3", idle_time)
        .summary("Returns the seconds since a key was last used.")
        .flags(Flags::READONLY)
        .args(&[key("key")]),
    Row::new(Group::Generic, "REFCOUNT", "2.2.3", refcount)
        .summary("Returns the reference count of a value: 1, or the maximum for a small integer.")
        .flags(Flags::READONLY)
        .args(&[key("key")]),
];

/// Length in bytes up to which Redis stores a string together with its header.
const EMBEDDED_BYTES_MAX: usize = 44;
/// Number of small integers that Redis shares between keys.
const SHARED_INTEGERS: i64 = 10_000;
/// The reference count of a shared integer.
const SHARED: i64 = i32::MAX as i64;

fn encoding(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    match call.view.entry(name).occupied() {
        Some(found) => call.reply.bulk(encoding_of(&found)?.as_bytes()),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

fn encoding_of(found: &Occupied<'_>) -> Result<&'static str, Refusal> {
    if let Some(object) = found.object() {
        return Ok(object.shape().encoding());
    }
    let value = found.string()?;
    Ok(match found.form() {
        Form::Edited => "raw",
        Form::Whole if number::integer(value).is_some() => "int",
        _ if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    })
}

/// True if Redis would store the value as a shared integer.
fn is_shared(found: &Occupied<'_>) -> Result<bool, Refusal> {
    if found.object().is_some() {
        return Ok(false);
    }
    let value = number::integer(found.string()?);
    Ok(found.form() == Form::Whole && value.is_some_and(|value| (0..SHARED_INTEGERS).contains(&value)))
}

fn freq(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    if call.view.entry(name).occupied().is_some() {
        return Err(Refusal::said(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ));
    }
    call.reply.null();
    Ok(Outcome::Replied)
}

fn idle_time(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let now_secs = call.now.lock.as_millis() / 1000;
    match call.view.entry(name).occupied() {
        // Both times are seconds in 32 bits that wrap around, and so does their difference.
        Some(found) => call.reply.integer((now_secs as u32).wrapping_sub(found.last_used_secs()).into()),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

fn refcount(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    match call.view.entry(name).occupied() {
        Some(found) => call.reply.integer(if is_shared(&found)? { SHARED } else { 1 }),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    Return the kind of internal representation used in order to store the value",
    "    associated with a <key>.",
    "FREQ <key>",
    "    Return the access frequency index of the <key>. The returned integer is",
    "    proportional to the logarithm of the recent access frequency of the key.",
    "IDLETIME <key>",
    "    Return the idle time of the <key>, that is the approximated number of",
    "    seconds elapsed since the last access to the key.",
    "REFCOUNT <key>",
    "    Return the number of references of the value associated with the specified",
    "    <key>.",
    "HELP",
    "    Prints this help.",
];

fn help(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.array(HELP.len());
    HELP.iter().for_each(|line| call.reply.status(line));
    Ok(Outcome::Replied)
}
