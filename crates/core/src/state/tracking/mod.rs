//! CLIENT TRACKING: clients that cache values, and are sent an invalidation when a cached value may be out of date.
//!
//! Owns    what each client tracks, and how many keys are tracked. The shards store which keys a client has read.
//! Rule    invalidations enter the outboxes while the shards of the change are locked: a client cannot see a change
//!         before its invalidation.
//! Source  Redis 7.0 `tracking.c`.

mod overlap;
mod prefixes;
mod tracker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::RwLock;

use super::channels::shrink;
use super::clients::{ClientId, Clients};
use prefixes::Prefixes;

pub(crate) use overlap::Overlap;
pub use tracker::{Reads, Tracker, Which};

/// Cached values that are out of date.
#[derive(Clone, Debug)]
pub enum Stale {
    /// The values of one key.
    Key {
        key: Bytes,
        /// The clients that have read it since its last change.
        readers: Readers,
        cause: Cause,
    },
    /// The values of all keys: a whole database was flushed.
    All {
        /// How many keys were tracked until then.
        tracked: usize,
    },
}

/// An invalidation that is still to be sent to one client: of one key, or of all keys.
#[derive(Debug)]
pub struct Notice {
    tracker: Arc<Tracker>,
    key: Option<Bytes>,
}

/// The clients that have cached a key's value, by rising number: rarely more than a few.
pub(crate) type Readers = smallvec::SmallVec<[ClientId; 2]>;

/// Why a key is invalidated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// A client has changed it. With NOLOOP that client gets no invalidation.
    Change,
    Expiry,
    /// It has not changed, but more keys are tracked than `tracking-table-max-keys`.
    Limit,
}

/// All clients with CLIENT TRACKING on.
#[derive(Debug, Default)]
pub struct Tracking {
    trackers: DashMap<ClientId, Arc<Tracker>>,
    prefixes: RwLock<Prefixes>,
    /// How many trackers have prefixes.
    broadcasts: AtomicUsize,
    /// Keys that the shards track, including keys whose invalidation is about to be sent.
    keys: AtomicUsize,
}

impl Tracking {
    /// CLIENT TRACKING ON. Replaces the client's previous options, except that prefixes add up; to change between BCAST
    /// and the default mode, end tracking first. Returns the prefixes that no client had before.
    pub fn begin(&self, mut tracker: Tracker) -> Vec<Bytes> {
        let (id, mut new) = (tracker.client.id, Vec::new());
        if let Some(own) = &tracker.prefixes {
            // Locked for each prefix on its own: every write waits for this lock.
            new.extend(own.iter().filter(|prefix| self.prefixes.write().enter(prefix, id)).cloned());
            match self.of(id, |old| old.prefixes.clone()).flatten() {
                Some(old) => tracker.add_prefixes(old),
                None => _ = self.broadcasts.fetch_add(1, Relaxed),
            }
        }
        // Replaced in one step, so that no message is lost in between.
        self.trackers.insert(id, Arc::new(tracker));
        new
    }

    /// CLIENT TRACKING OFF.
    pub fn end(&self, client: ClientId) {
        let Some((_, tracker)) = self.trackers.remove(&client) else { return };
        shrink(&self.trackers);
        if let Some(own) = &tracker.prefixes {
            own.iter().for_each(|prefix| self.prefixes.write().leave(prefix, client));
            self.broadcasts.fetch_sub(1, Relaxed);
        }
    }

    /// Calls `read` with the options of a client that has tracking on. `read` must not use the registry.
    pub fn of<R>(&self, client: ClientId, read: impl FnOnce(&Tracker) -> R) -> Option<R> {
        self.trackers.get(&client).map(|tracker| read(&tracker))
    }

    /// Whether that client has tracking on in the default mode: it is sent invalidations of keys that it has read.
    pub fn reads(&self, client: ClientId) -> bool {
        self.of(client, |tracker| tracker.prefixes.is_none()).unwrap_or(false)
    }

    /// How many clients have tracking on.
    pub fn len(&self) -> usize {
        self.trackers.len()
    }

    /// Whether no client has tracking on.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many different prefixes there are.
    pub(crate) fn prefix_count(&self) -> usize {
        self.prefixes.read().len()
    }

    /// Whether any client uses BCAST.
    #[inline]
    pub(crate) fn broadcasts(&self) -> bool {
        self.broadcasts.load(Relaxed) > 0
    }

    /// One more key is tracked.
    pub fn remembered(&self) {
        self.keys.fetch_add(1, Relaxed);
    }

