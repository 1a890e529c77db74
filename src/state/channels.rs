//! Who listens to which channel: PUBLISH, SUBSCRIBE, and the events of the keyspace.
//!
//! Owns    the registry of channels and patterns.
//! Rule    delivery goes to mailboxes, in the order of publication as the publisher's locks make it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use dashmap::DashMap;

use super::clients::{Client, ClientId};
use crate::resp::Reply;
use crate::types::glob;

type Listeners = Vec<Arc<Client>>;

/// The registry of channels and patterns.
#[derive(Debug, Default)]
pub struct Channels {
    channels: DashMap<Bytes, Listeners>,
    patterns: DashMap<Bytes, Listeners>,
    /// Entries in `patterns`, so that a publication without any pays nothing for them.
    pattern_count: AtomicUsize,
}

impl Channels {
    /// `client` listens to `channel` from now on.
    pub fn subscribe(&self, channel: &Bytes, client: &Arc<Client>) {
        self.channels.entry(channel.clone()).or_default().push(Arc::clone(client));
    }

    /// `client` no longer listens to `channel`.
    pub fn unsubscribe(&self, channel: &Bytes, client: ClientId) {
        if let Some(mut listeners) = self.channels.get_mut(channel) {
            listeners.retain(|listener| listener.id != client);
        }
        self.channels.remove_if(channel, |_, listeners| listeners.is_empty());
    }

    /// `client` listens to every channel that fits `pattern` from now on.
    pub fn subscribe_pattern(&self, pattern: &Bytes, client: &Arc<Client>) {
        self.patterns.entry(pattern.clone()).or_default().push(Arc::clone(client));
        self.pattern_count.store(self.patterns.len(), Relaxed);
    }

    /// `client` no longer listens to `pattern`.
    pub fn unsubscribe_pattern(&self, pattern: &Bytes, client: ClientId) {
        if let Some(mut listeners) = self.patterns.get_mut(pattern) {
            listeners.retain(|listener| listener.id != client);
        }
        self.patterns.remove_if(pattern, |_, listeners| listeners.is_empty());
        self.pattern_count.store(self.patterns.len(), Relaxed);
    }

    /// Delivers `payload` to everybody who listens; says to how many.
    pub fn publish(&self, channel: &[u8], payload: &[u8]) -> usize {
        let mut receivers = 0;
        if let Some(listeners) = self.channels.get(channel) {
            for listener in listeners.iter() {
                send(listener, &[b"message", channel, payload]);
                receivers += 1;
            }
        }
        if self.pattern_count.load(Relaxed) > 0 {
            for entry in self.patterns.iter().filter(|entry| glob::matches(entry.key(), channel)) {
                for listener in entry.value() {
                    send(listener, &[b"pmessage", entry.key(), channel, payload]);
                    receivers += 1;
                }
            }
        }
        receivers
    }

    /// Channels with at least one listener that fit `pattern`.
    pub fn active(&self, pattern: Option<&[u8]>) -> Vec<Bytes> {
        let fits = |channel: &Bytes| pattern.is_none_or(|pattern| glob::matches(pattern, channel));
        self.channels.iter().filter(|entry| fits(entry.key())).map(|entry| entry.key().clone()).collect()
    }

    /// How many listen to `channel` itself.
    pub fn listeners(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, |listeners| listeners.len())
    }

    /// How many channels have listeners.
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// How many patterns have listeners.
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Relaxed)
    }
}

fn send(listener: &Client, parts: &[&[u8]]) {
    let mut message = Vec::with_capacity(parts.iter().map(|part| part.len() + 16).sum());
    let mut reply = Reply::new(&mut message, listener.protocol());
    reply.push(parts.len());
    for part in parts {
        reply.bulk(part);
    }
    listener.deliver(&message);
}
