//! Which requests run on the script thread, so that they do not occupy a worker.
//!
//! Rule    a command on large values runs there. EXEC runs there if it is large itself, or if a request inside it is
//!         an interpreted script or a command on large values. A value is large above [`LARGE_BYTES`].

use redlatch_proto::limits::{ITEM_BYTES, LARGE_BYTES};
use redlatch_proto::number::integer;
use redlatch_proto::resp::Request;

use super::Engine;
use super::transaction::Step;
use crate::commands::row::{Flags, Group};
use crate::commands::{self, Command, Keys, has_many_patterns};
use crate::keyspace::View;
use crate::state::transaction::Transaction;

impl Engine {
    /// Whether a request scans large values. The view has locked the shards of its keys.
    #[inline]
    pub(super) fn is_large(&self, command: &Command, request: Request<'_>, view: &mut View<'_>) -> bool {
        command.is_measured && self.may_be_large(command, request) && is_found_large(command, request, view)
    }

    /// Whether a command may scan large values. No key is looked up while all values are small.
    fn may_be_large(&self, command: &Command, request: Request<'_>) -> bool {
        let has_keys = command.keys != Keys::Nowhere;
        visits_all_keys(command)
            || padded(command, request) > LARGE_BYTES
            || (has_keys && self.shared.keyspace.bytes_of_keys_max(request.len()) > LARGE_BYTES)
    }

    /// Whether EXEC runs on the script thread. Decided before its shards are locked, without a look at the keys: a
    /// request may scan a value that an earlier request of the transaction stores.
    pub(super) fn is_offloaded(&self, transaction: &Transaction, steps: &[Step<'_>]) -> bool {
        let shared = &*self.shared;
        let is_offloaded = |(command, request): &Step<'_>| {
            let flags = command.row.flags;
            flags.has(Flags::OFFLOAD)
                || command.name == "script|load"
                || (flags.has(Flags::SCRIPT) && !commands::runs_natively(shared, command, *request))
                || (command.row.group == Group::PubSub && has_many_patterns(shared))
                || (command.is_measured && self.may_be_large(command, *request))
        };
        transaction.bytes as u64 > LARGE_BYTES || steps.iter().any(is_offloaded)
    }
}

/// Whether the values that a request scans are large.
fn is_found_large(command: &Command, request: Request<'_>, view: &mut View<'_>) -> bool {
    if visits_all_keys(command) {
        let database = view.database();
        let keys = view.whole().size(database).map_or(0, |(keys, _)| keys as u64);
        return keys.saturating_mul(ITEM_BYTES) > LARGE_BYTES;
    }
    let bytes = |at| view.value_bytes(request.word(at)) as u64;
    padded(command, request) > LARGE_BYTES
        || command.positions(request).map(bytes).fold(0, u64::saturating_add) > LARGE_BYTES
}

/// Whether a command visits every key.
fn visits_all_keys(command: &Command) -> bool {
    command.row.flags.has(Flags::ALL_SHARDS) && command.row.group != Group::Scripting
}

/// Bytes that a request fills with zeros. They do not depend on the length of the request.
fn padded(command: &Command, request: Request<'_>) -> u64 {
    let offset = || request.get(2).and_then(integer).unwrap_or(0);
    if command.row.name == "SETRANGE" { offset().unsigned_abs() } else { 0 }
}
