//! TEST.HISTORY, TEST.CALLS and TEST.CHECK: what has happened in a namespace.
//!
//! Owns    the functions that note requests and replies, which the shell calls for a server with the test backend.

use redlatch_core::commands::row::{Arg, Row, integer, pattern};
use redlatch_core::commands::{Call, Outcome, redacted};
use redlatch_core::state::clients::Client;
use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::{Reply, Request};

use super::{pattern_word, row, testing};
use crate::{Event, Field, Filter, Finding, Moment, Testing, check};

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

/// A request as a history keeps it.
#[derive(Debug)]
struct PublicRequest<'a> {
    /// The name of the command in upper case; of a subcommand, both words.
    command: String,
    /// The words behind the name, without passwords.
    args: Vec<&'a [u8]>,
    keys: Vec<&'a [u8]>,
}

/// The request without passwords. `None` if it is empty.
fn public_request(request: Request<'_>) -> Option<PublicRequest<'_>> {
    let name = request.get(0)?;
    let Some(command) = super::table().of_request(request) else {
        let args = request.words().skip(1).collect();
        let command = String::from_utf8_lossy(name).to_ascii_uppercase();
        return Some(PublicRequest { command, args, keys: Vec::new() });
    };
    let mut args = redacted(command, request);
    args.drain(..command.name_words);
    let keys = command.positions(request).filter_map(|at| request.get(at)).collect();
    let command = command.name.to_ascii_uppercase().replace('|', " ");
    Some(PublicRequest { command, args, keys })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_named_by_its_command_with_its_keys() {
        let words: [&[u8]; 4] = [b"del", b"a", b"b", b"c"];
        let public = public_request(Request::listed(&words)).unwrap();
        assert_eq!((public.command.as_str(), public.keys.len(), public.args.len()), ("DEL", 3, 3));
        let words: [&[u8]; 3] = [b"client", b"setname", b"x"];
        let public = public_request(Request::listed(&words)).unwrap();
        assert_eq!((public.command.as_str(), public.args), ("CLIENT SETNAME", vec![&b"x"[..]]));
        let words: [&[u8]; 2] = [b"nonsense", b"x"];
        assert_eq!(public_request(Request::listed(&words)).unwrap().command, "NONSENSE");
        assert!(public_request(Request::listed(&[])).is_none());
    }
}
