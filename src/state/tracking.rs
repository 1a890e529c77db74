//! Clients that keep copies of values, and are told when a copy may be out of date: CLIENT TRACKING.
//!
//! Owns    what each of them wants to be told, and how it is told. Which keys it has read, the shards know.
//! Rule    delivery goes to mailboxes while the shards of the change are locked: a client that has seen the change has
//!         the invalidation before it.
//! Source  Redis 7.0 `tracking.c`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use dashmap::DashMap;

use super::clients::{Client, ClientId, Clients};
use crate::resp::{Protocol, Reply};

/// What one client wants to be told.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// Who reads the keys.
    pub client: Arc<Client>,
    /// Who is told, if it is somebody else.
    pub redirect: Option<ClientId>,
    /// The prefixes of keys it is told of whether it has read them or not (BCAST); `None`: what it has read.
    pub prefixes: Option<Vec<Bytes>>,
    /// Whether it is spared changes of its own.
    pub no_loop: bool,
}

/// A key that has changed.
#[derive(Clone, Debug)]
pub struct Stale {
    /// Its name.
    pub key: Bytes,
    /// Who has read it since it last changed.
    pub readers: smallvec::SmallVec<[ClientId; 2]>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Tracking {
    trackers: DashMap<ClientId, Tracker>,
    broadcasts: AtomicUsize,
}

/// The channel that RESP2 clients listen to.
const CHANNEL: &[u8] = b"__redis__:invalidate";

impl Tracking {
    /// From now on that client is told. Replaces what it wanted before.
    pub fn begin(&self, tracker: Tracker) {
        self.end(tracker.client.id);
        self.broadcasts.fetch_add(usize::from(tracker.prefixes.is_some()), Relaxed);
        self.trackers.insert(tracker.client.id, tracker);
    }

    /// That client is told nothing any more.
    pub fn end(&self, client: ClientId) {
        if let Some((_, tracker)) = self.trackers.remove(&client) {
            self.broadcasts.fetch_sub(usize::from(tracker.prefixes.is_some()), Relaxed);
        }
    }

    /// What that client wants to be told.
    pub fn of(&self, client: ClientId) -> Option<Tracker> {
        self.trackers.get(&client).map(|tracker| tracker.clone())
    }

    /// How many clients are told.
    pub fn len(&self) -> usize {
        self.trackers.len()
    }

    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many prefixes are listened to, each client's counted on its own.
    pub fn prefix_count(&self) -> usize {
        self.trackers.iter().map(|tracker| tracker.prefixes.as_ref().map_or(0, Vec::len)).sum()
    }

    /// Whether somebody is to be told of keys that nobody has read.
    #[inline]
    pub fn broadcasts(&self) -> bool {
        self.broadcasts.load(Relaxed) > 0
    }

    /// Tells everybody concerned that `stale` have changed, by the hand of `author`.
    pub fn invalidate(&self, clients: &Clients, stale: &[Stale], author: ClientId) {
        for Stale { key, readers } in stale {
            for reader in readers {
                if let Some(tracker) = self.trackers.get(reader).filter(|tracker| tracker.prefixes.is_none())
                {
                    tracker.tell(clients, Some(&[key]), author);
                }
            }
        }
        if self.broadcasts() {
            self.broadcast(clients, stale, author);
        }
    }

    /// Tells everybody that all keys may have changed.
    pub fn invalidate_all(&self, clients: &Clients, author: ClientId) {
        for tracker in &self.trackers {
            tracker.tell(clients, None, author);
        }
    }

    fn broadcast(&self, clients: &Clients, stale: &[Stale], author: ClientId) {
        for tracker in &self.trackers {
            let Some(prefixes) = &tracker.prefixes else { continue };
            let concerns =
                |key: &&Bytes| prefixes.is_empty() || prefixes.iter().any(|prefix| key.starts_with(prefix));
            let keys: Vec<&Bytes> = stale.iter().map(|stale| &stale.key).filter(concerns).collect();
            if !keys.is_empty() {
                tracker.tell(clients, Some(&keys), author);
            }
        }
    }
}

impl Tracker {
    /// Tells of these keys, or of all.
    fn tell(&self, clients: &Clients, keys: Option<&[&Bytes]>, author: ClientId) {
        if self.no_loop && author == self.client.id {
            return;
        }
        let Some(target) = self.redirect else { return self.deliver(&self.client, keys) };
        match clients.get(target) {
            Some(client) => self.deliver(&client, keys),
            None => self.lament(target),
        }
    }

    fn deliver(&self, client: &Client, keys: Option<&[&Bytes]>) {
        let mut message = Vec::new();
        let mut reply = Reply::new(&mut message, client.protocol());
        match client.protocol() {
            Protocol::Resp3 => {
                reply.push(2);
                reply.bulk(b"invalidate");
            }
            // RESP2 has no pushes: the message goes where the client has said that it listens.
            Protocol::Resp2 if client.is_subscribed() && self.redirect.is_some() => {
                reply.push(3);
                reply.bulk(b"message");
                reply.bulk(CHANNEL);
            }
            Protocol::Resp2 => return,
        }
        match keys {
            Some(keys) => reply.bulks(keys),
            None => reply.null_array(),
        }
        client.deliver(&message);
    }

    /// Tells the client itself that nobody is where it sends its messages.
    fn lament(&self, target: ClientId) {
        if self.client.protocol() == Protocol::Resp3 {
            let mut message = Vec::new();
            let mut reply = Reply::new(&mut message, Protocol::Resp3);
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.integer(target as i64);
            self.client.deliver(&message);
        }
    }
}
