//! Grants: a request for a lock of a LOCK command, and for several at once.
//!
//! Owns    nothing; it asks the rules of `locks::rules`, and writes through [`ViewLocks`](super::ViewLocks).

use bytes::Bytes;
use redlatch_proto::error::Refusal;

use crate::keyspace::{Entry, Lease, View};
use crate::locks::{
    Attempt, EndReason, Found, GrantDetails, Granted, Grants, LockRequest, Mode, RefusedBy, Standing,
};
use crate::state::wait::Place;
use crate::types::lock::{Holder, LockKind};
use crate::types::{Lock, Typed};

/// Grants the lock `key`, if it can be granted now. `place`: where it waits, or would wait, which is
/// behind all that wait if nothing was said of its priority.
///
/// # Errors
/// The key holds something that is no lock, or the owner holds the lock in another way.
pub fn attempt(
    view: &mut View<'_>,
    key: &[u8],
    request: &LockRequest,
    place: Place,
) -> Result<Attempt, Refusal> {
    let granted = match standing(view, key, &request.owner, request.mode)? {
        Standing::Mine(token) => Granted { token: token.unwrap_or_else(|| view.next_token()), is_new: false },
        Standing::Open if !others_wait(view, key, place) => {
            Granted { token: view.next_token(), is_new: true }
        }
        Standing::Open => return Ok(Attempt::Refused { at: 0, by: RefusedBy::Awaited }),
        Standing::Held => return Ok(Attempt::Refused { at: 0, by: RefusedBy::Held }),
    };
    grant(view, key, request, (request.mode, granted.token));
    Ok(Attempt::Granted(granted))
}

/// A lock that a request can have now: its place among the keys, and its token if the owner holds it already.
type Grantable = (usize, Option<Option<u64>>);

/// Grants the locks of a request for several, if as many as it asks for can be granted now.
///
/// # Errors
/// As [`attempt`], for any of the keys.
pub(crate) fn attempt_several(
    view: &mut View<'_>,
    keys: &[Bytes],
    request: &LockRequest,
    place: Place,
) -> Result<Attempt<Grants>, Refusal> {
    let (mut found, mut refused) = (Vec::with_capacity(keys.len()), None);
    for (at, key) in keys.iter().enumerate() {
        let by = match standing(view, key, &request.owner, request.mode_at(at))? {
            Standing::Mine(token) => {
                found.push((at, Some(token)));
                continue;
            }
            Standing::Open if !others_wait(view, key, place) => {
                found.push((at, None));
                continue;
            }
            Standing::Open => RefusedBy::Awaited,
            Standing::Held => RefusedBy::Held,
        };
        refused.get_or_insert((at, by));
    }
    match (request.any(), refused) {
        (None, Some((at, by))) => Ok(Attempt::Refused { at, by }),
        (Some(any), Some((at, by))) if found.len() < any => Ok(Attempt::Refused { at, by }),
        (None, None) => Ok(Attempt::Granted(Grants::All(grant_all(view, keys, request, &found)))),
        (Some(any), _) => {
            // Those that the owner holds come first.
            found.sort_by_key(|(_, held): &Grantable| held.is_none());
            found.truncate(any);
            let seen = view.changes.observed();
            let some = found.into_iter().map(|one| grant_one(view, keys, request, one)).collect();
            view.changes.taken_at_once(seen, any < keys.len());
            Ok(Attempt::Granted(Grants::Some(some)))
        }
    }
}

/// Grants all locks with one token: that of an owner which holds all of them with one token, otherwise a new one.
fn grant_all(view: &mut View<'_>, keys: &[Bytes], request: &LockRequest, found: &[Grantable]) -> Granted {
    let held = found.first().and_then(|(_, held)| *held);
    let is_again = held.is_some() && found.iter().all(|(_, other)| *other == held);
    let token = held.flatten().filter(|_| is_again).unwrap_or_else(|| view.next_token());
    for (at, key) in keys.iter().enumerate() {
        grant(view, key, request, (request.mode_at(at), token));
    }
    Granted { token, is_new: !is_again }
}

