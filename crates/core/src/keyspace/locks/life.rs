//! The life of a lock: granted, renewed, ended. Every grant in the keyspace changes here and nowhere else.
//!
//! Owns    the functions that change a grant. Each tells the counters and the history of the shard at once, and the
//!         observers of locks at the end of the call.
//! Rule    an entry is a lock in one of two forms: a grant beside its value, or a value of the type lock, which has a record
//!         for each holder. Callers need not know which.
//! Rule    where nobody looks, an event costs one branch.

use bytes::Bytes;

use crate::keyspace::shard::{EntryId, Form, Shard};
use crate::keyspace::{Changes, Lease, Occupied};
use crate::locks::foreign::sole_owner;
use crate::locks::history::{self, PastLock};
use crate::locks::{Before, EndReason, GrantDetails, LockChange, LockEvent};
use crate::state::clients::ClientId;
use crate::types::lock::{Holder, LockKind};
use crate::types::{Lock, Object, Typed};

impl Occupied<'_> {
    /// Makes the key a lock, granted to a client now. Its lease is what its deadline says.
    ///
    /// A later deadline counts as a renewal; another value, or the removal of the key, ends the grant.
    #[inline]
    pub fn grant(&mut self, token: u64, holder: ClientId, is_native: bool) {
        if self.place.shard.is_granted(self.id) {
            self.give_up();
        }
        self.place.shard.grant(self.id, token, holder, is_native);
        self.granted_now();
    }

    /// Like [`Occupied::grant`], for a LOCK command.
    pub(crate) fn grant_native(&mut self, token: u64, holder: ClientId, details: GrantDetails) {
        self.place.shard.grant(self.id, token, holder, true);
        self.place.shard.set_grant_details(self.id, details);
        self.granted_now();
    }

    #[inline]
    fn granted_now(&mut self) {
        self.grant_changed();
        if self.place.changes.wants_locks() {
            self.announce_change(LockChange::Granted);
        }
    }

    /// The owner has asked for its lock again, by a LOCK command: it keeps the grant, and its lease begins anew.
    pub(crate) fn renew_native(&mut self, lease: Lease, holder: ClientId, details: GrantDetails) {
        // The lock may leave a session.
        let wants_locks = self.place.changes.wants_locks();
        let before = self.known().filter(|before| wants_locks || before.session.is_some());
        let before_ms = self.end_ms();
        self.set_lease(lease);
        self.changed(before_ms);
        self.place.shard.set_holder(self.id, holder);
        self.place.shard.set_grant_details(self.id, details);
        self.grant_changed();
        self.renewed(before);
    }

    /// Gives the lock to another connection of its owner.
    pub(crate) fn set_holder(&mut self, holder: ClientId) {
        let before = self.before();
        self.place.shard.set_holder(self.id, holder);
        self.grant_changed();
        self.renewed(before.filter(|before| before.client != holder));
    }

    /// What is known of the grant, if the key is a lock with a lease and every event is wanted.
    #[inline]
    pub(crate) fn before(&self) -> Option<Before> {
        match self.place.changes.wants_locks() {
            true => self.known().filter(|before| before.session.is_none()),
            false => None,
        }
    }

    #[cold]
    fn known(&self) -> Option<Before> {
        let (grant, details) = (self.granted()?, self.place.shard.grant_details(self.id));
        Some(Before {
            client: grant.holder,
            lease_ms: grant.lease_ms.map(u64::from),
            deadline: self.deadline(),
            session: details.and_then(|details| details.session).map(|(id, _)| id),
        })
    }

    /// The lease of the lock begins anew, or has another end. `before`: [`Occupied::before`] it was changed.
    #[inline]
    pub(crate) fn renewed(&mut self, before: Option<Before>) {
        if let Some(before) = before {
            self.announce_change(LockChange::Renewed(before));
        }
    }

    /// Whether the lease of the lock belongs to its holders or to a session: commands on keys must not change it.
    #[inline]
    pub fn has_own_lease(&self) -> bool {
        let (shard, id) = (&*self.place.shard, self.id);
        match self.form() {
            Form::Object => matches!(shard.object(id), Some(Object::Lock(_))),
            _ => shard.is_native(id) && shard.is_of_session(id),
        }
    }

    #[cold]
    fn announce_change(&mut self, change: LockChange) {
        if let Some(event) = event_of_grant(self.place.shard, self.id, change) {
            self.place.changes.lock_event(event);
        }
    }

    /// The owner gives its lock up, to take it anew.
    pub(crate) fn give_up(&mut self) {
        self.clear_lock_for(EndReason::Released);
    }

    /// A string replaces the value next. That ends the lock that the key is, if it is one, unless the value is the same: then
    /// the owner renews it, and what was known of it is returned as by [`Occupied::before`].
    #[inline]
    pub(crate) fn replaced_by(&mut self, value: &[u8]) -> Option<Before> {
        if self.place.shard.is_granted(self.id) {
            return self.grant_replaced_by(value);
        }
        if self.form() == Form::Object {
            self.lock_ends(self.place.changes.end_reason());
        }
        None
    }

    fn grant_replaced_by(&mut self, value: &[u8]) -> Option<Before> {
        let is_same = self.string().is_ok_and(|held| held == value);
        if is_same && !self.has_own_lease() {
            return self.before();
        }
        self.clear_lock();
        None
    }

    /// Ends the lock that the key is, if it is one, for the reason of the call: its value is replaced or changed next.
    #[inline]
    pub(crate) fn clear_lock(&mut self) {
        self.clear_lock_for(self.place.changes.end_reason());
    }

    #[inline]
    fn clear_lock_for(&mut self, reason: EndReason) {
        self.lock_ends(reason);
        if self.place.shard.is_granted(self.id) {
            self.place.shard.clear_grant(self.id);
        }
    }

    /// Nobody holds the lock any more, if the key is one. The caller removes the entry next.
    #[inline]
    pub(crate) fn lock_ends(&mut self, reason: EndReason) {
        let place = history::place(self.place.hash, self.place.database);
        end(self.place.shard, self.place.changes, self.id, place, reason);
    }
}

