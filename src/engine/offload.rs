//! Which requests run on the script thread, so that no worker is held by them.
//!
//! Rule    a command whose values are large runs there, and so does EXEC that holds one, that is large itself, or that holds
//!         a script which is interpreted. A value is large above [`LARGE_BYTES`].

use super::Engine;
use crate::commands::row::{Flags, Group};
use crate::commands::{self, Command, Keys, has_many_patterns};
use crate::keyspace::View;
use crate::limits::{ITEM_BYTES, LARGE_BYTES};
use crate::number::integer;
use crate::resp::Request;
use crate::state::transaction::Transaction;

impl Engine {
    /// Whether a request goes through large values. The view has locked the shards of its keys.
    #[inline]
    pub(super) fn is_large(&self, command: &Command, request: Request<'_>, view: &mut View<'_>) -> bool {
        command.is_measured && self.scans_large_values(command, request, view)
    }

    fn scans_large_values(&self, command: &Command, request: Request<'_>, view: &mut View<'_>) -> bool {
        if command.row.flags.has(Flags::ALL_SHARDS) && command.row.group != Group::Scripting {
            let keys = view.size(view.database()).map_or(0, |(keys, _)| keys as u64);
            return keys.saturating_mul(ITEM_BYTES) > LARGE_BYTES;
        }
        if padded(command, request) > LARGE_BYTES {
            return true;
        }
        // While all values are small, nothing has to be looked up.
        if command.keys == Keys::Nowhere || self.shared.keyspace.work_of(request.len()) <= LARGE_BYTES {
            return false;
        }
        let bytes = |at| view.value_bytes(request.word(at)) as u64;
        command.positions(request).map(bytes).fold(0, u64::saturating_add) > LARGE_BYTES
    }

    /// Whether EXEC runs on the script thread for what it holds, whatever is under its keys.
    pub(super) fn is_offloaded(&self, transaction: &Transaction) -> bool {
        let shared = &*self.shared;
        let is_offloaded = |(command, request): (&'static Command, Request<'_>)| {
            let flags = command.row.flags;
            flags.has(Flags::OFFLOAD)
                || (flags.has(Flags::SCRIPT) && !commands::runs_natively(shared, command, request))
                || (command.row.group == Group::PubSub && has_many_patterns(shared))
        };
        transaction.bytes as u64 > LARGE_BYTES
            || transaction.queued.iter().filter_map(super::transaction::step).any(is_offloaded)
    }
}

/// Bytes that a request fills with zeros, however little it brings.
fn padded(command: &Command, request: Request<'_>) -> u64 {
    let offset = || request.get(2).and_then(integer).unwrap_or(0);
    if command.row.name == "SETRANGE" { offset().unsigned_abs() } else { 0 }
}
