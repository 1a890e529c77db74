//! Deadlines of hash fields: HEXPIRE and its variants set them, HTTL and its variants read them, HPERSIST removes
//! them.
//!
//! Rule    a field whose new deadline has passed is removed at once, and the key with its last field.
//! Source  Valkey 9.1 `t_hash.c`, `hexpireGenericCommand`: Redis 7.0 does not have these commands.

use crate::clock::{Deadline, Now};
use crate::commands::expiry::Unit;
use crate::commands::key::expire::{Conditions, nearest_second};
use crate::commands::row::{Arg, Flags, Group, Row, block, integer, key, one_of, text, token, unix_time};
use crate::commands::{Args, Call, Outcome};
use crate::error::Refusal;
use crate::keyspace::Editor;
use crate::types::Hash;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Hash, "HEXPIRE", "9.0.0", hexpire)
        .summary("Sets the leases of fields of a hash, in seconds from now (Valkey 9.0).")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), integer("seconds"), CONDITION.maybe(), FIELDS]),
    Row::new(Group::Hash, "HEXPIREAT", "9.0.0", hexpireat)
        .summary("Sets the end of the leases of fields of a hash, in seconds of Unix time (Valkey 9.0).")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), unix_time("unix-time-seconds"), CONDITION.maybe(), FIELDS]),
    Row::new(Group::Hash, "HEXPIRETIME", "9.0.0", hexpiretime)
        .summary("Returns the second of Unix time in which fields of a hash end (Valkey 9.0).")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), FIELDS]),
    Row::new(Group::Hash, "HPERSIST", "9.0.0", hpersist)
        .summary("Removes the leases of fields of a hash (Valkey 9.0).")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), FIELDS]),
    Row::new(Group::Hash, "HPEXPIRE", "9.0.0", hpexpire)
        .summary("Sets the leases of fields of a hash, in milliseconds from now (Valkey 9.0).")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), integer("milliseconds"), CONDITION.maybe(), FIELDS]),
    Row::new(Group::Hash, "HPEXPIREAT", "9.0.0", hpexpireat)
        .summary("Sets the end of the leases of fields of a hash, in milliseconds of Unix time (Valkey 9.0).")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), unix_time("unix-time-milliseconds"), CONDITION.maybe(), FIELDS]),
    Row::new(Group::Hash, "HPEXPIRETIME", "9.0.0", hpexpiretime)
        .summary("Returns the millisecond of Unix time in which fields of a hash end (Valkey 9.0).")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), FIELDS]),
    Row::new(Group::Hash, "HPTTL", "9.0.0", hpttl)
        .summary("Returns the rest of the leases of fields of a hash, in milliseconds (Valkey 9.0).")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), FIELDS]),
    Row::new(Group::Hash, "HTTL", "9.0.0", httl)
        .summary("Returns the rest of the leases of fields of a hash, in seconds (Valkey 9.0).")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), FIELDS]),
];

const CONDITION: Arg =
    one_of("condition", &[token("nx", "NX"), token("xx", "XX"), token("gt", "GT"), token("lt", "LT")]);

/// The argument `FIELDS <numfields> <field> ...`.
const FIELDS: Arg = block("fields", &[integer("numfields"), text("field").many()]).after("FIELDS");

/// Reply for a field that does not exist.
const NO_FIELD: i64 = -2;
/// Reply for a field without a deadline.
const NO_DEADLINE: i64 = -1;
/// Reply for a field that was not changed.
const UNCHANGED: i64 = 0;
/// Reply for a field that was changed.
const CHANGED: i64 = 1;
/// Reply for a field that was removed because its new deadline has passed.
const ENDED: i64 = 2;

/// The number of words after FIELDS, if FIELDS is present and not the last word.
fn words_behind_fields(args: &Args<'_>) -> Option<usize> {
    let mut look = *args;
    while look.len() > 1 {
        if look.take("FIELDS") {
            return Some(look.len());
        }
        look.maybe_word();
    }
    None
}

/// Takes the number of fields, which must be the number of words left.
///
/// # Errors
/// [`Refusal::NotAnInteger`], or a text of its own if the numbers differ.
fn take_count(args: &mut Args<'_>) -> Result<usize, Refusal> {
    let count = usize::try_from(args.integer()?).unwrap_or(0);
    if count > 0 && count == args.len() { Ok(count) } else { Err(wrong_count()) }
}

/// The refusal of a wrong number of fields.
fn wrong_count() -> Refusal {
    Refusal::said("ERR numfields should be greater than 0 and match the provided number of fields")
}

fn hexpire(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_deadlines(call, Unit::Secs, "hexpire")
}

fn hexpireat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_deadlines(call, Unit::UnixSecs, "hexpireat")
}

fn hpexpire(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_deadlines(call, Unit::Millis, "hpexpire")
}

