//! Replay: a keyspace is built from the mutations of a journal.
//!
//! Owns    the guards of all shards for as long as the replay lasts.
//! Time    deadlines are ignored: only a mutation removes a key. [`Replay::at`] says when the mutations were recorded.
//! Locks   all shards, in ascending order, once.
//! Rule    nothing is recorded or published. A mutation that does not fit the state changes nothing or makes an object
//!         that a later mutation replaces: a journal that begins with a copy contains such mutations.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use redlatch_proto::clock::{Deadline, LockTime, Now};

use super::shard::{EntryId, Shard};
use super::{Keyspace, ShardState};
use crate::journal::{Edit, LockEdit, Mutation};
use crate::state::clients::ClientId;
use crate::state::lock_sessions::{RestoredLock, SessionLock};
use crate::state::wait::Place;
use crate::sync::MutexGuard;
use crate::types::lock::Holder;
use crate::types::{Lock, Object, Typed};

/// A keyspace while mutations are applied to it. All shards are locked.
#[derive(Debug)]
pub struct Replay<'k> {
    keyspace: &'k Keyspace,
    held: Vec<MutexGuard<'k, ShardState>>,
    now: LockTime,
    highest: Replayed,
    largest_bytes: usize,
}

/// What the mutations of a replay have named.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Replayed {
    /// The highest fencing token; 0: none.
    pub token: u64,
    /// The highest number of a client; 0: none.
    pub client: ClientId,
    /// The locks of sessions that are held in the end.
    pub session_locks: Vec<RestoredLock>,
}

impl Keyspace {
    /// Begins a replay. The caller applies mutations and then finishes it.
    pub fn replay(&self) -> Replay<'_> {
        let held = (0..self.shards()).map(|index| self.hold_on(index)).collect();
        let now = LockTime::from_millis(0);
        Replay { keyspace: self, held, now, highest: Replayed::default(), largest_bytes: 0 }
    }

    /// Applies one effect of a journal at this time: a replay of its own.
    pub fn apply(&self, mutation: &Mutation, now: Now) {
        let mut replay = self.replay();
        replay.at(now.lock);
        replay.apply(mutation);
    }

    /// The next token is above this one.
    pub fn raise_tokens(&self, to: u64) {
        self.last_token.fetch_max(to, Ordering::Relaxed);
    }
}

