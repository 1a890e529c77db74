//! The steps of a test's clock: each is over when every connection has done the work that it caused.
//!
//! Locks   one mutex, under which nothing else is locked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use redlatch_core::state::clients::{ClientId, Clients};
use tokio::sync::Notify;

/// The steps that the clock of one node has made.
#[derive(Debug, Default)]
pub(crate) struct ClockSteps {
    /// The number of the last one.
    last: AtomicU64,
    /// The last step whose work each connection has done, by its client.
    settled: Mutex<BTreeMap<ClientId, u64>>,
    /// Notified whenever a connection has done all work of a step.
    changed: Notify,
}

impl ClockSteps {
    /// The number of the last step.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(SeqCst)
    }

    /// The connection of a client has done all work of this step.
    pub(crate) fn finish(&self, client: ClientId, step: u64) {
        self.settled.lock().insert(client, step);
        self.changed.notify_waiters();
    }

    /// A client has gone: no step waits for it any more.
    pub(crate) fn leave(&self, client: ClientId) {
        self.settled.lock().remove(&client);
        self.changed.notify_waiters();
    }

    /// Begins a step: wakes every connection, and waits until each has written all its output, or cannot write because its
    /// client does not read.
    pub(crate) async fn make(&self, registry: &Clients) {
        let step = self.last.fetch_add(1, SeqCst) + 1;
        let clients = registry.all();
        for client in &clients {
            client.wake();
        }
        for client in clients {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // Registered before the check, so that no notification is missed.
                changed.as_mut().enable();
                let is_gone = registry.get(client.id).is_none();
                if is_gone || self.has_done(client.id, step) {
                    break;
                }
                changed.await;
            }
        }
    }

    fn has_done(&self, client: ClientId, step: u64) -> bool {
        self.settled.lock().get(&client).is_some_and(|settled| *settled >= step)
    }
}
