//! The spans of locks: a wait for a LOCK command, and a grant.
//!
//! Rule    with a `traceparent` in META a span belongs to the trace of the client; else to the span of its command. The
//!         span of a wait links to the traces of those that hold the lock.
//! Bounds  names are cut; the first holders of the first keys are looked at.

use bytes::Bytes;
use redlatch_proto::log_name::LogName;
use tracing::field::Empty;
use tracing::{Level, Span};

use crate::keyspace::View;
use crate::locks::LockRequest;
use crate::locks::Shown;
use crate::state::trace::{SPANS, traceparent};

/// Keys of a request, and holders of each, that a span links to.
const LINKS_MAX: usize = 8;

/// The span of a request that begins to wait.
pub(super) fn wait(view: &mut View<'_>, keys: &[Bytes], request: &LockRequest) -> Span {
    if !tracing::span_enabled!(target: SPANS, Level::DEBUG) {
        return Span::none();
    }
    let (mut links, mut first) = (Vec::new(), None);
    for key in keys.iter().take(LINKS_MAX) {
        let Some(held) = view.locks().held(key, Shown::First(LINKS_MAX)) else { continue };
        let parents = held.holders.iter().filter_map(|holder| traceparent(&holder.meta));
        links.extend(parents.map(str::to_owned));
        first = first.or_else(|| held.holders.into_iter().next());
    }
    let position = keys.first().map(|key| view.queues().lock_queue_len(key).saturating_add(1));
    tracing::debug_span!(
        target: SPANS,
        "wait",
        key = keys.first().map(|key| display(LogName(key))),
        keys = keys.len(),
        owner = %LogName(&request.owner),
        client = request.client,
        kind = request.kind.name(),
        position,
        holder = first.as_ref().and_then(|holder| holder.owner.as_ref()).map(|owner| display(LogName(owner))),
        holder_client = first.as_ref().map(|holder| holder.client),
        holder_token = first.as_ref().and_then(|holder| holder.token),
        traceparent = traceparent(&request.meta),
        links = (!links.is_empty()).then(|| links.join(" ")),
        outcome = Empty,
        token = Empty,
        waited_ms = Empty,
    )
}

/// The span of a grant, which is over at once. `wait` is the span of the wait before it, if there was one.
#[inline]
pub(super) fn grant(keys: &[Bytes], request: &LockRequest, token: u64, wait: Option<&Span>) {
    if tracing::level_enabled!(Level::DEBUG) {
        make_grant(keys, request, token, wait);
    }
}

#[cold]
fn make_grant(keys: &[Bytes], request: &LockRequest, token: u64, wait: Option<&Span>) {
    let current = Span::current();
    drop(tracing::debug_span!(
        target: SPANS,
        parent: wait.unwrap_or(&current),
        "grant",
        key = keys.first().map(|key| display(LogName(key))),
        keys = keys.len(),
        owner = %LogName(&request.owner),
        client = request.client,
        kind = request.kind.name(),
        token,
        lease_ms = request.term.lease_ms(),
        traceparent = traceparent(&request.meta).filter(|_| wait.is_none()),
    ));
}

/// The span of a grant by SET NX or by a known script, which is over at once. A lease that a later command sets is not in it.
#[inline]
pub(in crate::commands) fn taken(view: &mut View<'_>, key: &[u8], owner: Option<&[u8]>) {
    if tracing::level_enabled!(Level::DEBUG) {
        make_taken(view, key, owner);
    }
}

#[cold]
fn make_taken(view: &mut View<'_>, key: &[u8], owner: Option<&[u8]>) {
    if !tracing::span_enabled!(target: SPANS, Level::DEBUG) {
        return;
    }
    let Some(grant) = view.locks().grant_of(key) else { return };
    let kind = view.locks().held(key, Shown::First(1)).map(|held| held.kind.name());
    drop(tracing::debug_span!(
        target: SPANS,
        "grant",
        key = %LogName(key),
        keys = 1,
        owner = owner.map(|owner| display(LogName(owner))),
        client = grant.holder,
        kind,
        token = grant.token,
        lease_ms = grant.lease_ms,
    ));
}
