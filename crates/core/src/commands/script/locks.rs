//! What a known script of a lock client has done to locks.
//!
//! Owns    the grants of locks that are no strings set by SET NX: hashes, sorted sets, strings set after a check; and the
//!         refusals of those who ask for them.
//! Rule    a script that is not known costs one branch, and so does a known one that acquires nothing.

use crate::commands::Call;
use crate::commands::lock::asking::{Asked, Asking};
use crate::commands::lock::spans;
use crate::keyspace::Entry;
use crate::scripts::{Inputs, Known, Purpose};

/// Grants the locks of a script that has run and whose reply begins at `mark`, if it has acquired them; notes the refusal
/// otherwise. A lock that has a grant keeps it: its owner has taken it again, or another owner has joined.
pub(super) fn note(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>, mark: usize) {
    let granted = match known.purpose {
        Purpose::Acquire(granted) => granted,
        Purpose::Extend => return note_late(call, known, inputs, (Asked::Extend, mark)),
        Purpose::Release => return note_late(call, known, inputs, (Asked::Release, mark)),
        Purpose::Break | Purpose::Inspect | Purpose::Other => return,
    };
    let is_granted = granted.is(call.reply.since(mark));
    let asking = Asking::new(call.shared, call.session, call.now);
    for (place, key) in known.keys(inputs).enumerate() {
        let owner = known.lock.and_then(|lock| lock.owner(inputs, place));
        if !is_granted {
            // Of several keys the first counts.
            call.view.locks().count_refused(key);
            return asking.refused(call.view, key, owner);
        }
        if let Entry::Occupied(mut found) = call.view.entry(key)
            && found.granted().is_none()
        {
            found.grant(call.shared.keyspace.next_token(), call.session.client.id, false);
            spans::taken(call.view, key, owner);
        }
    }
    asking.has_got(call.view, known.keys(inputs));
}

/// Notes a script that extends or releases locks which its owner does not hold any more.
fn note_late(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>, (asked, mark): (Asked, usize)) {
    let Some(lock) = known.lock else { return };
    if !call.view.wants_lock_events() && !known.keys(inputs).any(|key| call.view.locks().has_lost(key)) {
        return;
    }
    let asking = Asking::new(call.shared, call.session, call.now);
    // The reply of most scripts that have found their lock.
    let has_found = call.reply.since(mark) == b":1\r\n" || call.reply.since(mark) == b"+OK\r\n";
    for (place, key) in known.keys(inputs).enumerate() {
        if !has_found && let Some(owner) = lock.owner(inputs, place) {
            asking.late(call.view, (key, Some(owner)), (asked, known.script()));
        }
    }
}
