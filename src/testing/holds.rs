//! Which locks are held, followed from the changes of the keyspaces of a namespace.
//!
//! Owns    [`Holds`]: the holders of each lock of each node, as the journal tells them.
//! Rule    a lock has ended when its key is gone or has another value; a new deadline is a renewal.
//! Bounds  [`HOLDS_MAX`] locks; beyond, those with the first keys are forgotten.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::event::EventKind;
use crate::clock::{Deadline, Now};
use crate::journal::{Edit, HashEdit, LockEdit, Mutation, SortedSetEdit};
use crate::state::clients::ClientId;
use crate::types::Object;
use crate::types::lock::{Holder, LockKind};

/// Locks that are followed.
const HOLDS_MAX: usize = 10_000;
/// The field of Redisson's read/write locks that is no owner.
const MODE: &[u8] = b"mode";

/// A holder of a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Hold {
    /// The fencing token.
    pub(super) token: u64,
    /// The client that holds it; 0: not known.
    pub(super) client: ClientId,
    /// The value under which it is held.
    pub(super) owner: Bytes,
    /// The end of the lease.
    deadline: Option<Deadline>,
    /// Whether it is one holder of a value of the type lock, with a deadline of its own.
    is_of_lock: bool,
    /// `shared` if others may hold it, too; `session` if it ends with its connection.
    pub(super) note: Option<&'static str>,
}

/// What has become of a lock or a key.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Change {
    pub(super) kind: EventKind,
    pub(super) key: Bytes,
    /// The holder; `None`: the key was no lock.
    pub(super) hold: Option<Hold>,
    /// The lease in milliseconds, of a grant or a renewal.
    pub(super) lease: Option<u64>,
}

type Place = (u16, u16, Bytes);

/// The holders of each lock, by node, database and key.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<Place, Vec<Hold>>);

impl Holds {
    /// Follows the changes of one record of a node.
    pub(super) fn follow(&mut self, node: u16, mutations: &[Mutation], now: Now) -> Vec<Change> {
        let mut changes = Vec::new();
        // The owner of the value that was written last: a grant comes behind it.
        let mut owner = Bytes::new();
        for mutation in mutations {
            match mutation {
                Mutation::Clear { database } => self.clear(node, *database, &mut changes),
                Mutation::Swap { a, b } => self.swap(node, *a, *b),
                Mutation::Put { database, key, value, deadline } => {
                    owner = value.clone();
                    self.put((node, *database, key.clone()), value, (*deadline, now), &mut changes);
                }
                Mutation::PutObject { database, key, object, .. } => {
                    let place = (node, *database, key.clone());
                    self.end(&place, None, &mut changes);
                    if let Object::Lock(lock) = object {
                        for (owner, holder) in lock.holders() {
                            self.hold(
                                &place,
                                Hold::of(lock.kind(), owner, holder),
                                holder.lease_ms,
                                &mut changes,
                            );
                        }
                    }
                }
                Mutation::Edit { database, key, edit } => match edit {
                    Edit::Hash(HashEdit::Set(field, _)) if field != MODE => owner = field.clone(),
                    Edit::SortedSet(SortedSetEdit::Insert { member, .. }) => owner = member.clone(),
                    Edit::Lock(edit) => self.edit((node, *database, key.clone()), edit, now, &mut changes),
                    _ => {}
                },
                Mutation::Grant { database, key, token, holder, lease_ms, .. } => {
                    let deadline = lease_ms.map(|lease_ms| now.deadline_in(lease_ms.into()));
                    let (token, client, owner) = (*token, *holder, owner.clone());
                    let hold = Hold { token, client, owner, deadline, is_of_lock: false, note: None };
                    let place = (node, *database, key.clone());
                    self.hold(&place, hold, lease_ms.map(u64::from), &mut changes);
                }
                Mutation::SetDeadline { database, key, deadline } => {
                    self.renew(&(node, *database, key.clone()), *deadline, now, &mut changes);
                }
                Mutation::Place { .. } => {}
                Mutation::Remove { database, key, expired } => {
                    let place = (node, *database, key.clone());
                    let was_held = self.end(&place, Some((*expired, now)), &mut changes);
                    if *expired && !was_held {
                        let (kind, key) = (EventKind::Expired, key.clone());
                        changes.push(Change { kind, key, hold: None, lease: None });
                    }
                }
            }
        }
        changes
    }

    /// A string was stored. A lock with this value stays; its lease may have begun anew.
    fn put(
        &mut self,
        place: Place,
        value: &Bytes,
        (deadline, now): (Option<Deadline>, Now),
        changes: &mut Vec<Change>,
    ) {
        match self.0.get(&place).and_then(|holds| holds.first()) {
            Some(hold) if hold.owner != *value => _ = self.end(&place, None, changes),
            Some(hold) if hold.deadline != deadline => self.renew(&place, deadline, now, changes),
            _ => {}
        }
    }

