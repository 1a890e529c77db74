//! Replies of LOCK commands: grants, refusals, and their parts.

use bytes::Bytes;

use crate::keyspace::View;
use crate::resp::{Protocol, Reply};
use crate::state::clients::{ClientId, Names};

/// The reply to a request that was granted.
pub(super) fn answer_grant(reply: &mut Reply<'_>, token: u64, lease_ms: Option<u64>, waited_ms: u64) {
    reply.map(3);
    reply.bulk(b"token");
    reply.integer(number(token));
    reply.bulk(b"lease");
    maybe_integer(reply, lease_ms);
    reply.bulk(b"waited");
    reply.integer(number(waited_ms));
}

/// A number, or null.
pub(super) fn maybe_integer(reply: &mut Reply<'_>, value: Option<u64>) {
    match value {
        Some(value) => reply.integer(number(value)),
        None => reply.null(),
    }
}

/// Who a client is, as a map.
pub(super) fn answer_client(reply: &mut Reply<'_>, id: ClientId, peer: &str, names: &Names) {
    reply.map(5);
    reply.bulk(b"id");
    reply.integer(number(id));
    let texts = [
        ("addr", peer),
        ("name", &names.name),
        ("lib-name", &names.library),
        ("lib-ver", &names.library_version),
    ];
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
}

/// A number of our own as RESP has it.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The reply to a request that was refused: who holds the first of its locks that is held.
pub(super) fn answer_refusal(view: &mut View<'_>, keys: &[Bytes], reply: &mut Reply<'_>) {
    if reply.protocol() == Protocol::Resp2 {
        return reply.null_array();
    }
    let holder = keys.iter().find_map(|key| view.any_holder(key));
    let left_ms = holder.as_ref().and_then(|holder| holder.deadline).map(|end| view.now().millis_until(end));
    reply.map(4);
    reply.bulk(b"holder");
    match holder.as_ref().and_then(|holder| holder.owner.as_ref()) {
        Some(owner) => reply.bulk(owner),
        None => reply.null(),
    }
    reply.bulk(b"token");
    reply.integer(holder.as_ref().and_then(|holder| holder.token).map_or(0, number));
    reply.bulk(b"lease");
    maybe_integer(reply, left_ms.map(|millis| u64::try_from(millis).unwrap_or(0)));
    reply.bulk(b"meta");
    answer_meta(reply, holder.as_ref().map_or(&[], |holder| &holder.meta));
}

/// Fields and values as a map.
pub(super) fn answer_meta(reply: &mut Reply<'_>, meta: &[Bytes]) {
    reply.map(meta.len() / 2);
    meta.iter().for_each(|word| reply.bulk(word));
}
