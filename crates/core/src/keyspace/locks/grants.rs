//! Grants: a request for a lock of a LOCK command, and for several at once.
//!
//! Owns    nothing; it asks the rules of `locks::rules`, and writes through [`ViewLocks`](super::ViewLocks).

use bytes::Bytes;
use redlatch_proto::error::Refusal;

use crate::keyspace::{Entry, Lease, View};
use crate::locks::{Attempt, Found, GrantDetails, Granted, LockRequest, RefusedBy, Standing};
use crate::types::lock::{Holder, LockKind};
use crate::types::{Lock, Typed};

/// Grants the lock `key`, if it can be granted now. `number` is the place of a request that has waited.
///
/// # Errors
/// The key holds something that is no lock, or the owner holds the lock in another way.
pub fn attempt(
    view: &mut View<'_>,
    key: &[u8],
    request: &LockRequest,
    number: Option<u64>,
) -> Result<Attempt, Refusal> {
    let granted = match standing(view, key, request)? {
        Standing::Mine(token) => Granted { token: token.unwrap_or_else(|| view.next_token()), is_new: false },
        Standing::Open if !others_wait(view, key, number) => {
            Granted { token: view.next_token(), is_new: true }
        }
        Standing::Open => return Ok(Attempt::Refused { at: 0, by: RefusedBy::Awaited }),
        Standing::Held => return Ok(Attempt::Refused { at: 0, by: RefusedBy::Held }),
    };
    grant(view, key, request, granted.token);
    Ok(Attempt::Granted(granted))
}

/// Grants several exclusive locks with one token, if all of them can be granted now.
///
/// # Errors
/// As [`attempt`].
pub(crate) fn attempt_all(
    view: &mut View<'_>,
    keys: &[Bytes],
    request: &LockRequest,
    number: Option<u64>,
) -> Result<Attempt, Refusal> {
    let (mut tokens, mut refused) = (Vec::with_capacity(keys.len()), None);
    for (at, key) in keys.iter().enumerate() {
        let by = match standing(view, key, request)? {
            Standing::Mine(token) => {
                tokens.push(token);
                continue;
            }
            Standing::Open if !others_wait(view, key, number) => continue,
            Standing::Open => RefusedBy::Awaited,
            Standing::Held => RefusedBy::Held,
        };
        refused.get_or_insert(Attempt::Refused { at, by });
    }
    if let Some(refused) = refused {
        return Ok(refused);
    }
    // The same request again: the same token. Otherwise one new token for all.
    let is_again = tokens.len() == keys.len() && tokens.windows(2).all(|pair| pair[0] == pair[1]);
    let kept = tokens.first().copied().flatten().filter(|_| is_again);
    let token = kept.unwrap_or_else(|| view.next_token());
    for key in keys {
        grant(view, key, request, token);
    }
    Ok(Attempt::Granted(Granted { token, is_new: !is_again }))
}

/// The place of the first lock that keeps a request waiting. `None`: it can be answered now, because all its locks can be
/// granted, or because it must be refused. The search begins at the place `from`: most often the lock that was found last
/// time is still held, and then it ends at once, however many locks the request is for.
pub(crate) fn first_held(
    view: &mut View<'_>,
    keys: &[Bytes],
    request: &LockRequest,
    number: u64,
    from: usize,
) -> Option<usize> {
    (from..keys.len()).chain(0..from).find(|at| {
        let key = &keys[*at];
        match standing(view, key, request) {
            Ok(Standing::Mine(_)) => false,
            Ok(Standing::Open) => others_wait(view, key, Some(number)),
            Ok(Standing::Held) => true,
            // The error is its answer.
            Err(_) => false,
        }
    })
}

/// Whether requests wait for the lock that came before this one.
fn others_wait(view: &mut View<'_>, key: &[u8], number: Option<u64>) -> bool {
    view.queues()
        .lock_waiters(key)
        .next()
        .is_some_and(|first| number.is_none_or(|own| first.wait.number < own))
}

#[inline]
fn standing(view: &mut View<'_>, key: &[u8], request: &LockRequest) -> Result<Standing, Refusal> {
    let entry = view.entry(key);
    let Entry::Occupied(found) = &entry else { return Standing::of(Found::Nothing, request) };
    let grant = found.granted();
    let held = match found.object() {
        None => Found::String { owner: found.string()?, token: grant.map(|grant| grant.token) },
        Some(object) => match Lock::of(object) {
            Some(lock) => Found::Record(lock),
            None if grant.is_some() => Found::Foreign,
            None => Found::Other,
        },
    };
    Standing::of(held, request)
}

/// Writes the grant.
fn grant(view: &mut View<'_>, key: &[u8], request: &LockRequest, token: u64) {
    let deadline = request.term.deadline(view.now());
    if request.kind == LockKind::Exclusive {
        let lease = deadline.map_or(Lease::Never, Lease::Until);
        let details = GrantDetails { session: request.term.session(), meta: request.meta.clone() };
        view.locks().hold_exclusive(key, &request.owner, lease, (token, request.client), details);
    } else {
        let now = view.now().lock;
        let held = view.locks().holder_of(key, &request.owner);
        let again = u32::from(request.kind == LockKind::Reentrant);
        let is_leased = request.term.session().is_none();
        let holder = Holder {
            token,
            client: request.client,
            permits: held.as_ref().map_or(request.permits, |held| held.permits.saturating_add(again)),
            since: held.as_ref().map_or(now, |held| held.since),
            deadline,
            lease_ms: request.term.lease_ms(),
            renewals: held.as_ref().map_or(0, |held| held.renewals.saturating_add(u32::from(is_leased))),
            session: request.term.session(),
            meta: request.meta.clone(),
        };
        view.locks().put_holder(key, request.kind, &request.owner, holder);
    }
}
