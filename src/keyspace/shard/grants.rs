//! Grants: which entries are locks, and who holds them.
//!
//! Owns    the grant of each entry, and how many entries have one.
//! Rule    a grant lives as long as its entry and its value. A new deadline is a renewal; another value ends the grant.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{EntryId, Shard};
use crate::clock::Deadline;
use crate::keyspace::grant::{self, Grant, Latest, Packed};
use crate::keyspace::history::{self, History, PastLock};
use crate::state::clients::ClientId;
use crate::state::ended_lock::EndReason;
use crate::types::{Lock, Object};

/// What a shard keeps about all of its grants.
#[derive(Debug, Default)]
pub(super) struct Granted {
    latest: Latest,
    counts: LockCounts,
    /// How many entries were granted by a LOCK command.
    native: usize,
    /// By table and key. Few grants have details.
    details: BTreeMap<(u16, Bytes), GrantDetails>,
    /// Bytes of the details, with their keys.
    pub(super) details_bytes: usize,
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
        let meta = self.meta.iter().map(|word| size_of::<Bytes>() + word.len()).sum::<usize>();
        size_of::<(u16, Bytes)>() + size_of::<Self>() + key.len() + meta
    }
}

impl Granted {
    /// Every entry of the shard is gone.
    pub(super) fn clear(&mut self) {
        (self.counts.held, self.native) = (0, 0);
        self.details.clear();
        self.details_bytes = 0;
    }

    fn remove_details(&mut self, place: &(u16, Bytes)) {
        if let Some(details) = self.details.remove(place) {
            self.details_bytes -= details.bytes(&place.1);
        }
    }

    /// Panics unless so many entries are locks, and so many of these native.
    pub(super) fn assert_laws(&self, held: usize, native: usize) {
        assert_eq!(held, self.counts.held, "entries with a grant");
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
        self.restore_grant(id, &grant);
    }

    /// Makes an entry a lock with this grant.
    #[inline]
    pub fn restore_grant(&mut self, id: EntryId, grant: &Grant) {
        let Grant { token, holder, is_native, .. } = *grant;
        if self.arena.is_granted(id.0) {
            self.uncount_grant(id);
        }
        self.granted.counts.held += 1;
        self.granted.native += usize::from(is_native);
        self.granted.latest.note(token, holder);
        self.arena.set_grant(id.0, Packed::of(grant), is_native);
    }

    /// The grant of an entry belongs to another connection of its owner from now on.
    pub fn set_holder(&mut self, id: EntryId, holder: ClientId) {
        if let Some(grant) = self.granted(id) {
            let grant = Grant { holder, is_native: true, ..grant };
            self.granted.native += usize::from(!self.is_native(id));
            self.granted.latest.note(grant.token, holder);
            self.arena.set_grant(id.0, Packed::of(&grant), true);
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
        if self.counted.locks == 0 {
            return Vec::new();
        }
        let ids = self.tables.iter().flat_map(|keys| keys.table.ids()).map(EntryId);
        ids.filter(|id| matches!(self.object(*id), Some(Object::Lock(_)))).collect()
    }

    /// Records that an entry which is a lock ends now, by a call of that client.
    #[inline]
    pub fn keep_end(&mut self, id: EntryId, hash: u64, reason: EndReason, author: ClientId) {
        if !self.history.is_on() {
            return;
        }
        let Some((packed, _)) = self.arena.grant(id.0) else { return };
        // A holder that deletes its own lock releases it.
        let is_own = reason == EndReason::Deleted && packed.is_of(author);
        let reason = if is_own { EndReason::Released } else { reason };
        if reason == EndReason::Released && !self.history.keeps_releases() {
            return;
        }
        self.record_end(id, hash, reason, author);
    }

    #[cold]
    fn record_end(&mut self, id: EntryId, hash: u64, reason: EndReason, author: ClientId) {
        let Some(grant) = self.granted(id) else { return };
        let owner = match self.object(id) {
            None => Some(self.value(id)),
            Some(object) => sole_owner(object),
        };
        // The lease ends at the deadline, even if somebody looks later.
        let expired = self.deadline(id).filter(|_| reason == EndReason::Expired);
        let past = PastLock {
            reason,
            author,
            ended: expired.map_or(self.time, Deadline::time),
            ..PastLock::new(history::place(hash, self.db(id)), self.key(id), owner, &grant)
        };
        self.history.push(past);
    }

    /// Records the end of a holder.
    pub fn keep_past_lock(&mut self, past: PastLock) {
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
        if !self.arena.is_granted(id.0) {
            return;
        }
        self.granted.counts.held -= 1;
        if self.is_native(id) {
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

/// The only name beside `mark`.
fn sole<'o>(names: impl Iterator<Item = &'o [u8]>, mark: &[u8]) -> Option<&'o [u8]> {
    let mut owners = names.filter(|name| *name != mark);
    owners.next().filter(|_| owners.next().is_none())
}

/// The field of Redisson's read/write locks that says how they are held.
pub(crate) const MODE: &[u8] = b"mode";
/// The member of Symfony's locks that says that one owner holds them alone.
pub(crate) const WRITE: &[u8] = b"__write__";
