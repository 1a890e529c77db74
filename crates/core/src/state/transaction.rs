//! The state of a connection for its next EXEC: the requests since MULTI, and the watched keys.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use bytes::Bytes;
use redlatch_proto::resp::OwnedRequest;

use super::ledger::{Charge, Kind, Ledger};
use crate::sync::AtomicBool;
use crate::types::heap;

/// The requests since MULTI.
#[derive(Debug)]
pub struct Transaction {
    /// The queued requests, in order.
    pub queued: Vec<OwnedRequest>,
    /// Their bytes.
    pub bytes: usize,
    /// Whether a request was refused, so that EXEC runs none.
    pub is_aborted: bool,
    /// Whether a queued request could need memory.
    pub may_grow: bool,
    /// Whether a queued request may write.
    pub may_write: bool,
    charge: Charge,
}

impl Transaction {
    /// A transaction without requests.
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        let (queued, bytes, charge) = (Vec::new(), 0, ledger.open(Kind::Transactions));
        Self { queued, bytes, is_aborted: false, may_grow: false, may_write: false, charge }
    }

    /// Adds a request, which has so many bytes with itself.
    pub fn push(&mut self, request: OwnedRequest, bytes: usize) {
        self.bytes += bytes;
        self.queued.push(request);
        let unused = self.queued.capacity() - self.queued.len();
        self.charge.set(self.bytes + unused * size_of::<OwnedRequest>());
    }

    /// Keeps no request, because EXEC will refuse all.
    pub fn abort(&mut self) {
        (self.queued, self.bytes, self.is_aborted) = (Vec::new(), 0, true);
        self.charge.set(0);
    }
}

/// The keys that a connection watches.
#[derive(Debug)]
pub struct Watching {
    /// Marked as broken when one of the keys changes.
    pub watch: Arc<Watch>,
    /// The keys, each with its database.
    pub keys: BTreeSet<(u16, Bytes)>,
    /// Bytes of the keys, without their places in the set.
    key_bytes: usize,
}

impl Watching {
    /// No key yet.
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        Self { watch: Arc::new(Watch::new(ledger)), keys: BTreeSet::new(), key_bytes: 0 }
    }

    /// Adds a key of a database; returns whether it is new. The caller adds it to the observers of its shard.
    pub fn insert(&mut self, database: u16, key: &Bytes) -> bool {
        let is_new = self.keys.insert((database, key.clone()));
        if is_new {
            // Its place in the observers of its shard, where it is the first of its key mostly.
            let of_shard = heap::in_tree::<(Bytes, Vec<Arc<Watch>>)>() + 4 * size_of::<Arc<Watch>>();
            self.key_bytes += heap::shared(key) + of_shard;
            self.watch.charge.set(self.key_bytes + heap::tree::<(u16, Bytes)>(self.keys.len()));
        }
        is_new
    }
}

/// One WATCH, from its first key to the EXEC, DISCARD or UNWATCH that ends it.
#[derive(Debug)]
pub struct Watch {
    is_broken: AtomicBool,
    /// The memory of its keys. The observers of the shards share it, so it lasts as long as any of them.
    charge: Charge,
}

impl Watch {
    /// A watch of no key yet.
    fn new(ledger: &Arc<Ledger>) -> Self {
        Self { is_broken: AtomicBool::new(false), charge: ledger.open(Kind::Watches) }
    }

    /// Whether a key has changed. If it returns false, that lasts as long as the caller has the shards of all watched keys
    /// locked.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Acquire)
    }

    /// A watched key has changed.
    pub fn touch(&self) {
        self.is_broken.swap(true, AcqRel);
    }
}
