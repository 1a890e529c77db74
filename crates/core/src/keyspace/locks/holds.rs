//! The locks of LOCK commands: how a grant is written, extended and ended.
//!
//! Owns    nothing; it changes entries of the view's shards.
//! Rule    who may have a lock is decided above; here it is written.

use bytes::Bytes;
use redlatch_proto::clock::Deadline;

use super::views::ViewLocks;
use crate::keyspace::{Entry, Lease, Occupied};
use crate::locks::{Breaker, EndReason, GrantDetails, Mode};
use crate::state::clients::ClientId;
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

impl ViewLocks<'_, '_> {
    /// Writes an exclusive lock: the string that SET NX would have written, and its grant. The owner that holds it with this
    /// token keeps its grant; the lease begins anew.
    pub(crate) fn hold_exclusive(
        &mut self,
        key: &[u8],
        owner: &[u8],
        lease: Lease,
        (token, client): (u64, ClientId),
        details: GrantDetails,
    ) {
        let mut occupied = match self.view.entry(key) {
            Entry::Occupied(mut found) if found.granted().is_some_and(|grant| grant.token == token) => {
                found.renew_native(lease, client, details);
                found
            }
            entry => {
                let mut occupied = match entry {
                    Entry::Occupied(mut found) => {
                        found.give_up();
                        found.put(owner, lease);
                        found
                    }
                    Entry::Vacant(place) => place.insert(owner, lease),
                };
                occupied.grant_native(token, client, details);
                occupied
            }
        };
        occupied.event(b'$', "set");
        if let Lease::Until(_) = lease {
            occupied.event(b'g', "expire");
        }
    }

    /// Writes a holder of a lock that is not exclusive. The lease of the key is the longest of its holders.
    pub(crate) fn put_holder(&mut self, key: &[u8], kind: LockKind, owner: &Bytes, holder: Holder) {
        if let Ok(mut lock) = self.view.open::<Lock>(key) {
            lock.put(kind, owner, holder);
        }
        self.update_deadline(key);
    }

    /// What is known of a holder of a lock that is not exclusive.
    pub(crate) fn holder_of(&mut self, key: &[u8], owner: &[u8]) -> Option<Holder> {
        let lock = self.view.entry(key).occupied()?.into_object::<Lock>().ok()?;
        lock.holder(owner).cloned()
    }

    /// What `owner` holds of a lock of any kind.
    pub(crate) fn hold_of(&mut self, key: &[u8], owner: &[u8]) -> Option<Hold> {
        self.view.entry(key).occupied()?.hold_of(owner)
    }

