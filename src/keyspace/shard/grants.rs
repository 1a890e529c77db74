//! Grants: which entries are locks, and who holds them.
//!
//! Owns    the grant of each entry, and how many entries have one.
//! Rule    a grant lives as long as its entry and its value. A new deadline is a renewal; another value ends the grant.

use super::{EntryId, Shard};
use crate::clock::Deadline;
use crate::keyspace::grant::{self, Grant, Latest, Packed};
use crate::state::clients::ClientId;

/// What a shard keeps about all of its grants.
#[derive(Debug, Default)]
pub(super) struct Granted {
    /// Entries with a grant, including expired ones that were not yet removed.
    pub(super) held: usize,
    latest: Latest,
}

impl Shard {
    /// Makes an entry a lock that is granted now, with the lease that its deadline says.
    #[inline]
    pub fn grant(&mut self, id: EntryId, token: u64, holder: ClientId, is_native: bool) {
        let lease_ms = grant::lease_ms(self.deadline(id), self.time);
        let grant = Grant { token, holder, since: self.time, lease_ms, renewals: 0, is_native };
        self.granted.held += usize::from(!self.arena.is_granted(id.0));
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

    /// How many entries are locks, including expired ones that were not yet removed.
    pub fn locks(&self) -> usize {
        self.granted.held
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
        self.granted.held -= usize::from(self.arena.is_granted(id.0));
    }
}
