//! Hashes: fields with values under one key.
//!
//! Source  Redis 7.0 `t_hash.c`: which error comes first, and one event per command however many fields it sets; HGETDEL of
//!         Valkey 9.1, which Redis has since 8.0.

pub(in crate::commands) mod scan;

use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::number::double::parse;

use crate::commands::row::{Arg, Flags, Group, Row, block, double, integer, key, text};
use crate::commands::string::{Pair, pairs};
use crate::commands::{Call, Outcome};
use crate::types::{Hash, Shape};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Hash, "HDEL", "2.0.0", hdel)
        .summary("Removes fields of a hash.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), text("field").many()]),
    Row::new(Group::Hash, "HEXISTS", "2.0.0", hexists)
        .summary("Returns whether a hash has a field.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("field")]),
    Row::new(Group::Hash, "HGET", "2.0.0", hget)
        .summary("Returns the value of a field of a hash.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("field")]),
    Row::new(Group::Hash, "HGETALL", "2.0.0", hgetall)
        .summary("Returns the fields and values of a hash.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key")]),
    Row::new(Group::Hash, "HGETDEL", "8.0.0", hgetdel)
        .summary("Returns the values of fields of a hash and removes the fields (Redis 8.0).")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), FIELDS]),
    Row::new(Group::Hash, "HINCRBY", "2.0.0", hincrby)
        .summary("Adds to the integer that a field of a hash holds; a missing field counts as 0.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("field"), integer("increment")]),
    Row::new(Group::Hash, "HINCRBYFLOAT", "2.6.0", hincrbyfloat)
        .summary("Adds to the number that a field of a hash holds; a missing field counts as 0.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("field"), double("increment")]),
    Row::new(Group::Hash, "HKEYS", "2.0.0", hkeys)
        .summary("Returns the fields of a hash.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key")]),
    Row::new(Group::Hash, "HLEN", "2.0.0", hlen)
        .summary("Returns the number of fields of a hash.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::Hash, "HMGET", "2.0.0", hmget)
        .summary("Returns the values of fields of a hash.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("field").many()]),
    Row::new(Group::Hash, "HMSET", "2.0.0", hmset)
        .summary("Sets fields of a hash. HSET also returns how many are new.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), PAIR.many()]),
    Row::new(Group::Hash, "HSET", "2.0.0", hset)
        .summary("Sets fields of a hash; creates the hash if it does not exist.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), PAIR.many()]),
    Row::new(Group::Hash, "HSETNX", "2.0.0", hsetnx)
        .summary("Sets a field of a hash if the field does not exist.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("field"), text("value")]),
    Row::new(Group::Hash, "HSTRLEN", "3.2.0", hstrlen)
        .summary("Returns the length of the value of a field of a hash.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("field")]),
    Row::new(Group::Hash, "HVALS", "2.0.0", hvals)
        .summary("Returns the values of a hash.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key")]),
];

const PAIR: Arg = block("data", &[text("field"), text("value")]);
const FIELDS: Arg = block("fields", &[integer("numfields"), text("field").many()]).after("FIELDS");

fn hset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let added = set_all(call, "hset")?;

    call.reply.count(added);
    Ok(Outcome::Replied)
}

fn hmset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_all(call, "hmset")?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// Sets the fields of the request. Returns the number of new fields.
fn set_all(call: &mut Call<'_, '_>, command: &'static str) -> Result<usize, Refusal> {
    let name = call.args.word()?;
    let pairs = pairs(call.args, command)?;

    let mut hash = call.view.open::<Hash>(name)?;
    let mut added = 0_usize;
    for (field, value) in pairs {
        added = added.saturating_add(hash.set(field, value).into());
    }
    hash.event(b'h', "hset");
    Ok(added)
}

fn hsetnx(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let field = call.args.word()?;
    let value = call.args.word()?;

    let mut hash = call.view.open::<Hash>(name)?;
    let is_free = !hash.get().contains(field);
    if is_free {
        hash.set(field, value);
        hash.event(b'h', "hset");
    }
    drop(hash);

    call.reply.integer(i64::from(is_free));
    Ok(Outcome::Replied)
}

fn hdel(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let mut removed = 0_usize;
    if let Some(mut hash) = call.view.find::<Hash>(name)? {
        for field in call.args.rest() {
            removed = removed.saturating_add(hash.remove(field).into());
        }
        if removed > 0 {
            hash.event(b'h', "hdel");
        }
    }

    call.reply.count(removed);
    Ok(Outcome::Replied)
}

fn hgetdel(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if !call.args.take("FIELDS") {
        return Err(Refusal::Syntax);
    }
    let count = call.args.integer()?;
    if count <= 0 || usize::try_from(count) != Ok(call.args.len()) {
        return Err(Refusal::said(
            "ERR numfields should be greater than 0 and match the provided number of fields",
        ));
    }

    let hash = call.view.find::<Hash>(name)?;
    call.reply.array(call.args.len());
    let Some(mut hash) = hash else {
        call.args.rest().for_each(|_| call.reply.null());
        return Ok(Outcome::Replied);
    };
    let mut removed = false;
    for field in call.args.rest() {
        match hash.get().get(field) {
            Some(value) => call.reply.bulk(value),
            None => call.reply.null(),
        }
        removed |= hash.remove(field);
    }
    if removed {
        hash.event(b'h', "hdel");
    }
    Ok(Outcome::Replied)
}

fn hincrby(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let field = call.args.word()?;
    let increment = call.args.integer()?;

    let mut hash = call.view.open::<Hash>(name)?;
    let old = match hash.get().get(field) {
        Some(text) => {
            number::integer(text).ok_or_else(|| Refusal::said("ERR hash value is not an integer"))?
        }
        None => 0,
    };
    let new = old.checked_add(increment).ok_or(Refusal::Overflow)?;
    hash.set(field, itoa::Buffer::new().format(new).as_bytes());
    hash.event(b'h', "hincrby");
    drop(hash);

    call.reply.integer(new);
    Ok(Outcome::Replied)
}

fn hincrbyfloat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let field = call.args.word()?;
    let increment = parse(call.args.word()?).ok_or(Refusal::NotAFloat)?;
    if increment.is_infinite() {
        return Err(Refusal::said("ERR value is NaN or Infinity"));
    }

    let mut hash = call.view.open::<Hash>(name)?;
    let old = hash.get().get(field).map_or(Some(0.0), parse);
    let new = old.ok_or_else(|| Refusal::said("ERR hash value is not a float"))? + increment;
    if !new.is_finite() {
        return Err(Refusal::said("ERR increment would produce NaN or Infinity"));
    }
    let text = number::float_text(new);
    hash.set(field, text.as_bytes());
    hash.event(b'h', "hincrbyfloat");
    drop(hash);

    call.reply.bulk(text.as_bytes());
    Ok(Outcome::Replied)
}

fn hget(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let field = call.args.word()?;

    match call.view.read_as::<Hash>(name)?.and_then(|hash| hash.get(field)) {
        Some(value) => call.reply.bulk(value),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

fn hmget(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let hash = call.view.read_as::<Hash>(name)?;
    call.reply.array(call.args.len());
    for field in call.args.rest() {
        match hash.and_then(|hash| hash.get(field)) {
            Some(value) => call.reply.bulk(value),
            None => call.reply.null(),
        }
    }
    Ok(Outcome::Replied)
}

fn hexists(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let field = call.args.word()?;

    let is_here = call.view.read_as::<Hash>(name)?.is_some_and(|hash| hash.contains(field));

    call.reply.integer(i64::from(is_here));
    Ok(Outcome::Replied)
}

fn hstrlen(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let field = call.args.word()?;

    let value = call.view.read_as::<Hash>(name)?.and_then(|hash| hash.get(field));

    call.reply.count(value.map_or(0, <[u8]>::len));
    Ok(Outcome::Replied)
}

fn hlen(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let len = call.view.read_as::<Hash>(name)?.map_or(0, Hash::len);

    call.reply.count(len);
    Ok(Outcome::Replied)
}

fn hgetall(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let hash = call.view.read_as::<Hash>(name)?;

    call.reply.map(hash.map_or(0, Hash::len));
    for (field, value) in hash.into_iter().flat_map(Hash::iter) {
        call.reply.bulk(field);
        call.reply.bulk(value);
    }
    Ok(Outcome::Replied)
}

fn hkeys(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    one_of_each_pair(call, |(field, _)| field)
}

fn hvals(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    one_of_each_pair(call, |(_, value)| value)
}

fn one_of_each_pair(call: &mut Call<'_, '_>, choose: fn(Pair<'_>) -> &[u8]) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let hash = call.view.read_as::<Hash>(name)?;

    call.reply.array(hash.map_or(0, Hash::len));
    for pair in hash.into_iter().flat_map(Hash::iter) {
        call.reply.bulk(choose(pair));
    }
    Ok(Outcome::Replied)
}
