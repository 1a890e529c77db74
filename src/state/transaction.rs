//! What a connection has gathered for its next EXEC: the requests after MULTI, the keys that it watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use bytes::Bytes;

use crate::resp::OwnedRequest;
use crate::sync::AtomicBool;

/// The requests since MULTI.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Those that are to be carried out, in order.
    pub queued: Vec<OwnedRequest>,
    /// Bytes that they take.
    pub bytes: usize,
    /// Whether a request was refused: EXEC will carry out nothing.
    pub is_aborted: bool,
    /// Whether one of them could need memory.
    pub may_grow: bool,
    /// Whether one of them may write.
    pub may_write: bool,
}

/// The keys that a connection watches.
#[derive(Debug, Default)]
pub struct Watching {
    /// Told of their changes.
    pub watch: Arc<Watch>,
    /// The keys, each with its database.
    pub keys: BTreeSet<(u16, Bytes)>,
}

/// One WATCH, from its first key to the EXEC, DISCARD or UNWATCH that ends it.
#[derive(Debug)]
pub struct Watch(AtomicBool);

impl Watch {
    /// A watch over keys that have not changed yet.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether a key has changed. Look with the shards of all watched keys locked.
    pub fn is_broken(&self) -> bool {
        self.0.load(Acquire)
    }

    /// A key has changed.
    pub fn touch(&self) {
        self.0.swap(true, AcqRel);
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}
