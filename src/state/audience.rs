//! Everybody who may be told of what a call has done.

use super::channels::Channels;
use super::clients::Clients;
use super::tracking::Tracking;

/// The registries that a change of the keyspace is told to.
#[derive(Debug, Default)]
pub struct Audience {
    /// Every client.
    pub clients: Clients,
    /// Who listens to what.
    pub channels: Channels,
    /// Who keeps copies of values.
    pub tracking: Tracking,
}

impl Audience {
    /// Nobody yet; see [`Channels::new`].
    pub fn new(seed: u64) -> Self {
        Self { channels: Channels::new(seed), ..Self::default() }
    }
}
