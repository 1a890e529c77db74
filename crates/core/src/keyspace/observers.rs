//! The observers of keys: transactions that WATCH a key, and clients that have cached its value.
//!
//! Owns    both registers of one shard. In a shard without observers a change costs one branch.
//! Locks   none: the caller holds the mutex of the shard.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use bytes::Bytes;

use crate::state::clients::ClientId;
use crate::state::ledger::{Charge, Kind, Ledger};
use crate::state::tracking::{Readers, Tracking};
use crate::state::transaction::Watch;
use crate::types::heap;

/// A map by database and key.
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

/// The observers of one shard's keys.
#[derive(Debug)]
pub(crate) struct Observers {
    watches: ByKey<Vec<Arc<Watch>>>,
    /// By key alone: invalidations name the key, not the database.
    readers: BTreeMap<Bytes, Readers>,
    /// The key that was last dropped because of the limit. The search for the next one starts behind it.
    dropped: Bytes,
    /// The memory of the readers. Watches have charges of their own.
    charge: Charge,
}

/// Bytes of a tracked key.
fn tracked_bytes(key: &[u8], readers: &Readers) -> usize {
    let spilled = if readers.spilled() { readers.capacity() * size_of::<ClientId>() } else { 0 };
    heap::in_tree::<(Bytes, Readers)>() + key.len() + spilled
}

/// From this number of readers of one key on, disconnected readers are removed at each doubling.
const READERS_UNCHECKED_MAX: usize = 64;
/// Keys dropped in one step while more than the limit are tracked.
const DROPPED_PER_STEP: usize = 8;

impl Observers {
    /// No observer yet. The memory of tracked keys is charged to `ledger`.
    pub(super) fn new(ledger: &Arc<Ledger>) -> Self {
        let (watches, readers, dropped) = Default::default();
        Self { watches, readers, dropped, charge: ledger.open(Kind::Tracking) }
    }

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

    /// Tracks a key that a client has read. Returns keys that are no longer tracked because there are more than
    /// `keys_max`; zero means no limit.
    pub(super) fn remember(
        &mut self,
        key: &[u8],
        reader: ClientId,
        tracking: &Tracking,
        keys_max: usize,
    ) -> Vec<(Bytes, Readers)> {
        if let Some(readers) = self.readers.get_mut(key) {
            // Numbers of clients rise, so that a new one mostly belongs at the end.
            let Err(at) = readers.binary_search(&reader) else { return Vec::new() };
            let before = tracked_bytes(key, readers);
            readers.insert(at, reader);
            // At each doubling, disconnected clients are removed, so that the list stays bounded.
            if readers.len() >= READERS_UNCHECKED_MAX && readers.len().is_power_of_two() {
                readers.retain(|other| *other == reader || tracking.reads(*other));
            }
            self.charge.add(tracked_bytes(key, readers) - before);
            return Vec::new();
        }
        let readers = Readers::from_slice(&[reader]);
        self.charge.add(tracked_bytes(key, &readers));
        self.readers.insert(Bytes::copy_from_slice(key), readers);
        tracking.remembered();
        match tracking.excess(keys_max) {
            0 => Vec::new(),
            excess => self.drop_next(excess.min(DROPPED_PER_STEP), tracking),
        }
    }

    /// Stops tracking `count` keys, in the order of their names and starting again at the first, so that every key is
    /// dropped in turn.
    #[cold]
    fn drop_next(&mut self, count: usize, tracking: &Tracking) -> Vec<(Bytes, Readers)> {
        let mut dropped = Vec::with_capacity(count);
        while dropped.len() < count && !self.readers.is_empty() {
            let behind = (Excluded(&self.dropped), Unbounded);
            let next = self.readers.range::<Bytes, _>(behind).next().map(|(key, _)| key.clone());
            self.dropped = next.unwrap_or_default();
            if let Some(entry) = self.readers.remove_entry(&self.dropped) {
                self.charge.sub(tracked_bytes(&entry.0, &entry.1));
                tracking.forgotten(1);
                dropped.push(entry);
            }
        }
        dropped
    }

