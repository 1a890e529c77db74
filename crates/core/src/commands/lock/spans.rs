//! The spans of locks: a wait in a queue, and a grant.
//!
//! Owns    [`Spans`], an observer, and the spans of the requests that wait.
//! Rule    with a `traceparent` in META a span belongs to the trace of the client; else to the span of its command. The
//!         span of a wait links to the traces of those that hold the lock.
//! Locks   one mutex, under which nothing else is locked.
//! Bounds  names are cut; the first holders of the first keys are looked at; a wait has one span.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use redlatch_proto::log_name::LogName;
use tracing::field::Empty;
use tracing::{Level, Span};

use crate::keyspace::{LockObserver, Shown, View};
use crate::locks::{RequestEvent, RequestOutcome, RequestWait};
use crate::state::registries::Registries;
use crate::state::trace::{SPANS, traceparent};

/// Keys of a request, and holders of each, that a span links to.
const LINKS_MAX: usize = 8;

/// Makes the spans.
#[derive(Debug, Default)]
pub(in crate::commands) struct Spans {
    /// Those of requests that wait, by the number of the wait.
    waits: Mutex<BTreeMap<u64, Span>>,
}

impl LockObserver for Spans {
    fn asked(&self, event: &RequestEvent, view: &mut View<'_>, _registries: &Registries) {
        let begun = event.wait.and_then(|wait| self.waits.lock().remove(&wait.place.number));
        if begun.is_none() && !tracing::span_enabled!(target: SPANS, Level::DEBUG) {
            return;
        }
        let token = match event.outcome {
            RequestOutcome::Waits => {
                if let (Some(wait), false) = (event.wait, begun.is_some()) {
                    let span = wait_span(event, wait, view);
                    self.waits.lock().insert(wait.place.number, span);
                }
                return;
            }
            // A lock that its owner holds already is no grant.
            RequestOutcome::Granted { again } if !again || begun.is_some() => {
                make_grant(event, view, begun.as_ref())
            }
            _ => None,
        };
        if let (Some(span), Some(wait)) = (begun, event.wait) {
            span.record("outcome", super::watch::ended(event.outcome)).record("token", token);
            span.record("waited_ms", view.now().lock.millis_since(wait.since));
        }
    }
}

/// The span of a request that begins to wait.
fn wait_span(event: &RequestEvent, wait: RequestWait, view: &mut View<'_>) -> Span {
    let (mut links, mut first) = (Vec::new(), None);
    for key in event.keys.iter().take(LINKS_MAX) {
        let Some(held) = view.locks().held(key, Shown::First(LINKS_MAX)) else { continue };
        let parents = held.holders.iter().filter_map(|holder| traceparent(&holder.meta));
        links.extend(parents.map(str::to_owned));
        first = first.or_else(|| held.holders.into_iter().next());
    }
    let queues = view.queues();
    let waiting =
        queues.lock_waiters(event.key()).enumerate().find(|(_, other)| other.wait.place == wait.place);
    let asker = waiting.as_ref().and_then(|(_, waiter)| waiter.serve.asker());
    let mode = waiting.as_ref().and_then(|(_, waiter)| waiter.mode_of(event.key()));
    tracing::debug_span!(
        target: SPANS,
        "wait",
        key = %LogName(event.key()),
        keys = event.keys.len(),
        owner = event.owner.as_ref().map(|owner| display(LogName(owner))),
        client = event.client,
        kind = mode.map(|mode| mode.kind.name()),
        position = waiting.as_ref().map(|(before, _)| before.saturating_add(1)),
        holder = first.as_ref().and_then(|holder| holder.owner.as_ref()).map(|owner| display(LogName(owner))),
        holder_client = first.as_ref().map(|holder| holder.client),
        holder_token = first.as_ref().and_then(|holder| holder.token),
        traceparent = asker.and_then(|asker| traceparent(&asker.request.meta)),
        links = (!links.is_empty()).then(|| links.join(" ")),
        outcome = Empty,
        token = Empty,
        waited_ms = Empty,
    )
}

/// Makes the span of a grant, which is over at once, inside of the span of the wait before it, if there was one. Returns the
/// fencing token.
fn make_grant(event: &RequestEvent, view: &mut View<'_>, wait: Option<&Span>) -> Option<u64> {
    let shown = event.owner.as_deref().map_or(Shown::First(1), Shown::Owner);
    let held = view.locks().held(event.key(), shown)?;
    let holder = held.holders.first()?;
    let current = Span::current();
    drop(tracing::debug_span!(
        target: SPANS,
        parent: wait.unwrap_or(&current),
        "grant",
        key = %LogName(event.key()),
        keys = event.keys.len(),
        owner = event.owner.as_ref().map(|owner| display(LogName(owner))),
        client = event.client,
        kind = held.kind.name(),
        token = holder.token,
        lease_ms = holder.lease_ms,
        traceparent = traceparent(&holder.meta).filter(|_| wait.is_none()),
    ));
    holder.token
}
