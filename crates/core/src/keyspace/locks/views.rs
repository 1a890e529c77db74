//! Who holds a lock of any kind, and who waits for it.
//!
//! Owns    [`HeldLock`], the answer. It changes nothing, and counts neither as a hit nor as an access.
//! Rule    the lock of an unchanged client is a key with a grant. A value without one that a call waits for is listed with
//!         the locks, and says that it is none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use redlatch_proto::clock::{Deadline, LockTime};
use redlatch_proto::error::Refusal;

use crate::keyspace::Occupied;
use crate::keyspace::View;
use crate::keyspace::shard::{EntryId, Shard};
use crate::keyspace::waiting::{Queues, Waiter};
use crate::locks::foreign::{MODE, WRITE, holds_of, kind_of, sole_owner};
use crate::locks::history::{self, PastLock};
use crate::locks::record::Grant;
use crate::state::clients::ClientId;
use crate::state::polling::Pollers;
use crate::types::lock::{Holder, LockKind};
use crate::types::{Lock, Object};

/// A lock that is held.
#[derive(Clone, Debug)]
pub struct HeldLock {
    /// How it is shared.
    pub kind: LockKind,
    /// The type of a value that was not taken as a lock, as TYPE names it; `None`: it is a lock.
    pub value_type: Option<&'static str>,
    /// Who holds it, first come first.
    pub holders: Vec<LockHolder>,
    /// How many wait for it: calls in its queue, and with [`HeldLock::add_pollers`] clients that poll it.
    pub waiters: usize,
    /// Since when the first of them waits.
    pub waits_since: Option<LockTime>,
    /// How often the clients that poll it have been refused it.
    pub polls: u64,
}

/// One holder of a lock.
#[derive(Clone, Debug)]
pub struct LockHolder {
    /// Under which name it holds the lock, its first KiB; `None`: the value does not say.
    pub owner: Option<Bytes>,
    /// Its fencing token; `None`: the value was not stored as a lock, or is that of another server.
    pub token: Option<u64>,
    /// How many permits it holds, or how often it has taken the lock.
    pub permits: u32,
    /// The client that took it; 0: not known.
    pub client: ClientId,
    /// Since when; `None`: not known.
    pub since: Option<LockTime>,
    /// The lease as it was last set, in milliseconds.
    pub lease_ms: Option<u64>,
    /// The end of the lease.
    pub deadline: Option<Deadline>,
    /// How often the lease was renewed.
    pub renewals: u32,
    /// Whether the lock ends with its connection.
    pub is_of_session: bool,
    /// What the owner says about itself, as fields and values in turn.
    pub meta: Box<[Bytes]>,
}

/// Which holders of a lock are shown.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'o> {
    /// The first of them, up to so many.
    First(usize),
    /// The one of this name.
    Owner(&'o [u8]),
}

/// The queue of a lock.
#[derive(Debug)]
pub(crate) struct LockQueue<'q> {
    /// The key of the lock.
    pub key: &'q Bytes,
    /// The lock, if it is held.
    pub lock: Option<HeldLock>,
    /// The calls that wait, in the order of their places.
    pub waiters: Vec<&'q Arc<Waiter>>,
}

/// Bytes of an owner that are shown. The value of an unchanged client may be of any length.
const OWNER_BYTES_SHOWN: usize = 1024;

/// The locks under the keys of a view.
#[derive(Debug)]
pub struct ViewLocks<'v, 'k> {
    pub(super) view: &'v mut View<'k>,
}

impl<'k> View<'k> {
    /// The locks under its keys.
    #[inline]
    pub fn locks(&mut self) -> ViewLocks<'_, 'k> {
        ViewLocks { view: self }
    }
}

impl ViewLocks<'_, '_> {
    /// Who holds the lock under a key; `None` if nobody does.
    pub fn held(&mut self, key: &[u8], shown: Shown<'_>) -> Option<HeldLock> {
        let now = self.view.now.lock;
        let Occupied { place, id } = self.view.entry(key).occupied()?;
        HeldLock::of(place.shard, place.queues, id, now, shown)
    }

    /// Like [`ViewLocks::held`], for any key that exists: a value that was not taken as a lock is held by an unknown owner.
    pub(crate) fn held_key(&mut self, key: &[u8], shown: Shown<'_>) -> Option<HeldLock> {
        let now = self.view.now.lock;
        let Occupied { place, id } = self.view.entry(key).occupied()?;
        HeldLock::of_any(place.shard, place.queues, id, now, shown)
    }

