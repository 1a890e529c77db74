//! Lock requests that wait, and the replies of LOCK.ACQUIRE.
//!
//! Rule    a request is answered by the write that makes its lock free, with the shards of all its keys locked.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::session;
use crate::clock::LockTime;
use crate::commands::Shared;
use crate::keyspace::{Asker, Entry, Serve, View, Waiter};
use crate::locks::{Circle, LockRequest, attempt, attempt_all, is_grantable};
use crate::resp::{Protocol, Reply};
use crate::state::clients::Client;
use crate::state::ended_lock::EndReason;
use crate::state::lock_sessions::LockSession;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) client: Arc<Client>,
    /// The session that the grant will belong to.
    pub(super) session: Option<Arc<LockSession>>,
    pub(super) number: u64,
    pub(super) keys: Vec<Bytes>,
    pub(super) request: LockRequest,
    pub(super) since: LockTime,
    /// The token, once a new grant is its answer.
    pub(super) granted: OnceLock<u64>,
}

impl Serve for Waiting {
    fn is_ready(&self, view: &mut View<'_>, _key: &[u8]) -> bool {
        is_grantable(view, &self.keys, &self.request, self.number)
    }

    fn serve(&self, view: &mut View<'_>, _key: &[u8]) {
        let granted = match &self.keys[..] {
            [key] => attempt(view, key, &self.request, Some(self.number)),
            keys => attempt_all(view, keys, &self.request, Some(self.number)),
        };
        let mut answer = Vec::new();
        let mut reply = Reply::new(&mut answer, self.client.protocol());
        match granted {
            Ok(Some(granted)) => {
                let waited_ms = view.now().lock.millis_since(self.since);
                answer_grant(&mut reply, granted.token, self.request.term.lease_ms(), waited_ms);
                session::hold(view, self.session.as_deref(), &self.keys, &self.request, granted.token);
                if granted.is_new {
                    self.granted.get_or_init(|| granted.token);
                }
            }
            Ok(None) => reply.null_array(),
            Err(refusal) => reply.error_bytes(&refusal.line()),
        }
        self.client.answer(&answer);
    }

    fn refusal(&self, view: &mut View<'_>) -> Option<Vec<u8>> {
        let mut answer = Vec::new();
        answer_refusal(view, &self.keys, &mut Reply::new(&mut answer, self.client.protocol()));
        Some(answer)
    }

    fn give_back(&self, view: &mut View<'_>) {
        let Some(token) = self.granted.get() else { return };
        let LockRequest { owner, client, .. } = &self.request;
        for key in &self.keys {
            let is_held = view.hold_of(key, owner).is_some_and(|hold| hold.token == *token);
            // Another connection of the owner may have asked for the lock since, and know of it.
            if is_held && view.owners(key).iter().any(|(other, holder)| other == owner && holder == client) {
                view.end_hold(key, owner, EndReason::Released);
            }
        }
    }

    fn asker(&self) -> Option<Asker<'_>> {
        let LockRequest { owner, kind, permits, .. } = &self.request;
        Some(Asker { owner, kind: *kind, permits: *permits, client: &self.client, since: self.since })
    }
}

/// The reply to a request that was granted.
pub(super) fn answer_grant(reply: &mut Reply<'_>, token: u64, lease_ms: Option<u64>, waited_ms: u64) {
    reply.map(3);
    reply.bulk(b"token");
    reply.integer(number(token));
    reply.bulk(b"lease");
    answer_millis(reply, lease_ms);
    reply.bulk(b"waited");
    reply.integer(number(waited_ms));
}

/// A number of milliseconds, or null.
pub(super) fn answer_millis(reply: &mut Reply<'_>, millis: Option<u64>) {
    match millis {
        Some(millis) => reply.integer(number(millis)),
        None => reply.null(),
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
    let held = keys.iter().find(|key| matches!(view.entry(key), Entry::Occupied(_)));
    let Some(key) = held.or(keys.first()) else { return reply.null() };
    let holder = view.owners(key).into_iter().next().map(|(owner, _)| owner);
    let hold = holder.as_ref().and_then(|owner| view.hold_of(key, owner));
    let meta = match holder.as_ref().and_then(|owner| view.holder_of(key, owner)) {
        Some(holder) => holder.meta,
        None => view.meta_of(key),
    };
    let left_ms =
        hold.as_ref().and_then(|hold| hold.deadline).map(|deadline| view.now().millis_until(deadline));
    reply.map(4);
    reply.bulk(b"holder");
    match &holder {
        Some(owner) => reply.bulk(owner),
        None => reply.null(),
    }
    reply.bulk(b"token");
    reply.integer(hold.map_or(0, |hold| number(hold.token)));
    reply.bulk(b"lease");
    answer_millis(reply, left_ms.map(|millis| u64::try_from(millis).unwrap_or(0)));
    reply.bulk(b"meta");
    answer_meta(reply, &meta);
}

/// Fields and values as a map.
pub(super) fn answer_meta(reply: &mut Reply<'_>, meta: &[Bytes]) {
    reply.map(meta.len() / 2);
    meta.iter().for_each(|word| reply.bulk(word));
}

/// Ends the youngest wait of a circle that this request has closed, if it has.
pub(crate) fn refuse_circle(shared: &Shared, waiter: &Arc<Waiter>) {
    let policy = shared.settings.text("lock-deadlock");
    if policy == "off" {
        return;
    }
    let Some(circle) = shared.lock_waits.circle(&shared.keyspace, waiter, shared.clock.now()) else { return };
    let text = describe(&circle);
    if policy == "warn" {
        tracing::warn!(%text, "Requests wait for each other's locks");
        return;
    }
    let Some(asker) = circle.youngest.serve.asker() else { return };
    if circle.youngest.wait.claim.take() {
        shared.metrics.errors.add(1);
        shared.metrics.error_codes.add("DEADLOCK");
        let mut answer = Vec::new();
        Reply::new(&mut answer, asker.client.protocol()).error(&format!("DEADLOCK {text}"));
        asker.client.answer(&answer);
    }
}

/// `a (held by X) -> b (held by Y) -> a`.
fn describe(circle: &Circle) -> String {
    let show = |bytes: &Bytes| bytes.escape_ascii().to_string();
    let links = circle.links.iter().map(|(key, awaited)| {
        let how = if awaited.is_holder { "held" } else { "awaited" };
        format!("{} ({how} by {}) -> ", show(key), show(&awaited.owner))
    });
    let first = circle.links.first().map(|(key, _)| show(key)).unwrap_or_default();
    links.collect::<String>() + &first
}
