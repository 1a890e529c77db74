//! Values and deadlines of fields in one command: HGETEX, HSETEX; and HGETDEL.
//!
//! Source  Valkey 9.1 `t_hash.c`: Redis 7.0 has none of it. The key's type is looked at before the number of a lease,
//!         and the fields' conditions after it.

use crate::clock::{Deadline, Now};
use crate::commands::args;
use crate::commands::expiry::{LEASE, LeaseOption, NEW_LEASE, Unit};
use crate::commands::hash::expire::{
    FIELDS, announce, deadline, has_come, take_count, words_behind_fields, wrong_count,
};
use crate::commands::row::{Arg, Flags, Group, Row, block, integer, key, one_of, text, token};
use crate::commands::string::pairs;
use crate::commands::{Args, Call, Outcome};
use crate::error::Refusal;
use crate::number;
use crate::types::Hash;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row {
        name: "HGETDEL",
        summary: "Returns the values of fields of a hash and removes the fields (Valkey 9.1).",
        since: "9.1.0",
        group: Group::Hash,
        flags: Flags::WRITE.with(Flags::FAST),
        args: &[key("key"), FIELDS],
        subcommands: &[],
        run: hgetdel,
    },
    Row {
        name: "HGETEX",
        summary: "Returns the values of fields of a hash and sets or takes away their time to live (Valkey 9.0).",
        since: "9.0.0",
        group: Group::Hash,
        flags: Flags::WRITE.with(Flags::FAST),
        args: &[key("key"), NEW_LEASE.maybe(), FIELDS],
        subcommands: &[],
        run: hgetex,
    },
    Row {
        name: "HSETEX",
        summary: "Sets fields of a hash that live for some time, if the conditions hold (Valkey 9.0).",
        since: "9.0.0",
        group: Group::Hash,
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        args: &[key("key"), KEY_CONDITION.maybe(), FIELDS_CONDITION.maybe(), LEASE.maybe(), PAIRS],
        subcommands: &[],
        run: hsetex,
    },
];

const KEY_CONDITION: Arg = one_of("key-condition", &[token("nx", "NX"), token("xx", "XX")]);
const FIELDS_CONDITION: Arg = one_of("fields-condition", &[token("fnx", "FNX"), token("fxx", "FXX")]);

const PAIRS: Arg =
    block("fields", &[integer("numfields"), block("data", &[text("field"), text("value")]).many()])
        .after("FIELDS");

/// The deadline of a lease that counts from `now` or from the epoch. Unlike a key's it may be no time at all.
fn lease(unit: Unit, value: &[u8], now: Now, command: &'static str) -> Result<Deadline, Refusal> {
    deadline(unit, number::integer(value).ok_or(Refusal::NotAnInteger)?, now, command)
}

fn hgetdel(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if !call.args.take("FIELDS") {
        return Err(Refusal::Syntax);
    }
    let count = take_count(&mut call.args, 1)?;

    let mut hash = call.view.find::<Hash>(name)?;
    let mut is_changed = false;
    call.reply.array(count);
    for field in call.args.rest() {
        match hash.as_ref().and_then(|hash| hash.get().get(field)) {
            Some(value) => call.reply.bulk(value),
            None => call.reply.null(),
        }
        is_changed |= hash.as_mut().is_some_and(|hash| hash.remove(field));
    }
    if let Some(hash) = hash.as_mut().filter(|_| is_changed) {
        hash.event(b'h', "hdel");
    }
    Ok(Outcome::Replied)
}

/// Takes the lease that is said in front of FIELDS, and the word FIELDS itself.
fn new_lease<'a>(args: &mut Args<'a>) -> Result<LeaseOption<'a>, Refusal> {
    let behind = words_behind_fields(args).ok_or_else(wrong_count)?;
    let mut option = LeaseOption::Unsaid;
    while args.len() > behind.saturating_add(1) {
        let said = args.option()?;
        if !option.take(said, args)? || option == LeaseOption::Keep {
            return Err(Refusal::Syntax);
        }
    }
    take_fields(args, behind)?;
    Ok(option)
}

/// Takes the word FIELDS that has so many words behind it, which the last option may have taken for its number.
fn take_fields(args: &mut Args<'_>, behind: usize) -> Result<(), Refusal> {
    if args.len() == behind.saturating_add(1) && args.take("FIELDS") { Ok(()) } else { Err(Refusal::Syntax) }
}