impl Replay<'_> {
    /// The following mutations were recorded at this time. It never runs backwards.
    pub fn at(&mut self, now: LockTime) {
        self.now = self.now.max(now);
    }

    pub fn apply(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Clear { database } => {
                self.held.iter_mut().for_each(|held| held.shard.clear(*database));
            }
            Mutation::Swap { a, b } => self.held.iter_mut().for_each(|held| held.shard.swap(*a, *b)),
            Mutation::Put { database, key, value, deadline } => {
                self.largest_bytes = self.largest_bytes.max(value.len());
                self.put(*database, key, value, *deadline);
            }
            Mutation::PutObject { database, key, object, deadline } => {
                self.note_object(object);
                self.put_object(*database, key, object.clone(), *deadline);
            }
            Mutation::Edit { database, key, edit } => self.edit(*database, key, edit),
            Mutation::Grant { database, key, grant, details } => {
                self.note_grant(grant.token, grant.holder);
                let (shard, hash) = self.shard(key);
                if let Some(id) = shard.find(*database, hash, key) {
                    shard.restore_grant(id, grant);
                    shard.set_grant_details(id, details.clone());
                }
            }
            Mutation::Place { database, key, owner, place } => {
                let place = place.map(|place| {
                    // The next wait is behind all places.
                    self.keyspace.waits.fetch_max(place.number.saturating_add(1), Ordering::Relaxed);
                    place.min(Place::at(self.now, 0, place.number))
                });
                let index = self.keyspace.shard_of(self.keyspace.hash(key));
                self.held[index].places.set((*database, key), owner, place);
            }
            Mutation::Remove { database, key, .. } => {
                let (shard, hash) = self.shard(key);
                if let Some(id) = shard.find(*database, hash, key) {
                    drop(shard.remove(id, hash));
                }
            }
            Mutation::SetDeadline { database, key, deadline } => {
                let (shard, hash) = self.shard(key);
                if let Some(id) = shard.find(*database, hash, key) {
                    shard.set_deadline(id, *deadline);
                }
            }
        }
    }

    /// Ends the replay. The locks of sessions get the deadlines that they would have if the connections of the sessions had
    /// ended `grace_ms` after `now`, because no connection outlives its server by more than that.
    pub fn finish(mut self, now: LockTime, grace_ms: u64) -> Replayed {
        self.at(now);
        let mut session_locks = Vec::new();
        for held in &mut self.held {
            held.shard.advance(self.now);
            held.places.keep_from(self.now);
            end_sessions(self.keyspace, &mut held.shard, self.now + grace_ms, &mut session_locks);
        }
        Replayed { session_locks, ..self.highest.clone() }
    }

    /// The shard of a key, at the time of the replay, and the hash of the key.
    #[inline]
    fn shard(&mut self, key: &[u8]) -> (&mut Shard, u64) {
        let hash = self.keyspace.hash(key);
        let shard = &mut self.held[self.keyspace.shard_of(hash)].shard;
        shard.advance(self.now);
        (shard, hash)
    }

    fn put(&mut self, database: u16, key: &[u8], value: &[u8], deadline: Option<Deadline>) {
        let stamp = self.stamp();
        let (shard, hash) = self.shard(key);
        let Some(id) = shard.find(database, hash, key) else {
            shard.insert(database, hash, key, value, deadline, stamp);
            return;
        };
        // A SET over a lock of a session ends it; a request of its owner is followed by its grant.
        let is_same = shard.object(id).is_none() && shard.value(id) == value && !shard.is_of_session(id);
        if !is_same && shard.is_granted(id) {
            shard.clear_grant(id);
        }
        drop(shard.take_object(id));
        let id = shard.set_value(id, hash, value);
        // A write that keeps the deadline is no renewal of the grant.
        if shard.deadline(id) != deadline {
            shard.set_deadline(id, deadline);
        }
        shard.set_stamp(id, stamp);
    }

    fn put_object(&mut self, database: u16, key: &[u8], object: Object, deadline: Option<Deadline>) {
        let stamp = self.stamp();
        let (shard, hash) = self.shard(key);
        let Some(id) = shard.find(database, hash, key) else {
            shard.insert_object(database, hash, key, object, deadline, stamp);
            return;
        };
        if shard.is_granted(id) {
            shard.clear_grant(id);
        }
        drop(shard.take_object(id));
        let id = shard.set_object(id, hash, object);
        shard.set_deadline(id, deadline);
        shard.set_stamp(id, stamp);
    }

    fn edit(&mut self, database: u16, key: &[u8], edit: &Edit) {
        if let Edit::Lock(LockEdit::Put(_, _, holder)) = edit {
            self.note_grant(holder.token, holder.client);
        }
        let stamp = self.stamp();
        let (shard, hash) = self.shard(key);
        let found = shard.find(database, hash, key);
        let id = found.unwrap_or_else(|| {
            let blank = edit.blank(shard.seed());
            shard.insert_object(database, hash, key, blank, None, stamp)
        });
        let Some(object) = shard.object_mut(id) else { return };
        edit.apply(object);
        let bytes = object.shape().heap_bytes();
        shard.rearm(id, hash);
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    fn note_object(&mut self, object: &Object) {
        self.largest_bytes = self.largest_bytes.max(object.shape().heap_bytes());
        if let Object::Lock(lock) = object {
            lock.holders().for_each(|(_, holder)| self.note_grant(holder.token, holder.client));
        }
    }

    fn note_grant(&mut self, token: u64, client: ClientId) {
        self.highest.token = self.highest.token.max(token);
        self.highest.client = self.highest.client.max(client);
    }

    /// The second of the last access of an entry that is written now.
    fn stamp(&self) -> u32 {
        (self.now.as_millis() / 1000) as u32
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        let Keyspace { memory, largest, .. } = self.keyspace;
        largest.update(self.largest_bytes);
        self.keyspace.raise_tokens(self.highest.token);
        for held in &mut self.held {
            if memory.is_measured() {
                memory.update(held);
            }
            if let Some(wakeup) = held.shard.next_wakeup() {
                self.keyspace.rearm(wakeup.as_millis());
            }
        }
    }
}

/// Gives the locks of sessions in a shard the deadlines that begin when their connections end, at `end`, and collects these
/// locks. A lock that has a deadline has lost its connection before.
fn end_sessions(keyspace: &Keyspace, shard: &mut Shard, end: LockTime, ended: &mut Vec<RestoredLock>) {
    for (id, session, delay_ms) in shard.session_grants(|key| keyspace.hash(key)) {
        if shard.deadline(id).is_none() {
            shard.set_deadline(id, Some(Deadline::at(end + delay_ms)));
        }
        let Some(grant) = shard.granted(id) else { continue };
        let owner = Bytes::copy_from_slice(shard.value(id));
        ended.push(restored(shard, id, session, SessionLock { owner, token: grant.token, delay_ms }));
    }
    for id in shard.lock_ids() {
        let hash = keyspace.hash(shard.key(id));
        let Some(lock) = shard.object_mut(id).and_then(Lock::of_mut) else { continue };
        let of_sessions: Vec<(Bytes, Holder)> = lock
            .holders()
            .filter(|(_, holder)| holder.session.is_some())
            .map(|(owner, holder)| (owner.clone(), holder.clone()))
            .collect();
        let kind = lock.kind();
        let mut found = Vec::new();
        for (owner, holder) in of_sessions {
            let Some((session, delay_ms)) = holder.session else { continue };
            found.push((session, SessionLock { owner: owner.clone(), token: holder.token, delay_ms }));
            if holder.deadline.is_none() {
                let deadline = Some(Deadline::at(end + delay_ms));
                lock.put(kind, &owner, Holder { deadline, lease_ms: None, ..holder });
            }
        }
        let latest = lock.latest_deadline();
        let id = shard.rearm(id, hash);
        shard.set_deadline(id, latest);
        ended.extend(found.into_iter().map(|(session, lock)| restored(shard, id, session, lock)));
    }
}

fn restored(shard: &Shard, id: EntryId, session: u64, lock: SessionLock) -> RestoredLock {
    let key = Bytes::copy_from_slice(shard.key(id));
    RestoredLock { session, database: shard.db(id), key, lock }
}
