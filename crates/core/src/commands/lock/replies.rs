//! Replies of LOCK commands: grants, refusals, and their parts.

use bytes::Bytes;
use redlatch_proto::clock::Now;
use redlatch_proto::resp::Reply;

use super::reader::Reader;
use crate::keyspace::{HeldLock, Shown, View};
use crate::locks::Grants;
use crate::state::clients::{ClientId, Names};

/// What a request for locks asks for in its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplyForm {
    /// A refusal says why.
    pub(super) says_why: bool,
    /// A grant is the token alone.
    pub(super) is_just_token: bool,
}

impl ReplyForm {
    /// The reply to a request that was granted.
    pub(super) fn grant(self, reply: &mut Reply<'_>, token: u64, lease_ms: Option<u64>, waited_ms: u64) {
        if self.is_just_token {
            return reply.integer(number(token));
        }
        reply.map(3);
        reply.bulk(b"token");
        reply.integer(number(token));
        answer_times(reply, lease_ms, waited_ms);
    }

    /// The reply to a request for several locks that was granted: one token, or with ANY its locks, each with its token.
    pub(super) fn grants(
        self,
        reply: &mut Reply<'_>,
        grants: &Grants,
        lease_ms: Option<u64>,
        waited_ms: u64,
    ) {
        let locks = match grants {
            Grants::All(granted) => return self.grant(reply, granted.token, lease_ms, waited_ms),
            Grants::Some(locks) => locks,
        };
        if !self.is_just_token {
            reply.map(3);
            reply.bulk(b"locks");
        }
        reply.map(locks.len());
        for (key, granted) in locks.iter() {
            reply.bulk(key);
            reply.integer(number(granted.token));
        }
        if !self.is_just_token {
            answer_times(reply, lease_ms, waited_ms);
        }
    }

    /// The reply to a request that was refused: null, or with WHY a map of who holds the first of its locks that is held and
    /// that the reader may see.
    pub(super) fn refusal(self, view: &mut View<'_>, keys: &[Bytes], reader: &Reader, reply: &mut Reply<'_>) {
        if !self.says_why {
            return self.unseen(reply);
        }
        let seen = keys.iter().filter(|key| reader.may_learn(key));
        let held = seen.into_iter().find_map(|key| view.locks().held_key(key, Shown::First(1)));
        answer_why(held.as_ref().map(|held| (held, view.now())), reply);
    }

    /// Like [`Self::refusal`], where nobody has looked who holds the lock.
    pub(super) fn unseen(self, reply: &mut Reply<'_>) {
        match self.says_why {
            true => answer_why(None, reply),
            false => reply.null_array(),
        }
    }
}

/// The lease of a grant, and how long its request has waited.
fn answer_times(reply: &mut Reply<'_>, lease_ms: Option<u64>, waited_ms: u64) {
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

/// Bytes, or null.
pub(super) fn maybe_bulk(reply: &mut Reply<'_>, value: Option<&[u8]>) {
    match value {
        Some(value) => reply.bulk(value),
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

/// A hold of an owner: its token and its lease.
pub(super) fn answer_hold(reply: &mut Reply<'_>, token: u64, lease_ms: Option<u64>) {
    reply.map(2);
    reply.bulk(b"token");
    reply.integer(number(token));
    reply.bulk(b"lease");
    maybe_integer(reply, lease_ms);
}

/// A number of our own as RESP has it.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn answer_why(held: Option<(&HeldLock, Now)>, reply: &mut Reply<'_>) {
    let holder = held.and_then(|(held, _)| held.holders.first());
    let value_type = held.and_then(|(held, _)| held.value_type);
    let left_ms = held.zip(holder.and_then(|holder| holder.deadline));
    let left_ms = left_ms.map(|((_, now), end)| now.millis_until(end).unsigned_abs());
    reply.map(1);
    reply.bulk(b"refused");
    reply.map(value_type.map_or(4, |_| 5));
    reply.bulk(b"holder");
    maybe_bulk(reply, holder.and_then(|holder| holder.owner.as_deref()));
    reply.bulk(b"token");
    maybe_integer(reply, holder.and_then(|holder| holder.token));
    reply.bulk(b"lease");
    maybe_integer(reply, left_ms);
    reply.bulk(b"meta");
    answer_meta(reply, holder.map_or(&[], |holder| &holder.meta));
    if let Some(value_type) = value_type {
        answer_type(reply, value_type);
    }
}

/// The field of a key that is no lock: the type of its value.
pub(super) fn answer_type(reply: &mut Reply<'_>, value_type: &str) {
    reply.bulk(b"type");
    reply.bulk(value_type.as_bytes());
}

/// Fields and values as a map.
pub(super) fn answer_meta(reply: &mut Reply<'_>, meta: &[Bytes]) {
    reply.map(meta.len() / 2);
    meta.iter().for_each(|word| reply.bulk(word));
}
