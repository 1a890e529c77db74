//! LOCK.LINT: what clients do wrong with locks. The rules and findings are in `locks::lint`.

use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Reply;

use super::SINCE;
use super::reader::Reader;
use super::replies::{answer_client, number};
use crate::commands::row::{Flags, Group, Row, token};
use crate::commands::{Call, Outcome};

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Lock, "LOCK.LINT", SINCE, lint)
    .summary("Returns what clients do wrong with locks, with advice; RESET forgets it.")
    .flags(Flags::NOSCRIPT.with(Flags::DANGEROUS).with(Flags::LINEAR))
    .args(&[token("reset", "RESET").maybe()])];

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
    call.reply.array(all.len());
    for ((rule, key, id), finding) in all {
        let last = Now { lock: finding.last, ..call.now }.wall().as_millis();
        call.reply.map(6);
        pair(&mut call.reply, "rule", rule.name());
        call.reply.bulk(b"key");
        call.reply.bulk(&key);
        call.reply.bulk(b"client");
        answer_client(&mut call.reply, id, &finding.peer, &finding.names);
        call.reply.bulk(b"count");
        call.reply.integer(number(finding.count));
        call.reply.bulk(b"last");
        call.reply.integer(number(last));
        pair(&mut call.reply, "advice", rule.advice());
    }
    Ok(Outcome::Replied)
}

fn pair(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}
