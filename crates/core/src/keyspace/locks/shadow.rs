//! Locks of another server, as they were read: what `redlatch beside` shows.
//!
//! Owns    how a reading changes a keyspace. Nothing else changes that keyspace: see
//!         [`Keyspace::keep_ended`](crate::keyspace::Keyspace::keep_ended).
//! Rule    a grant has no token and no client. It goes on for as long as readings find its owner.

use std::collections::BTreeSet;

use crate::keyspace::{Entry, Lease, Occupied, ViewLocks};
use crate::locks::EndReason;
use crate::types::{Hash, Object, Seed, SortedSet};

/// The value of a lock of another server.
#[derive(Clone, Debug, PartialEq)]
pub enum LockValue {
    /// Fields and values.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// Members and scores.
    SortedSet(Vec<(Vec<u8>, f64)>),
    String(Vec<u8>),
}

impl LockValue {
    /// The object that it is, unless it is a string.
    fn object(&self, seed: Seed) -> Result<Object, &[u8]> {
        match self {
            Self::Hash(fields) => {
                let mut hash = Hash::new(seed);
                for (field, value) in fields {
                    hash.set(field, value);
                }
                Ok(hash.into())
            }
            Self::SortedSet(members) => {
                let entries = members.iter().map(|(member, score)| (&member[..], *score));
                Ok(SortedSet::of(entries, seed).into())
            }
            Self::String(owner) => Err(owner),
        }
    }
}

impl ViewLocks<'_, '_> {
    /// The lock of a key was read. The same lock goes on if it has the owners that it had; `has_expired`: otherwise the
    /// lease of the old one has ended.
    pub fn show_held(&mut self, key: &[u8], value: &LockValue, mut lease: Lease, has_expired: bool) {
        let object = value.object(self.view.seed());
        let found = self.view.entry(key).occupied();
        let other = found.filter(|found| !has_owners_of(found, &object)).map(|found| found.deadline());
        if let Some(deadline) = other {
            self.show_free(key, has_expired);
            if lease == Lease::Keep {
                lease = deadline.map_or(Lease::Never, Lease::Until);
            }
        }
        let mut shown = match (object, self.view.entry(key)) {
            (Err(owner), entry) => entry.put(owner, lease),
            (Ok(object), Entry::Occupied(mut found)) => {
                found.replace_object(object, lease);
                found
            }
            (Ok(object), entry) => entry.put_object(object, lease),
        };
        if shown.granted().is_none() {
            shown.grant(NO_TOKEN, NO_CLIENT, false);
        }
    }

    /// The lock of a key was not found any more: its lease has ended, or else it was released.
    pub fn show_free(&mut self, key: &[u8], has_expired: bool) {
        if let Some(mut found) = self.view.entry(key).occupied() {
            found.remove_for(if has_expired { EndReason::Expired } else { EndReason::Released });
        }
    }
}

/// Whether a key has the owners that a value names: an object, or else a string.
fn has_owners_of(found: &Occupied<'_>, value: &Result<Object, &[u8]>) -> bool {
    match (found.object(), value) {
        (None, Err(owner)) => found.string() == Ok(*owner),
        (Some(held), Ok(object)) => owners(held) == owners(object),
        _ => false,
    }
}

/// The fields of a hash, or the members of a sorted set.
fn owners(object: &Object) -> BTreeSet<&[u8]> {
    match object {
        Object::Hash(hash) => hash.iter().map(|(field, _)| field).collect(),
        Object::SortedSet(set) => set.entries().map(|(member, _)| member).collect(),
        _ => BTreeSet::new(),
    }
}

const NO_TOKEN: u64 = 0;
const NO_CLIENT: u64 = 0;