    /// The fencing token under a key while `value` owns it.
    pub fn token_of(&mut self, key: &[u8], value: &[u8]) -> Option<u64> {
        let found = self.view.entry(key).occupied()?;
        match found.object() {
            None => found.granted().filter(|_| found.string().is_ok_and(|held| held == value)),
            Some(Object::Lock(lock)) => return lock.holder(value).map(|holder| holder.token),
            Some(object) => found.granted().filter(|_| is_owner(object, value)),
        }
        .map(|grant| grant.token)
    }

    /// One step of a scan over the locks of the database; see `WholeKeyspace::scan`. Visits the locks
    /// among the keys that `wants` accepts, if a holder is `shown`; each with its [`View::key_hash`]. Returns the next
    /// cursor and the number of keys looked at.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds the shard.
    pub fn scan(
        &mut self,
        cursor: u64,
        keys: u64,
        shown: Shown<'_>,
        wants: &dyn Fn(&[u8]) -> bool,
        visit: &mut dyn FnMut(&[u8], u64, HeldLock),
    ) -> Result<(u64, u64), Refusal> {
        let (mut seen, keyspace, database) = (0, self.view.keyspace, u64::from(self.view.database));
        let cursor = self.view.whole().scan_entries(cursor, keys, &mut |shard, queues, id, now| {
            seen += 1;
            if wants(shard.key(id))
                && let Some(held) = HeldLock::of(shard, queues, id, now, shown)
            {
                let hash = keyspace.hash(shard.key(id)).wrapping_add(database);
                visit(shard.key(id), hash, held);
            }
        })?;
        Ok((cursor, seen))
    }

    /// One step of a scan for locks with a holder since a time that `is_meant`; see [`ViewLocks::scan`]. At most
    /// `holders_max` holders of each are shown; `visit` also gets the first call in its queue. Returns the next cursor.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds the shard.
    pub(crate) fn scan_since(
        &mut self,
        cursor: u64,
        keys: u64,
        mut is_meant: impl FnMut(LockTime) -> bool,
        holders_max: usize,
        mut visit: impl FnMut(&[u8], HeldLock, Option<&Arc<Waiter>>),
    ) -> Result<u64, Refusal> {
        self.view.whole().scan_entries(cursor, keys, &mut |shard, queues, id, now| {
            let has_meant = match shard.object(id) {
                Some(Object::Lock(lock)) => lock.holders().any(|(_, holder)| is_meant(holder.since)),
                _ => shard.granted(id).is_some_and(|grant| is_meant(grant.since)),
            };
            if has_meant && let Some(held) = HeldLock::of(shard, queues, id, now, Shown::First(holders_max)) {
                let (database, key) = (shard.db(id), shard.key(id));
                visit(key, held, queues.locks.waiting(database, key).next());
            }
        })
    }

    /// Visits every queue of the database for a lock. At most `holders_max` holders of each are shown.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds a shard.
    pub(crate) fn each_queue(
        &mut self,
        holders_max: usize,
        mut visit: impl FnMut(LockQueue<'_>),
    ) -> Result<(), Refusal> {
        let (database, now, keyspace) = (self.view.database, self.view.now.lock, self.view.keyspace);
        self.view.whole().each_shard(|held| {
            let (shard, queues) = (&held.shard, &held.queues);
            let now = now.max(shard.time());
            for key in queues.locks.keys(database) {
                let id = shard.find(database, keyspace.hash(key), key);
                let id = id.filter(|id| !shard.has_ended(*id, now));
                let lock = id.and_then(|id| HeldLock::of(shard, queues, id, now, Shown::First(holders_max)));
                let waiters = queues.locks.waiting(database, key).collect();
                visit(LockQueue { key, lock, waiters });
            }
        })
    }
}

impl ViewLocks<'_, '_> {
    /// Who holds the lock under a key, if it is one. Counts neither as a hit nor as an access.
    pub fn grant_of(&mut self, key: &[u8]) -> Option<Grant> {
        self.view.entry(key).occupied()?.granted()
    }

    /// How the lock of a key has ended before, the newest end first. All shards record releases, too, from now on.
    pub fn past(&mut self, key: &[u8]) -> Vec<PastLock> {
        self.view.keyspace.keeps_releases.store(true, Ordering::Relaxed);
        let place = self.view.key_hash(key);
        self.view.shard_state(key).shard.history().of(place, key)
    }

    /// Whether the history of the key's shard has a lock that was lost.
    #[inline]
    pub(crate) fn has_lost(&mut self, key: &[u8]) -> bool {
        self.view.shard_state(key).shard.has_lost()
    }

