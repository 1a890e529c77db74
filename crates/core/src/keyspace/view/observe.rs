//! Observers of keys: transactions that watch them, and clients that track what they have read.

use std::sync::Arc;

use bytes::Bytes;

use super::View;
use crate::state::clients::ClientId;
use crate::state::registries::Registries;
use crate::state::tracking::Tracking;
use crate::state::transaction::{Watch, Watching};

impl View<'_> {
    /// Adds a key to the watch of a transaction. A key that has expired counts as removed, and as unchanged.
    pub fn watch(&mut self, key: &Bytes, watch: &Arc<Watch>) {
        // The lookup removes the key if it has expired.
        let _ = self.entry(key);
        let (database, index) = (self.database, self.keyspace.shard_of(self.keyspace.hash(key)));
        self.locked.held(index).observers.watch(database, key, watch);
    }

    /// Ends the watch of a transaction, whose keys must all be in locked shards. Returns whether one of them has changed; a
    /// key that has expired by the instant of this call counts as changed, whether or not its timer has fired.
    pub fn end_watch(&mut self, watching: &Watching) -> bool {
        let selected = self.database;
        for (database, key) in &watching.keys {
            self.database = *database;
            // The lookup removes the key if it has expired, which breaks the watch.
            let _ = self.entry(key);
            let index = self.keyspace.shard_of(self.keyspace.hash(key));
            self.locked.held(index).observers.unwatch(*database, key, &watching.watch);
        }
        self.database = selected;
        watching.watch.is_broken()
    }

    /// A client has read a key and keeps a copy of its value. Above `keys_max` tracked keys, some are no longer tracked; zero
    /// sets no limit.
    pub fn remember(&mut self, key: &[u8], reader: ClientId, tracking: &Tracking, keys_max: usize) {
        let index = self.keyspace.shard_of(self.hash(key));
        let observers = &mut self.locked.held(index).observers;
        for (key, readers) in observers.remember(key, reader, tracking, keys_max) {
            self.changes.untracked(key, readers);
        }
    }

    /// Changes a client's tracking by `change`, which returns the prefixes that are new to the server. Invalidations of the
    /// changes made so far go to the clients that tracked the keys before.
    pub(crate) fn change_tracking(&mut self, registries: &Registries, change: impl FnOnce() -> Vec<Bytes>) {
        self.changes.change_tracking(registries, change);
    }
}
