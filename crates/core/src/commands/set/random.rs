//! Random members of a set and a scan over it: SPOP, SRANDMEMBER, SSCAN.
//!
//! Rule    a request may ask for any number of members; its reply has a bounded number of bytes, or it is refused.
//! Source  Redis 7.0 `t_set.c`: `srandmemberWithCountCommand`, and `db.c`: `scanGenericCommand`.

use std::collections::BTreeSet;

use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Reply;

use crate::commands::list::positive;
use crate::commands::row::{Flags, Group, Row, integer, key, pattern};
use crate::commands::scan::{Found, ScanOptions, cursor};
use crate::commands::set::members;
use crate::commands::{Args, Call, Outcome, Shared};
use crate::types::set::Member;
use crate::types::{Set, Shape};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Set, "SPOP", "1.0.0", spop)
        .summary("Removes random members from a set and returns them.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), integer("count").maybe()]),
    Row::new(Group::Set, "SRANDMEMBER", "1.0.0", srandmember)
        .summary("Returns random members of a set.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key"), integer("count").maybe()]),
    Row::new(Group::Set, "SSCAN", "2.8.0", sscan)
        .summary("Returns some members of a set and the next cursor.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[
            key("key"),
            integer("cursor"),
            pattern("pattern").after("MATCH").maybe(),
            integer("count").after("COUNT").maybe(),
        ]),
];

fn spop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let Some(count) = call.args.maybe_word() else { return pop_one(call, name) };
    call.args.finish()?;
    let count = positive(count)?;

    let Some(mut set) = call.view.find::<Set>(name)? else {
        call.reply.set(0);
        return Ok(Outcome::Replied);
    };
    let len = set.get().len();
    if count >= len {
        members(set.get(), &mut call.reply);
        set.event(b's', "spop");
        drop(set);
        call.view.event(b'g', "del", name);
        call.view.remove(name);
        return Ok(Outcome::Replied);
    }
    call.reply.set(count);
    for taken in 0..count {
        call.reply.bulk(&set.take_at(below(len.saturating_sub(taken), call.shared)));
    }
    if count > 0 {
        set.event(b's', "spop");
    }
    Ok(Outcome::Replied)
}

fn pop_one(call: &mut Call<'_, '_>, name: &[u8]) -> Result<Outcome, Refusal> {
    match call.view.find::<Set>(name)? {
        Some(mut set) => {
            let member = set.take_at(below(set.get().len(), call.shared));
            call.reply.bulk(&member);
            set.event(b's', "spop");
        }
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

fn srandmember(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if call.args.is_empty() {
        return one_member(call, name);
    }
    if call.args.len() > 1 {
        return Err(Refusal::Syntax);
    }
    let count = count(&mut call.args)?;

    match (call.view.read_as::<Set>(name)?, usize::try_from(count)) {
        (None, _) => call.reply.array(0),
        (Some(set), Ok(count)) => distinct(set, count.min(set.len()), call.shared, &mut call.reply),
        (Some(set), Err(_)) => repeated(set, count.unsigned_abs(), call.shared, &mut call.reply)?,
    }
    Ok(Outcome::Replied)
}

fn one_member(call: &mut Call<'_, '_>, name: &[u8]) -> Result<Outcome, Refusal> {
    match call.view.read_as::<Set>(name)?.and_then(|set| set.at(below(set.len(), call.shared))) {
        Some(member) => member.with_bytes(|bytes| call.reply.bulk(bytes)),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

/// Answers `count` different members, in the order of their places. Every choice is equally likely.
///
/// A few members are looked up by place; many are chosen during one pass over the set.
fn distinct(set: &Set, count: usize, shared: &Shared, reply: &mut Reply<'_>) {
    let len = set.len();
    reply.array(count);
    let mut answer = |member: Member<'_>| member.with_bytes(|bytes| reply.bulk(bytes));
    if count < len / SPARSE {
        places(len, count, shared).into_iter().filter_map(|place| set.at(place)).for_each(answer);
        return;
    }
    let mut wanted = count;
    for (passed, member) in set.iter().enumerate() {
        if below(len.saturating_sub(passed), shared) < wanted {
            wanted = wanted.saturating_sub(1);
            answer(member);
        }
    }
}

/// Answers `count` random members, each drawn from all members.
fn repeated(set: &Set, count: u64, shared: &Shared, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let count = usize::try_from(count).ok().filter(|count| *count <= REPEATED_BYTES_MAX / BULK_BYTES);
    let count = count.ok_or_else(too_much)?;
    reply.array(count);
    let mut left = REPEATED_BYTES_MAX;
    for _ in 0..count {
        let Some(member) = set.at(below(set.len(), shared)) else { continue };
        let bytes = member.with_bytes(|bytes| {
            reply.bulk(bytes);
            bytes.len().saturating_add(BULK_BYTES)
        });
        left = left.checked_sub(bytes).ok_or_else(too_much)?;
    }
    Ok(())
}

/// Takes the number of members wanted. If it is negative, a member may be answered more than once.
///
/// # Errors
/// [`Refusal::NotAnInteger`]; a text of its own for the least integer, which has no absolute value.
fn count(args: &mut Args<'_>) -> Result<i64, Refusal> {
    match args.integer()? {
        i64::MIN => Err(Refusal::said(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// The refusal of a request whose reply would be too large.
fn too_much() -> Refusal {
    Refusal::said("ERR value is out of range")
}

/// A random number below `end`, uniformly distributed; 0 if `end` is 0.
fn below(end: usize, shared: &Shared) -> usize {
    (u128::from(shared.random.next()).saturating_mul(end as u128) >> 64) as usize
}

/// `count` different numbers below `end`, which is not less than `count`. Every choice is equally likely.
fn places(end: usize, count: usize, shared: &Shared) -> BTreeSet<usize> {
    // Floyd's algorithm: each step adds the number drawn or, if it was chosen before, the newest number.
    let mut chosen = BTreeSet::new();
    for newest in end.saturating_sub(count)..end {
        let random = below(newest.saturating_add(1), shared);
        if !chosen.insert(random) {
            chosen.insert(newest);
        }
    }
    chosen
}

fn sscan(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let cursor = cursor(&mut call.args)?;

    let mut found = Found::default();
    let mut next = 0;
    // Redis reads the options only if the set exists.
    if let Some(set) = call.view.read_as::<Set>(name)? {
        let options = ScanOptions::take(&mut call.args, |_| Ok(false))?;
        next = set.scan(cursor, options.count, |member| {
            member.with_bytes(|bytes| {
                if options.fits(bytes) {
                    found.add(bytes);
                }
            });
        });
    }

    found.answer_step(next, &mut call.reply);
    Ok(Outcome::Replied)
}

/// Bytes of members in one reply if members may repeat. Redis has no such bound.
const REPEATED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of the protocol around each member of a reply.
const BULK_BYTES: usize = 6;
/// Members are looked up by place if less than one in this many is wanted.
const SPARSE: usize = 8;