    /// Visits every end of a lock of the database that is remembered. From now on releases are, too. A key that was cut is
    /// not visited, because its database is not known.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds a shard.
    pub(crate) fn each_past(&mut self, mut visit: impl FnMut(&PastLock)) -> Result<(), Refusal> {
        let (database, keyspace) = (self.view.database, self.view.keyspace);
        keyspace.keeps_releases.store(true, Ordering::Relaxed);
        self.view.whole().each_shard(|held| {
            for (place, past) in held.shard.history().all() {
                let here = history::place(keyspace.hash(past.key.bytes()), database);
                if past.key.is_whole() && place == here {
                    visit(past);
                }
            }
        })
    }
}

impl HeldLock {
    /// Counts clients that poll the lock.
    pub(crate) fn add_pollers(&mut self, pollers: &Pollers) {
        self.waiters = self.waiters.saturating_add(pollers.clients);
        self.polls = self.polls.saturating_add(pollers.refusals);
        let since = pollers.since;
        self.waits_since = Some(self.waits_since.map_or(since, |first| first.min(since)));
    }

    /// The kind of the lock by its name; `none`: it is no lock.
    pub(crate) fn kind_name(&self) -> &'static str {
        self.value_type.map_or(self.kind.name(), |_| "none")
    }

    /// The lock that an entry is; `None` if it is none and no call waits for it, or it has no holder that is shown.
    pub(crate) fn of(
        shard: &Shard,
        queues: &Queues,
        id: EntryId,
        now: LockTime,
        show: Shown<'_>,
    ) -> Option<Self> {
        let counts = shard.is_lock(id) || queues.locks.len_of(shard.db(id), shard.key(id)) > 0;
        if counts { Self::of_any(shard, queues, id, now, show) } else { None }
    }

    fn of_any(shard: &Shard, queues: &Queues, id: EntryId, now: LockTime, show: Shown<'_>) -> Option<Self> {
        let (database, key) = (shard.db(id), shard.key(id));
        let waiters = queues.locks.len_of(database, key);
        let value_type = match shard.object(id) {
            _ if shard.is_lock(id) => None,
            Some(object) => Some(object.shape().type_name()),
            None => Some("string"),
        };
        let (kind, holders) = match shard.object(id) {
            Some(Object::Lock(lock)) => (lock.kind(), holders_of(lock, now, show)),
            object => {
                let (kind, owner, holds) = match object {
                    Some(_) if value_type.is_some() => (LockKind::Exclusive, None, 1),
                    Some(object) => described(object),
                    None => (LockKind::Exclusive, Some(excerpt(shard.value(id))), 1),
                };
                let is_shown = match show {
                    Shown::First(count) => count > 0,
                    Shown::Owner(wanted) => owner.as_deref() == Some(wanted),
                };
                (kind, is_shown.then(|| LockHolder::of_grant(shard, id, owner, holds)).into_iter().collect())
            }
        };
        if holders.is_empty() {
            return None;
        }
        let first = queues.locks.waiting(database, key).next();
        let waits_since = first.and_then(|waiter| waiter.serve.asker()).map(|asker| asker.since);
        Some(Self { kind, value_type, holders, waiters, waits_since, polls: 0 })
    }
}

impl LockHolder {
    /// The holder of a lock whose grant is in the header of its entry.
    fn of_grant(shard: &Shard, id: EntryId, owner: Option<Bytes>, permits: u32) -> Self {
        let grant = shard.granted(id);
        let details = shard.grant_details(id);
        Self {
            owner,
            token: grant.map(|grant| grant.token).filter(|token| *token > 0),
            permits,
            client: grant.map_or(0, |grant| grant.holder),
            since: grant.map(|grant| grant.since),
            lease_ms: grant.and_then(|grant| grant.lease_ms).map(u64::from),
            deadline: shard.deadline(id),
            renewals: grant.map_or(0, |grant| grant.renewals.into()),
            is_of_session: details.is_some_and(|details| details.session.is_some()),
            meta: details.map(|details| details.meta.clone()).unwrap_or_default(),
        }
    }

    /// A holder of a value of the type lock.
    fn of_lock(owner: &Bytes, holder: &Holder) -> Self {
        Self {
            owner: Some(owner.clone()),
            token: Some(holder.token),
            permits: holder.permits,
            client: holder.client,
            since: Some(holder.since),
            lease_ms: holder.lease_ms,
            deadline: holder.deadline,
            renewals: holder.renewals,
            is_of_session: holder.session.is_some(),
            meta: holder.meta.clone(),
        }
    }
}

/// The holders of a value of the type lock whose leases have not ended.
fn holders_of(lock: &Lock, now: LockTime, show: Shown<'_>) -> Vec<LockHolder> {
    let lives = |holder: &Holder| holder.deadline.is_none_or(|end| !end.has_passed(now));
    match show {
        Shown::First(count) => {
            let living = lock.holders().filter(|(_, holder)| lives(holder)).take(count);
            let mut shown: Vec<_> =
                living.map(|(owner, holder)| LockHolder::of_lock(owner, holder)).collect();
            shown.sort_unstable_by_key(|holder| holder.token);
            shown
        }
        Shown::Owner(owner) => {
            let holder = lock.holder(owner).filter(|holder| lives(holder));
            holder.map(|holder| LockHolder::of_lock(&excerpt(owner), holder)).into_iter().collect()
        }
    }
}

