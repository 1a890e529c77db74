//! Strings: SET and everything that reads or changes a string value.
//!
//! Source  Redis 7.0 `t_string.c`; IFEQ, DELIFEQ of Valkey 8.1 / 9.0; IFNE and DELEX of Redis 8.4's documentation.

use super::expiry::{self, Unit};
use super::row::{Arg, Flags, Group, Row, integer, key, one_of, text, token, unix_time};
use super::{Call, Outcome};
use crate::error::Refusal;
use crate::keyspace::{Entry, Lease};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "GET",
        summary: "Returns the string value of a key.",
        since: "1.0.0",
        group: Group::String,
        flags: Flags::READONLY.with(Flags::FAST),
        args: &[key("key")],
        subcommands: &[],
        run: get,
    },
    Row {
        name: "SET",
        summary: "Sets the string value of a key, if the conditions hold; creates the key if it is not there.",
        since: "1.0.0",
        group: Group::String,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("key"), text("value"), CONDITION.maybe(), token("get", "GET").maybe(), LEASE.maybe()],
        subcommands: &[],
        run: set,
    },
];

const CONDITION: Arg = one_of(
    "condition",
    &[
        token("nx", "NX"),
        token("xx", "XX"),
        text("comparison-value").after("IFEQ"),
        text("comparison-value").after("IFNE"),
    ],
);

const LEASE: Arg = one_of(
    "expiration",
    &[
        integer("seconds").after("EX"),
        integer("milliseconds").after("PX"),
        unix_time("unix-time-seconds").after("EXAT"),
        unix_time("unix-time-milliseconds").after("PXAT"),
        token("keepttl", "KEEPTTL"),
    ],
);

fn get(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    match call.view.read(name) {
        Some(found) => call.reply.bulk(found.string()?),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

/// When SET, or a command like it, goes ahead.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Condition<'a> {
    Always,
    Absent,
    Present,
    Equal(&'a [u8]),
    Unequal(&'a [u8]),
}

impl Condition<'_> {
    fn holds(self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => value.is_none(),
            Self::Present => value.is_some(),
            Self::Equal(wanted) => value == Some(wanted),
            Self::Unequal(unwanted) => value != Some(unwanted),
        }
    }
}

#[derive(Debug)]
struct SetOptions<'a> {
    condition: Condition<'a>,
    returns_old: bool,
    keeps_lease: bool,
    lease: Option<(Unit, &'a [u8])>,
}

fn set_options<'a>(args: &mut super::Args<'a>) -> Result<SetOptions<'a>, Refusal> {
    let mut options =
        SetOptions { condition: Condition::Always, returns_old: false, keeps_lease: false, lease: None };
    while !args.is_empty() {
        let condition = if args.take("NX") {
            Condition::Absent
        } else if args.take("XX") {
            Condition::Present
        } else if args.take("IFEQ") {
            Condition::Equal(args.word()?)
        } else if args.take("IFNE") {
            Condition::Unequal(args.word()?)
        } else {
            Condition::Always
        };
        if condition != Condition::Always {
            let same_kind = std::mem::discriminant(&condition) == std::mem::discriminant(&options.condition);
            if options.condition != Condition::Always && !same_kind {
                return Err(Refusal::Syntax);
            }
            options.condition = condition;
        } else if args.take("GET") {
            options.returns_old = true;
        } else if args.take("KEEPTTL") && options.lease.is_none() {
            options.keeps_lease = true;
        } else if let Some(lease) = expiry::option(args)?
            && options.lease.is_none()
            && !options.keeps_lease
        {
            options.lease = Some(lease);
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok(options)
}

fn set(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let value = call.args.word()?;
    let options = set_options(&mut call.args)?;
    let lease = match options.lease {
        Some((unit, number)) => Lease::Until(expiry::lease(unit, number, call.now, "set")?),
        None if options.keeps_lease => Lease::Keep,
        None => Lease::Never,
    };

    let entry = call.view.entry(name);
    let needs_value =
        options.returns_old || matches!(options.condition, Condition::Equal(_) | Condition::Unequal(_));
    let holds = if needs_value {
        options.condition.holds(entry.string()?)
    } else {
        options.condition.holds(matches!(entry, Entry::Occupied(_)).then_some(b""))
    };
    match (options.returns_old, entry.string()) {
        (true, Ok(Some(old))) => call.reply.bulk(old),
        (false, _) if holds => call.reply.ok(),
        _ => call.reply.null(),
    }
    if holds {
        entry.put(value, lease);
        call.view.event(b'$', "set", name);
        if let Lease::Until(_) = lease {
            call.view.event(b'g', "expire", name);
        }
    }
    Ok(Outcome::Replied)
}
