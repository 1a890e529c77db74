//! What commands answer while nothing may be granted or extended: in the quarantine, while the disk takes no writes, while
//! the server shuts down, and on a server that only shows the locks of another one.
//!
//! Owns    the answers. [`Call::run`] asks for them.
//! Rule    what makes a key, a field or a member, or lengthens a lease, is refused. What only removes works. Reads see the
//!         real data, except that a key that does not exist seems to be held for the rest of the quarantine.
//! Source  docs/durability.md; Redis 7.0 `server.c` for the text of a failing disk.

use redlatch_proto::clock::{Deadline, LockTime};
use redlatch_proto::error::Refusal;

use crate::commands::key::expire::nearest_second;
use crate::commands::row::{Flags, Group};
use crate::commands::{Call, Caller, Outcome, Shared};
use crate::scripts::{Granted, Known, Purpose};
use crate::types::{Hash, SortedSet};

impl Caller {
    /// Whether it is a known script that ends a hold. Such a script may also write what goes with that: Redisson sets a key
    /// that tells of the release.
    fn releases(self) -> bool {
        matches!(self, Self::Script(Some(Purpose::Break | Purpose::Release)))
    }

    /// Whether EXPIRE may answer 0. Many scripts do not look at its answer, and would say that they have extended.
    fn heeds_refusals(self) -> bool {
        !matches!(self, Self::Script(_)) || self.releases()
    }
}

/// Executes a command, or answers as it must be answered while something keeps locks from being granted.
///
/// # Errors
/// The error of the command, of the quarantine, of the disk or of a shutdown; or the locks are those of another server.
#[cold]
pub(in crate::commands) fn run(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (caller, row, quarantine) = (call.caller, call.command.row, &call.shared.locks.quarantine);
    if let Some(beside) = &call.shared.beside {
        return match row.flags.has(Flags::WRITE) || row.name == "LOCK.TOKEN" {
            true => Err(beside.refusal(row.name)),
            false => (row.run)(call),
        };
    }
    let until = quarantine.until(call.now.lock);
    let (disk_fails, refuses) = (quarantine.disk_error().is_some(), quarantine.refuses());
    if !row.flags.has(Flags::WRITE) {
        return match until {
            // As in Redis, so that health checks see it.
            _ if disk_fails && row.name == "PING" => {
                permission(call.shared, call.now.lock).and_then(|()| (row.run)(call))
            }
            Some(_) if caller == Caller::Script(Some(Purpose::Extend)) => find_nothing(call),
            Some(until) => read(call, until),
            None => (row.run)(call),
        };
    }
    let releases = caller.releases();
    // What is handed out while the disk takes no writes might be handed out again.
    let takes = takes(row.name) && (disk_fails || (until.is_some() && has_lease(call)));
    let removes = row.flags.has(Flags::REMOVES) && !takes;
    if (releases && !is_expire(row.name)) || removes || is_harmless(call)? {
        return (row.run)(call);
    }
    if until.is_some() && !refuses {
        return answer_as_held(call, caller);
    }
    match permission(call.shared, call.now.lock) {
        // The holds that are left keep their lease.
        Err(_) if releases => {
            call.reply.integer(0);
            Ok(Outcome::Replied)
        }
        allowed => allowed.and_then(|()| (row.run)(call)),
    }
}

/// Allows what grants or extends.
///
/// # Errors
/// The error of a shutdown, of the disk, or of the quarantine.
pub(in crate::commands) fn permission(shared: &Shared, now: LockTime) -> Result<(), Refusal> {
    if shared.locks.quarantine.is_stopping() {
        return Err(Refusal::said("SHUTDOWN the server is shutting down: no lock is granted or extended"));
    }
    check_disk(shared)?;
    let Some(until) = shared.locks.quarantine.until(now) else { return Ok(()) };
    let left_ms = until.millis_since(now);
    Err(Refusal::said(format!(
        "QUARANTINE this server may have forgotten locks: none is granted or extended for another {left_ms} ms"
    )))
}

/// Allows what needs the disk.
///
/// # Errors
/// The error of the disk.
pub(in crate::commands) fn check_disk(shared: &Shared) -> Result<(), Refusal> {
    match shared.locks.quarantine.disk_error() {
        Some(error) => Err(Refusal::said(format!("MISCONF Errors writing to the AOF file: {error}"))),
        None => Ok(()),
    }
}

