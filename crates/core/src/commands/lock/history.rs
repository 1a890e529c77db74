//! LOCK.HISTORY: how locks have ended, as data.
//!
//! Rule    a user sees the locks of the keys for which it may send LOCK.WHO.
//! Rule    the first question makes the server remember releases, as LOCK.EXPLAIN does.
//! Locks   one shard at a time.

use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Reply;

use super::SINCE;
use super::reader::Reader;
use super::replies::{answer_client, maybe_bulk, maybe_integer, number};
use crate::commands::row::{Flags, Group, Row, integer, pattern};
use crate::commands::scan::ScanOptions;
use crate::commands::{Call, Outcome, Shared};
use crate::locks::PastLock;
use crate::state::beside::INFERRED;

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Lock, "LOCK.HISTORY", SINCE, history)
    .summary("Returns how locks of the database have ended, the newest end first.")
    .flags(Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::SUMS).with(Flags::LINEAR))
    .args(&[pattern("pattern").after("MATCH").maybe(), integer("count").after("COUNT").maybe()])];

fn history(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let options = ScanOptions::take(&mut call.args, |_| Ok(false))?;

    let reader = Reader::of(call.session);
    let mut ends: Vec<PastLock> = Vec::new();
    call.view.locks().each_past(|past| {
        let key = past.key.bytes();
        if options.fits(key) && reader.may_see(key) {
            ends.push(past.clone());
        }
    })?;
    ends.sort_by_key(|past| std::cmp::Reverse((past.ended, past.token)));
    ends.truncate(usize::try_from(options.count).unwrap_or(usize::MAX));

    call.reply.array(ends.len());
    ends.iter().for_each(|past| answer_end(&mut call.reply, call.shared, call.now, past));
    Ok(Outcome::Replied)
}

fn answer_end(reply: &mut Reply<'_>, shared: &Shared, now: Now, past: &PastLock) {
    let wall = |time: LockTime| number(Now { lock: time, ..now }.wall().as_millis());
    reply.map(if shared.beside.is_some() { 17 } else { 16 });
    reply.bulk(b"key");
    reply.bulk(past.key.bytes());
    reply.bulk(b"owner");
    match &past.owner {
        Some(owner) => reply.bulk(owner.bytes()),
        None => reply.null(),
    }
    reply.bulk(b"token");
    maybe_integer(reply, Some(past.token).filter(|token| *token > 0));
    reply.bulk(b"client-id");
    reply.integer(number(past.holder));
    reply.bulk(b"client");
    match shared.registries.clients.get(past.holder) {
        Some(client) => answer_client(reply, client.id, &client.address.peer, &client.names.lock().clone()),
        None => reply.null(),
    }
    reply.bulk(b"since");
    reply.integer(wall(past.since));
    reply.bulk(b"held");
    reply.integer(number(past.ended.millis_since(past.since)));
    reply.bulk(b"lease");
    maybe_integer(reply, past.lease_ms);
    reply.bulk(b"renewals");
    reply.integer(past.renewals.into());
    reply.bulk(b"reason");
    reply.bulk(past.reason.name().as_bytes());
    reply.bulk(b"by-id");
    maybe_integer(reply, Some(past.author).filter(|author| *author > 0));
    reply.bulk(b"by");
    match shared.registries.clients.get(past.author) {
        Some(client) => answer_client(reply, client.id, &client.address.peer, &client.names.lock().clone()),
        None => reply.null(),
    }
    let breaker = past.breaker.as_deref();
    reply.bulk(b"by-user");
    maybe_bulk(reply, breaker.map(|breaker| &*breaker.user));
    reply.bulk(b"by-addr");
    maybe_bulk(reply, breaker.map(|breaker| breaker.peer.as_bytes()));
    reply.bulk(b"text");
    maybe_bulk(reply, breaker.and_then(|breaker| breaker.text.as_deref()));
    reply.bulk(b"late");
    maybe_integer(reply, past.late.map(|(_, late)| late.millis_since(past.ended)));
    if shared.beside.is_some() {
        reply.bulk(b"known");
        reply.bulk(INFERRED.as_bytes());
    }
}