/// A holder joins the lock of an entry, or something of it changes: the caller stores it next.
pub(crate) fn put_holder(
    shard: &mut Shard,
    changes: &mut Changes,
    id: EntryId,
    (kind, owner, holder): (LockKind, &Bytes, &Holder),
) {
    let known = shard.object(id).and_then(Lock::of).and_then(|lock| lock.holder(owner));
    let (before, session) = (known.map(Before::of), holder.session.map(|(id, _)| id));
    // A hold that is given back, and another connection of the session, are no events.
    let is_same = known.is_some_and(|known| known.renewals == holder.renewals)
        && before.is_some_and(|before| before.session == session);
    if before.is_none() {
        shard.count_acquired(id, kind);
    }
    let leaves_session = before.is_some_and(|before| before.session.is_some());
    if !is_same && (changes.wants_locks() || leaves_session) {
        let change = before.map_or(LockChange::Granted, LockChange::Renewed);
        let (database, key) = (shard.db(id), Bytes::copy_from_slice(shard.key(id)));
        changes.lock_event(event_of_holder((database, key), kind, (owner, holder), change));
    }
}

impl Before {
    fn of(holder: &Holder) -> Self {
        let Holder { client, lease_ms, deadline, session, .. } = *holder;
        Self { client, lease_ms, deadline, session: session.map(|(id, _)| id) }
    }
}

/// Ends the lock that an entry is, if it is one: every holder loses it. `place` is the hash of its key and database.
#[inline]
pub(crate) fn end(shard: &mut Shard, changes: &mut Changes, id: EntryId, place: u64, reason: EndReason) {
    if shard.is_granted(id) {
        let told = shard.count_end(id, place, reason, changes.author);
        if shard.keeps_end(told) {
            record_end(shard, changes, id, place, (reason, told));
        }
        let is_lost = told != EndReason::Released;
        if changes.wants_locks() || (shard.is_native(id) && (is_lost || shard.has_grant_details())) {
            announce_end(shard, changes, id, told);
        }
    } else if let Some(Object::Lock(lock)) = shard.object(id) {
        let owners: Vec<Bytes> = lock.holders().map(|(owner, _)| owner.clone()).collect();
        owners.iter().for_each(|owner| end_holder(shard, changes, id, place, (owner, reason)));
    }
}

