//! Grants: which entries are locks, and who holds them.
//!
//! Owns    the grant of each entry, and how many entries have one.
//! Rule    a grant lives as long as its entry and its value. A new deadline is a renewal; another value ends the grant.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::lock_counts::{GroupCounts, KINDS, LockCounts, LockGroups, RecentEnds, Waited};
use super::{EntryId, Shard};
use crate::clock::{Deadline, LockTime};
use crate::keyspace::grant::{self, Grant, Latest, LockKindIndex, Packed};
use crate::keyspace::history::{History, PastLock};
use crate::number;
use crate::state::clients::ClientId;
use crate::state::ended_lock::EndReason;
use crate::types::lock::{LockKind, words_bytes};
use crate::types::{Lock, Object, heap};

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

/// What is known of a grant beside its record.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GrantDetails {
    /// The session that it belongs to, and the milliseconds that it outlives the connection of that session.
    pub session: Option<(u64, u64)>,
    /// What the owner says about itself, as fields and values in turn.
    pub meta: Box<[Bytes]>,
}

impl GrantDetails {
    /// Bytes of memory, with the key.
    fn bytes(&self, key: &[u8]) -> usize {
        heap::in_tree::<((u16, Bytes), Self)>() + key.len() + words_bytes(&self.meta)
    }
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
    pub fn grant(&mut self, id: EntryId, token: u64, holder: ClientId, is_native: bool) {
        let lease_ms = grant::lease_ms(self.deadline(id), self.time);
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
    pub(in crate::keyspace) fn restore_grant(&mut self, id: EntryId, grant: &Grant) -> LockKindIndex {
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
    pub fn set_holder(&mut self, id: EntryId, holder: ClientId) {
        if let Some((packed, is_native)) = self.arena.grant(id.0) {
            let kind = packed.kind();
            let grant = Grant { holder, ..packed.widened(self.granted.latest, self.time, true) };
            self.granted.native += usize::from(!is_native);
            self.granted.latest.note(grant.token, holder);
            self.arena.set_grant(id.0, Packed::of(&grant, kind), true);
        }
    }

    /// An entry is no lock any more.
    pub fn clear_grant(&mut self, id: EntryId) {
        self.uncount_grant(id);
        self.arena.clear_grant(id.0);
    }

    /// Whether an entry is a lock.
    #[inline]
    pub fn is_granted(&self, id: EntryId) -> bool {
        self.arena.is_granted(id.0)
    }

    /// Whether an entry is a lock, or a value of the type lock.
    #[inline]
    pub fn is_lock(&self, id: EntryId) -> bool {
        self.is_granted(id) || matches!(self.object(id), Some(Object::Lock(_)))
    }

    /// The grant of an entry, if the entry is a lock.
    pub fn granted(&self, id: EntryId) -> Option<Grant> {
        let (packed, is_native) = self.arena.grant(id.0)?;
        Some(packed.widened(self.granted.latest, self.time, is_native))
    }

    /// Whether an entry is a lock that was granted by a LOCK command.
    #[inline]
    pub fn is_native(&self, id: EntryId) -> bool {
        self.granted.native > 0 && self.arena.grant(id.0).is_some_and(|(_, is_native)| is_native)
    }

    /// The entries of a database that LOCK commands have granted.
    pub fn natives(&self, db: u16) -> Vec<EntryId> {
        if self.granted.native == 0 {
            return Vec::new();
        }
        self.keys(db).table.ids().map(EntryId).filter(|id| self.is_native(*id)).collect()
    }

    /// The values of a database that are locks, each with its key.
    pub fn locks_of(&self, db: u16) -> impl Iterator<Item = (&[u8], &Lock)> {
        let has_objects = !self.objects.is_empty();
        let ids = self.keys(db).table.ids().take_while(move |_| has_objects).map(EntryId);
        ids.filter_map(|id| match self.object(id) {
            Some(Object::Lock(lock)) => Some((self.key(id), lock)),
            _ => None,
        })
    }

    /// Sets what is known of a grant beside its record. It goes with the grant.
    pub fn set_grant_details(&mut self, id: EntryId, details: GrantDetails) {
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
    pub fn grant_details(&self, id: EntryId) -> Option<&GrantDetails> {
        if self.granted.details.is_empty() {
            return None;
        }
        self.granted.details.get(&(self.arena.table(id.0), Bytes::copy_from_slice(self.key(id))))
    }

    /// The entries whose grants belong to sessions, each with the milliseconds that it outlives the connection of its
    /// session. `hash` is the hash that keys are stored with.
    pub fn session_grants(&self, hash: impl Fn(&[u8]) -> u64) -> Vec<(EntryId, u64)> {
        let of_sessions = self.granted.details.iter().filter_map(|((table, key), details)| {
            let (_, delay_ms) = details.session?;
            let table = &self.tables[usize::from(*table)].table;
            let id = table.find(hash(key) as u32, |id| self.arena.key(id) == key)?;
            Some((EntryId(id), delay_ms))
        });
        of_sessions.collect()
    }

    /// The entries whose values are locks, in all databases.
    pub fn lock_ids(&self) -> Vec<EntryId> {
        if self.counted.has_no_locks() {
            return Vec::new();
        }
        let ids = self.tables.iter().flat_map(|keys| keys.table.ids()).map(EntryId);
        ids.filter(|id| matches!(self.object(*id), Some(Object::Lock(_)))).collect()
    }

    /// Counts and records that an entry which is a lock ends now, by a call of that client. `place` is the hash of its key
    /// and database.
    #[inline]
    pub fn keep_end(&mut self, id: EntryId, place: u64, reason: EndReason, author: ClientId) {
        let Some((packed, _)) = self.arena.grant(id.0) else { return };
        // A holder that deletes its own lock releases it.
        let is_own = reason == EndReason::Deleted && packed.is_of(author);
        let reason = if is_own { EndReason::Released } else { reason };
        let ended = self.end_time(id, reason);
        let held_ms = packed.held_ms(ended);
        self.granted.count_end(held_ms, reason);
        self.granted.recent_ends.note(place, ended);
        let is_kept = reason != EndReason::Released || self.history.keeps_releases();
        if is_kept && self.history.is_on() {
            self.record_end(id, place, reason, author);
        }
    }

    /// When a lock that ends now for this reason has ended: the lease ends at the deadline, even if somebody looks later.
    #[inline]
    fn end_time(&self, id: EntryId, reason: EndReason) -> LockTime {
        let deadline = if reason == EndReason::Expired { self.deadline(id) } else { None };
        deadline.map_or(self.time, Deadline::time)
    }

    #[cold]
    fn record_end(&mut self, id: EntryId, place: u64, reason: EndReason, author: ClientId) {
        let Some(grant) = self.granted(id) else { return };
        let owner = match self.object(id) {
            None => Some(self.value(id)),
            Some(object) => sole_owner(object),
        };
        let past = PastLock {
            reason,
            author,
            ended: self.end_time(id, reason),
            ..PastLock::new(place, self.key(id), owner, &grant)
        };
        self.history.push(past);
    }

    /// Counts and records the end of a holder.
    pub fn keep_past_lock(&mut self, past: PastLock) {
        let is_own = past.reason == EndReason::Deleted && past.author == past.holder;
        let reason = if is_own { EndReason::Released } else { past.reason };
        self.granted.count_end(past.ended.millis_since(past.since), reason);
        if self.history.is_on() {
            self.history.push(past);
        }
    }

    /// Keeps that many ends of locks.
    pub fn keep_history(&mut self, len: usize) {
        self.history.set_len_max(len);
    }

    /// Whether the history has a lock that was lost.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.history.has_lost()
    }

    /// How locks of this shard have ended.
    pub fn history(&mut self) -> &mut History {
        &mut self.history
    }

    /// The counters of locks.
    pub fn lock_counts(&self) -> LockCounts {
        let mut counts = self.granted.counts;
        counts.held.iter_mut().zip(self.lock_values()).for_each(|(sum, more)| *sum += more);
        counts
    }

    /// Counts locks by these groups from now on. Those that a journal has restored count as held.
    pub(in crate::keyspace) fn group_locks(&mut self, mut groups: LockGroups) {
        for id in self.tables.iter().flat_map(|keys| keys.table.ids()).map(EntryId) {
            if self.is_lock(id) {
                groups.of(self.key(id)).held += 1;
            }
        }
        self.granted.groups = Some(groups);
    }

    /// The counters of locks by groups, if locks are grouped.
    pub fn lock_groups(&self) -> Option<&LockGroups> {
        self.granted.groups.as_ref()
    }

    /// Counts a request for the lock of a key that was held.
    #[inline]
    pub fn count_refused(&mut self, key: &[u8]) {
        self.granted.counts.refused += 1;
        if let Some(groups) = &mut self.granted.groups {
            groups.of(key).refused += 1;
        }
    }

    /// Counts a new holder of a value of the type lock.
    pub fn count_acquired(&mut self, key: &[u8], kind: LockKind) {
        self.granted.counts.acquired[kind.index()] += 1;
        if let Some(groups) = &mut self.granted.groups {
            groups.of(key).acquired += 1;
        }
    }

    /// Counts locks, or holders of the lock of a key, whose lease has ended.
    pub fn count_expired(&mut self, id: EntryId, count: u64) {
        self.granted.counts.expired += count;
        if self.granted.groups.is_some() {
            self.count_in_group(id, |counts| counts.expired += count);
        }
    }

    /// Counts how long a request has waited for a lock, and how that has ended.
    pub fn count_wait(&mut self, waited_ms: u64, waited: Waited) {
        self.granted.counts.waits[waited as usize].add(waited_ms);
    }

    /// Notes that a lock, or a holder of one, has ended now; `place` is the hash of its key and database.
    pub(in crate::keyspace) fn note_end(&mut self, place: u64) {
        self.granted.recent_ends.note(place, self.time);
    }

    /// Counts how long the lock at `place` was free before it was granted now, if that is known.
    #[cold]
    pub(in crate::keyspace) fn count_handover(&mut self, place: u64) {
        if let Some(ended) = self.granted.recent_ends.take(place) {
            self.granted.counts.handover.add(self.time.millis_since(ended));
        }
    }

    /// Resets the counters of what has happened.
    pub fn reset_lock_counts(&mut self) {
        self.granted.counts = LockCounts { held: self.granted.counts.held, ..LockCounts::default() };
        if let Some(groups) = &mut self.granted.groups {
            groups.reset();
        }
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

/// The owner, if the value names just one: the field of a hash beside Redisson's mode, or the member of a sorted set beside
/// Symfony's mark.
pub(crate) fn sole_owner(object: &Object) -> Option<&[u8]> {
    match object {
        Object::Hash(hash) => sole(hash.iter().map(|(field, _)| field), MODE),
        Object::SortedSet(set) => sole(set.entries().map(|(member, _)| member), WRITE),
        _ => None,
    }
}

/// The kind of a lock that is no string.
///
/// A hash is Redisson's: owners are fields whose values count their holds; the field `mode` makes it a read/write lock. A
/// sorted set is a semaphore, or Symfony's lock: its members are the owners.
pub(crate) fn kind_of(object: &Object) -> LockKind {
    match object {
        Object::Lock(lock) => lock.kind(),
        Object::Hash(hash) if hash.get(MODE).is_some_and(|mode| mode == b"read") => LockKind::Shared,
        Object::Hash(_) if holds_of(object).is_some() => LockKind::Reentrant,
        Object::SortedSet(set) if set.score(WRITE).is_none() => LockKind::Shared,
        _ => LockKind::Exclusive,
    }
}

/// How often the only owner of a lock that is a hash has taken it.
pub(crate) fn holds_of(object: &Object) -> Option<u32> {
    let Object::Hash(hash) = object else { return None };
    let holds = number::integer(hash.get(sole_owner(object)?)?)?;
    u32::try_from(holds).ok()
}

/// The only name beside `mark`.
fn sole<'o>(names: impl Iterator<Item = &'o [u8]>, mark: &[u8]) -> Option<&'o [u8]> {
    let mut owners = names.filter(|name| *name != mark);
    owners.next().filter(|_| owners.next().is_none())
}

/// The field of Redisson's read/write locks that says how they are held.
pub(crate) const MODE: &[u8] = b"mode";
/// The member of Symfony's locks that says that one owner holds them alone.
pub(crate) const WRITE: &[u8] = b"__write__";