/// What the value of a lock of an unchanged client says, if it is no string: the kind, the owner if there is one only, and
/// how often it has taken the lock.
fn described(object: &Object) -> (LockKind, Option<Bytes>, u32) {
    (kind_of(object), sole_owner(object).map(excerpt), holds_of(object).unwrap_or(1))
}

/// Whether `value` owns the lock of an unchanged client that is not a string.
fn is_owner(object: &Object, value: &[u8]) -> bool {
    match object {
        Object::Hash(hash) => value != MODE && hash.contains(value),
        Object::SortedSet(set) => value != WRITE && set.score(value).is_some(),
        _ => false,
    }
}

fn excerpt(owner: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&owner[..owner.len().min(OWNER_BYTES_SHOWN)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::{Keyspace, Layout, Lease, ShardSet};
    use crate::state::settings::Events;
    use crate::types::{Hash, Seed, SortedSet};
    use redlatch_proto::clock::Now;

    /// A lock of an unchanged client whose value is a hash.
    fn held(fields: &[(&[u8], &[u8])], ask: &[u8]) -> (HeldLock, Option<u64>) {
        let mut hash = Hash::new(Seed::of(1));
        for (field, value) in fields {
            hash.set(field, value);
        }
        held_as(hash.into(), ask)
    }

    fn held_as(value: Object, ask: &[u8]) -> (HeldLock, Option<u64>) {
        let keyspace = Keyspace::new(Layout { shards: 1, databases: 1, seed: 7, journal: None }, || {});
        let now = Now { lock: LockTime::from_millis(50), wall_offset_ms: 0 };
        let mut view = View::lock(&keyspace, ShardSet::All, 0, now, Events::default());
        let lease = Lease::Until(now.deadline_in(30_000));
        view.entry(b"lock").put_object(value, lease).grant(7, 3, false);
        (
            view.locks().held(b"lock", Shown::First(9)).expect("a lock with a grant"),
            view.locks().token_of(b"lock", ask),
        )
    }

    #[test]
    fn a_hash_with_one_owner_is_reentrant_and_says_how_often_it_is_held() {
        let (lock, token) = held(&[(b"uuid:1", b"2")], b"uuid:1");
        let [holder] = &lock.holders[..] else { panic!("one holder") };
        assert_eq!(
            (lock.kind, holder.owner.as_deref(), holder.permits),
            (LockKind::Reentrant, Some(&b"uuid:1"[..]), 2)
        );
        assert_eq!((holder.token, holder.client, holder.lease_ms), (Some(7), 3, Some(30_000)));
        assert_eq!(token, Some(7));
        assert_eq!(held(&[(b"uuid:1", b"2")], b"uuid:2").1, None);
    }

    #[test]
    fn a_sorted_set_names_its_owner_if_there_is_one_only() {
        let held = |members: &[&str], ask: &str| {
            let mut set = SortedSet::new(Seed::of(1));
            for member in members {
                set.insert(member.as_bytes(), 9.0);
            }
            let (lock, token) = held_as(set.into(), ask.as_bytes());
            let [holder] = &lock.holders[..] else { panic!("one holder") };
            (lock.kind, holder.owner.clone(), token)
        };
        let owner = Some(Bytes::from_static(b"one"));
        assert_eq!(held(&["one"], "one"), (LockKind::Shared, owner.clone(), Some(7)));
        assert_eq!(held(&["one", "__write__"], "one"), (LockKind::Exclusive, owner, Some(7)));
        assert_eq!(held(&["one", "two"], "two"), (LockKind::Shared, None, Some(7)));
        assert_eq!(held(&["one", "__write__"], "__write__").2, None);
        assert_eq!(held(&["one"], "two").2, None);
    }

    #[test]
    fn a_hash_with_a_mode_is_a_read_write_lock() {
        let (lock, token) = held(&[(b"mode", b"read"), (b"uuid:1", b"1"), (b"uuid:2", b"1")], b"mode");
        assert_eq!((lock.kind, lock.holders[0].owner.as_deref(), token), (LockKind::Shared, None, None));
        let (lock, token) = held(&[(b"mode", b"write"), (b"uuid:1:write", b"1")], b"uuid:1:write");
        let owner = lock.holders[0].owner.as_deref();
        assert_eq!((lock.kind, owner, token), (LockKind::Reentrant, Some(&b"uuid:1:write"[..]), Some(7)));
    }
}
