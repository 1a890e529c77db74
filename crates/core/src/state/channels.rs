//! Channels and their subscribers: PUBLISH, SUBSCRIBE, and keyspace events.
//!
//! Owns    the registry of channels, patterns and shard channels.
//! Rule    messages enter the outboxes in the order of publication, which the locks of the publisher determine.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ahash::RandomState;
use bytes::Bytes;
use dashmap::DashMap;
use redlatch_proto::resp::Reply;

use super::clients::{Client, ClientId};
use super::ledger::{self, Charge, Ledger};
use crate::types::{glob, heap};

/// What a client can subscribe to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A channel: SUBSCRIBE.
    Channel,
    /// Every channel that fits a pattern: PSUBSCRIBE.
    Pattern,
    /// A shard channel: SSUBSCRIBE. The only shard is the whole server.
    Shard,
}

impl Kind {
    /// All kinds, in the order of `PerKind`.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// One value for each [`Kind`], in the order of [`Kind::ALL`].
pub(crate) type PerKind<V> = [V; 3];

type Listeners = DashMap<Bytes, Vec<Arc<Client>>, RandomState>;

/// The registry of channels and patterns.
#[derive(Debug, Default)]
pub struct Channels {
    listeners: PerKind<Listeners>,
    /// Subscriptions to patterns. While there are none, PUBLISH skips the patterns.
    to_patterns: AtomicUsize,
}

impl Channels {
    /// A registry without subscribers. An unpredictable `seed` keeps clients from choosing names that collide. The order
    /// in which patterns are visited follows from it.
    pub fn new(seed: u64) -> Self {
        let hasher = RandomState::with_seeds(seed, !seed, seed.rotate_left(32), seed.rotate_left(16));
        Self {
            listeners: Kind::ALL.map(|_| DashMap::with_hasher(hasher.clone())),
            to_patterns: AtomicUsize::new(0),
        }
    }

    /// Subscribes `client` to `name`. It was not subscribed before.
    pub fn subscribe(&self, kind: Kind, name: &Bytes, client: &Arc<Client>) {
        if kind == Kind::Pattern {
            self.to_patterns.fetch_add(1, Relaxed);
        }
        self.of(kind).entry(name.clone()).or_default().push(Arc::clone(client));
    }

    /// Unsubscribes `client` from `name`.
    pub fn unsubscribe(&self, kind: Kind, name: &[u8], client: ClientId) {
        let listeners = self.of(kind);
        let mut left = 0;
        if let Some(mut listening) = listeners.get_mut(name) {
            let before = listening.len();
            listening.retain(|listener| listener.id != client);
            left = before - listening.len();
        }
        listeners.remove_if(name, |_, listening| listening.is_empty());
        if kind == Kind::Pattern {
            self.to_patterns.fetch_sub(left, Relaxed);
        }
    }

    /// How many listeners to patterns there are: a message is compared with each pattern.
    #[inline]
    pub fn patterns(&self) -> u64 {
        self.to_patterns.load(Relaxed) as u64
    }

    /// Delivers `payload` to the subscribers of `channel` and of every pattern that matches it; returns how many messages
    /// that were.
    pub fn publish(&self, channel: &[u8], payload: &[u8]) -> usize {
        let mut receivers = self.send_all(Kind::Channel, channel, &[b"message", channel, payload]);
        if self.to_patterns.load(Relaxed) > 0 {
            for entry in self.of(Kind::Pattern).iter().filter(|entry| glob::matches(entry.key(), channel)) {
                for listener in entry.value() {
                    receivers += usize::from(send(listener, &[b"pmessage", entry.key(), channel, payload]));
                }
            }
        }
        receivers
    }

    /// Delivers `payload` to the subscribers of the shard channel; returns how many.
    pub(crate) fn publish_to_shard(&self, channel: &[u8], payload: &[u8]) -> usize {
        self.send_all(Kind::Shard, channel, &[b"smessage", channel, payload])
    }