fn hpexpireat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_deadlines(call, Unit::UnixMillis, "hpexpireat")
}

fn set_deadlines(call: &mut Call<'_, '_>, unit: Unit, command: &'static str) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let mut value = call.args;
    call.args.word()?;
    let behind = words_behind_fields(&call.args).ok_or_else(wrong_count)?;
    let conditions = Conditions::parse(&mut call.args, behind.saturating_add(1))?;
    call.args.word()?;
    let count = take_count(&mut call.args)?;
    let deadline = deadline(unit, value.integer()?, call.now, command)?;

    let Some(mut hash) = call.view.find::<Hash>(name)? else {
        return answer_no_fields(call, count);
    };
    let (mut is_set, mut is_ended) = (false, false);
    call.reply.array(count);
    for field in call.args.rest() {
        let answer = match hash.get().contains(field) {
            false => NO_FIELD,
            true if !conditions.hold(hash.get().deadline(field), deadline) => UNCHANGED,
            true => set_or_remove(&mut hash, field, deadline, call.now),
        };
        is_set |= answer == CHANGED;
        is_ended |= answer == ENDED;
        call.reply.integer(answer);
    }
    announce(&mut hash, is_set, is_ended);
    Ok(Outcome::Replied)
}

/// The deadline that `value` stands for. It may have passed.
///
/// # Errors
/// [`Refusal::ExpireTime`] if the number is negative or the deadline exceeds 64 bits.
fn deadline(unit: Unit, value: i64, now: Now, command: &'static str) -> Result<Deadline, Refusal> {
    if value < 0 {
        return Err(Refusal::ExpireTime(command));
    }
    unit.deadline(value, now, command)
}

/// Sets the deadline of an existing field, or removes the field if the deadline has passed. Returns the reply.
fn set_or_remove(hash: &mut Editor<'_, Hash>, field: &[u8], deadline: Deadline, now: Now) -> i64 {
    if has_come(deadline, now) {
        hash.remove(field);
        return ENDED;
    }
    hash.set_deadline(field, Some(deadline));
    CHANGED
}

/// True if a field with this deadline has ended, or ends now.
fn has_come(deadline: Deadline, now: Now) -> bool {
    deadline.time() <= now.lock
}

/// Publishes the events of fields that got a deadline and of fields that were removed.
fn announce(hash: &mut Editor<'_, Hash>, is_set: bool, is_ended: bool) {
    if is_set {
        hash.event(b'h', "hexpire");
    }
    if is_ended {
        hash.event(b'h', "hexpired");
    }
}

fn answer_no_fields(call: &mut Call<'_, '_>, count: usize) -> Result<Outcome, Refusal> {
    call.reply.array(count);
    for _ in 0..count {
        call.reply.integer(NO_FIELD);
    }
    Ok(Outcome::Replied)
}

fn hpersist(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if !call.args.take("FIELDS") {
        return Err(Refusal::Syntax);
    }
    let count = take_count(&mut call.args)?;

    let Some(mut hash) = call.view.find::<Hash>(name)? else {
        return answer_no_fields(call, count);
    };
    let mut is_changed = false;
    call.reply.array(count);
    for field in call.args.rest() {
        call.reply.integer(match (hash.get().contains(field), hash.get().deadline(field)) {
            (false, _) => NO_FIELD,
            (true, None) => NO_DEADLINE,
            (true, Some(_)) => {
                hash.set_deadline(field, None);
                is_changed = true;
                CHANGED
            }
        });
    }
    if is_changed {
        hash.event(b'h', "hpersist");
    }
    Ok(Outcome::Replied)
}

fn httl(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_deadlines(call, |now, deadline| nearest_second(now.millis_until(deadline)))
}

fn hpttl(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_deadlines(call, Now::millis_until)
}

fn hexpiretime(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_deadlines(call, |now, deadline| nearest_second(now.wall_ms_of(deadline)))
}

fn hpexpiretime(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_deadlines(call, Now::wall_ms_of)
}

/// Answers the deadline of each field, as `convert` returns it.
fn answer_deadlines(call: &mut Call<'_, '_>, convert: fn(Now, Deadline) -> i64) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if !call.args.take("FIELDS") {
        return Err(Refusal::Syntax);
    }
    let count = usize::try_from(call.args.integer()?).unwrap_or(0);
    if count == 0 || count != call.args.len() {
        return Err(Refusal::Syntax);
    }

    let Some(hash) = call.view.read_as::<Hash>(name)? else {
        return answer_no_fields(call, count);
    };
    call.reply.array(count);
    for field in call.args.rest() {
        call.reply.integer(match (hash.contains(field), hash.deadline(field)) {
            (false, _) => NO_FIELD,
            (true, None) => NO_DEADLINE,
            (true, Some(deadline)) => convert(call.now, deadline),
        });
    }
    Ok(Outcome::Replied)
}
