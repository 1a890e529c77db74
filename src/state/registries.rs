//! The registries of clients that receive messages about the effects of a call.

use super::channels::Channels;
use super::clients::Clients;
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
    /// Empty registries; see [`Channels::new`].
    pub fn new(seed: u64) -> Self {
        Self { channels: Channels::new(seed), ..Self::default() }
    }
}