/// Answers a known script that asks for a lock in the quarantine, if its refusal is the time that is left.
#[cold]
pub(in crate::commands) fn answer_acquire(call: &mut Call<'_, '_>, known: &Known) -> bool {
    let until = call.shared.locks.quarantine.until(call.now.lock);
    match (known.purpose, until) {
        (Purpose::Acquire(Granted::Nil), Some(until)) if !call.shared.locks.quarantine.refuses() => {
            call.reply.integer(call.now.millis_until(Deadline::at(until)));
            true
        }
        _ => false,
    }
}

/// A read. A key that does not exist seems to exist until `until`.
fn read(call: &mut Call<'_, '_>, until: LockTime) -> Result<Outcome, Refusal> {
    let row = call.command.row;
    let (deadline, now) = (Deadline::at(until), call.now);
    let answer = match row.name {
        "EXISTS" if row.group == Group::Generic => {
            call.reply.count(call.args.len());
            return Ok(Outcome::Replied);
        }
        "TTL" => nearest_second(now.millis_until(deadline)),
        "PTTL" => now.millis_until(deadline),
        "EXPIRETIME" => nearest_second(now.wall_ms_of(deadline)),
        "PEXPIRETIME" => now.wall_ms_of(deadline),
        _ => return (row.run)(call),
    };
    if key_exists(call) {
        return (row.run)(call);
    }
    call.reply.integer(answer);
    Ok(Outcome::Replied)
}

/// A read of a known script that extends a lock: it does not find the lock, so that it answers in its own way that its
/// owner does not hold it.
fn find_nothing(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    match call.command.row.name {
        "GET" | "HGET" | "ZSCORE" => call.reply.null(),
        "MGET" => {
            call.reply.array(call.args.len());
            call.args.rest().for_each(|_| call.reply.null());
        }
        "EXISTS" | "HEXISTS" | "SISMEMBER" => call.reply.integer(0),
        _ => return (call.command.row.run)(call),
    }
    Ok(Outcome::Replied)
}

/// Whether the command hands out what is in a key.
fn takes(name: &str) -> bool {
    matches!(
        name,
        "BLMPOP"
            | "BLPOP"
            | "BRPOP"
            | "BZMPOP"
            | "BZPOPMAX"
            | "BZPOPMIN"
            | "GETDEL"
            | "HGETDEL"
            | "LMPOP"
            | "LPOP"
            | "RPOP"
            | "SPOP"
            | "ZMPOP"
            | "ZPOPMAX"
            | "ZPOPMIN"
    )
}

/// Whether a key of the command has a lease: what is in it may have been handed out before. Keys without a lease have lost
/// nothing.
fn has_lease(call: &mut Call<'_, '_>) -> bool {
    let request = call.args.request();
    let has_lease = |at| call.view.peek(request.word(at)).is_some_and(|found| found.deadline().is_some());
    call.command.positions(request).any(has_lease)
}

/// Whether a command without [`Flags::REMOVES`] grants and extends nothing this time, or decides that itself.
fn is_harmless(call: &mut Call<'_, '_>) -> Result<bool, Refusal> {
    let mut args = call.args;
    let (key, second, third) = (args.maybe_word(), args.maybe_word(), args.maybe_word());
    let is_negative = |word: Option<&[u8]>| word.is_some_and(|word| word.starts_with(b"-"));
    let key = key.unwrap_or_default();
    Ok(match call.command.row.name {
        // They wait for the end, or are refused once their options are read.
        "LOCK.ACQUIRE" | "LOCK.MACQUIRE" => true,
        "GETEX" => second.is_none(),
        "INCRBY" => is_negative(second) && call.view.peek(key).is_some(),
        "HINCRBY" if is_negative(third) => {
            let hash = call.view.read_as::<Hash>(key)?;
            hash.is_some_and(|hash| hash.contains(second.unwrap_or_default()))
        }
        "ZINCRBY" if is_negative(second) => {
            let set = call.view.read_as::<SortedSet>(key)?;
            set.is_some_and(|set| set.score(third.unwrap_or_default()).is_some())
        }
        // Only the disk matters: a function is no lock.
        "LOAD" => call.shared.locks.quarantine.disk_error().is_none(),
        _ => false,
    })
}

