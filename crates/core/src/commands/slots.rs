//! Cluster mode: the keys of a request, and of all requests of a transaction, are in one slot.
//!
//! Rule    this server has all slots, so a command with one key is never hashed.
//! Source  Redis 7.0 `cluster.c`, `getNodeByQuery`.

use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Request;

use crate::commands::Command;
use crate::types::slot::slot;

impl Command {
    /// The slot of the keys or shard channels of a request; `None` if it has none.
    ///
    /// # Errors
    /// [`Refusal::CrossSlot`] if they are in several.
    pub(crate) fn slot(&self, request: Request<'_>) -> Result<Option<u16>, Refusal> {
        let positions = self.routed_by.positions_among(request.len(), |at| request.get(at));
        common(positions.map(|at| Ok(Some(slot(request.word(at))))))
    }
}

/// The slot of all these requests; `None` if they have no keys.
///
/// # Errors
/// [`Refusal::CrossSlot`] if their keys are in several.
pub(crate) fn common_slot<'a>(
    requests: impl Iterator<Item = (&'static Command, Request<'a>)>,
) -> Result<Option<u16>, Refusal> {
    common(requests.map(|(command, request)| command.slot(request)))
}

fn common(slots: impl Iterator<Item = Result<Option<u16>, Refusal>>) -> Result<Option<u16>, Refusal> {
    let mut found = None;
    for slot in slots {
        if let Some(slot) = slot?
            && *found.get_or_insert(slot) != slot
        {
            return Err(Refusal::CrossSlot);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{EXEC, Keys, table};

    /// A request whose first keys `a` and `b` are in two slots.
    fn crossing(command: &Command) -> Vec<&[u8]> {
        let words = usize::try_from(command.arity).unwrap_or(8);
        let mut request = vec![&b"1"[..]; words];
        if let Keys::Counted { count, .. } = command.routed_by {
            request[count] = b"2";
        }
        let positions = command.routed_by.positions_among(words, |at| request.get(at).copied());
        for (at, key) in positions.zip([b"a", b"b"]) {
            request[at] = key;
        }
        request
    }

    #[test]
    fn keys_in_several_slots_are_found_in_every_command_that_can_have_several() {
        let mut count = 0;
        for command in table().all().filter(|command| command.may_cross && command.row.name != EXEC) {
            let words = crossing(command);
            let refused = Err(Refusal::CrossSlot);
            assert_eq!(command.slot(Request::listed(&words)), refused, "{}", command.name);
            count += 1;
        }
        assert!(count > 30, "the table has {count} of them");
    }

    #[test]
    fn requests_without_keys_have_no_slot_and_fit_any_other() {
        let step = |words: &'static [&'static [u8]]| {
            let command = table().find(words[0]).unwrap();
            (command, Request::listed(words))
        };
        let (ping, first) = (step(&[b"PING"]), step(&[b"GET", b"a"]));
        let (same, other) = (step(&[b"SPUBLISH", b"{a}b", b"x"]), step(&[b"PUBLISH", b"b", b"x"]));
        assert_eq!(common_slot([ping, other].into_iter()), Ok(None));
        assert_eq!(common_slot([ping, first, same, other].into_iter()), Ok(Some(15_495)));
        assert_eq!(common_slot([first, step(&[b"GET", b"b"])].into_iter()), Err(Refusal::CrossSlot));
    }
}
