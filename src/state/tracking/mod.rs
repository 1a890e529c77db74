//! Clients that keep copies of values, and are told when a copy may be out of date: CLIENT TRACKING.
//!
//! Owns    what each of them wants to be told, and how many keys are remembered. Which keys it has read, the shards know.
//! Rule    delivery goes to outboxes while the shards of the change are locked: a client that has seen the change has
//!         the invalidation before it.
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

/// Copies that are out of date.
#[derive(Clone, Debug)]
pub enum Stale {
    /// Those of one key.
    Key {
        /// Its name.
        key: Bytes,
        /// Who has read it since it last changed.
        readers: Readers,
        /// Why they are.
        cause: Cause,
    },
    /// All of them: a whole database is gone.
    All {
        /// How many keys were remembered until then.
        tracked: usize,
    },
}

/// A client is to know that its copies of a key, or of all keys, are out of date.
#[derive(Debug)]
pub struct Notice {
    tracker: Arc<Tracker>,
    key: Option<Bytes>,
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
    trackers: DashMap<ClientId, Arc<Tracker>>,
    prefixes: RwLock<Prefixes>,
    /// Trackers that have prefixes.
    broadcasts: AtomicUsize,
    /// Keys that the shards remember, those included whose readers are about to be told.
    keys: AtomicUsize,
}

impl Tracking {
    /// From now on that client is told. Replaces what it wanted before, but for prefixes, which add up: who goes from
    /// one mode to the other ends the one first. Returns the prefixes that nobody has listened to before.
    pub fn begin(&self, mut tracker: Tracker) -> Vec<Bytes> {
        let (id, mut new) = (tracker.client.id, Vec::new());
        if let Some(own) = &mut tracker.prefixes {
            // One by one: whoever changes a key waits for this lock.
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

    /// That client is told nothing any more.
    pub fn end(&self, client: ClientId) {
        let Some((_, tracker)) = self.trackers.remove(&client) else { return };
        if let Some(own) = &tracker.prefixes {
            own.iter().for_each(|prefix| self.prefixes.write().leave(prefix, client));
            self.broadcasts.fetch_sub(1, Relaxed);
        }
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

    /// Tells who has read what is `stale` by the hand of `author`, and of what concerns all keys everybody, the author
    /// included: others once, for nobody but the author has read anything since, and the author each time, as Redis does.
    /// Whether they `know` is told, and remembered.
    pub fn invalidate(&self, clients: &Clients, stale: &[Stale], author: ClientId, know: &mut bool) {
        self.concerned(stale, author, know, |tracker, key| tracker.tell_of(clients, key, author));
    }

    /// The same, but what the author itself is to be told later, as things stand now: that is returned.
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

    /// Who is to know what of what is `stale`, in its order.
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
                    // What was given up for want of room is forgotten already.
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

    /// Tells whoever listens to a prefix of what is `stale`; to `young` prefixes, each with a place, only what comes
    /// behind that is told. One message for each prefix and each of its clients, as in Redis: its keys in order, each once.
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
            prefixes.of(key, |prefix, told| {
                if young.get(prefix).is_none_or(|since| at >= *since) {
                    let (_, keys) =
                        concerned.entry((prefix, author)).or_insert_with(|| (told, BTreeSet::new()));
                    keys.insert(key);
                }
            });
        }
        for ((_, author), (told, keys)) in concerned {
            let keys: Vec<&Bytes> = keys.into_iter().collect();
            let trackers = told.iter().filter_map(|client| self.trackers.get(client));
            trackers.filter(|tracker| tracker.wants(author)).for_each(|tracker| tracker.tell(clients, &keys));
        }
    }
}

impl Notice {
    /// Tells, by the hand of `author`.
    pub fn send(&self, clients: &Clients, author: ClientId) {
        self.tracker.tell_of(clients, self.key.as_ref(), author);
    }
}

impl Cause {
    /// Whose doing it is, where `author` acts.
    fn author(self, author: ClientId) -> ClientId {
        if self == Self::Change { author } else { NOBODY }
    }
}

/// The author of what comes about by itself: no client has this number.
const NOBODY: ClientId = 0;
