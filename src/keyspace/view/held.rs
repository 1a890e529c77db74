//! Who holds a lock of any kind, and who waits for it.
//!
//! Owns    [`HeldLock`], the answer. It changes nothing, and counts neither as a hit nor as an access.
//! Rule    the lock of an unchanged client is a key with a grant. A value that others wait for counts as a lock, too.

use std::sync::Arc;

use bytes::Bytes;

use super::View;
use crate::clock::{Deadline, LockTime};
use crate::error::Refusal;
use crate::keyspace::Occupied;
use crate::keyspace::shard::{EntryId, Shard};
use crate::keyspace::waiting::{Queues, Waiter};
use crate::state::clients::ClientId;
use crate::types::lock::LockKind;
use crate::types::{Object, Shape};

/// A lock that is held.
#[derive(Clone, Debug)]
pub struct HeldLock {
    /// How it is shared.
    pub kind: LockKind,
    /// Who holds it, first come first.
    pub holders: Vec<LockHolder>,
    /// How many calls are in its queue.
    pub waiters: usize,
    /// Since when the first of them waits.
    pub waits_since: Option<LockTime>,
}

/// One holder of a lock.
#[derive(Clone, Debug)]
pub struct LockHolder {
    /// Under which name it holds the lock, at most [`OWNER_BYTES_SHOWN`] of it; `None`: the value does not say.
    pub owner: Option<Bytes>,
    /// Its fencing token; `None`: the value was not stored as a lock.
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

/// The queue of a lock.
#[derive(Debug)]
pub struct LockQueue<'q> {
    /// The key of the lock.
    pub key: &'q Bytes,
    /// The lock, if it is held.
    pub lock: Option<HeldLock>,
    /// The calls that wait, first come first.
    pub waiters: Vec<&'q Arc<Waiter>>,
}

/// Bytes of an owner that are shown. The value of an unchanged client may be of any length.
const OWNER_BYTES_SHOWN: usize = 1024;

impl View<'_> {
    /// Who holds the lock under a key; `None` if nobody does.
    pub fn held_lock(&mut self, key: &[u8]) -> Option<HeldLock> {
        let now = self.now.lock;
        let Occupied { place, id } = self.entry(key).occupied()?;
        HeldLock::of(place.shard, place.queues, id, now, usize::MAX)
    }

    /// The fencing token under a key while `value` owns it.
    pub fn token_of(&mut self, key: &[u8], value: &[u8]) -> Option<u64> {
        let found = self.entry(key).occupied()?;
        match found.object() {
            None => found.granted().filter(|_| found.string().is_ok_and(|held| held == value)),
            Some(Object::Lock(lock)) => return lock.holder(value).map(|holder| holder.token),
            Some(object) => found.granted().filter(|_| is_owner(object, value)),
        }
        .map(|grant| grant.token)
    }

    /// One step of a scan over the locks of the database; see [`View::scan`]. Visits the locks among the keys that `wants`
    /// accepts, each with up to `holders_max` of its holders. Returns the next cursor and the number of keys looked at.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds the shard.
    pub fn scan_locks(
        &mut self,
        cursor: u64,
        keys: u64,
        holders_max: usize,
        wants: &dyn Fn(&[u8]) -> bool,
        visit: &mut dyn FnMut(&[u8], HeldLock),
    ) -> Result<(u64, u64), Refusal> {
        let mut seen = 0;
        let cursor = self.scan_entries(cursor, keys, &mut |shard, queues, id, now| {
            seen += 1;
            if wants(shard.key(id))
                && let Some(held) = HeldLock::of(shard, queues, id, now, holders_max)
            {
                visit(shard.key(id), held);
            }
        })?;
        Ok((cursor, seen))
    }

    /// Visits every queue of the database for a lock. At most `holders_max` holders of each are shown.
    ///
    /// # Errors
    /// [`Refusal::Occupied`] when a long call holds a shard.
    pub fn each_lock_queue(
        &mut self,
        holders_max: usize,
        mut visit: impl FnMut(LockQueue<'_>),
    ) -> Result<(), Refusal> {
        let (database, now, keyspace) = (self.database, self.now.lock, self.keyspace);
        self.each_shard(|held| {
            let (shard, queues) = (&held.shard, &held.queues);
            let now = now.max(shard.time());
            for key in queues.locks.keys(database) {
                let id = shard.find(database, keyspace.hash(key), key);
                let id = id.filter(|id| !shard.has_ended(*id, now));
                let lock = id.and_then(|id| HeldLock::of(shard, queues, id, now, holders_max));
                let waiters = queues.locks.waiting(database, key).collect();
                visit(LockQueue { key, lock, waiters });
            }
        })
    }
}

impl HeldLock {
    /// The lock that an entry is; `None` if it is none. At most `holders_max` holders are shown.
    pub(super) fn of(
        shard: &Shard,
        queues: &Queues,
        id: EntryId,
        now: LockTime,
        holders_max: usize,
    ) -> Option<Self> {
        let (database, key) = (shard.db(id), shard.key(id));
        let waiters = queues.locks.len_of(database, key);
        let (kind, holders) = match shard.object(id) {
            Some(Object::Lock(lock)) => {
                let lives = |end: Option<Deadline>| end.is_none_or(|end| !end.has_passed(now));
                let living = lock.holders().filter(|(_, holder)| lives(holder.deadline));
                let mut holders: Vec<_> = living.take(holders_max).map(LockHolder::of_lock).collect();
                holders.sort_unstable_by_key(|holder| holder.token);
                (lock.kind(), holders)
            }
            _ if !shard.is_granted(id) && waiters == 0 => return None,
            object => {
                let (kind, owner) = match object {
                    Some(object) => described(object),
                    None => (LockKind::Exclusive, Some(shown(shard.value(id)))),
                };
                (kind, vec![LockHolder::of_grant(shard, id, owner)])
            }
        };
        let first = queues.locks.waiting(database, key).next();
        let waits_since = first.and_then(|waiter| waiter.serve.asker()).map(|asker| asker.since);
        Some(Self { kind, holders, waiters, waits_since })
    }
}

impl LockHolder {
    /// The holder of a lock whose grant is in the header of its entry.
    fn of_grant(shard: &Shard, id: EntryId, owner: Option<Bytes>) -> Self {
        let grant = shard.granted(id);
        let details = shard.grant_details(id);
        Self {
            owner,
            token: grant.map(|grant| grant.token),
            permits: 1,
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
    fn of_lock((owner, holder): (&Bytes, &crate::types::lock::Holder)) -> Self {
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

/// The kind of the lock of an unchanged client that is not a string, and its owner if the value names one.
fn described(object: &Object) -> (LockKind, Option<Bytes>) {
    let owner = match object {
        Object::Hash(hash) if hash.len() == 1 => hash.iter().next().map(|(field, _)| shown(field)),
        _ => None,
    };
    (LockKind::Exclusive, owner)
}

/// Whether `value` owns the lock of an unchanged client that is not a string.
fn is_owner(object: &Object, value: &[u8]) -> bool {
    matches!(object, Object::Hash(hash) if hash.get(value).is_some())
}

fn shown(owner: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&owner[..owner.len().min(OWNER_BYTES_SHOWN)])
}
