//! Clients that keep copies of values, and are told when a copy may be out of date: CLIENT TRACKING.
//!
//! Owns    what each of them wants to be told, and how many keys are remembered. Which keys it has read, the shards know.
//! Rule    delivery goes to mailboxes while the shards of the change are locked: a client that has seen the change has
//!         the invalidation before it.
//! Source  Redis 7.0 `tracking.c`.

mod overlap;
mod prefixes;
mod tracker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::RwLock;

use super::clients::{ClientId, Clients};
use prefixes::Prefixes;

pub use overlap::Overlap;
pub use tracker::{Reads, Tracker, Which};

/// A key of which copies are out of date.
#[derive(Clone, Debug)]
pub struct Stale {
    /// Its name.
    pub key: Bytes,
    /// Who has read it since it last changed.
    pub readers: Readers,
    /// Why they are.
    pub cause: Cause,
}

/// Who keeps a copy of a key's value, by rising number: rarely more than a few.
pub type Readers = smallvec::SmallVec<[ClientId; 2]>;

/// Why copies of a key are out of date.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// Somebody has changed it, who may not want to be told so.
    Change,
    /// Its time was over.
    Expiry,
    /// It has not changed, but there is no room to remember who reads it.
    Room,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Tracking {
    trackers: DashMap<ClientId, Tracker>,
    prefixes: RwLock<Prefixes>,
    /// Trackers that have prefixes.
    broadcasts: AtomicUsize,
    /// Keys that the shards remember, those included whose readers are about to be told.
    keys: AtomicUsize,
}

impl Tracking {
    /// From now on that client is told. Replaces what it wanted before, but for prefixes, which add up: who goes from
    /// one mode to the other ends the one first.
    pub fn begin(&self, mut tracker: Tracker) {
        let id = tracker.client.id;
        if let Some(own) = &mut tracker.prefixes {
            // One by one: whoever changes a key waits for this lock.
            own.iter().for_each(|prefix| self.prefixes.write().enter(prefix, id));
            match self.of(id, |old| old.prefixes.clone()).flatten() {
                Some(old) => own.extend(old),
                None => _ = self.broadcasts.fetch_add(1, Relaxed),
            }
        }
        // Replaced in one step, so that no message is lost in between.
        self.trackers.insert(id, tracker);
    }

    /// That client is told nothing any more; returns what it wanted.
    pub fn end(&self, client: ClientId) -> Option<Tracker> {
        let (_, tracker) = self.trackers.remove(&client)?;
        if let Some(own) = &tracker.prefixes {
            own.iter().for_each(|prefix| self.prefixes.write().leave(prefix, client));
            self.broadcasts.fetch_sub(1, Relaxed);
        }
        Some(tracker)
    }

    /// What `look` sees of what that client wants to be told; `look` must not come back to the registry.
    pub fn of<R>(&self, client: ClientId, look: impl FnOnce(&Tracker) -> R) -> Option<R> {
        self.trackers.get(&client).map(|tracker| look(&tracker))
    }

    /// Whether that client is told of keys that it reads.
    pub fn reads(&self, client: ClientId) -> bool {
        self.of(client, |tracker| tracker.prefixes.is_none()).unwrap_or(false)
    }

    /// How many clients are told.
    pub fn len(&self) -> usize {
        self.trackers.len()
    }

    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many prefixes are listened to.
    pub fn prefix_count(&self) -> usize {
        self.prefixes.read().len()
    }

    /// Whether somebody is to be told of keys that nobody has read.
    #[inline]
    pub fn broadcasts(&self) -> bool {
        self.broadcasts.load(Relaxed) > 0
    }

    /// One more key is remembered.
    pub fn remembered(&self) {
        self.keys.fetch_add(1, Relaxed);
    }

    /// How many more are remembered than `keys_max`; zero, there is room for all.
    pub fn excess(&self, keys_max: usize) -> usize {
        match keys_max {
            0 => 0,
            keys_max => self.keys.load(Relaxed).saturating_sub(keys_max),
        }
    }

    /// So many keys are remembered no more, and nobody needs to be told of them one by one.
    pub fn forgotten(&self, keys: usize) {
        self.keys.fetch_sub(keys, Relaxed);
    }

    /// Tells everybody concerned that copies of `stale` are out of date, by the hand of `author`.
    pub fn invalidate(&self, clients: &Clients, stale: &[Stale], author: ClientId) {
        for Stale { key, readers, cause } in stale.iter().filter(|stale| !stale.readers.is_empty()) {
            // What was given up for want of room is forgotten already.
            self.forgotten(usize::from(*cause != Cause::Room));
            let author = if *cause == Cause::Change { author } else { NOBODY };
            for reader in readers {
                if let Some(tracker) = self.trackers.get(reader).filter(|tracker| tracker.prefixes.is_none())
                {
                    tracker.tell(clients, &[key], author);
                }
            }
        }
        if self.broadcasts() {
            self.broadcast(clients, stale, author);
        }
    }

    /// Tells everybody that all keys may have changed, the author included.
    pub fn invalidate_all(&self, clients: &Clients) {
        self.trackers.iter().for_each(|tracker| tracker.tell_of_all(clients));
    }

    /// One message for each prefix and each of its clients, as in Redis: its keys in order, each once.
    fn broadcast(&self, clients: &Clients, stale: &[Stale], author: ClientId) {
        let prefixes = self.prefixes.read();
        let mut concerned = BTreeMap::new();
        for Stale { key, cause, .. } in stale.iter().filter(|stale| stale.cause != Cause::Room) {
            let author = if *cause == Cause::Change { author } else { NOBODY };
            prefixes.of(key, |prefix, told| {
                let (_, keys) = concerned.entry((prefix, author)).or_insert_with(|| (told, BTreeSet::new()));
                keys.insert(key);
            });
        }
        for ((_, author), (told, keys)) in concerned {
            let keys: Vec<&Bytes> = keys.into_iter().collect();
            for client in told {
                if let Some(tracker) = self.trackers.get(client) {
                    tracker.tell(clients, &keys, author);
                }
            }
        }
    }
}

/// The author of what comes about by itself: no client has this number.
const NOBODY: ClientId = 0;
