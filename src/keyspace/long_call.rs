//! A long call that holds shards, and the clients who come again when it is over.
//!
//! Rule    whoever meets a shard of a long call enters the list, or is told that the call is over, both under the
//!         list's lock; the call ends by emptying the list under the same lock. Nobody is forgotten.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::state::clients::{Client, ClientId};
use crate::sync::{AtomicBool, Mutex};

/// Whether a long call holds shards, and who waits for its end.
pub struct LongCall {
    is_on: AtomicBool,
    later: Mutex<BTreeMap<ClientId, Arc<Client>>>,
}

impl Default for LongCall {
    fn default() -> Self {
        Self { is_on: AtomicBool::new(false), later: Mutex::new(BTreeMap::new()) }
    }
}

impl LongCall {
    /// The call that holds these shards takes long: nobody is to wait for it with a thread. Said by the call itself, as
    /// often as it likes.
    pub fn begin(&self) {
        self.is_on.swap(true, AcqRel);
    }

    /// The same for as long as what it returns is kept.
    pub fn during(self: &Arc<Self>) -> During {
        self.begin();
        During(Arc::clone(self))
    }

    /// The call is over and has let its shards go.
    pub fn end(&self) {
        let mut later = self.later.lock();
        self.is_on.swap(false, AcqRel);
        let clients = std::mem::take(&mut *later);
        drop(later);
        clients.values().for_each(|client| client.wake());
    }

    /// Whether a long call holds shards.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    /// Has a client woken when the call is over; false when it already is.
    pub fn wait(&self, client: &Arc<Client>) -> bool {
        let mut later = self.later.lock();
        if !self.is_on() {
            return false;
        }
        later.insert(client.id, Arc::clone(client));
        true
    }
}

/// A long call, while it is held; to be dropped when the call has let its shards go.
#[derive(Debug)]
pub struct During(Arc<LongCall>);

impl Drop for During {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl fmt::Debug for LongCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongCall").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}
