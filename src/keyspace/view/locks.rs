//! The locks of LOCK commands: how a grant is written, extended and ended.
//!
//! Owns    nothing; it changes entries of the view's shards.
//! Rule    who may have a lock is decided above; here it is written.

use bytes::Bytes;

use super::View;
use crate::clock::{Deadline, LockTime};
use crate::keyspace::shard::grants::GrantDetails;
use crate::keyspace::{Entry, Lease, Occupied, Waited};
use crate::state::clients::ClientId;
use crate::state::ended_lock::{EndReason, EndedLock};
use crate::state::lock_sessions::{LockSession, SessionLock};
use crate::types::lock::{Holder, LockKind};
use crate::types::{Lock, Object, Typed};

/// The holder of a lock, as one of its owners.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hold {
    /// The fencing token.
    pub token: u64,
    /// The end of its lease; `None`: it has none.
    pub deadline: Option<Deadline>,
    /// The lease as it was last set, in milliseconds.
    pub lease_ms: Option<u64>,
    /// The client that holds it; 0: not known.
    pub client: ClientId,
    /// Whether it belongs to a session.
    pub session: Option<(u64, u64)>,
}

impl View<'_> {
    /// Writes an exclusive lock: the string that SET NX would have written, and its grant.
    pub fn hold_exclusive(
        &mut self,
        key: &[u8],
        owner: &[u8],
        lease: Lease,
        (token, client): (u64, ClientId),
        details: GrantDetails,
    ) {
        let mut occupied = match self.entry(key) {
            // The same owner again: the grant stays, its lease begins anew.
            Entry::Occupied(mut found) if found.granted().is_some_and(|grant| grant.token == token) => {
                found.put(owner, lease);
                found.place.shard.set_holder(found.id, client);
                found
            }
            entry => {
                let occupied = entry.put(owner, lease);
                occupied.place.shard.grant(occupied.id, token, client, true);
                occupied
            }
        };
        occupied.place.shard.set_grant_details(occupied.id, details);
        occupied.grant_changed();
        occupied.event(b'$', "set");
        if let Lease::Until(_) = lease {
            occupied.event(b'g', "expire");
        }
    }

    /// Writes a holder of a lock that is not exclusive. The lease of the key is the longest of its holders.
    pub fn put_holder(&mut self, key: &[u8], kind: LockKind, owner: &Bytes, holder: Holder) {
        if let Ok(mut lock) = self.open::<Lock>(key) {
            lock.put(kind, owner, holder);
        }
        self.update_deadline(key);
    }

    /// Counts a new holder of a lock that is not exclusive.
    pub fn count_acquired(&mut self, key: &[u8], kind: LockKind) {
        self.shard_state(key).shard.count_acquired(key, kind);
    }

    /// Counts a request for the lock of a key that was refused because the lock is held.
    pub fn count_refused(&mut self, key: &[u8]) {
        self.shard_state(key).shard.count_refused(key);
    }

    /// Counts a request that has waited for the lock of a key until now.
    pub fn count_wait(&mut self, key: &[u8], since: LockTime, waited: Waited) {
        let (waited_ms, place) = (self.now().lock.millis_since(since), self.key_hash(key));
        let shard = &mut self.shard_state(key).shard;
        shard.count_wait(waited_ms, waited);
        match waited {
            Waited::Granted => shard.count_handover(place),
            Waited::Refused => shard.count_refused(key),
            Waited::Abandoned => {}
        }
    }

    /// What is known of a holder of a lock that is not exclusive.
    pub fn holder_of(&mut self, key: &[u8], owner: &[u8]) -> Option<Holder> {
        let lock = self.entry(key).occupied()?.into_object::<Lock>().ok()?;
        lock.holder(owner).cloned()
    }

    /// What `owner` holds of a lock of any kind.
    pub fn hold_of(&mut self, key: &[u8], owner: &[u8]) -> Option<Hold> {
        self.entry(key).occupied()?.hold_of(owner)
    }

    /// Begins the lease of a holder anew; `None`: it has no lease from now on. The owner holds the lock.
    pub fn renew(&mut self, key: &[u8], owner: &Bytes, deadline: Option<Deadline>, lease_ms: Option<u64>) {
        match self.holder_of(key, owner) {
            Some(holder) => {
                let renewals = holder.renewals.saturating_add(1);
                let kind = self.lock_kind(key);
                self.put_holder(key, kind, owner, Holder { deadline, lease_ms, renewals, ..holder });
            }
            None => {
                if let Entry::Occupied(mut found) = self.entry(key) {
                    found.set_deadline(deadline);
                    found.event(b'g', if deadline.is_some() { "expire" } else { "persist" });
                }
            }
        }
    }

    /// Takes the lock from an owner whose hold `fits`; returns false if it has none. Of a reentrant lock,
    /// [`EndReason::Released`] gives back one hold.
    pub fn end_hold(
        &mut self,
        key: &[u8],
        owner: &[u8],
        reason: EndReason,
        fits: impl FnOnce(&Hold) -> bool,
    ) -> bool {
        let Entry::Occupied(mut found) = self.entry(key) else { return false };
        if !found.hold_of(owner).is_some_and(|hold| fits(&hold)) {
            return false;
        }
        found.place.changes.end_reason = reason;
        let lock = found.object().and_then(Lock::of);
        match lock.and_then(|lock| Some((lock.kind(), lock.holder(owner)?.clone()))) {
            Some((LockKind::Reentrant, holder)) if reason == EndReason::Released && holder.permits > 1 => {
                let (owner, permits) = (Bytes::copy_from_slice(owner), holder.permits - 1);
                self.put_holder(key, LockKind::Reentrant, &owner, Holder { permits, ..holder });
            }
            Some((_, holder)) => self.remove_holder(key, owner, &holder, reason),
            None => {
                found.event(b'g', "del");
                found.remove_entry();
            }
        }
        self.changes.end_reason = EndReason::Deleted;
        true
    }

    fn remove_holder(&mut self, key: &[u8], owner: &[u8], holder: &Holder, reason: EndReason) {
        let database = self.database;
        self.changes.holder_ended(database, key, (owner, holder), reason);
        let mut is_last = false;
        if let Ok(Some(mut lock)) = self.find::<Lock>(key) {
            lock.remove(owner);
            is_last = lock.get().holders().len() == 0;
        }
        let place = self.key_hash(key);
        self.shard_state(key).shard.note_end(place);
        if is_last {
            self.event(b'g', "del", key);
        } else {
            self.update_deadline(key);
        }
        self.lock_ended(key);
    }

    /// The connection of a session has ended: its lock ends now, or after its delay.
    pub fn end_session_lock(&mut self, key: &[u8], lock: &SessionLock, session: &LockSession) {
        // Another connection may have taken the session over, and another request of the owner the lock.
        if session.client().is_some() || !self.is_of_session(key, lock, session) {
            return;
        }
        if lock.delay_ms == 0 {
            self.end_hold(key, &lock.owner, EndReason::Session, |_| true);
            return;
        }
        let delay_ms = i64::try_from(lock.delay_ms).unwrap_or(i64::MAX);
        let deadline = self.now().deadline_in(delay_ms);
        self.renew(key, &lock.owner, Some(deadline), None);
    }

    /// Gives a lock of a session to the client that has attached to the session. False if the lock has ended.
    pub fn attach_session_lock(
        &mut self,
        key: &[u8],
        lock: &SessionLock,
        session: &LockSession,
        client: ClientId,
    ) -> bool {
        if !self.is_of_session(key, lock, session) {
            return false;
        }
        self.renew(key, &lock.owner, None, None);
        match self.holder_of(key, &lock.owner) {
            Some(holder) => {
                let kind = self.lock_kind(key);
                self.put_holder(key, kind, &lock.owner, Holder { client, ..holder });
            }
            None => {
                if let Entry::Occupied(mut found) = self.entry(key) {
                    found.set_holder(client);
                }
            }
        }
        true
    }

    fn is_of_session(&mut self, key: &[u8], lock: &SessionLock, session: &LockSession) -> bool {
        let hold = self.hold_of(key, &lock.owner).filter(|hold| hold.token == lock.token);
        hold.and_then(|hold| hold.session).is_some_and(|(id, _)| id == session.id)
    }

    /// An owner is about to take its lock anew, with this token and session: the session that the lock belonged to forgets
    /// it, unless both stay.
    pub fn leave_session(&mut self, key: &[u8], owner: &[u8], token: u64, session: Option<(u64, u64)>) {
        let Some(hold) = self.hold_of(key, owner) else { return };
        let Some((left, _)) = hold.session else { return };
        if hold.token == token && session.is_some_and(|(id, _)| id == left) {
            return;
        }
        self.changes.lock_ended(EndedLock {
            database: self.database,
            key: Bytes::copy_from_slice(key),
            token: hold.token,
            holder: 0,
            session: Some(left),
            reason: EndReason::Released,
        });
    }

    /// The owner that holds a lock with this token.
    pub fn owner_of_token(&mut self, key: &[u8], token: u64) -> Option<Bytes> {
        let found = self.entry(key).occupied()?;
        match found.object().map(Lock::of) {
            None => {
                let is_it = found.granted().is_some_and(|grant| grant.token == token);
                is_it.then(|| found.string().ok().map(Bytes::copy_from_slice)).flatten()
            }
            Some(lock) => {
                let mut holders = lock?.holders();
                holders.find(|(_, holder)| holder.token == token).map(|(owner, _)| owner.clone())
            }
        }
    }

    /// Visits who holds the lock: at most `limit` owners, each with its client and its token, in no order. A string that
    /// was not stored as a lock has neither: both are 0.
    pub fn each_holder(&mut self, key: &[u8], limit: usize, mut visit: impl FnMut(&[u8], ClientId, u64)) {
        let Entry::Occupied(found) = self.entry(key) else { return };
        match found.object() {
            Some(Object::Lock(lock)) => {
                let holders = lock.holders().take(limit);
                holders.for_each(|(owner, holder)| visit(owner, holder.client, holder.token));
            }
            Some(_) => {}
            None => {
                let (client, token) = found.granted().map_or((0, 0), |grant| (grant.holder, grant.token));
                visit(found.string().unwrap_or_default(), client, token);
            }
        }
    }

    /// The kind of a lock; exclusive if it is a string.
    pub fn lock_kind(&mut self, key: &[u8]) -> LockKind {
        let lock = self.entry(key).occupied().and_then(|found| found.into_object::<Lock>().ok());
        lock.map_or(LockKind::Exclusive, Lock::kind)
    }

    /// Sets the deadline of a key to the end of the longest lease of its holders.
    fn update_deadline(&mut self, key: &[u8]) {
        let Entry::Occupied(mut found) = self.entry(key) else { return };
        let Some(Object::Lock(lock)) = found.object() else { return };
        let latest = lock.latest_deadline();
        if found.deadline() != latest {
            found.set_deadline(latest);
        }
    }

    /// Commands that wait for the lock of a key may have it now.
    fn lock_ended(&mut self, key: &[u8]) {
        if !self.shard_state(key).queues.locks.is_empty() {
            self.changes.ready(self.database, Bytes::copy_from_slice(key));
        }
    }
}

impl Occupied<'_> {
    /// What `owner` holds, if the key is a lock.
    fn hold_of(&self, owner: &[u8]) -> Option<Hold> {
        match self.object().map(Lock::of) {
            None if self.string().ok()? == owner => {
                let grant = self.granted();
                let (token, client) = grant.map_or((0, 0), |grant| (grant.token, grant.holder));
                let lease_ms = grant.and_then(|grant| grant.lease_ms).map(u64::from);
                let session = self.place.shard.grant_details(self.id).and_then(|details| details.session);
                Some(Hold { token, client, deadline: self.deadline(), lease_ms, session })
            }
            Some(Some(lock)) => {
                let &Holder { token, client, deadline, lease_ms, session, .. } = lock.holder(owner)?;
                Some(Hold { token, client, deadline, lease_ms, session })
            }
            _ => None,
        }
    }
}
