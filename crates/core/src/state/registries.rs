//! The registries of clients that receive messages about the effects of a call.

use std::sync::Arc;

use super::channels::Channels;
use super::clients::Clients;
use super::ledger::Ledger;
use super::lock_sessions::LockSessions;
use super::tracking::Tracking;

/// The registries that a change of the keyspace is published to.
#[derive(Debug, Default)]
pub struct Registries {
    pub clients: Clients,
    pub channels: Channels,
    /// Clients with CLIENT TRACKING on.
    pub tracking: Tracking,
    pub lock_sessions: LockSessions,
}

impl Registries {
    /// Empty registries; see [`Channels::new`]. Their memory is charged to `ledger`.
    pub fn new(seed: u64, ledger: &Arc<Ledger>) -> Self {
        let (channels, lock_sessions) = (Channels::new(seed), LockSessions::new(ledger));
        Self { channels, lock_sessions, ..Self::default() }
    }
}
