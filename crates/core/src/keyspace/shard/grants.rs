//! Grants: which entries are locks, and who holds them.
//!
//! Owns    the grant of each entry, and how many entries have one.
//! Rule    a grant lives as long as its entry and its value. A new deadline is a renewal; another value ends the grant.

use std::collections::BTreeMap;

use bytes::Bytes;
use redlatch_proto::clock::{Deadline, LockTime};

use super::{EntryId, Shard};
use crate::keyspace::locks::life;
use crate::locks::EndReason;
use crate::locks::counts::{GroupCounts, KINDS, LockCounts, LockGroups, RecentEnds, Waited};
use crate::locks::foreign::kind_of;
use crate::locks::history::{History, PastLock};
use crate::locks::record::{self, Grant, GrantDetails, Latest, LockKindIndex, Packed};
use crate::state::clients::ClientId;
use crate::types::Object;
use crate::types::lock::LockKind;

/// What a shard keeps about all of its grants.
#[derive(Debug, Default)]
pub(super) struct Granted {
    latest: Latest,
    /// Their `held` counts the entries with a grant; values of the type lock are counted with the objects.
    counts: LockCounts,
    /// Some counters by the prefix of the key, if the keyspace groups locks.
    groups: Option<LockGroups>,
    recent_ends: RecentEnds,
    /// How many entries were granted by a LOCK command.
    native: usize,
    /// By table and key. Few grants have details.
    details: BTreeMap<(u16, Bytes), GrantDetails>,
    /// Bytes of the details, with their keys.
    pub(super) details_bytes: usize,
}

impl Granted {
    /// Every entry of the shard is gone.
    pub(super) fn clear(&mut self) {
        (self.counts.held, self.native) = ([0; KINDS], 0);
        if let Some(groups) = &mut self.groups {
            groups.clear_held();
        }
        self.details.clear();
        self.details_bytes = 0;
    }

    /// A key that is a value of the type lock comes, or goes.
    pub(super) fn count_lock_value(&mut self, key: &[u8], comes: bool) {
        if let Some(groups) = &mut self.groups {
            let held = &mut groups.of(key).held;
            *held = if comes { *held + 1 } else { *held - 1 };
        }
    }

    /// Counts the end of a grant that has lasted for so long.
    #[inline]
    fn count_end(&mut self, held_ms: u64, reason: EndReason) {
        self.counts.hold.add(held_ms);
        self.counts.deleted_by_others += u64::from(reason == EndReason::Deleted);
    }

    fn remove_details(&mut self, place: &(u16, Bytes)) {
        if let Some(details) = self.details.remove(place) {
            self.details_bytes -= details.bytes(&place.1);
        }
    }

    /// Panics unless so many entries are locks, and so many of these native.
    pub(super) fn assert_laws(&self, held: usize, native: usize) {
        assert_eq!(held, self.counts.all_held(), "entries with a grant");
        assert_eq!(native, self.native, "entries that LOCK commands have granted");
        let bytes = self.details.iter().map(|((_, key), details)| details.bytes(key)).sum::<usize>();
        assert_eq!(bytes, self.details_bytes, "bytes of details");
        assert!(self.details.len() <= native, "details belong to native grants");
    }
}

impl Shard {
    /// Makes an entry a lock that is granted now, with the lease that its deadline says.
    #[inline]
    pub(crate) fn grant(&mut self, id: EntryId, token: u64, holder: ClientId, is_native: bool) {
        let lease_ms = record::lease_ms(self.deadline(id), self.time);
        let grant = Grant { token, holder, since: self.time, lease_ms, renewals: 0, is_native };
        let kind = self.restore_grant(id, &grant);
        self.granted.counts.acquired[usize::from(kind)] += 1;
        if self.granted.groups.is_some() {
            self.count_in_group(id, |counts| counts.acquired += 1);
        }
    }

    /// Counts in the group that the key of an entry belongs to.
    #[cold]
    fn count_in_group(&mut self, id: EntryId, count: impl FnOnce(&mut GroupCounts)) {
        if let Some(groups) = &mut self.granted.groups {
            count(groups.of(self.arena.key(id.0)));
        }
    }

    /// Makes an entry a lock with this grant, which is no new one. Returns its kind.
    #[inline]
    pub(crate) fn restore_grant(&mut self, id: EntryId, grant: &Grant) -> LockKindIndex {
        let Grant { token, holder, is_native, .. } = *grant;
        if self.arena.is_granted(id.0) {
            self.uncount_grant(id);
        }
        let kind = self.object(id).map_or(LockKind::Exclusive, kind_of).into();
        self.granted.counts.held[usize::from(kind)] += 1;
        self.granted.native += usize::from(is_native);
        self.granted.latest.note(token, holder);
        self.arena.set_grant(id.0, Packed::of(grant, kind), is_native);
        if self.granted.groups.is_some() {
            self.count_in_group(id, |counts| counts.held += 1);
        }
        kind
    }

