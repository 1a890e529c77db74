//! Who may have a lock now.
//!
//! Rule    a request that came later is not granted before one that waits. So a reader does not join other readers while a
//!         writer waits, and a small request does not overtake a large one.
//! Rule    a request of an owner that holds the lock already is the same grant again, except of a reentrant lock.

use bytes::Bytes;
use redlatch_proto::clock::Deadline;
use redlatch_proto::error::Refusal;

use crate::keyspace::{Entry, Lease, View};
use crate::locks::GrantDetails;
use crate::state::clients::ClientId;
use crate::types::lock::{Holder, LockKind};
use crate::types::{Lock, Typed};

/// A request for one lock, or for several.
#[derive(Clone, Debug)]
pub struct LockRequest {
    /// The kind of the lock.
    pub kind: LockKind,
    /// Who asks.
    pub owner: Bytes,
    /// How many permits it asks for; 1 for other kinds.
    pub permits: u32,
    /// How long the grant lasts.
    pub term: Term,
    /// What the owner says about itself, as fields and values in turn.
    pub meta: Box<[Bytes]>,
    /// The client that asks.
    pub client: ClientId,
}

/// How long a grant lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Term {
    /// So many milliseconds, unless it is extended.
    Lease(u64),
    /// As long as the connection of a session, and then so many milliseconds.
    Session {
        /// The number of the session.
        id: u64,
        /// How long it outlives the connection.
        delay_ms: u64,
    },
}

impl Term {
    /// The milliseconds of the lease, if there is one.
    pub fn lease_ms(self) -> Option<u64> {
        if let Self::Lease(millis) = self { Some(millis) } else { None }
    }

    /// The session and its delay, if there is one.
    pub fn session(self) -> Option<(u64, u64)> {
        if let Self::Session { id, delay_ms } = self { Some((id, delay_ms)) } else { None }
    }

    /// The end of a lease that begins now.
    pub fn deadline(self, view: &View<'_>) -> Option<Deadline> {
        let millis = i64::try_from(self.lease_ms()?).unwrap_or(i64::MAX);
        Some(view.now().deadline_in(millis))
    }
}

/// A lock that was granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Granted {
    /// The fencing token.
    pub token: u64,
    /// False if the owner held the lock already, with this token.
    pub is_new: bool,
}

/// Grants the lock `key`, or returns `None` if it is held. `number` is the place of a request that has waited.
///
/// # Errors
/// The key holds something that is no lock, or the owner holds the lock in another way.
pub fn attempt(
    view: &mut View<'_>,
    key: &[u8],
    request: &LockRequest,
    number: Option<u64>,
) -> Result<Option<Granted>, Refusal> {
    let granted = match current_of(view, key, request)? {
        Current::Mine(token) => Granted { token: token.unwrap_or_else(|| view.next_token()), is_new: false },
        Current::Open if !others_wait(view, key, number) => {
            Granted { token: view.next_token(), is_new: true }
        }
        Current::Open | Current::Held => return Ok(None),
    };
    grant(view, key, request, granted.token);
    Ok(Some(granted))
}

/// Grants several exclusive locks with one token, or returns `None` if any of them is held.
///
/// # Errors
/// As [`attempt`].
pub fn attempt_all(
    view: &mut View<'_>,
    keys: &[Bytes],
    request: &LockRequest,
    number: Option<u64>,
) -> Result<Option<Granted>, Refusal> {
    let (mut tokens, mut is_open) = (Vec::with_capacity(keys.len()), true);
    for key in keys {
        match current_of(view, key, request)? {
            Current::Mine(token) => tokens.push(token),
            Current::Open => is_open &= !others_wait(view, key, number),
            Current::Held => is_open = false,
        }
    }
    if !is_open {
        return Ok(None);
    }
    // The same request again: the same token. Otherwise one new token for all.
    let is_again = tokens.len() == keys.len() && tokens.windows(2).all(|pair| pair[0] == pair[1]);
    let kept = tokens.first().copied().flatten().filter(|_| is_again);
    let token = kept.unwrap_or_else(|| view.next_token());
    for key in keys {
        grant(view, key, request, token);
    }
    Ok(Some(Granted { token, is_new: !is_again }))
}

/// The place of the first lock that keeps a request waiting. `None`: it can be answered now, because all its locks can be
/// granted, or because it must be refused. The search begins at the place `from`: most often the lock that was found last
/// time is still held, and then it ends at once, however many locks the request is for.
pub fn first_held(
    view: &mut View<'_>,
    keys: &[Bytes],
    request: &LockRequest,
    number: u64,
    from: usize,
) -> Option<usize> {
    (from..keys.len()).chain(0..from).find(|at| {
        let key = &keys[*at];
        match current_of(view, key, request) {
            Ok(Current::Mine(_)) => false,
            Ok(Current::Open) => others_wait(view, key, Some(number)),
            Ok(Current::Held) => true,
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

/// How a lock stands to a request.
enum Current {
    /// The owner holds it, with this token; without one, if another command has set the string.
    Mine(Option<u64>),
    /// It can be granted.
    Open,
    /// Others hold it.
    Held,
}

fn current_of(view: &mut View<'_>, key: &[u8], request: &LockRequest) -> Result<Current, Refusal> {
    let Entry::Occupied(found) = view.entry(key) else { return Ok(Current::Open) };
    let grant = found.granted();
    match found.object() {
        None if found.string()? != request.owner => Ok(Current::Held),
        None if request.kind != LockKind::Exclusive => Err(held_otherwise(LockKind::Exclusive)),
        // A string that another command has set counts as a lock of this owner, too.
        None => Ok(Current::Mine(grant.map(|grant| grant.token))),
        Some(object) => match Lock::of(object) {
            Some(lock) => current_of_shared(lock, request),
            // A hash or another value that is the lock of an unchanged client.
            None if grant.is_some() => Ok(Current::Held),
            None => Err(Refusal::WrongType),
        },
    }
}

fn current_of_shared(lock: &Lock, request: &LockRequest) -> Result<Current, Refusal> {
    if let Some(holder) = lock.holder(&request.owner) {
        let is_alike = lock.kind() == request.kind
            && (request.kind == LockKind::Reentrant || holder.permits == request.permits);
        return match is_alike {
            true => Ok(Current::Mine(Some(holder.token))),
            false => Err(held_otherwise(lock.kind())),
        };
    }
    match (lock.kind(), request.kind) {
        (LockKind::Shared, LockKind::Shared) => Ok(Current::Open),
        (LockKind::Permits(limit), LockKind::Permits(asked)) if limit != asked => {
            Err(Refusal::said(format!("ERR the lock has {limit} permits, not {asked}")))
        }
        (LockKind::Permits(limit), LockKind::Permits(_)) => {
            let wanted = lock.permits().saturating_add(u64::from(request.permits));
            Ok(if wanted <= u64::from(limit) { Current::Open } else { Current::Held })
        }
        _ => Ok(Current::Held),
    }
}

fn held_otherwise(kind: LockKind) -> Refusal {
    Refusal::said(format!("ERR the owner holds this lock in another way: {}", kind.name()))
}

/// Writes the grant.
fn grant(view: &mut View<'_>, key: &[u8], request: &LockRequest, token: u64) {
    let deadline = request.term.deadline(view);
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
