//! What a known script of a lock client has done to locks.
//!
//! Owns    the grants of locks that are no strings set by SET NX: hashes, sorted sets, strings set after a check; and what
//!         the request of the script has come to. The commands that it calls say nothing of that.
//! Rule    a script that is not known costs one branch, and so does a known one that acquires nothing.

use crate::commands::Call;
use crate::keyspace::{Asked, Entry};
use crate::locks::{HolderRequest, RefusedBy, RequestOutcome};
use crate::scripts::{Granted, Inputs, Known, Purpose};

/// Says what the request of a script has come to that has run and whose reply begins at `mark`.
pub(super) fn note(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>, mark: usize) {
    match known.purpose {
        Purpose::Acquire(granted) => note_acquired(call, known, inputs, (granted, mark)),
        Purpose::Extend => note_held(call, known, inputs, (HolderRequest::Extend, mark)),
        Purpose::Release => note_held(call, known, inputs, (HolderRequest::Release, mark)),
        Purpose::Break | Purpose::Inspect | Purpose::Other => {}
    }
}

/// Grants the locks of a script, if it has acquired them. A lock that has a grant keeps it: its owner has taken it again, or
/// another owner has joined.
fn note_acquired(
    call: &mut Call<'_, '_>,
    known: &Known,
    inputs: Inputs<'_>,
    (granted, mark): (Granted, usize),
) {
    let outcome = match granted.is(call.reply.since(mark)) {
        true => RequestOutcome::GRANTED,
        // A script sees no queue: what is free it takes.
        false => RequestOutcome::Refused(RefusedBy::Held),
    };
    for key in known.keys(inputs).filter(|_| outcome == RequestOutcome::GRANTED) {
        if let Entry::Occupied(mut found) = call.view.entry(key)
            && found.granted().is_none()
        {
            found.grant(call.shared.keyspace.next_token(), call.session.client.id, false);
        }
    }
    let owner = known.lock.and_then(|lock| lock.owner(inputs, 0));
    let asked = Asked { owner, name: known.script(), wait: None };
    let mut keys = known.keys(inputs);
    if let Some(first) = keys.next() {
        call.view.locks().comes_to(outcome, (first, keys), call.shared.asking(call.session), asked);
    }
}

/// A script that extends or releases locks has not found that its owner holds them.
fn note_held(
    call: &mut Call<'_, '_>,
    known: &Known,
    inputs: Inputs<'_>,
    (asked, mark): (HolderRequest, usize),
) {
    let Some(lock) = known.lock else { return };
    // The reply of most scripts that have found their lock.
    if matches!(call.reply.since(mark), b":1\r\n" | b"+OK\r\n") {
        return;
    }
    let (outcome, by) = (RequestOutcome::NotHeld(asked), call.shared.asking(call.session));
    for (place, key) in known.keys(inputs).enumerate() {
        if let Some(owner) = lock.owner(inputs, place) {
            let asked = Asked { owner: Some(owner), name: known.script(), wait: None };
            call.view.locks().comes_to(outcome, (key, std::iter::empty()), by, asked);
        }
    }
}
