//! Who is to learn of the next change of a key: transactions that watch it, clients that keep a copy of its value.
//!
//! Owns    both registers of one shard. A shard where nobody observes anything pays one branch per change.
//! Locks   none: whoever calls holds the mutex of the shard.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::state::clients::ClientId;
use crate::state::transaction::Watch;

/// Something per key of several databases.
#[derive(Debug)]
pub(super) struct ByKey<V>(BTreeMap<u16, BTreeMap<Bytes, V>>);

impl<V> Default for ByKey<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> ByKey<V> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, database: u16, key: &[u8]) -> Option<&V> {
        self.0.get(&database)?.get(key)
    }

    pub(super) fn get_mut(&mut self, database: u16, key: &[u8]) -> Option<&mut V> {
        self.0.get_mut(&database)?.get_mut(key)
    }

    pub(super) fn entry(&mut self, database: u16, key: &Bytes) -> &mut V
    where
        V: Default,
    {
        self.0.entry(database).or_default().entry(key.clone()).or_default()
    }

    pub(super) fn remove(&mut self, database: u16, key: &[u8]) {
        if let Some(keys) = self.0.get_mut(&database) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(&database);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &Bytes, &V)> {
        self.0
            .iter()
            .flat_map(|(database, keys)| keys.iter().map(move |(key, value)| (*database, key, value)))
    }
}

/// Who keeps a copy of a key's value: rarely more than a few.
pub(super) type Readers = SmallVec<[ClientId; 2]>;

/// The observers of one shard's keys.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    watches: ByKey<Vec<Arc<Watch>>>,
    /// By key alone: a client is told the name, not the database.
    readers: BTreeMap<Bytes, Readers>,
}

impl Observers {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.readers.is_empty()
    }

    pub(super) fn watch(&mut self, database: u16, key: &Bytes, watch: &Arc<Watch>) {
        self.watches.entry(database, key).push(Arc::clone(watch));
    }

    pub(super) fn unwatch(&mut self, database: u16, key: &[u8], watch: &Arc<Watch>) {
        let Some(watches) = self.watches.get_mut(database, key) else { return };
        watches.retain(|other| !Arc::ptr_eq(other, watch));
        if watches.is_empty() {
            self.watches.remove(database, key);
        }
    }

    /// A client has read a key and is to be told of its next change; false when it already was to be.
    pub(super) fn remember(&mut self, key: &[u8], reader: ClientId) -> bool {
        if let Some(readers) = self.readers.get_mut(key) {
            let is_new = !readers.contains(&reader);
            if is_new {
                readers.push(reader);
            }
            return is_new;
        }
        self.readers.insert(Bytes::copy_from_slice(key), SmallVec::from_slice(&[reader]));
        true
    }

    /// A key has changed: breaks the watches over it, and returns who kept a copy; each is told once.
    pub(super) fn touch(&mut self, database: u16, key: &[u8]) -> Option<(Bytes, Readers)> {
        for watch in self.watches.get(database, key).into_iter().flatten() {
            watch.touch();
        }
        self.readers.remove_entry(key)
    }

    /// Breaks the watches over those keys of a database of which `is_touched` says so.
    pub(super) fn touch_each(&self, database: u16, mut is_touched: impl FnMut(&[u8]) -> bool) {
        let here = self.watches.iter().filter(|(other, ..)| *other == database);
        for (.., watches) in here.filter(|(_, key, _)| is_touched(key)) {
            watches.iter().for_each(|watch| watch.touch());
        }
    }

    /// Everything has changed: whoever kept a copy of anything is told so by other means.
    pub(super) fn forget_readers(&mut self) {
        self.readers.clear();
    }

    /// Keys of which somebody keeps a copy, and the copies.
    pub(super) fn tracked(&self) -> (usize, usize) {
        (self.readers.len(), self.readers.values().map(SmallVec::len).sum())
    }
}
