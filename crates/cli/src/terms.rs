//! What a subcommand asks for when it takes a lock.

use std::time::Duration;

use redlatch_client::{Acquire, Locks};

/// The locks to take, and how they are held.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) kind: Kind,
    pub(super) lease: Duration,
    pub(super) meta: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Exclusive,
    Permits { count: u64, limit: u64 },
    Shared,
}

impl Terms {
    /// The request for them. `wait`: `None` without a limit.
    pub(super) fn acquire(&self, locks: &Locks, owner: &[u8], wait: Option<Duration>) -> Acquire {
        let acquire = locks.lock_all(self.keys.iter().cloned()).acquire().owner(owner).lease(self.lease);
        let acquire = match wait {
            Some(wait) => acquire.wait(wait),
            None => acquire.wait_forever(),
        };
        let acquire = match self.kind {
            Kind::Exclusive => acquire,
            Kind::Permits { count, limit } => acquire.permits(count, limit),
            Kind::Shared => acquire.shared(),
        };
        self.meta.iter().fold(acquire, |acquire, (field, value)| acquire.meta(field.as_str(), value.as_str()))
    }
}