/// Grants one of the locks of a request with ANY.
fn grant_one(
    view: &mut View<'_>,
    keys: &[Bytes],
    request: &LockRequest,
    (at, held): Grantable,
) -> (Bytes, Granted) {
    let token = held.flatten().unwrap_or_else(|| view.next_token());
    grant(view, &keys[at], request, (request.mode_at(at), token));
    (keys[at].clone(), Granted { token, is_new: held.is_none() })
}

/// The place of the first lock that keeps a request for all its locks waiting. `None`: it can be answered now, because all
/// of them can be granted, or because it must be refused. The search begins at the place `from`: most often the lock that
/// was found last time is still held, and then it ends at once, however many locks the request is for.
pub(crate) fn first_held(
    view: &mut View<'_>,
    keys: &[Bytes],
    request: &LockRequest,
    place: Place,
    from: usize,
) -> Option<usize> {
    (from..keys.len())
        .chain(0..from)
        // An error is the answer.
        .find(|at| is_grantable(view, &keys[*at], (&request.owner, request.mode_at(*at)), place) == Ok(false))
}

/// Whether nothing keeps a request that waits from the lock of a key.
///
/// # Errors
/// As [`attempt`].
pub(crate) fn is_grantable(
    view: &mut View<'_>,
    key: &[u8],
    (owner, mode): (&[u8], Mode),
    place: Place,
) -> Result<bool, Refusal> {
    Ok(match standing(view, key, owner, mode)? {
        Standing::Mine(_) => true,
        Standing::Open => !others_wait(view, key, place),
        Standing::Held => false,
    })
}

/// Whether requests wait for the lock before this place.
fn others_wait(view: &mut View<'_>, key: &[u8], place: Place) -> bool {
    view.queues().lock_waiters(key).next().is_some_and(|first| first.wait.place < place)
}

#[inline]
fn standing(view: &mut View<'_>, key: &[u8], owner: &[u8], mode: Mode) -> Result<Standing, Refusal> {
    let entry = view.entry(key);
    let Entry::Occupied(found) = &entry else { return Standing::of(Found::Nothing, owner, mode) };
    let grant = found.granted();
    let held = match found.object() {
        None => Found::String { owner: found.string()?, token: grant.map(|grant| grant.token) },
        Some(object) => match Lock::of(object) {
            Some(lock) => Found::Record(lock),
            None if grant.is_some() => Found::Foreign,
            None => Found::Other,
        },
    };
    Standing::of(held, owner, mode)
}

/// Writes the grant.
fn grant(view: &mut View<'_>, key: &[u8], request: &LockRequest, (mode, token): (Mode, u64)) {
    let deadline = request.term.deadline(view.now());
    if mode.kind == LockKind::Exclusive {
        let lease = deadline.map_or(Lease::Never, Lease::Until);
        let details = GrantDetails { session: request.term.session(), meta: request.meta.clone() };
        view.locks().hold_exclusive(key, &request.owner, lease, (token, request.client), details);
    } else {
        let now = view.now().lock;
        let mut held = view.locks().holder_of(key, &request.owner);
        // An owner that gets another token gives its lock up, to take it anew.
        if held.take_if(|held| held.token != token).is_some() {
            view.locks().end_hold(key, &request.owner, EndReason::Released, |_| true);
        }
        let again = u32::from(mode.kind == LockKind::Reentrant);
        let is_leased = request.term.session().is_none();
        let holder = Holder {
            token,
            client: request.client,
            permits: held.as_ref().map_or(mode.permits, |held| held.permits.saturating_add(again)),
            since: held.as_ref().map_or(now, |held| held.since),
            deadline,
            lease_ms: request.term.lease_ms(),
            renewals: held.as_ref().map_or(0, |held| held.renewals.saturating_add(u32::from(is_leased))),
            session: request.term.session(),
            meta: request.meta.clone(),
        };
        view.locks().put_holder(key, mode.kind, &request.owner, holder);
    }
}