    /// A key has changed: breaks its watches, and returns the clients that have cached it. They are no longer tracked.
    pub(super) fn touch(&mut self, database: u16, key: &[u8]) -> Option<(Bytes, Readers)> {
        for watch in self.watches.get(database, key).into_iter().flatten() {
            watch.touch();
        }
        let entry = self.readers.remove_entry(key);
        if let Some((key, readers)) = &entry {
            self.charge.sub(tracked_bytes(key, readers));
        }
        entry
    }

    /// Breaks the watches of those keys of a database for which `is_touched` is true.
    pub(super) fn touch_each(&self, database: u16, mut is_touched: impl FnMut(&[u8]) -> bool) {
        let here = self.watches.iter().filter(|(other, ..)| *other == database);
        for (.., watches) in here.filter(|(_, key, _)| is_touched(key)) {
            watches.iter().for_each(|watch| watch.touch());
        }
    }

    /// Stops tracking all keys: the caller invalidates everything. Returns how many keys were tracked.
    pub(super) fn forget_readers(&mut self) -> usize {
        self.charge.set(0);
        std::mem::take(&mut self.readers).len()
    }

    /// How many keys are tracked, and how many clients have cached them, summed over the keys.
    pub(super) fn tracked(&self) -> (usize, usize) {
        (self.readers.len(), self.readers.values().map(Readers::len).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::clients::Client;
    use crate::state::tracking::Tracker;
    use redlatch_proto::clock::LockTime;

    fn begin(tracking: &Tracking, id: ClientId) {
        let client = Client::new(id, String::new(), String::new(), false, LockTime::from_millis(1));
        tracking.begin(Tracker::new(Arc::new(client), None));
    }

    #[test]
    fn keys_beyond_the_limit_are_dropped_one_by_one_and_in_turn() {
        let (mut observers, tracking) = (Observers::new(&Arc::default()), Tracking::default());
        let mut dropped = Vec::new();
        for n in 0..100 {
            let key = format!("key {:02}", n * 37 % 100);
            dropped.extend(observers.remember(key.as_bytes(), 1, &tracking, 3));
            assert_eq!(observers.tracked(), ((n + 1).min(3), (n + 1).min(3)));
        }
        assert!(dropped.iter().all(|(_, readers)| readers[..] == [1]));
        let mut names: Vec<_> = dropped.into_iter().map(|(key, _)| key).collect();
        names.extend(observers.readers.keys().cloned());
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 100, "each was dropped once or is still tracked");
    }

    #[test]
    fn a_lower_limit_is_reached_step_by_step() {
        let (mut observers, tracking) = (Observers::new(&Arc::default()), Tracking::default());
        for n in 0..20 {
            assert!(observers.remember(format!("{n}").as_bytes(), 1, &tracking, 0).is_empty(), "no limit");
        }
        assert_eq!(observers.remember(b"one more", 1, &tracking, 5).len(), DROPPED_PER_STEP);
        assert_eq!(observers.remember(b"and another", 1, &tracking, 5).len(), DROPPED_PER_STEP);
        assert_eq!(observers.remember(b"the last", 1, &tracking, 5).len(), 2);
        assert_eq!(observers.tracked().0, 5);
    }

    #[test]
    fn readers_that_have_disconnected_are_removed() {
        let (mut observers, tracking) = (Observers::new(&Arc::default()), Tracking::default());
        begin(&tracking, 5);
        for id in 1..=100_000 {
            observers.remember(b"k", id, &tracking, 0);
        }
        assert!(observers.tracked().1 < READERS_UNCHECKED_MAX, "{:?}", observers.tracked());
        let (_, readers) = observers.touch(0, b"k").expect("a key that is remembered");
        assert!(readers.contains(&5) && readers.is_sorted(), "a connected reader is kept");
        assert_eq!(observers.touch(0, b"k"), None, "and once");
    }
}
