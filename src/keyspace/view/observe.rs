//! Observers of keys: transactions that watch them, and clients that track what they have read.

use std::sync::Arc;

use bytes::Bytes;

use super::View;
use crate::state::audience::Audience;
use crate::state::clients::ClientId;
use crate::state::tracking::Tracking;
use crate::state::transaction::{Watch, Watching};

impl View<'_> {
    /// A transaction watches a key from now on. One that has expired counts as gone, and as unchanged.
    pub fn watch(&mut self, key: &Bytes, watch: &Arc<Watch>) {
        // The lookup removes the key if it has expired.
        let _ = self.entry(key);
        let (database, index) = (self.database, self.keyspace.shard_of(self.keyspace.hash(key)));
        self.locked.held(index).observers.watch(database, key, watch);
    }

    /// A transaction no longer watches its keys, all of which must be in shards that are locked.
    pub fn unwatch(&mut self, watching: &Watching) {
        for (database, key) in &watching.keys {
            let index = self.keyspace.shard_of(self.keyspace.hash(key));
            self.locked.held(index).observers.unwatch(*database, key, &watching.watch);
        }
    }

    /// A client has read a key, and keeps a copy of what it holds. Of more than `keys_max` keys some are given up; zero:
    /// there is room for all.
    pub fn remember(&mut self, key: &[u8], reader: ClientId, tracking: &Tracking, keys_max: usize) {
        let index = self.keyspace.shard_of(self.hash(key));
        let observers = &mut self.locked.held(index).observers;
        for (key, readers) in observers.remember(key, reader, tracking, keys_max) {
            self.changes.given_up(key, readers);
        }
    }

    /// What the client is told of its copies changes: `change` is made, and returns prefixes that nobody has listened to
    /// before. Of what is out of date so far, those are told who would have been.
    pub fn retune(&mut self, audience: &Audience, change: impl FnOnce() -> Vec<Bytes>) {
        self.changes.retune(audience, self.author, change);
    }
}
