//! The clients that asked for MONITOR.
//!
//! Rule    while no client monitors, a command costs one load: [`Monitors::is_any`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use super::clients::{Client, ClientId};

#[derive(Debug, Default)]
pub struct Monitors {
    is_any: AtomicBool,
    clients: Mutex<Vec<Arc<Client>>>,
}

impl Monitors {
    /// True while a client monitors.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// True if this client monitors.
    pub fn contains(&self, id: ClientId) -> bool {
        self.is_any() && self.clients.lock().iter().any(|client| client.id == id)
    }

    /// Ends the monitoring by a client.
    pub fn leave(&self, id: ClientId) {
        if self.is_any() {
            let mut clients = self.clients.lock();
            clients.retain(|client| client.id != id);
            self.is_any.store(!clients.is_empty(), Relaxed);
        }
    }

    /// Starts monitoring by a client.
    pub fn join(&self, client: Arc<Client>) {
        let mut clients = self.clients.lock();
        clients.push(client);
        self.is_any.store(true, Relaxed);
    }

    /// Puts a line into the outbox of each monitoring client.
    pub fn deliver(&self, line: &[u8]) {
        self.clients.lock().iter().for_each(|client| client.deliver(line));
    }
}
