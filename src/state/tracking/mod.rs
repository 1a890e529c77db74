//! CLIENT TRACKING: clients that cache values, and are sent an invalidation when a cached value may be out of date.
//!
//! Owns    what each client tracks, and how many keys are tracked. Which keys a client has read, the shards know.
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

use super::clients::{ClientId, Clients};
use prefixes::Prefixes;

pub use overlap::Overlap;
pub use tracker::{Reads, Tracker, Which};

/// Cached values that are out of date.
#[derive(Clone, Debug)]
pub enum Stale {
    /// The values of one key.
    Key {
        /// Its name.
        key: Bytes,
        /// The clients that have read it since its last change.
        readers: Readers,
        /// Why.
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
pub type Readers = smallvec::SmallVec<[ClientId; 2]>;

/// Why a key is invalidated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// A client has changed it. With NOLOOP that client gets no invalidation.
    Change,
    /// It has expired.
    Expiry,
    /// It has not changed, but more keys are tracked than `tracking-table-max-keys`.
    Room,
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
        if let Some(own) = &mut tracker.prefixes {
            // Locked for each prefix on its own: every write waits for this lock.
            new.extend(own.iter().filter(|prefix| self.prefixes.write().enter(prefix, id)).cloned());
            match self.of(id, |old| old.prefixes.clone()).flatten() {
                Some(old) => own.extend(old),
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
        if let Some(own) = &tracker.prefixes {
            own.iter().for_each(|prefix| self.prefixes.write().leave(prefix, client));
            self.broadcasts.fetch_sub(1, Relaxed);
        }
    }

    /// Calls `look` with the options of a client that has tracking on. `look` must not use the registry.
    pub fn of<R>(&self, client: ClientId, look: impl FnOnce(&Tracker) -> R) -> Option<R> {
        self.trackers.get(&client).map(|tracker| look(&tracker))
    }

    /// Whether that client has tracking on in the default mode: it is told of keys that it has read.
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
    pub fn prefix_count(&self) -> usize {
        self.prefixes.read().len()
    }

    /// Whether any client uses BCAST.
    #[inline]
    pub fn broadcasts(&self) -> bool {
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

    /// Sends invalidations for what the client `author` has made `stale`. An invalidation of all keys goes to every
    /// client: to the author each time, as in Redis, and to the others once, because only the author can have read
    /// anything in between. `know` says whether the others have been sent it, and is updated.
    pub fn invalidate(&self, clients: &Clients, stale: &[Stale], author: ClientId, know: &mut bool) {
        self.concerned(stale, author, know, |tracker, key| tracker.tell_of(clients, key, author));
    }

    /// Like [`Tracking::invalidate`], but returns the invalidations for the author itself, to be sent later.
    pub fn notices(
        &self,
        clients: &Clients,
        stale: &[Stale],
        author: ClientId,
        know: &mut bool,
    ) -> Vec<Notice> {
        let mut notices = Vec::new();
        self.concerned(stale, author, know, |tracker, key| match tracker.client.id == author {
            true => notices.push(Notice { tracker: Arc::clone(tracker), key: key.cloned() }),
            false => tracker.tell_of(clients, key, author),
        });
        notices
    }

    /// Calls `tell` for each client that is to be sent an invalidation, in the order of `stale`.
    fn concerned(
        &self,
        stale: &[Stale],
        author: ClientId,
        know: &mut bool,
        mut tell: impl FnMut(&Arc<Tracker>, Option<&Bytes>),
    ) {
        for stale in stale {
            match stale {
                Stale::Key { readers, .. } if readers.is_empty() => {}
                Stale::Key { key, readers, cause } => {
                    // A key dropped because of the limit has been subtracted before.
                    self.forgotten(usize::from(*cause != Cause::Room));
                    let author = cause.author(author);
                    let trackers = readers.iter().filter_map(|reader| self.trackers.get(reader));
                    trackers
                        .filter(|tracker| tracker.prefixes.is_none() && tracker.wants(author))
                        .for_each(|tracker| tell(&tracker, Some(key)));
                }
                Stale::All { tracked } => {
                    self.forgotten(*tracked);
                    if std::mem::replace(know, true) {
                        self.trackers.get(&author).iter().for_each(|tracker| tell(tracker, None));
                    } else {
                        self.trackers.iter().for_each(|tracker| tell(&tracker, None));
                    }
                }
            }
        }
    }

    /// Sends invalidations to the clients with BCAST whose prefixes fit what is `stale`. A prefix in `young` applies only
    /// from its index in `stale` on. One message per prefix and client, as in Redis, with the keys in order, each once.
    pub fn broadcast(
        &self,
        clients: &Clients,
        stale: &[Stale],
        young: &BTreeMap<Bytes, usize>,
        author: ClientId,
    ) {
        let prefixes = self.prefixes.read();
        let mut concerned = BTreeMap::new();
        for (at, stale) in stale.iter().enumerate() {
            let Stale::Key { key, cause, .. } = stale else { continue };
            if *cause == Cause::Room {
                continue;
            }
            let author = cause.author(author);
            prefixes.of(key, |prefix, clients| {
                if young.get(prefix).is_none_or(|since| at >= *since) {
                    let (_, keys) =
                        concerned.entry((prefix, author)).or_insert_with(|| (clients, BTreeSet::new()));
                    keys.insert(key);
                }
            });
        }
        for ((_, author), (receivers, keys)) in concerned {
            let keys: Vec<&Bytes> = keys.into_iter().collect();
            let trackers = receivers.iter().filter_map(|client| self.trackers.get(client));
            trackers.filter(|tracker| tracker.wants(author)).for_each(|tracker| tracker.tell(clients, &keys));
        }
    }
}

impl Notice {
    /// Sends the invalidation, caused by `author`.
    pub fn send(&self, clients: &Clients, author: ClientId) {
        self.tracker.tell_of(clients, self.key.as_ref(), author);
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
