//! Drawing from a set, and looking through it: SPOP, SRANDMEMBER, SSCAN.
//!
//! Source  Redis 7.0 `t_set.c`, and `db.c`: `scanGenericCommand`.

use crate::commands::list::positive;
use crate::commands::random::{self, BULK_BYTES, DRAWN_BYTES_MAX, below, too_much};
use crate::commands::row::{Flags, Group, Row, integer, key, pattern};
use crate::commands::scan::{Found, WalkOptions, cursor};
use crate::commands::set::members;
use crate::commands::{Call, Outcome, Shared};
use crate::error::Refusal;
use crate::resp::Reply;
use crate::types::set::Member;
use crate::types::{Set, Shape};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row {
        name: "SPOP",
        summary: "Removes members from a set, any of them, and returns them.",
        since: "1.0.0",
        group: Group::Set,
        flags: Flags::WRITE.with(Flags::FAST),
        args: &[key("key"), integer("count").maybe()],
        subcommands: &[],
        run: spop,
    },
    Row {
        name: "SRANDMEMBER",
        summary: "Returns members of a set, any of them.",
        since: "1.0.0",
        group: Group::Set,
        flags: Flags::READONLY.with(Flags::LINEAR),
        args: &[key("key"), integer("count").maybe()],
        subcommands: &[],
        run: srandmember,
    },
    Row {
        name: "SSCAN",
        summary: "Returns some members of a set, and where to go on.",
        since: "2.8.0",
        group: Group::Set,
        flags: Flags::READONLY.with(Flags::LINEAR),
        args: &[
            key("key"),
            integer("cursor"),
            pattern("pattern").after("MATCH").maybe(),
            integer("count").after("COUNT").maybe(),
        ],
        subcommands: &[],
        run: sscan,
    },
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
        return draw_one(call, name);
    }
    if call.args.len() > 1 {
        return Err(Refusal::Syntax);
    }
    let count = random::count(&mut call.args)?;

    match (call.view.read_as::<Set>(name)?, usize::try_from(count)) {
        (None, _) => call.reply.array(0),
        (Some(set), Ok(count)) => distinct(set, count.min(set.len()), call.shared, &mut call.reply),
        (Some(set), Err(_)) => repeated(set, count.unsigned_abs(), call.shared, &mut call.reply)?,
    }
    Ok(Outcome::Replied)
}

fn draw_one(call: &mut Call<'_, '_>, name: &[u8]) -> Result<Outcome, Refusal> {
    match call.view.read_as::<Set>(name)?.and_then(|set| set.at(below(set.len(), call.shared))) {
        Some(member) => member.with_bytes(|bytes| call.reply.bulk(bytes)),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

/// So many members, none of them twice.
fn distinct(set: &Set, count: usize, shared: &Shared, reply: &mut Reply<'_>) {
    reply.array(count);
    let answer = |member: Member<'_>| member.with_bytes(|bytes| reply.bulk(bytes));
    random::distinct((set.len(), count), |place| set.at(place), set.iter(), shared, answer);
}

/// So many members, each drawn from all.
fn repeated(set: &Set, count: u64, shared: &Shared, reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let count = usize::try_from(count).ok().filter(|count| *count <= DRAWN_BYTES_MAX / BULK_BYTES);
    let count = count.ok_or_else(too_much)?;
    reply.array(count);
    let mut left = DRAWN_BYTES_MAX;
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

fn sscan(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let cursor = cursor(&mut call.args)?;

    let mut found = Found::default();
    let mut next = 0;
    // The options are looked at only when the set is there, as in Redis.
    if let Some(set) = call.view.read_as::<Set>(name)? {
        let options = WalkOptions::take(&mut call.args, |_| Ok(false))?;
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