fn hgetex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let option = new_lease(&mut call.args)?;
    let count = take_count(&mut call.args, 1)?;

    let mut hash = call.view.find::<Hash>(name)?;
    let deadline = match option {
        LeaseOption::Until(unit, value) => Some(lease(unit, value, call.now, "hgetex")?),
        _ => None,
    };
    let (mut is_set, mut is_ended, mut is_persisted) = (false, false, false);
    call.reply.array(count);
    for field in call.args.rest() {
        let found = hash.as_mut().filter(|hash| hash.get().contains(field));
        let Some(hash) = found else {
            call.reply.null();
            continue;
        };
        call.reply.bulk(hash.get().get(field).unwrap_or_default());
        match deadline {
            Some(deadline) if has_come(deadline, call.now) => is_ended |= hash.remove(field),
            Some(deadline) => {
                hash.set_deadline(field, Some(deadline));
                is_set = true;
            }
            None if option == LeaseOption::Persist && hash.get().deadline(field).is_some() => {
                hash.set_deadline(field, None);
                is_persisted = true;
            }
            None => {}
        }
    }
    if let Some(hash) = &mut hash {
        announce(hash, is_set, is_ended);
        if is_persisted {
            hash.event(b'h', "hpersist");
        }
    }
    Ok(Outcome::Replied)
}

/// What has to be there, or must not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Presence {
    Any,
    Absent,
    Present,
}

impl Presence {
    /// Takes `option` if it is one of the two; the same may come again, the other may not.
    fn take(&mut self, option: u64, absent: u64, present: u64) -> Result<bool, Refusal> {
        let new = match option {
            option if option == absent => Self::Absent,
            option if option == present => Self::Present,
            _ => return Ok(false),
        };
        if *self != Self::Any && *self != new {
            return Err(Refusal::Syntax);
        }
        *self = new;
        Ok(true)
    }

    fn holds(self, is_here: bool) -> bool {
        self == Self::Any || is_here == (self == Self::Present)
    }
}

#[derive(Debug)]
struct SetOptions<'a> {
    key: Presence,
    fields: Presence,
    lease: LeaseOption<'a>,
}

/// Takes what is said in front of FIELDS, and the word FIELDS itself.
fn set_options<'a>(args: &mut Args<'a>) -> Result<SetOptions<'a>, Refusal> {
    const NX: u64 = args::option(b"NX");
    const XX: u64 = args::option(b"XX");
    const FNX: u64 = args::option(b"FNX");
    const FXX: u64 = args::option(b"FXX");
    let behind = words_behind_fields(args).ok_or_else(wrong_count)?;
    let mut options = SetOptions { key: Presence::Any, fields: Presence::Any, lease: LeaseOption::Unsaid };
    while args.len() > behind.saturating_add(1) {
        let option = args.option()?;
        let is_known = options.key.take(option, NX, XX)?
            || options.fields.take(option, FNX, FXX)?
            || options.lease.take(option, args)?;
        if !is_known || options.lease == LeaseOption::Persist {
            return Err(Refusal::Syntax);
        }
    }
    take_fields(args, behind)?;
    Ok(options)
}

fn hsetex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let options = set_options(&mut call.args)?;
    take_count(&mut call.args, 2)?;
    let pairs = pairs(call.args, "hsetex")?;

    let mut hash = call.view.open::<Hash>(name)?;
    if !options.key.holds(!hash.is_new()) {
        drop(hash);
        call.reply.integer(0);
        return Ok(Outcome::Replied);
    }
    let deadline = match options.lease {
        LeaseOption::Until(unit, value) => Some(lease(unit, value, call.now, "hsetex")?),
        _ => None,
    };
    let holds = pairs.clone().all(|(field, _)| options.fields.holds(hash.get().contains(field)));
    if holds {
        let is_over = deadline.is_some_and(|deadline| has_come(deadline, call.now));
        // What has ended before it came is not even stored, unless the key comes and goes with it.
        let stores = !is_over || hash.is_new();
        for (field, value) in pairs.clone().filter(|_| stores) {
            match options.lease {
                LeaseOption::Keep => hash.update(field, value),
                _ => hash.set(field, value),
            };
        }
        for (field, _) in pairs.filter(|_| deadline.is_some()) {
            match is_over {
                true => _ = hash.remove(field),
                false => hash.set_deadline(field, deadline),
            }
        }
        hash.event(b'h', "hset");
        announce(&mut hash, deadline.is_some(), is_over);
    }
    drop(hash);

    call.reply.integer(i64::from(holds));
    Ok(Outcome::Replied)
}