/// Answers that the key is held, if the command has a reply for that; else with the error of the quarantine.
fn answer_as_held(call: &mut Call<'_, '_>, caller: Caller) -> Result<Outcome, Refusal> {
    let name = call.command.row.name;
    match name {
        // The key exists: nothing will be set.
        "SET" if asks_for(call, 2, b"NX") && key_exists(call) => return (call.command.row.run)(call),
        // With GET, nil would say that the key is set.
        "SET" if asks_for(call, 2, b"NX") && !asks_for(call, 2, b"GET") => call.reply.null(),
        "MSETEX" if asks_for(call, words_of_pairs(call), b"NX") => call.reply.integer(0),
        "SETNX" | "MSETNX" | "HSETNX" => call.reply.integer(0),
        name if is_expire(name) && caller.heeds_refusals() => call.reply.integer(0),
        _ => permission(call.shared, call.now.lock)?,
    }
    Ok(Outcome::Replied)
}

/// Whether a command sets or removes the deadline of a key, and does nothing else.
fn is_expire(name: &str) -> bool {
    matches!(name, "EXPIRE" | "EXPIREAT" | "PERSIST" | "PEXPIRE" | "PEXPIREAT")
}

/// Whether the command has this option, behind so many words that are none.
fn asks_for(call: &Call<'_, '_>, words: usize, option: &[u8]) -> bool {
    let mut args = call.args;
    args.rest().skip(words).any(|word| word.eq_ignore_ascii_case(option))
}

/// Words of the number of keys, the keys, and their values.
fn words_of_pairs(call: &Call<'_, '_>) -> usize {
    call.command.positions(call.args.request()).count().saturating_mul(2).saturating_add(1)
}

fn key_exists(call: &mut Call<'_, '_>) -> bool {
    let key = call.args.peek().unwrap_or_default();
    call.view.peek(key).is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::table;

    /// Commands that this file, or their own, decides by their arguments.
    const DECIDED: &[&str] = &[
        "set", "setnx", "msetex", "msetnx", "hsetnx", "expire", "expireat", "persist", "pexpire",
        "pexpireat", "getex", "incrby", "hincrby", "zincrby", "lock.acquire", "lock.macquire",
        "function|load",
    ];
    /// Commands that are always refused, because they may make a key, a field or a member, or lengthen a lease.
    const REFUSED: &[&str] = &[
        "append", "blmove", "brpoplpush", "copy", "decr", "decrby", "getset", "hincrbyfloat", "hmset",
        "hset", "incr", "incrbyfloat", "increx", "linsert", "lmove", "lock.extend", "lock.guard",
        "lock.session|attach", "lock.transfer", "lpush", "lpushx", "lset", "move", "mset", "psetex",
        "rename", "renamenx", "rpoplpush", "rpush", "rpushx", "sadd", "setex", "setrange", "smove", "swapdb",
        "xadd", "zadd", "zinterstore", "zrangestore",
    ];

    #[test]
    fn every_command_that_writes_is_a_removal_or_decided_or_refused() {
        let writes = || table().all().filter(|command| command.row.flags.has(Flags::WRITE));
        for command in writes() {
            let name = command.name.as_str();
            let removes = command.row.flags.has(Flags::REMOVES);
            let kinds = [removes, DECIDED.contains(&name), REFUSED.contains(&name)];
            assert_eq!(kinds.iter().filter(|is| **is).count(), 1, "{name} is of one kind");
            assert!(
                !removes || !command.row.flags.has(Flags::DENYOOM),
                "{name} removes, and may need memory"
            );
        }
        let names: BTreeSet<&str> = writes().map(|command| command.name.as_str()).collect();
        assert!(
            DECIDED.iter().chain(REFUSED).all(|name| names.contains(name)),
            "every name is one of a command"
        );
        let mut removing = table().all().filter(|command| command.row.flags.has(Flags::REMOVES));
        assert!(removing.all(|command| command.row.flags.has(Flags::WRITE)), "a removal writes");
    }
}