    /// The grant of an entry belongs to another connection of its owner from now on.
    pub(crate) fn set_holder(&mut self, id: EntryId, holder: ClientId) {
        if let Some((packed, is_native)) = self.arena.grant(id.0) {
            let kind = packed.kind();
            let grant = Grant { holder, ..packed.widened(self.granted.latest, self.time, true) };
            self.granted.native += usize::from(!is_native);
            self.granted.latest.note(grant.token, holder);
            self.arena.set_grant(id.0, Packed::of(&grant, kind), true);
        }
    }

    /// An entry is no lock any more.
    pub(crate) fn clear_grant(&mut self, id: EntryId) {
        self.uncount_grant(id);
        self.arena.clear_grant(id.0);
    }

    /// Whether an entry is a lock.
    #[inline]
    pub(crate) fn is_granted(&self, id: EntryId) -> bool {
        self.arena.is_granted(id.0)
    }

    /// Whether an entry is a lock, or a value of the type lock.
    #[inline]
    pub(crate) fn is_lock(&self, id: EntryId) -> bool {
        self.is_granted(id) || matches!(self.object(id), Some(Object::Lock(_)))
    }

    /// The grant of an entry, if the entry is a lock.
    pub(crate) fn granted(&self, id: EntryId) -> Option<Grant> {
        let (packed, is_native) = self.arena.grant(id.0)?;
        Some(packed.widened(self.granted.latest, self.time, is_native))
    }

    /// Whether an entry is a lock that was granted by a LOCK command.
    #[inline]
    pub(crate) fn is_native(&self, id: EntryId) -> bool {
        self.granted.native > 0 && self.arena.grant(id.0).is_some_and(|(_, is_native)| is_native)
    }

    /// The entries of a database that are locks.
    pub(crate) fn locks_in(&self, db: u16) -> Vec<EntryId> {
        if self.granted.counts.all_held() == 0 && self.counted.has_no_locks() {
            return Vec::new();
        }
        self.keys(db).table.ids().map(EntryId).filter(|id| self.is_lock(*id)).collect()
    }

    /// Sets what is known of a grant beside its record. It goes with the grant.
    pub(crate) fn set_grant_details(&mut self, id: EntryId, details: GrantDetails) {
        let is_nothing = details == GrantDetails::default();
        if is_nothing && self.granted.details.is_empty() {
            return;
        }
        let place = (self.arena.table(id.0), Bytes::copy_from_slice(self.key(id)));
        self.granted.remove_details(&place);
        if !is_nothing {
            self.granted.details_bytes += details.bytes(&place.1);
            self.granted.details.insert(place, details);
        }
    }

    /// What is known of a grant beside its record.
    pub(crate) fn grant_details(&self, id: EntryId) -> Option<&GrantDetails> {
        if self.granted.details.is_empty() {
            return None;
        }
        self.granted.details.get(&(self.arena.table(id.0), Bytes::copy_from_slice(self.key(id))))
    }

    /// The entries whose grants belong to sessions, each with the number of its session and the milliseconds that it outlives
    /// the connection of the session. `hash` is the hash that keys are stored with.
    pub(crate) fn session_grants(&self, hash: impl Fn(&[u8]) -> u64) -> Vec<(EntryId, u64, u64)> {
        let of_sessions = self.granted.details.iter().filter_map(|((table, key), details)| {
            let (session, delay_ms) = details.session?;
            let table = &self.tables[usize::from(*table)].table;
            let id = table.find(hash(key) as u32, |id| self.arena.key(id) == key)?;
            Some((EntryId(id), session, delay_ms))
        });
        of_sessions.collect()
    }

    /// The entries whose values are locks, in all databases.
    pub(crate) fn lock_ids(&self) -> Vec<EntryId> {
        if self.counted.has_no_locks() {
            return Vec::new();
        }
        let ids = self.tables.iter().flat_map(|keys| keys.table.ids()).map(EntryId);
        ids.filter(|id| matches!(self.object(*id), Some(Object::Lock(_)))).collect()
    }

    /// Counts that the grant of an entry ends now, by a call of that client. `place` is the hash of its key and database.
    /// Returns the reason that is told.
    #[inline]
    pub(crate) fn count_end(
        &mut self,
        id: EntryId,
        place: u64,
        reason: EndReason,
        author: ClientId,
    ) -> EndReason {
        let Some((packed, is_native)) = self.arena.grant(id.0) else { return reason };
        let is_of_session = reason == EndReason::Expired && is_native && self.is_of_session(id);
        let told = life::told_reason(reason, packed.is_of(author), is_of_session);
        let ended = self.end_time(id, reason);
        self.granted.count_end(packed.held_ms(ended), told);
        self.granted.recent_ends.note(place, ended);
        if told == EndReason::Expired {
            self.count_expired(id);
        }
        told
    }

    /// Counts the end of a holder of the value of an entry, which is of the type lock.
    pub(crate) fn count_holder_end(&mut self, id: EntryId, place: u64, past: &PastLock) {
        self.granted.count_end(past.ended.millis_since(past.since), past.reason);
        self.granted.recent_ends.note(place, past.ended);
        if past.reason == EndReason::Expired {
            self.count_expired(id);
        }
    }

