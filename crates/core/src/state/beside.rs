//! The server whose locks this one shows, without serving locks of its own: `redlatch beside`.
//!
//! Owns    [`Beside`]: where that server is, what reading it has cost, and how what is shown is known. The reader of that
//!         server keeps it up to date.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use redlatch_proto::clock::{Deadline, LockTime};
use redlatch_proto::error::Refusal;

/// A server whose locks are shown here.
#[derive(Debug, Default)]
pub struct Beside {
    /// Its host and port.
    pub address: String,
    /// Requests that it was sent.
    pub requests: AtomicU64,
    /// Whether it says which keys change.
    pub is_tracking: AtomicBool,
    /// Keys of which it said that they have changed.
    pub changes: AtomicU64,
    /// How often all of its keys were looked at.
    pub rounds: AtomicU64,
    /// Keys that the last of these rounds has seen.
    pub keys: AtomicU64,
    /// Locks that the last of these rounds has found beyond those that are shown.
    pub left_out: AtomicU64,
    /// Milliseconds that the last of these rounds has taken.
    pub round_ms: AtomicU64,
    /// How often it could not be read for a while, or changes were missed.
    pub gaps: AtomicU64,
    /// Whether it cannot be read, or not all of it was read since.
    pub is_in_gap: AtomicBool,
    /// The keys of locks that were read earlier, and could not be read again or have changed since.
    unread: Mutex<BTreeSet<Vec<u8>>>,
}

impl Beside {
    /// A server at this address, which was not read yet.
    pub fn new(address: String) -> Self {
        Self { address, is_in_gap: AtomicBool::new(true), ..Self::default() }
    }

    /// Notes whether the lock of a key could not be read again, or has changed since.
    pub fn set_unread(&self, key: &[u8], is_unread: bool) {
        let mut unread = self.unread.lock();
        match is_unread {
            true => drop(unread.insert(key.to_vec())),
            false => drop(unread.remove(key)),
        }
    }

    /// How it is known that the lock of a key, with this deadline, is held: `read`, or `inferred` from an earlier reading.
    pub(crate) fn known(&self, key: &[u8], deadline: Option<Deadline>, now: LockTime) -> &'static str {
        let is_over = deadline.is_some_and(|deadline| deadline.has_passed(now));
        let is_unread = || self.unread.lock().contains(key);
        if is_over || self.is_in_gap.load(Relaxed) || is_unread() { INFERRED } else { "read" }
    }

    /// The refusal of a command that would change a lock, or rely on a token.
    pub(crate) fn refusal(&self, command: &str) -> Refusal {
        let address = &self.address;
        Refusal::said(format!("READONLY {command} is refused: this server only shows the locks of {address}"))
    }

    /// The lines of INFO.
    pub(crate) fn fields(&self) -> [(&'static str, String); 10] {
        let number = |counter: &AtomicU64| counter.load(Relaxed).to_string();
        let by = if self.is_tracking.load(Relaxed) { "tracking" } else { "reading" };
        [
            ("beside_server", self.address.clone()),
            ("beside_by", by.to_owned()),
            ("beside_in_gap", u8::from(self.is_in_gap.load(Relaxed)).to_string()),
            ("beside_gaps", number(&self.gaps)),
            ("beside_requests", number(&self.requests)),
            ("beside_changes", number(&self.changes)),
            ("beside_rounds", number(&self.rounds)),
            ("beside_keys", number(&self.keys)),
            ("beside_left_out", number(&self.left_out)),
            ("beside_round_ms", number(&self.round_ms)),
        ]
    }
}

/// How it is known that a lock has ended: between two readings.
pub(crate) const INFERRED: &str = "inferred";
