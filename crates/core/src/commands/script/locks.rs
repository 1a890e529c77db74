//! What a known script of a lock client has done to locks.
//!
//! Owns    the grants of locks that are no strings set by SET NX: hashes, sorted sets, strings set after a check; and what
//!         the request of the script has come to. The commands that it calls say nothing of that.
//! Rule    a script that is not known costs one branch, and so does a known one that acquires nothing.

use crate::commands::Call;
use crate::keyspace::{Asked, Entry};
use crate::locks::{HolderRequest, RefusedBy, RequestOutcome};
use crate::scripts::{Granted, Inputs, Known, Purpose};

/// What there was before a script ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// Bytes of the replies before its own.
    pub(super) reply: usize,
    /// Fencing tokens that had been given out.
    pub(super) tokens: u64,
}

/// Says what the request of a script has come to that has run.
pub(super) fn note(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>, before: Before) {
    match known.purpose {
        Purpose::Acquire(granted) => note_acquired(call, known, inputs, (granted, before)),
        Purpose::Extend => note_held(call, known, inputs, (HolderRequest::Extend, before)),
        Purpose::Release => note_held(call, known, inputs, (HolderRequest::Release, before)),
        Purpose::Break | Purpose::Inspect | Purpose::Other => {}
    }
}

fn note_acquired(
    call: &mut Call<'_, '_>,
    known: &Known,
    inputs: Inputs<'_>,
    (granted, before): (Granted, Before),
) {
    let outcome = match granted.is(call.reply.since(before.reply)) {
        true => RequestOutcome::Granted { again: !grant_all(call, known, inputs, before) },
        // A script sees no queue: what is free it takes.
        false => RequestOutcome::Refused(RefusedBy::Held),
    };
    let owner = known.lock.and_then(|lock| lock.owner(inputs, 0));
    let asked = Asked { owner, name: known.script(), wait: None };
    let mut keys = known.keys(inputs);
    if let Some(first) = keys.next() {
        call.view.locks().comes_to(outcome, (first, keys), call.shared.asking(call.session), asked);
    }
}

/// Grants the locks that a script has acquired. A lock that has a grant keeps it: the script has set it with SET NX, its
/// owner has taken it again, or another owner has joined. Returns whether a grant is new.
fn grant_all(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>, before: Before) -> bool {
    let mut is_new = false;
    for key in known.keys(inputs) {
        let Entry::Occupied(mut found) = call.view.entry(key) else { continue };
        match found.granted() {
            Some(grant) => is_new |= grant.token > before.tokens,
            None => {
                found.grant(call.shared.keyspace.next_token(), call.session.client.id, false);
                is_new = true;
            }
        }
    }
    is_new
}

/// A script that extends or releases locks has not found that its owner holds them.
fn note_held(
    call: &mut Call<'_, '_>,
    known: &Known,
    inputs: Inputs<'_>,
    (asked, before): (HolderRequest, Before),
) {
    let Some(lock) = known.lock else { return };
    // The reply of most scripts that have found their lock.
    if matches!(call.reply.since(before.reply), b":1\r\n" | b"+OK\r\n") {
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
