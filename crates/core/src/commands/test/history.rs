//! TEST.HISTORY, TEST.CALLS and TEST.CHECK: what has happened in a namespace.
//!
//! Owns    the functions that note requests and replies, which the shell calls for a server with the test backend.

use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::{Reply, Request};

use super::{pattern_word, row, testing};
use crate::commands::redact::public_request;
use crate::commands::row::{Arg, Row, integer, pattern};
use crate::commands::{Call, Outcome};
use crate::state::clients::Client;
use crate::testing::{Event, Field, Filter, Finding, Moment, Testing, check};

pub(super) const CALLS: Row = row("TEST.CALLS", calls)
    .summary("Counts the calls of each command in the history.")
    .args(&[KEY, COMMAND, CLIENT]);
pub(super) const CHECK: Row =
    row("TEST.CHECK", check_history).summary("Returns what is wrong with locks in the history.");
pub(super) const HISTORY: Row =
    row("TEST.HISTORY", history).summary("Returns what has happened, oldest first.").args(&[
        integer("id").after("SINCE").maybe(),
        KEY,
        COMMAND,
        CLIENT,
        integer("count").after("COUNT").maybe(),
    ]);
const KEY: Arg = pattern("pattern").after("KEY").maybe();
const COMMAND: Arg = pattern("pattern").after("COMMAND").maybe();
const CLIENT: Arg = pattern("pattern").after("CLIENT").maybe();

/// Notes that a client sends a request. Passwords are left out.
pub fn note_request(
    testing: &Testing,
    client: &Client,
    (now, real_micros): (Now, u64),
    request: Request<'_>,
) {
    if let Some(public) = public_request(request) {
        let moment = moment(testing, now, real_micros);
        testing.recorder.request(moment, client, &public.command, &public.args, &public.keys);
    }
}

/// When something happens on the node of this test backend, `real_micros` being the Unix time of the system.
pub fn moment(testing: &Testing, now: Now, real_micros: u64) -> Moment {
    Moment { node: testing.node, unix_ms: now.wall().as_millis(), real_micros }
}

/// Reads the conditions on events, in any order. `COUNT` and `SINCE` are allowed if `pages`.
fn filter(call: &mut Call<'_, '_>, pages: bool) -> Result<(Filter, usize), Refusal> {
    let (mut filter, mut count) = (Filter::default(), usize::MAX);
    let number = |call: &mut Call<'_, '_>, name: &str| {
        let number = call.args.integer()?;
        u64::try_from(number).map_err(|_| Refusal::said(format!("ERR {name} must not be negative")))
    };
    while !call.args.is_empty() {
        if call.args.take("KEY") {
            filter.key = Some(pattern_word(call)?);
        } else if call.args.take("COMMAND") {
            filter.command = Some(pattern_word(call)?);
        } else if call.args.take("CLIENT") {
            filter.client = Some(pattern_word(call)?);
        } else if pages && call.args.take("SINCE") {
            filter.since = number(call, "SINCE")?;
        } else if pages && call.args.take("COUNT") {
            count = usize::try_from(number(call, "COUNT")?).unwrap_or(usize::MAX);
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok((filter, count))
}

fn history(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (filter, count) = filter(call, true)?;

    let events = testing(call)?.recorder.events(&filter, count);
    call.reply.array(events.len());
    events.iter().for_each(|event| show(&mut call.reply, event));
    Ok(Outcome::Replied)
}

fn show(reply: &mut Reply<'_>, event: &Event) {
    let fields = event.fields();
    reply.map(fields.len());
    for (name, field) in fields {
        reply.bulk(name.as_bytes());
        match field {
            Field::Number(number) => reply.integer(i64::try_from(number).unwrap_or(i64::MAX)),
            Field::Text(text) => reply.bulk(&text),
            Field::List(items) => reply.bulks(&items),
        }
    }
}

fn calls(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (filter, _) = filter(call, false)?;

    let calls = testing(call)?.recorder.calls(&filter);
    call.reply.map(calls.len());
    for (command, count) in calls {
        call.reply.bulk(command.as_bytes());
        call.reply.count(count);
    }
    Ok(Outcome::Replied)
}

fn check_history(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let findings = check(&testing(call)?.recorder.events(&Filter::default(), usize::MAX));
    let reply = &mut call.reply;
    reply.array(findings.len());
    for Finding { rule, key, text, events, lines } in findings {
        reply.map(5);
        reply.bulk(b"rule");
        reply.bulk(rule.name().as_bytes());
        reply.bulk(b"key");
        reply.bulk(&key);
        reply.bulk(b"text");
        reply.bulk(text.as_bytes());
        reply.bulk(b"events");
        reply.array(events.len());
        events.iter().for_each(|id| reply.integer(i64::try_from(*id).unwrap_or(i64::MAX)));
        reply.bulk(b"lines");
        reply.bulks(&lines);
    }
    Ok(Outcome::Replied)
}
