//! Long calls: whether one holds shards, and which clients try again when it is over.
//!
//! Rule    a client that meets a locked shard of a long call enters the list, or learns that the call is over, under the
//!         list's lock. The call ends by emptying the list under that lock, so no client is forgotten.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::state::clients::{Client, ClientId};
use crate::sync::{AtomicUsize, Mutex};

/// How many long calls hold shards or are about to, and the clients that wait for their end.
#[derive(Default)]
pub struct LongCall {
    calls: AtomicUsize,
    waiting: Mutex<BTreeMap<ClientId, Arc<Client>>>,
}

impl LongCall {
    /// A long call begins, and lasts until the result is dropped: after its shards have been unlocked.
    pub fn begin(self: &Arc<Self>) -> LongCallGuard {
        self.calls.fetch_add(1, AcqRel);
        LongCallGuard(Arc::clone(self))
    }

    /// Whether a long call holds shards.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.calls.load(Acquire) > 0
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
pub struct LongCallGuard(Arc<LongCall>);

impl Drop for LongCallGuard {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        self.0.calls.fetch_sub(1, AcqRel);
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
