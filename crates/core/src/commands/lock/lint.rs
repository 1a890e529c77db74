//! LOCK.LINT: what clients do wrong with locks. The rules and findings are in `locks::lint`.

use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Reply;

use super::SINCE;
use super::reader::Reader;
use super::replies::{answer_client, number};
use crate::commands::row::{Flags, Group, Row, token};
use crate::commands::{Call, Outcome};
use crate::locks::lint::Finding;
use crate::state::clients::{ClientId, Names};
use crate::state::settings;

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Lock, "LOCK.LINT", SINCE, lint)
    .summary("Returns what clients do wrong with locks, with advice; RESET forgets it.")
    .flags(Flags::NOSCRIPT.with(Flags::DANGEROUS).with(Flags::LINEAR))
    .args(&[token("reset", "RESET").maybe()])];

/// The rule of the entry that comes first while `lock-lint` is off.
const OFF: &str = "off";
const OFF_ADVICE: &str = "nothing is looked for while lock-lint is no: CONFIG SET lock-lint yes";

fn lint(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let resets = call.args.take("RESET");
    call.args.finish()?;

    let lint = &call.shared.locks.lint;
    let reader = Reader::of(call.session);
    if resets {
        lint.reset(|key| reader.may_see(key));
        call.audit("reset", |line| line.text("of", b"LOCK.LINT"));
        call.reply.ok();
        return Ok(Outcome::Replied);
    }

    let mut all = lint.all();
    all.retain(|((_, key, _), _)| reader.may_see(key));
    let is_off = !call.shared.settings.get(settings::LOCK_LINT);
    call.reply.array(all.len().saturating_add(usize::from(is_off)));
    if is_off {
        let nobody = Finding { peer: String::new(), names: Names::default(), count: 0, last: call.now.lock };
        answer(call, (OFF, b"", 0), OFF_ADVICE, &nobody);
    }
    for ((rule, key, id), finding) in all {
        answer(call, (rule.name(), &key, id), rule.advice(), &finding);
    }
    Ok(Outcome::Replied)
}

fn answer(
    call: &mut Call<'_, '_>,
    (rule, key, client): (&str, &[u8], ClientId),
    advice: &str,
    finding: &Finding,
) {
    let last = Now { lock: finding.last, ..call.now }.wall().as_millis();
    call.reply.map(6);
    pair(&mut call.reply, "rule", rule);
    call.reply.bulk(b"key");
    call.reply.bulk(key);
    call.reply.bulk(b"client");
    answer_client(&mut call.reply, client, &finding.peer, &finding.names);
    call.reply.bulk(b"count");
    call.reply.integer(number(finding.count));
    call.reply.bulk(b"last");
    call.reply.integer(number(last));
    pair(&mut call.reply, "advice", advice);
}

fn pair(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}
