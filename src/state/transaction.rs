//! The state of a connection for its next EXEC: the requests since MULTI, and the watched keys.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use bytes::Bytes;

use crate::resp::OwnedRequest;
use crate::sync::AtomicBool;

/// The requests since MULTI.
#[derive(Debug, Default)]
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
}

/// The keys that a connection watches.
#[derive(Debug, Default)]
pub struct Watching {
    /// Marked as broken when one of the keys changes.
    pub watch: Arc<Watch>,
    /// The keys, each with its database.
    pub keys: BTreeSet<(u16, Bytes)>,
}

/// One WATCH, from its first key to the EXEC, DISCARD or UNWATCH that ends it.
#[derive(Debug, Default)]
pub struct Watch(AtomicBool);

impl Watch {
    /// Whether a key has changed. The caller has locked the shards of all watched keys.
    pub fn is_broken(&self) -> bool {
        self.0.load(Acquire)
    }

    /// A watched key has changed.
    pub fn touch(&self) {
        self.0.swap(true, AcqRel);
    }
}