    /// By how many keys `keys_max` is exceeded. A `keys_max` of zero means no limit.
    pub fn excess(&self, keys_max: usize) -> usize {
        match keys_max {
            0 => 0,
            keys_max => self.keys.load(Relaxed).saturating_sub(keys_max),
        }
    }

    /// So many keys are no longer tracked.
    pub fn forgotten(&self, keys: usize) {
        self.keys.fetch_sub(keys, Relaxed);
    }

    /// Sends invalidations of the values that the client `author` has made `stale`. An invalidation of all keys goes to
    /// every client: to the author each time, as in Redis, and to the others once, because only the author can have read
    /// keys in between. `all_informed` is whether the others have been sent it, and is updated.
    pub fn invalidate(&self, clients: &Clients, stale: &[Stale], author: ClientId, all_informed: &mut bool) {
        self.for_each_receiver(stale, author, all_informed, |tracker, key| {
            tracker.invalidate(clients, key, author)
        });
    }

    /// Like [`Tracking::invalidate`], but returns the invalidations for the author itself, to be sent later.
    pub fn notices(
        &self,
        clients: &Clients,
        stale: &[Stale],
        author: ClientId,
        all_informed: &mut bool,
    ) -> Vec<Notice> {
        let mut notices = Vec::new();
        self.for_each_receiver(stale, author, all_informed, |tracker, key| {
            match tracker.client.id == author {
                true => notices.push(Notice { tracker: Arc::clone(tracker), key: key.cloned() }),
                false => tracker.invalidate(clients, key, author),
            }
        });
        notices
    }

    /// Calls `send` for each invalidation and its receiver, in the order of `stale`.
    fn for_each_receiver(
        &self,
        stale: &[Stale],
        author: ClientId,
        all_informed: &mut bool,
        mut send: impl FnMut(&Arc<Tracker>, Option<&Bytes>),
    ) {
        for stale in stale {
            match stale {
                Stale::Key { readers, .. } if readers.is_empty() => {}
                Stale::Key { key, readers, cause } => {
                    // A key dropped because of the limit has been subtracted before.
                    self.forgotten(usize::from(*cause != Cause::Limit));
                    let author = cause.author(author);
                    let trackers = readers.iter().filter_map(|reader| self.trackers.get(reader));
                    trackers
                        .filter(|tracker| tracker.prefixes.is_none() && tracker.wants(author))
                        .for_each(|tracker| send(&tracker, Some(key)));
                }
                Stale::All { tracked } => {
                    self.forgotten(*tracked);
                    if std::mem::replace(all_informed, true) {
                        self.trackers.get(&author).iter().for_each(|tracker| send(tracker, None));
                    } else {
                        self.trackers.iter().for_each(|tracker| send(&tracker, None));
                    }
                }
            }
        }
    }

    /// Sends invalidations of the `stale` keys to the clients with BCAST whose prefixes match. A prefix in `new_prefixes`
    /// applies only from its index in `stale` on. One message per prefix and client, as in Redis, with the keys in order,
    /// each once.
    pub(crate) fn broadcast(
        &self,
        clients: &Clients,
        stale: &[Stale],
        new_prefixes: &BTreeMap<Bytes, usize>,
        author: ClientId,
    ) {
        let prefixes = self.prefixes.read();
        let mut messages = BTreeMap::new();
        for (at, stale) in stale.iter().enumerate() {
            let Stale::Key { key, cause, .. } = stale else { continue };
            if *cause == Cause::Limit {
                continue;
            }
            let author = cause.author(author);
            prefixes.of(key, |prefix, clients| {
                if new_prefixes.get(prefix).is_none_or(|since| at >= *since) {
                    let (_, keys) =
                        messages.entry((prefix, author)).or_insert_with(|| (clients, BTreeSet::new()));
                    keys.insert(key);
                }
            });
        }
        for ((_, author), (receivers, keys)) in messages {
            let keys: Vec<&Bytes> = keys.into_iter().collect();
            let trackers = receivers.iter().filter_map(|client| self.trackers.get(client));
            trackers
                .filter(|tracker| tracker.wants(author))
                .for_each(|tracker| tracker.invalidate_keys(clients, &keys));
        }
    }
}

impl Notice {
    /// Sends the invalidation, caused by `author`.
    pub fn send(&self, clients: &Clients, author: ClientId) {
        self.tracker.invalidate(clients, self.key.as_ref(), author);
    }
}

impl Cause {
    /// The client that has caused it while `author` ran a command.
    fn author(self, author: ClientId) -> ClientId {
        if self == Self::Change { author } else { NO_CLIENT }
    }
}

/// The author of expiries and evictions: no client has this number.
const NO_CLIENT: ClientId = 0;
