//! What a known script of a lock client has done to locks.
//!
//! Owns    the grants of locks that are no strings set by SET NX: hashes, sorted sets, strings set after a check; and the
//!         refusals of those who ask for them.
//! Rule    a script that is not known costs one branch, and so does a known one that acquires nothing.

use crate::commands::Call;
use crate::keyspace::Entry;
use crate::scripts::{Inputs, Known, Purpose};

/// Grants the locks of a script that has run and whose reply begins at `mark`, if it has acquired them; notes the refusal
/// otherwise. A lock that has a grant keeps it: its owner has taken it again, or another owner has joined.
pub(super) fn note(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>, mark: usize) {
    let granted = match known.purpose {
        Purpose::Acquire(granted) => granted,
        Purpose::Extend | Purpose::Release => return note_late(call, known, inputs, mark),
        Purpose::Break | Purpose::Inspect | Purpose::Other => return,
    };
    let polling = &call.session.client.polling;
    if !granted.is(call.reply.since(mark)) {
        if let Some(key) = known.keys(inputs).next() {
            polling.note(call.view.key_hash(key), call.now.lock);
        }
        return;
    }
    polling.end();
    for key in known.keys(inputs) {
        if let Entry::Occupied(mut found) = call.view.entry(key)
            && found.granted().is_none()
        {
            found.grant(call.shared.keyspace.next_token(), call.session.client.id, false);
        }
    }
}

/// Notes a script that extends or releases locks which its owner does not hold any more.
fn note_late(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>, mark: usize) {
    // The reply of most scripts that have found their lock.
    if call.reply.since(mark) == b":1\r\n" || call.reply.since(mark) == b"+OK\r\n" {
        return;
    }
    let Some(lock) = known.lock else { return };
    for (place, key) in known.keys(inputs).enumerate() {
        if let Some(owner) = lock.owner(inputs, place) {
            call.view.note_late(key, Some(owner), known.script());
        }
    }
}
