//! What a known script of a lock client has done to locks.
//!
//! Owns    the grants of locks that are no strings set by SET NX: hashes, sorted sets, strings set after a check; and the
//!         refusals of those who ask for them.
//! Rule    a script that is not known costs one branch, and so does a known one that acquires nothing.

use crate::commands::Call;
use crate::commands::lock::lint::{Asked, Linter};
use crate::commands::lock::{spans, watch};
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
    if !is_granted {
        note_refused(call, known, inputs);
    }
    let linter = Linter::new(call.shared, &call.session.client, call.now);
    for (place, key) in known.keys(inputs).enumerate() {
        let owner = known.lock.and_then(|lock| lock.owner(inputs, place));
        if is_granted
            && let Entry::Occupied(mut found) = call.view.entry(key)
            && found.granted().is_none()
        {
            found.grant(call.shared.keyspace.next_token(), call.session.client.id, false);
            found.count_polled(&call.session.client.polling);
            spans::taken(call.view, key, owner);
        }
        if linter.is_on()
            && let Some(owner) = owner
        {
            match is_granted {
                true => linter.taken(call.view, key, owner),
                false => linter.refused(call.view, key, owner),
            }
        }
    }
    if is_granted
        && call.session.client.polling.end()
        && let Some(key) = known.keys(inputs).next()
    {
        watch::report_polled(call, key);
    }
}

/// Notes that the client polls a lock. Of several keys the first counts.
fn note_refused(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>) {
    let Some(key) = known.keys(inputs).next() else { return };
    call.view.count_refused(key);
    let (hash, long_ms) = (call.view.key_hash(key), call.shared.settings.lock_wait_warn_ms());
    if call.session.client.polling.note(hash, call.now.lock, long_ms) {
        let owner = known.lock.and_then(|lock| lock.owner(inputs, 0));
        watch::report_polling(call, key, owner);
    }
}

/// Notes a script that extends or releases locks which its owner does not hold any more.
fn note_late(call: &mut Call<'_, '_>, known: &Known, inputs: Inputs<'_>, (asked, mark): (Asked, usize)) {
    let Some(lock) = known.lock else { return };
    let linter = Linter::new(call.shared, &call.session.client, call.now);
    if !linter.is_on() && !known.keys(inputs).any(|key| call.view.has_lost(key)) {
        return;
    }
    // The reply of most scripts that have found their lock.
    let has_found = call.reply.since(mark) == b":1\r\n" || call.reply.since(mark) == b"+OK\r\n";
    for (place, key) in known.keys(inputs).enumerate() {
        if linter.is_on() && asked == Asked::Release {
            linter.releases(key);
        }
        if !has_found && let Some(owner) = lock.owner(inputs, place) {
            linter.late(call.view, (key, Some(owner)), (asked, known.script()));
        }
    }
}
