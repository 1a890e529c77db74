//! Requests that may be much work, told before it is done: a thread that serves others is not to be held by them.
//!
//! Rule    whatever a command looks at is under its keys, and no larger than the largest value there is; where that is too
//!         little to tell, its keys are looked up.

use super::Engine;
use crate::commands::row::{Flags, Group};
use crate::commands::{self, Command, Keys};
use crate::keyspace::View;
use crate::limits::WORK_MAX;
use crate::number::integer;
use crate::resp::Request;
use crate::state::transaction::Transaction;

/// What one key is as much work as, where every key is looked at.
const KEY_WORK: u64 = 64;

impl Engine {
    /// Whether a request may be more than a thread should be held by, which has locked the shards of its keys.
    #[inline]
    pub(super) fn is_much(&self, command: &Command, request: Request<'_>, view: &mut View<'_>) -> bool {
        command.is_measured && self.is_much_as_measured(command, request, view)
    }

    fn is_much_as_measured(&self, command: &Command, request: Request<'_>, view: &mut View<'_>) -> bool {
        if looks_at_all(command) {
            let keys = view.size(view.database()).map_or(0, |(keys, _)| keys as u64);
            return keys.saturating_mul(KEY_WORK) > WORK_MAX;
        }
        if reached(command, request) > WORK_MAX {
            return true;
        }
        if command.keys == Keys::Nowhere || self.shared.keyspace.work_of(request.len()) <= WORK_MAX {
            return false;
        }
        let bytes = |at| view.value_bytes(request.word(at)) as u64;
        command.positions(request).map(bytes).fold(0, u64::saturating_add) > WORK_MAX
    }

    /// The same for all requests of a transaction, before any shard is locked.
    pub(super) fn is_much_together(&self, transaction: &Transaction) -> bool {
        let largest = self.largest_for(transaction);
        let published = transaction.publications.saturating_mul(self.shared.audience.channels.message_work());
        let work = transaction.touches.saturating_mul(largest) / TOUCHES_PER_WORD;
        transaction.is_much || work.saturating_add(published) > WORK_MAX
    }

    /// Where a transaction goes with its scripts, of which one may do more than its words tell, and with what always takes
    /// long.
    pub(super) fn place(&self, transaction: &Transaction) -> Place {
        let largest = self.largest_for(transaction);
        let (mut work, mut unknown, mut last_unknown, mut keeps_more) = (0_u64, 0, None, false);
        let steps = transaction.queued.iter().filter_map(super::transaction::step);
        for (at, (command, request)) in steps.enumerate() {
            if command.row.flags.has(Flags::OFFLOAD) {
                return Place::Elsewhere;
            }
            if !command.row.flags.has(Flags::SCRIPT) {
                continue;
            }
            match commands::work_in_transaction(&self.shared, command, request, largest) {
                Some(more) => work = work.saturating_add(more),
                // What a function's library keeps is not put back once the function is over.
                None if keeps_more || unknown == UNKNOWN_MAX => return Place::Elsewhere,
                None => {
                    unknown += 1;
                    (last_unknown, keeps_more) = (Some(at), commands::is_function(command));
                }
            }
        }
        match last_unknown {
            _ if work > WORK_MAX => Place::Elsewhere,
            Some(until) => Place::OnTrial { until },
            None => Place::Here,
        }
    }

    /// Bytes of the largest value there may be while a transaction is carried out: what one request leaves the next one may
    /// look at.
    fn largest_for(&self, transaction: &Transaction) -> u64 {
        self.shared.keyspace.largest_bytes().saturating_add(transaction.bytes as u64)
    }
}

/// Scripts that are tried out one after the other: each may take its time before it is given up.
const UNKNOWN_MAX: usize = 4;

/// Where a transaction is carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// Where it came in.
    Here,
    /// There, up to that request to see whether it is short: the last script of unknown length.
    OnTrial { until: usize },
    /// Where a thread may be held.
    Elsewhere,
}

/// Bytes that a request may have a value grow to, whatever it was and however little it brings.
fn reached(command: &Command, request: Request<'_>) -> u64 {
    let offset = || request.get(2).and_then(integer).unwrap_or(0);
    if command.row.name == "SETRANGE" { offset().unsigned_abs() } else { 0 }
}

/// Counts a request that a transaction has gathered.
pub(super) fn note(transaction: &mut Transaction, command: &Command, request: Request<'_>) {
    let touches = if command.is_measured { TOUCHES_PER_WORD } else { 1 };
    let words = request.len() as u64;
    transaction.touches = transaction.touches.saturating_add(words.saturating_mul(touches));
    let is_much =
        looks_at_all(command) || command.row.flags.has(Flags::SUMS) || reached(command, request) > WORK_MAX;
    transaction.is_much |= is_much;
    transaction.publications += u64::from(command.row.group == Group::PubSub);
}

/// How much longer it takes to go through a value, for each of its bytes, than to copy it.
const TOUCHES_PER_WORD: u64 = 16;

/// Whether a command looks at every key there is.
fn looks_at_all(command: &Command) -> bool {
    command.row.flags.has(Flags::ALL_SHARDS) && command.row.group != Group::Scripting
}
