//! Long calls: which shards they hold, and which clients try again when one is over.
//!
//! Owns    for each shard: how many long calls hold it, and its counters as of the moment when the last one took it.
//! Rule    a client that meets a locked shard of a long call enters the list, or learns that the call is over, under the
//!         list's lock. The call ends by emptying the list under that lock, so no client is forgotten.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use redlatch_proto::clock::LockTime;

use super::{Counts, ShardState};
use crate::state::clients::{Client, ClientId};
use crate::sync::{AtomicUsize, Mutex};

/// How many long calls there are, the shards that they hold, and the clients that wait for the end of one.
pub struct LongCall {
    calls: AtomicUsize,
    shards: Box<[HeldShard]>,
    waiting: Mutex<BTreeMap<ClientId, Arc<Client>>>,
}

/// A shard, as long calls see it.
#[derive(Default)]
struct HeldShard {
    /// Two at most: the one that holds it, and one that has unlocked it and is about to end.
    calls: AtomicUsize,
    known: Mutex<Known>,
}

/// What is known of a shard without locking it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Its counters.
    pub(super) counts: Counts,
    /// For each database, its keys, and its keys with a deadline.
    pub(super) sizes: Vec<(usize, usize)>,
}

impl LongCall {
    /// No long call, in a keyspace of this many shards.
    pub(super) fn new(shards: usize) -> Self {
        let shards = std::iter::repeat_with(HeldShard::default).take(shards).collect();
        Self { calls: AtomicUsize::new(0), shards, waiting: Mutex::new(BTreeMap::new()) }
    }

    /// A long call begins, and lasts until the result is dropped: after its shards have been unlocked.
    pub(super) fn begin(self: &Arc<Self>) -> LongCallGuard {
        self.calls.fetch_add(1, AcqRel);
        LongCallGuard { long_call: Arc::clone(self), shards: Vec::new() }
    }

    /// Whether there is a long call.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.calls.load(Acquire) > 0
    }

    /// Whether a long call holds this shard.
    pub(super) fn holds(&self, shard: usize) -> bool {
        self.shards[shard].calls.load(Acquire) > 0
    }

    /// What was known of a shard when a long call took it.
    pub(super) fn known(&self, shard: usize) -> Known {
        self.shards[shard].known.lock().clone()
    }

    /// Has a client woken when a long call is over; false when none is on.
    pub fn wait(&self, client: &Arc<Client>) -> bool {
        let mut waiting = self.waiting.lock();
        if !self.is_on() {
            return false;
        }
        waiting.insert(client.id, Arc::clone(client));
        true
    }
}

/// A running long call. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct LongCallGuard {
    long_call: Arc<LongCall>,
    /// The shards that it holds.
    shards: Vec<usize>,
}

impl LongCallGuard {
    /// The call holds this shard, which it has locked, until the call ends.
    pub(super) fn take(&mut self, shard: usize, held: &ShardState, databases: u16, now: LockTime) {
        let entry = &self.long_call.shards[shard];
        let mut known = entry.known.lock();
        known.counts = Counts { as_of: Some(now), ..Counts::of(held) };
        known.sizes.clear();
        known.sizes.extend((0..databases).map(|database| held.add_size(database, (0, 0))));
        drop(known);
        entry.calls.fetch_add(1, AcqRel);
        self.shards.push(shard);
    }
}

impl Drop for LongCallGuard {
    fn drop(&mut self) {
        for shard in &self.shards {
            self.long_call.shards[*shard].calls.fetch_sub(1, AcqRel);
        }
        let mut waiting = self.long_call.waiting.lock();
        self.long_call.calls.fetch_sub(1, AcqRel);
        let clients = std::mem::take(&mut *waiting);
        drop(waiting);
        clients.values().for_each(|client| client.wake());
    }
}

impl fmt::Debug for LongCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongCall").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}