    /// Names with at least one subscriber that match `pattern`.
    pub fn active(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Bytes> {
        let matches = |name: &Bytes| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        self.of(kind).iter().filter(|entry| matches(entry.key())).map(|entry| entry.key().clone()).collect()
    }

    /// Calls `visit` for every subscription, in no order. `visit` must not use the registry.
    pub fn each(&self, mut visit: impl FnMut(Kind, &[u8], &Client)) {
        for kind in Kind::ALL {
            for entry in self.of(kind).iter() {
                entry.value().iter().for_each(|client| visit(kind, entry.key(), client));
            }
        }
    }

    /// How many subscribers `name` has.
    pub fn listeners(&self, kind: Kind, name: &[u8]) -> usize {
        self.of(kind).get(name).map_or(0, |listening| listening.len())
    }

    /// How many names have subscribers.
    pub fn count(&self, kind: Kind) -> usize {
        self.of(kind).len()
    }

    /// Ends all subscriptions of a client without a message.
    pub fn leave(&self, client: &Client) {
        for (kind, names) in Kind::ALL.into_iter().zip(client.subscriptions(Subscriptions::take_all)) {
            names.iter().for_each(|name| self.unsubscribe(kind, name, client.id));
        }
        self.listeners.iter().for_each(shrink);
    }

    /// Ends the subscriptions to these shard channels, in the order of their names, and tells their subscribers. No request
    /// runs; a client may be leaving.
    pub(crate) fn end_shard_channels(&self, is_meant: impl Fn(&[u8]) -> bool) {
        let mut names = self.active(Kind::Shard, None);
        names.retain(|name| is_meant(name));
        names.sort_unstable();
        for name in &names {
            let listening = self.of(Kind::Shard).remove(name).map_or(Vec::new(), |(_, listening)| listening);
            listening.iter().for_each(|client| end(client, name));
        }
        self.shrink(Kind::Shard);
    }

    /// Gives back the memory of names that have no subscriber any more.
    pub fn shrink(&self, kind: Kind) {
        shrink(self.of(kind));
    }

    fn send_all(&self, kind: Kind, name: &[u8], parts: &[&[u8]]) -> usize {
        let Some(listening) = self.of(kind).get(name) else { return 0 };
        listening.iter().filter(|listener| send(listener, parts)).count()
    }

    fn of(&self, kind: Kind) -> &Listeners {
        &self.listeners[kind as usize]
    }
}

/// The subscriptions of one client.
#[derive(Debug)]
pub struct Subscriptions {
    names: PerKind<BTreeSet<Bytes>>,
    /// Bytes of the names, without their places in the sets.
    name_bytes: usize,
    /// Their memory, with that in the registry.
    charge: Charge,
}

impl Subscriptions {
    /// No subscription yet.
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        Self { names: PerKind::default(), name_bytes: 0, charge: ledger.open(ledger::Kind::Subscriptions) }
    }

    /// The names of that kind.
    pub fn of(&self, kind: Kind) -> &BTreeSet<Bytes> {
        &self.names[kind as usize]
    }

    /// Adds a name; returns whether it is new.
    pub fn insert(&mut self, kind: Kind, name: &Bytes) -> bool {
        let is_new = self.names[kind as usize].insert(name.clone());
        if is_new {
            self.name_bytes += subscription_bytes(name);
            self.recharge();
        }
        is_new
    }

    /// Whether there are no subscriptions.
    pub fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    /// Removes all names.
    fn take_all(&mut self) -> PerKind<BTreeSet<Bytes>> {
        let names = std::mem::take(&mut self.names);
        self.name_bytes = 0;
        self.recharge();
        names
    }

    /// Removes a name; returns whether it was there.
    pub fn remove(&mut self, kind: Kind, name: &Bytes) -> bool {
        let was_here = self.names[kind as usize].remove(name);
        if was_here {
            self.name_bytes -= subscription_bytes(name);
            self.recharge();
        }
        was_here
    }

    fn recharge(&self) {
        let places = self.names.iter().map(|names| heap::tree::<Bytes>(names.len())).sum::<usize>();
        self.charge.set(self.name_bytes + places);
    }

    /// The count in a confirmation: channels and patterns together, shard channels on their own.
    pub(crate) fn counted_with(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.of(Kind::Channel).len() + self.of(Kind::Pattern).len(),
            Kind::Shard => self.of(Kind::Shard).len(),
        }
    }
}

/// Bytes of a subscription beside its place in the set of the connection: its name, and its place in the registry, where it
/// is the first of its name mostly.
fn subscription_bytes(name: &Bytes) -> usize {
    let of_registry = heap::in_table::<(Bytes, Vec<Arc<Client>>)>() + 4 * size_of::<Arc<Client>>();
    heap::shared(name) + of_registry
}

/// Gives back the memory of a table of which few places are used.
pub fn shrink<K: Eq + Hash, V, S: BuildHasher + Clone>(table: &DashMap<K, V, S>) {
    if table.capacity() > SPARSE_LEN + 4 * table.len() {
        table.shrink_to_fit();
    }
}

/// Places that a table keeps in any case.
const SPARSE_LEN: usize = 1_024;

/// Writes that a subscription begins or ends; `count`: how many are left.
pub(crate) fn write_confirmation(reply: &mut Reply<'_>, word: &[u8], name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(word);
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.count(count);
}

/// Ends a client's subscription to a shard channel that the registry no longer has, and tells the client.
fn end(client: &Client, name: &Bytes) {
    let (was_here, count) = client.subscriptions(|subscriptions| {
        (subscriptions.remove(Kind::Shard, name), subscriptions.counted_with(Kind::Shard))
    });
    if was_here {
        let mut message = Vec::new();
        write_confirmation(
            &mut Reply::new(&mut message, client.protocol()),
            b"sunsubscribe",
            Some(name),
            count,
        );
        client.deliver(&message);
    }
}

/// Puts a message into the listener's outbox; false when its connection is closing.
fn send(listener: &Client, parts: &[&[u8]]) -> bool {
    if listener.is_closing() {
        return false;
    }
    let mut message = Vec::with_capacity(parts.iter().map(|part| part.len() + 16).sum());
    let mut reply = Reply::new(&mut message, listener.protocol());
    reply.push(parts.len());
    for part in parts {
        reply.bulk(part);
    }
    listener.deliver(&message);
    true
}
