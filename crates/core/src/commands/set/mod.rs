//! Sets by their members: SADD, SREM, SISMEMBER and similar.
//!
//! Source  Redis 7.0 `t_set.c`.

pub(in crate::commands) mod random;

use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Reply;

use crate::commands::row::{Flags, Group, Row, key, text};
use crate::commands::{Call, Outcome};
use crate::types::{Set, Shape};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Set, "SADD", "1.0.0", sadd)
        .summary("Adds members to a set; creates the set if it does not exist.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("member").many()]),
    Row::new(Group::Set, "SCARD", "1.0.0", scard)
        .summary("Returns how many members a set has.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::Set, "SISMEMBER", "1.0.0", sismember)
        .summary("Returns whether a set has a member.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("member")]),
    Row::new(Group::Set, "SMEMBERS", "1.0.0", smembers)
        .summary("Returns all members of a set.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key")]),
    Row::new(Group::Set, "SMISMEMBER", "6.2.0", smismember)
        .summary("Returns for each of several words whether it is a member of a set.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("member").many()]),
    Row::new(Group::Set, "SMOVE", "1.0.0", smove)
        .summary("Moves a member from one set to another.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("source"), key("destination"), text("member")]),
    Row::new(Group::Set, "SREM", "1.0.0", srem)
        .summary("Removes members from a set.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), text("member").many()]),
];

fn sadd(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let mut set = call.view.open::<Set>(name)?;
    let added = call.args.rest().filter(|member| set.insert(member)).count();
    if added > 0 {
        set.event(b's', "sadd");
    }

    call.reply.count(added);
    Ok(Outcome::Replied)
}

fn srem(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let mut removed = 0;
    if let Some(mut set) = call.view.find::<Set>(name)? {
        removed = call.args.rest().filter(|member| set.remove(member)).count();
        if removed > 0 {
            set.event(b's', "srem");
        }
    }

    call.reply.count(removed);
    Ok(Outcome::Replied)
}

fn scard(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let len = call.view.read_as::<Set>(name)?.map_or(0, Set::len);

    call.reply.count(len);
    Ok(Outcome::Replied)
}

fn sismember(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let member = call.args.word()?;

    let is_member = call.view.read_as::<Set>(name)?.is_some_and(|set| set.contains(member));

    call.reply.integer(i64::from(is_member));
    Ok(Outcome::Replied)
}

fn smismember(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let set = call.view.read_as::<Set>(name)?;
    call.reply.array(call.args.len());
    for member in call.args.rest() {
        call.reply.integer(i64::from(set.is_some_and(|set| set.contains(member))));
    }
    Ok(Outcome::Replied)
}

fn smembers(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    match call.view.read_as::<Set>(name)? {
        Some(set) => members(set, &mut call.reply),
        None => call.reply.set(0),
    }
    Ok(Outcome::Replied)
}

/// Writes all members as the reply.
pub(in crate::commands) fn members(set: &Set, reply: &mut Reply<'_>) {
    reply.set(set.len());
    set.iter().for_each(|member| member.with_bytes(|bytes| reply.bulk(bytes)));
}

fn smove(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (source, destination) = (call.args.word()?, call.args.word()?);
    let member = call.args.word()?;

    let is_moved = move_member(call, source, destination, member)?;

    call.reply.integer(i64::from(is_moved));
    Ok(Outcome::Replied)
}

fn move_member(
    call: &mut Call<'_, '_>,
    source: &[u8],
    destination: &[u8],
    member: &[u8],
) -> Result<bool, Refusal> {
    // As in Redis, the type of the destination is checked only if the source exists.
    let Some(from) = call.view.find::<Set>(source)? else { return Ok(false) };
    if source == destination {
        return Ok(from.get().contains(member));
    }
    drop(from);
    call.view.find::<Set>(destination)?;

    let Some(mut from) = call.view.find::<Set>(source)? else { return Ok(false) };
    if !from.remove(member) {
        return Ok(false);
    }
    from.event(b's', "srem");
    drop(from);
    let mut to = call.view.open::<Set>(destination)?;
    if to.insert(member) {
        to.event(b's', "sadd");
    }
    Ok(true)
}