    /// Begins the lease of a holder anew; `None`: it has no lease from now on. With a client, the lock belongs to that
    /// connection from now on. The owner holds the lock.
    pub fn renew(
        &mut self,
        key: &[u8],
        owner: &Bytes,
        (deadline, lease_ms): (Option<Deadline>, Option<u64>),
        client: Option<ClientId>,
    ) {
        match self.holder_of(key, owner) {
            Some(holder) => {
                // The end of a connection, and a new one, are no renewals.
                let again = u32::from(holder.session.is_none());
                let (kind, renewals) = (self.kind(key), holder.renewals.saturating_add(again));
                let client = client.unwrap_or(holder.client);
                self.put_holder(key, kind, owner, Holder { deadline, lease_ms, renewals, client, ..holder });
            }
            None => {
                if let Entry::Occupied(mut found) = self.view.entry(key) {
                    found.set_deadline(deadline);
                    found.event(b'g', if deadline.is_some() { "expire" } else { "persist" });
                    if let Some(client) = client {
                        found.set_holder(client);
                    }
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
        let Entry::Occupied(mut found) = self.view.entry(key) else { return false };
        if !found.hold_of(owner).is_some_and(|hold| fits(&hold)) {
            return false;
        }
        let lock = found.object().and_then(Lock::of);
        match lock.and_then(|lock| Some((lock.kind(), lock.holder(owner)?.clone()))) {
            Some((LockKind::Reentrant, holder)) if reason == EndReason::Released && holder.permits > 1 => {
                let (owner, permits) = (Bytes::copy_from_slice(owner), holder.permits - 1);
                self.put_holder(key, LockKind::Reentrant, &owner, Holder { permits, ..holder });
            }
            Some(_) => self.remove_holder(key, owner, reason),
            None => {
                found.event(b'g', "del");
                found.remove_for(reason);
            }
        }
        true
    }

    fn remove_holder(&mut self, key: &[u8], owner: &[u8], reason: EndReason) {
        let mut is_last = false;
        if let Ok(Some(mut lock)) = self.view.find::<Lock>(key) {
            lock.remove(owner, reason);
            is_last = lock.get().holders().len() == 0;
        }
        if is_last {
            self.view.event(b'g', "del", key);
        } else {
            self.update_deadline(key);
        }
        self.note_ended(key);
    }

    /// The connection of a session has ended: its lock ends now, or after its delay.
    pub fn end_session(&mut self, key: &[u8], lock: &SessionLock, session: &LockSession) {
        // Another connection may have taken the session over, and another request of the owner the lock.
        if session.client().is_some() || !self.is_of_session(key, lock, session) {
            return;
        }
        if lock.delay_ms == 0 {
            self.end_hold(key, &lock.owner, EndReason::Session, |_| true);
            return;
        }
        let delay_ms = i64::try_from(lock.delay_ms).unwrap_or(i64::MAX);
        let deadline = self.view.now().deadline_in(delay_ms);
        self.renew(key, &lock.owner, (Some(deadline), None), None);
    }

    /// Gives a lock of a session to the client that has attached to the session. False if the lock has ended.
    pub(crate) fn attach_session(
        &mut self,
        key: &[u8],
        lock: &SessionLock,
        session: &LockSession,
        client: ClientId,
    ) -> bool {
        if !self.is_of_session(key, lock, session) {
            return false;
        }
        self.renew(key, &lock.owner, (None, None), Some(client));
        true
    }

    fn is_of_session(&mut self, key: &[u8], lock: &SessionLock, session: &LockSession) -> bool {
        let hold = self.hold_of(key, &lock.owner).filter(|hold| hold.token == lock.token);
        hold.and_then(|hold| hold.session).is_some_and(|(id, _)| id == session.id)
    }

    /// Ends the hold with this token, of whatever kind. Returns false if no holder has it.
    pub(crate) fn break_hold(&mut self, key: &[u8], token: u64, breaker: Breaker) -> bool {
        let Some(mut found) = self.view.entry(key).occupied() else { return false };
        let owner = match found.object().and_then(Lock::of) {
            None if found.granted().is_none_or(|grant| grant.token != token) => return false,
            None => None,
            Some(lock) => match lock.holders().find(|(_, holder)| holder.token == token) {
                Some((owner, _)) => Some(owner.clone()),
                None => return false,
            },
        };
        found.place.changes.set_breaker(breaker);
        match owner {
            Some(owner) => self.remove_holder(key, &owner, EndReason::Broken),
            None => {
                found.event(b'g', "del");
                found.remove_for(EndReason::Broken);
            }
        }
        true
    }

    /// Visits who holds the lock: at most `limit` owners, each with its client and its token, in no order. A string that
    /// was not stored as a lock has neither: both are 0.
    pub(crate) fn each_holder(
        &mut self,
        key: &[u8],
        limit: usize,
        mut visit: impl FnMut(&[u8], ClientId, u64),
    ) {
        let Entry::Occupied(found) = self.view.entry(key) else { return };
        match found.object() {
            _ if limit == 0 => {}
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
    pub fn kind(&mut self, key: &[u8]) -> LockKind {
        let lock = self.view.entry(key).occupied().and_then(|found| found.into_object::<Lock>().ok());
        lock.map_or(LockKind::Exclusive, Lock::kind)
    }

    /// How another owner would have the lock that takes the place of a holder. Of a reentrant lock, one hold.
    pub(crate) fn mode_of(&mut self, key: &[u8], owner: &[u8]) -> Mode {
        match (self.kind(key), self.holder_of(key, owner)) {
            (kind @ LockKind::Permits(_), Some(holder)) => Mode { kind, permits: holder.permits },
            (kind, _) => Mode { kind, permits: 1 },
        }
    }

    /// Whether the lock could be granted in this mode if the owner, who holds it, did not.
    pub(crate) fn is_open_without(&mut self, key: &[u8], owner: &[u8], Mode { kind, permits }: Mode) -> bool {
        let Some(found) = self.view.entry(key).occupied() else { return false };
        let Some(lock) = found.object().and_then(Lock::of) else { return true };
        let own = lock.holder(owner).map_or(0, |holder| holder.permits);
        let wanted = lock.permits().saturating_sub(u64::from(own)).saturating_add(u64::from(permits));
        let has_room = kind.limit().is_none_or(|limit| wanted <= u64::from(limit));
        lock.holders().len() == 1 || (lock.kind() == kind && has_room)
    }

    /// Sets the deadline of a key to the end of the longest lease of its holders.
    fn update_deadline(&mut self, key: &[u8]) {
        let Entry::Occupied(mut found) = self.view.entry(key) else { return };
        let Some(Object::Lock(lock)) = found.object() else { return };
        let latest = lock.latest_deadline();
        if found.deadline() != latest {
            found.set_deadline(latest);
        }
    }

    /// Commands that wait for the lock of a key may have it now.
    fn note_ended(&mut self, key: &[u8]) {
        if !self.view.shard_state(key).queues.locks.is_empty() {
            self.view.changes.ready(self.view.database, Bytes::copy_from_slice(key));
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
