//! TEST.CLOCK: the clock of a namespace.

use redlatch_core::commands::row::{Group, Row, block, integer, token};
use redlatch_core::commands::{Call, Outcome, help};
use redlatch_proto::error::Refusal;

use super::{TEST, begin, row, testing};
use crate::{ClockChange, Deadline, DeadlineOf};

pub(super) const ROWS: &[Row] = &[
    row("ADVANCE", advance)
        .summary(
            "Moves time forward through every deadline in between; returns the Unix time in milliseconds.",
        )
        .args(&[integer("milliseconds")]),
    row("AUTO", auto)
        .summary("Goes to the next deadline whenever all clients are silent, or ends that.")
        .args(&[redlatch_core::commands::row::one_of(
            "switch",
            &[
                block("on", &[token("on", "ON"), integer("milliseconds").after("IDLE").maybe()]),
                token("off", "OFF"),
            ],
        )]),
    row("FREEZE", freeze).summary("Lets time stand still; returns the Unix time in milliseconds."),
    help::row(Group::Test).flags(TEST),
    row("NEXT", next).summary("Moves time to the next deadline; null if nothing is due ever."),
    row("RUN", run).summary("Lets time pass from where it stands; returns the Unix time in milliseconds."),
    row("SET", set)
        .summary("Moves time forward to a moment, like ADVANCE.")
        .args(&[integer("unix-milliseconds")]),
    row("SHOW", show).summary("Returns the time, whether it passes, and the next deadlines."),
    row("STEP-WALL", step_wall)
        .summary("Steps the wall clock alone; leases are not affected.")
        .args(&[integer("milliseconds")]),
];

/// Milliseconds that one command may move a clock: a hundred years.
const MOVE_MS_MAX: i64 = 100 * 365 * 86_400_000;
/// Milliseconds of real time that clients are silent before an automatic clock moves, if AUTO names none.
const IDLE_MS: i64 = 20;
/// The most milliseconds that AUTO may name: an hour.
const IDLE_MS_MAX: i64 = 3_600_000;
/// Deadlines that SHOW returns.
const DEADLINES_SHOWN: usize = 10;

fn change(call: &mut Call<'_, '_>, change: ClockChange) -> Result<Outcome, Refusal> {
    call.args.finish()?;
    begin(call, |testing, pending| testing.host.change_clock(change, pending))
}

fn freeze(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    change(call, ClockChange::Freeze)
}

fn run(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    change(call, ClockChange::Run)
}

fn next(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    change(call, ClockChange::Next)
}

fn advance(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let millis = call.args.integer()?;
    match u64::try_from(millis) {
        Ok(forward) if millis <= MOVE_MS_MAX => change(call, ClockChange::Advance(forward)),
        Ok(_) => Err(too_far()),
        Err(_) => Err(Refusal::said(
            "ERR time does not go back; TEST.CLOCK STEP-WALL steps the wall clock in either direction",
        )),
    }
}

fn set(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let unix_ms = call.args.integer()?;
    change(call, ClockChange::Set(unix_ms))
}

fn step_wall(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let millis = call.args.integer()?;
    if millis.unsigned_abs() > MOVE_MS_MAX.unsigned_abs() {
        return Err(too_far());
    }
    change(call, ClockChange::StepWall(millis))
}

fn too_far() -> Refusal {
    Refusal::said(format!("ERR a clock moves by {MOVE_MS_MAX} ms (a hundred years) at most"))
}

fn auto(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if call.args.take("OFF") {
        return change(call, ClockChange::AutoOff);
    }
    if !call.args.take("ON") {
        return Err(Refusal::Syntax);
    }
    let idle_ms = if call.args.take("IDLE") { call.args.integer()? } else { IDLE_MS };
    if !(1..=IDLE_MS_MAX).contains(&idle_ms) {
        return Err(Refusal::said(format!("ERR IDLE must be between 1 and {IDLE_MS_MAX} milliseconds")));
    }
    change(call, ClockChange::Auto { idle_ms: idle_ms.unsigned_abs() })
}

fn show(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let facts = testing(call)?.host.clock(DEADLINES_SHOWN);
    let facts = facts.ok_or_else(|| Refusal::said("ERR the namespace has been dropped"))?;
    let reply = &mut call.reply;
    reply.map(4);
    reply.bulk(b"mode");
    reply.bulk(facts.mode.name().as_bytes());
    reply.bulk(b"now");
    reply.count(facts.unix_ms as usize);
    reply.bulk(b"lock");
    reply.count(facts.lock.as_millis() as usize);
    reply.bulk(b"deadlines");
    reply.array(facts.deadlines.len());
    for deadline in &facts.deadlines {
        show_deadline(reply, deadline);
    }
    Ok(Outcome::Replied)
}

fn show_deadline(reply: &mut redlatch_proto::resp::Reply<'_>, deadline: &Deadline) {
    let has_subject = matches!(deadline.of, DeadlineOf::Key(_) | DeadlineOf::Wait(_));
    reply.map(if has_subject { 5 } else { 4 });
    reply.bulk(b"at");
    reply.count(deadline.unix_ms as usize);
    reply.bulk(b"in");
    reply.count(deadline.in_ms as usize);
    reply.bulk(b"what");
    reply.bulk(deadline.of.name().as_bytes());
    match &deadline.of {
        DeadlineOf::Key(key) => {
            reply.bulk(b"key");
            reply.bulk(key);
        }
        DeadlineOf::Wait(client) => {
            reply.bulk(b"client");
            reply.count(*client as usize);
        }
        DeadlineOf::Pause => {}
    }
    reply.bulk(b"node");
    reply.integer(i64::from(deadline.node));
}
