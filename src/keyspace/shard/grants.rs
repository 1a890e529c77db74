//! Grants: which entries are locks, and who holds them.
//!
//! Owns    the grant of each entry, and how many entries have one.
//! Rule    a grant lives as long as its entry and its value. A new deadline is a renewal; another value ends the grant.

use super::{EntryId, Shard};
use crate::clock::Deadline;
use crate::keyspace::grant::{self, Grant, Latest, Packed};
use crate::state::clients::ClientId;
use crate::types::Object;

/// What a shard keeps about all of its grants.
#[derive(Debug, Default)]
pub(super) struct Granted {
    latest: Latest,
    counts: LockCounts,
}

/// How many locks there are, and what has become of others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LockCounts {
    /// Keys that are locks, including expired ones that were not yet removed.
    pub held: usize,
    /// Locks, and holders of locks, removed because their lease had ended.
    pub expired: u64,
    /// Requests for a lock that was held.
    pub refused: u64,
}

impl LockCounts {
    /// The sum of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            held: self.held + other.held,
            expired: self.expired + other.expired,
            refused: self.refused + other.refused,
        }
    }
}

impl Granted {
    /// Every entry has been removed.
    pub(super) fn forget_all(&mut self) {
        self.counts.held = 0;
    }

    /// Panics unless so many entries are locks.
    pub(super) fn assert_laws(&self, held: usize) {
        assert_eq!(held, self.counts.held, "entries with a grant");
    }
}

impl Shard {
    /// Makes an entry a lock that is granted now, with the lease that its deadline says.
    #[inline]
    pub fn grant(&mut self, id: EntryId, token: u64, holder: ClientId, is_native: bool) {
        let lease_ms = grant::lease_ms(self.deadline(id), self.time);
        let grant = Grant { token, holder, since: self.time, lease_ms, renewals: 0, is_native };
        self.granted.counts.held += usize::from(!self.arena.is_granted(id.0));
        self.granted.latest.note(token, holder);
        self.arena.set_grant(id.0, Packed::of(&grant), is_native);
    }

    /// An entry is no lock any more.
    pub fn clear_grant(&mut self, id: EntryId) {
        self.uncount_grant(id);
        self.arena.clear_grant(id.0);
    }

    /// Clears the grant of an entry, if it has one and `is_kept` does not hold.
    #[inline]
    pub fn keep_grant_if(&mut self, id: EntryId, is_kept: impl FnOnce(&Self) -> bool) {
        if self.arena.is_granted(id.0) && !is_kept(self) {
            self.clear_grant(id);
        }
    }

    /// The grant of an entry, if the entry is a lock.
    pub fn granted(&self, id: EntryId) -> Option<Grant> {
        let (packed, is_native) = self.arena.grant(id.0)?;
        Some(packed.widened(self.granted.latest, self.time, is_native))
    }

    /// The counters of locks.
    pub fn lock_counts(&self) -> LockCounts {
        let counts = self.granted.counts;
        LockCounts { held: counts.held + self.counted.locks, ..counts }
    }

    /// Counts a request for a lock that was held.
    #[inline]
    pub fn count_refused(&mut self) {
        self.granted.counts.refused += 1;
    }

    /// Counts locks, or holders of locks, whose lease has ended.
    pub fn count_expired(&mut self, count: u64) {
        self.granted.counts.expired += count;
    }

    /// Resets the counters of what has happened.
    pub fn reset_lock_counts(&mut self) {
        self.granted.counts = LockCounts { held: self.granted.counts.held, ..LockCounts::default() };
    }

    /// Whether an entry is a lock, by a grant or by its type.
    pub fn is_lock(&self, id: EntryId) -> bool {
        self.arena.is_granted(id.0) || matches!(self.object(id), Some(Object::Lock(_)))
    }

    /// An entry with a grant has got a new deadline.
    #[inline]
    pub(super) fn renew_grant(&mut self, id: EntryId, deadline: Option<Deadline>) {
        if let Some(packed) = self.arena.grant_mut(id.0) {
            packed.renew(grant::lease_ms(deadline, self.time));
        }
    }

    /// Counts one grant less if the entry has one: the entry or its grant goes.
    #[inline]
    pub(super) fn uncount_grant(&mut self, id: EntryId) {
        self.granted.counts.held -= usize::from(self.arena.is_granted(id.0));
    }
}