    /// Somebody holds a lock, or its holder is another connection from now on.
    fn hold(&mut self, place: &Place, hold: Hold, lease: Option<u64>, changes: &mut Vec<Change>) {
        if self.0.len() == HOLDS_MAX && !self.0.contains_key(place) {
            self.0.pop_first();
        }
        let holds = self.0.entry(place.clone()).or_default();
        let kind = match holds.iter_mut().find(|known| known.token == hold.token) {
            // A holder of several permits gives some of them back, or has a new connection.
            Some(known) if known.deadline == hold.deadline => {
                *known = hold;
                return;
            }
            Some(known) => {
                *known = hold.clone();
                EventKind::Renewed
            }
            None => {
                holds.push(hold.clone());
                EventKind::Granted
            }
        };
        changes.push(Change { kind, key: place.2.clone(), hold: Some(hold), lease });
    }

    /// A key has a new deadline.
    fn renew(&mut self, place: &Place, deadline: Option<Deadline>, now: Now, changes: &mut Vec<Change>) {
        // A lease that has ended is told when its key is removed.
        if deadline.is_some_and(|deadline| deadline.has_passed(now.lock)) {
            return;
        }
        for hold in self.0.get_mut(place).into_iter().flatten().filter(|hold| !hold.is_of_lock) {
            hold.deadline = deadline;
            let lease = deadline.map(|deadline| u64::try_from(now.millis_until(deadline)).unwrap_or(0));
            let (kind, hold) = (EventKind::Renewed, Some(hold.clone()));
            changes.push(Change { kind, key: place.2.clone(), hold, lease });
        }
    }

    /// A holder of a value of the type lock has come, has changed or has gone.
    fn edit(&mut self, place: Place, edit: &LockEdit, now: Now, changes: &mut Vec<Change>) {
        match edit {
            LockEdit::Put(kind, owner, holder) => {
                self.hold(&place, Hold::of(*kind, owner, holder), holder.lease_ms, changes);
            }
            LockEdit::Remove(owner) => {
                let Some(holds) = self.0.get_mut(&place) else { return };
                if let Some(at) = holds.iter().position(|hold| hold.owner == *owner) {
                    let hold = holds.remove(at);
                    let has_ended = hold.deadline.is_some_and(|deadline| deadline.has_passed(now.lock));
                    let kind = if has_ended { EventKind::Expired } else { EventKind::Released };
                    changes.push(Change { kind, key: place.2.clone(), hold: Some(hold), lease: None });
                }
                if holds.is_empty() {
                    self.0.remove(&place);
                }
            }
        }
    }

    /// Nobody holds the lock any more. Returns whether somebody did.
    fn end(&mut self, place: &Place, removed: Option<(bool, Now)>, changes: &mut Vec<Change>) -> bool {
        let Some(holds) = self.0.remove(place) else { return false };
        for hold in holds {
            let kind = match removed {
                Some((true, _)) => EventKind::Expired,
                Some((false, now)) if hold.is_of_lock && hold.has_ended(now) => EventKind::Expired,
                _ => EventKind::Released,
            };
            changes.push(Change { kind, key: place.2.clone(), hold: Some(hold), lease: None });
        }
        true
    }

    fn clear(&mut self, node: u16, database: u16, changes: &mut Vec<Change>) {
        let is_here = |place: &&Place| (place.0, place.1) == (node, database);
        let places: Vec<Place> = self.0.keys().filter(is_here).cloned().collect();
        for place in places {
            self.end(&place, None, changes);
        }
    }

    fn swap(&mut self, node: u16, a: u16, b: u16) {
        let holds = std::mem::take(&mut self.0).into_iter();
        self.0 = holds
            .map(|((of, database, key), holds)| {
                let database = match database {
                    _ if of != node => database,
                    database if database == a => b,
                    database if database == b => a,
                    database => database,
                };
                ((of, database, key), holds)
            })
            .collect();
    }
}

impl Hold {
    fn of(kind: LockKind, owner: &Bytes, holder: &Holder) -> Self {
        let Holder { token, client, deadline, .. } = *holder;
        let note = match kind {
            LockKind::Shared | LockKind::Permits(_) => Some("shared"),
            LockKind::Exclusive | LockKind::Reentrant => holder.session.map(|_| "session"),
        };
        Self { token, client, owner: owner.clone(), deadline, is_of_lock: true, note }
    }

    fn has_ended(&self, now: Now) -> bool {
        self.deadline.is_some_and(|deadline| deadline.has_passed(now.lock))
    }
}