    /// Whether the history keeps a lock that has ended for this reason.
    #[inline]
    pub(crate) fn keeps_end(&self, reason: EndReason) -> bool {
        (reason != EndReason::Released || self.history.keeps_releases()) && self.history.is_on()
    }

    /// When a lock that ends now for this reason has ended: the lease ends at the deadline, even if somebody looks later.
    #[inline]
    pub(crate) fn end_time(&self, id: EntryId, reason: EndReason) -> LockTime {
        let deadline = if reason == EndReason::Expired { self.deadline(id) } else { None };
        deadline.map_or(self.time, Deadline::time)
    }

    /// Whether the lock of an entry belongs to a session.
    pub(crate) fn is_of_session(&self, id: EntryId) -> bool {
        self.grant_details(id).is_some_and(|details| details.session.is_some())
    }

    /// Whether anything is known of any grant beside its record.
    #[inline]
    pub(crate) fn has_grant_details(&self) -> bool {
        !self.granted.details.is_empty()
    }

    /// The kind of the lock that an entry is.
    pub(crate) fn lock_kind(&self, id: EntryId) -> LockKind {
        self.object(id).map_or(LockKind::Exclusive, kind_of)
    }

    /// Keeps that many ends of locks.
    pub(crate) fn keep_history(&mut self, len: usize) {
        self.history.set_len_max(len);
    }

    /// Whether the history has a lock that was lost.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.history.has_lost()
    }

    /// How locks of this shard have ended.
    pub(crate) fn history(&mut self) -> &mut History {
        &mut self.history
    }

    /// The counters of locks.
    pub(crate) fn lock_counts(&self) -> LockCounts {
        let mut counts = self.granted.counts;
        counts.held.iter_mut().zip(self.lock_values()).for_each(|(sum, more)| *sum += more);
        counts
    }

    /// Counts locks by these groups from now on. Those that a journal has restored count as held.
    pub(crate) fn group_locks(&mut self, mut groups: LockGroups) {
        for id in self.tables.iter().flat_map(|keys| keys.table.ids()).map(EntryId) {
            if self.is_lock(id) {
                groups.of(self.key(id)).held += 1;
            }
        }
        self.granted.groups = Some(groups);
    }

    /// The counters of locks by groups, if locks are grouped.
    pub(crate) fn lock_groups(&self) -> Option<&LockGroups> {
        self.granted.groups.as_ref()
    }

    /// Counts a request for the lock of a key that was held.
    #[inline]
    pub(crate) fn count_refused(&mut self, key: &[u8]) {
        self.granted.counts.refused += 1;
        if let Some(groups) = &mut self.granted.groups {
            groups.of(key).refused += 1;
        }
    }

    /// Counts a new holder of the value of an entry, which is of the type lock.
    pub(crate) fn count_acquired(&mut self, id: EntryId, kind: LockKind) {
        self.granted.counts.acquired[kind.index()] += 1;
        if self.granted.groups.is_some() {
            self.count_in_group(id, |counts| counts.acquired += 1);
        }
    }

    /// Counts a lock, or a holder of one, whose lease has ended.
    #[inline]
    fn count_expired(&mut self, id: EntryId) {
        self.granted.counts.expired += 1;
        if self.granted.groups.is_some() {
            self.count_in_group(id, |counts| counts.expired += 1);
        }
    }

    /// Counts how long a request has waited for a lock, and how that has ended.
    pub(crate) fn count_wait(&mut self, waited_ms: u64, waited: Waited) {
        self.granted.counts.waits[waited as usize].add(waited_ms);
    }

    /// Counts how long the lock at `place` was free before it was granted now, if that is known.
    #[cold]
    pub(crate) fn count_handover(&mut self, place: u64) {
        if let Some(ended) = self.granted.recent_ends.take(place) {
            self.granted.counts.handover.add(self.time.millis_since(ended));
        }
    }

    /// Resets the counters of what has happened.
    pub(crate) fn reset_lock_counts(&mut self) {
        self.granted.counts = LockCounts { held: self.granted.counts.held, ..LockCounts::default() };
        if let Some(groups) = &mut self.granted.groups {
            groups.reset();
        }
    }

    /// An entry with a grant has got a new deadline. The deadline of a lock of a session is no lease.
    #[inline]
    pub(super) fn renew_grant(&mut self, id: EntryId, deadline: Option<Deadline>) {
        if self.has_grant_details() && self.is_of_session(id) {
            return;
        }
        if let Some(packed) = self.arena.grant_mut(id.0) {
            packed.renew(record::lease_ms(deadline, self.time));
        }
    }

    /// Counts one grant less if the entry has one: the entry or its grant goes.
    #[inline]
    pub(super) fn uncount_grant(&mut self, id: EntryId) {
        let Some((packed, is_native)) = self.arena.grant(id.0) else { return };
        self.granted.counts.held[usize::from(packed.kind())] -= 1;
        if self.granted.groups.is_some() {
            self.count_in_group(id, |counts| counts.held -= 1);
        }
        if is_native {
            self.granted.native -= 1;
            if !self.granted.details.is_empty() {
                let place = (self.arena.table(id.0), Bytes::copy_from_slice(self.key(id)));
                self.granted.remove_details(&place);
            }
        }
    }
}
