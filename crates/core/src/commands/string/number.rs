//! Commands on numbers in strings: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.
//!
//! Rule    INCRBYFLOAT computes with `f64`, where Redis has 80 bits: the last digits may differ.
//! Source  Redis 7.0 `t_string.c`: a counter keeps its lease, and the event of every change is `incrby`.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::number::double::parse;

use crate::commands::row::{Flags, Group, Row, double, integer, key};
use crate::commands::{Call, Outcome};
use crate::keyspace::{Form, Lease};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::String, "DECR", "1.0.0", decr)
        .summary("Subtracts one from the integer that a key holds; a missing key counts as 0.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::String, "DECRBY", "1.0.0", decrby)
        .summary("Subtracts from the integer that a key holds; a missing key counts as 0.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), integer("decrement")]),
    Row::new(Group::String, "INCR", "1.0.0", incr)
        .summary("Adds one to the integer that a key holds; a missing key counts as 0.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::String, "INCRBY", "1.0.0", incrby)
        .summary("Adds to the integer that a key holds; a missing key counts as 0.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), integer("increment")]),
    Row::new(Group::String, "INCRBYFLOAT", "2.6.0", incrbyfloat)
        .summary("Adds to the number that a key holds; a missing key counts as 0.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), double("increment")]),
];

fn incr(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    add(call, name, 1)
}

fn decr(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    add(call, name, -1)
}

fn incrby(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let increment = call.args.integer()?;

    add(call, name, increment)
}

fn decrby(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let decrement = call.args.integer()?;
    let increment = decrement.checked_neg().ok_or_else(|| Refusal::said("ERR decrement would overflow"))?;

    add(call, name, increment)
}

fn add(call: &mut Call<'_, '_>, name: &[u8], increment: i64) -> Result<Outcome, Refusal> {
    let entry = call.view.entry(name);
    let old = match entry.string()? {
        Some(text) => number::integer(text).ok_or(Refusal::NotAnInteger)?,
        None => 0,
    };
    let new = old.checked_add(increment).ok_or(Refusal::Overflow)?;
    entry.put(itoa::Buffer::new().format(new).as_bytes(), Lease::Keep).mark_counter();
    call.view.event(b'$', "incrby", name);

    call.reply.integer(new);
    Ok(Outcome::Replied)
}

fn incrbyfloat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let increment = call.args.word()?;

    let entry = call.view.entry(name);
    // Redis checks the value before the increment. Both errors have one text.
    let old = entry.string()?.map_or(Some(0.0), parse).ok_or(Refusal::NotAFloat)?;
    let new = old + parse(increment).ok_or(Refusal::NotAFloat)?;
    if !new.is_finite() {
        return Err(Refusal::said("ERR increment would produce NaN or Infinity"));
    }
    let text = number::float_text(new);
    let mut counter = entry.put(text.as_bytes(), Lease::Keep);
    counter.set_form(Form::Computed);
    counter.mark_counter();
    call.view.event(b'$', "incrbyfloat", name);

    call.reply.bulk(text.as_bytes());
    Ok(Outcome::Replied)
}
