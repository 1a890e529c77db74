//! The queues of commands that wait for keys: one queue per key, first in, first out.
//!
//! Owns    the queues of one shard, and which other shards their commands use when they are served.
//! Locks   none: the caller holds the mutex of the shard. A command that waits for several keys is in several
//!         queues with one [`Wait`]. Its claim decides which queue serves it. Its entries in the other queues are removed
//!         when a write serves those.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::View;
use super::observers::ByKey;
use crate::state::wait::Wait;

/// How a waiting command is served when one of its keys may have what it waits for. Called by the write that changed the
/// key, with all shards locked that the command needs.
pub trait Serve: fmt::Debug + Send + Sync {
    /// Whether `key` has what the command waits for. Changes nothing.
    fn is_ready(&self, view: &mut View<'_>, key: &[u8]) -> bool;

    /// Takes it, and answers the client. Called only when [`Serve::is_ready`] and after the claim was taken.
    fn serve(&self, view: &mut View<'_>, key: &[u8]);
}

/// A command that waits for keys, as their queues hold it.
#[derive(Debug)]
pub struct Waiter {
    /// Its keys, its timeout and its claim.
    pub wait: Arc<Wait>,
    /// Other keys that it uses when it is served.
    pub also: Vec<Bytes>,
    /// How it is served.
    pub serve: Box<dyn Serve>,
}

/// The queues of one shard.
#[derive(Debug, Default)]
pub(super) struct WaitQueues {
    queues: ByKey<VecDeque<Queued>>,
    /// Other shards that commands queued here use when they are served, and how many queue entries name each.
    other_shards: BTreeMap<usize, usize>,
}

/// An entry of a queue.
#[derive(Debug)]
struct Queued {
    waiter: Arc<Waiter>,
    /// The shards of the command's further keys, other than the shard of this queue.
    other_shards: SmallVec<[usize; 1]>,
}

impl Queued {
    fn is_over(&self) -> bool {
        self.waiter.wait.claim.is_taken()
    }
}

impl WaitQueues {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Other shards that may be needed to serve a command queued here.
    #[inline]
    pub(super) fn other_shards(&self) -> impl Iterator<Item = usize> {
        self.other_shards.keys().copied()
    }

    /// Whether other shards may be needed to serve a command queued here.
    #[inline]
    pub(super) fn need_other_shards(&self) -> bool {
        !self.other_shards.is_empty()
    }

    /// Puts a waiter at the end of a key's queue.
    pub(super) fn enter(&mut self, key: &Bytes, waiter: &Arc<Waiter>, other_shards: SmallVec<[usize; 1]>) {
        for shard in &other_shards {
            *self.other_shards.entry(*shard).or_default() += 1;
        }
        let queued = Queued { waiter: Arc::clone(waiter), other_shards };
        self.queues.entry(waiter.wait.database, key).push_back(queued);
    }

    /// The first waiter of a key's queue, from position `from` on, whose wait is not over; and its position.
    pub(super) fn waiting(&self, database: u16, key: &[u8], from: usize) -> Option<(usize, Arc<Waiter>)> {
        let queue = self.queues.get(database, key)?;
        let mut queued = queue.iter().enumerate().skip(from);
        let (at, queued) = queued.find(|(_, queued)| !queued.is_over())?;
        Some((at, Arc::clone(&queued.waiter)))
    }

    /// Removes entries whose wait is over from the front of a key's queue.
    pub(super) fn sweep(&mut self, database: u16, key: &[u8]) {
        let Some(queue) = self.queues.get_mut(database, key) else { return };
        while let Some(first) = queue.front()
            && first.is_over()
        {
            release(&mut self.other_shards, first);
            queue.pop_front();
        }
        if queue.is_empty() {
            self.queues.remove(database, key);
        }
    }

    /// Removes every entry of a key's queue whose wait is over.
    pub(super) fn leave(&mut self, database: u16, key: &[u8]) {
        let Some(queue) = self.queues.get_mut(database, key) else { return };
        queue.retain(|queued| {
            // Asked once: another thread may take the claim at any time.
            let is_over = queued.is_over();
            if is_over {
                release(&mut self.other_shards, queued);
            }
            !is_over
        });
        if queue.is_empty() {
            self.queues.remove(database, key);
        }
    }

    /// How many entries all queues have together.
    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(|(.., queue)| queue.len()).sum()
    }

    /// The keys of a database that have a queue.
    pub(super) fn keys(&self, database: u16) -> Vec<Bytes> {
        let here = self.queues.iter().filter(|(other, ..)| *other == database);
        here.map(|(_, key, _)| key.clone()).collect()
    }
}

/// An entry has left its queue: its shards count one less.
fn release(other_shards: &mut BTreeMap<usize, usize>, queued: &Queued) {
    for shard in &queued.other_shards {
        if let Some(count) = other_shards.get_mut(shard) {
            *count -= 1;
            if *count == 0 {
                other_shards.remove(shard);
            }
        }
    }
}