#[cold]
fn record_end(
    shard: &mut Shard,
    changes: &Changes,
    id: EntryId,
    place: u64,
    (reason, told): (EndReason, EndReason),
) {
    let Some(grant) = shard.granted(id) else { return };
    let (author, breaker, ended) = (changes.author, changes.breaker(told), shard.end_time(id, reason));
    let past = PastLock::new(shard.key(id), owner_of(shard, id), &grant);
    shard.history().push(place, PastLock { author, breaker, ended, reason: told, ..past });
}

#[cold]
fn announce_end(shard: &Shard, changes: &mut Changes, id: EntryId, told: EndReason) {
    let change = LockChange::Ended(told, changes.breaker(told));
    if let Some(event) = event_of_grant(shard, id, change) {
        changes.lock_event(event);
    }
}

/// The name under which the lock of an entry is held, if its value says one.
fn owner_of(shard: &Shard, id: EntryId) -> Option<&[u8]> {
    match shard.object(id) {
        None => Some(shard.value(id)),
        Some(object) => sole_owner(object),
    }
}

/// Ends what one owner holds of a value of the type lock. The caller removes the holder next.
#[cold]
pub(crate) fn end_holder(
    shard: &mut Shard,
    changes: &mut Changes,
    id: EntryId,
    place: u64,
    (owner, reason): (&[u8], EndReason),
) {
    let Some(lock) = shard.object(id).and_then(Lock::of) else { return };
    let (Some(holder), kind) = (lock.holder(owner).cloned(), lock.kind()) else { return };
    let ended = match (reason, holder.deadline) {
        (EndReason::Expired, Some(deadline)) => deadline.time(),
        _ => shard.time(),
    };
    let told = told_reason(reason, holder.client == changes.author, holder.session.is_some());
    let (database, key, breaker) =
        (shard.db(id), Bytes::copy_from_slice(shard.key(id)), changes.breaker(told));
    let past = PastLock {
        author: changes.author,
        reason: told,
        ended,
        breaker: breaker.clone(),
        ..PastLock::of_holder(&key, owner, &holder)
    };
    shard.count_holder_end(id, place, &past);
    if shard.keeps_end(told) {
        shard.history().push(place, past);
    }
    let owner = Bytes::copy_from_slice(owner);
    changes.lock_event(event_of_holder(
        (database, key),
        kind,
        (&owner, &holder),
        LockChange::Ended(told, breaker),
    ));
}

/// The reason for which a lock has ended, as everybody is told it.
///
/// A holder that deletes its own lock releases it. A lock of a session has a lease only after its connection has ended: the
/// end of that lease is the end of the session.
#[inline]
pub(crate) fn told_reason(reason: EndReason, is_own: bool, is_of_session: bool) -> EndReason {
    match reason {
        EndReason::Deleted if is_own => EndReason::Released,
        EndReason::Expired if is_of_session => EndReason::Session,
        reason => reason,
    }
}

fn event_of_grant(shard: &Shard, id: EntryId, change: LockChange) -> Option<LockEvent> {
    let grant = shard.granted(id)?;
    Some(LockEvent {
        change,
        database: shard.db(id),
        key: Bytes::copy_from_slice(shard.key(id)),
        owner: owner_of(shard, id).map(Bytes::copy_from_slice),
        kind: shard.lock_kind(id),
        token: grant.token,
        with: grant.token,
        client: grant.holder,
        is_native: grant.is_native,
        session: shard.grant_details(id).and_then(|details| details.session).map(|(id, _)| id),
        lease_ms: grant.lease_ms.map(u64::from),
        author: 0,
        is_nested: false,
    })
}

fn event_of_holder(
    (database, key): (u16, Bytes),
    kind: LockKind,
    (owner, holder): (&Bytes, &Holder),
    change: LockChange,
) -> LockEvent {
    LockEvent {
        change,
        database,
        key,
        owner: Some(owner.clone()),
        kind,
        token: holder.token,
        with: holder.token,
        client: holder.client,
        is_native: true,
        session: holder.session.map(|(id, _)| id),
        lease_ms: holder.lease_ms,
        author: 0,
        is_nested: false,
    }
}
