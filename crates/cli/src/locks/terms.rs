//! What a subcommand asks for when it takes a lock.

use std::time::Duration;

use redlatch_client::{Acquire, Locks};
use redlatch_proto::lock::OWNER_BYTES_MAX;

use crate::common::Fault;

/// The locks to take, and how they are held.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) kind: LockKind,
    pub(crate) lease: Duration,
    pub(crate) meta: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LockKind {
    Exclusive,
    Permits { count: u64, limit: u64 },
    Shared,
}

impl Terms {
    /// The request for them. `wait`: `None` without a limit.
    pub(crate) fn acquire(&self, locks: &Locks, owner: &[u8], wait: Option<Duration>) -> Acquire {
        let acquire = locks.lock_all(self.keys.iter().cloned()).acquire().owner(owner).lease(self.lease);
        let acquire = match wait {
            Some(wait) => acquire.wait(wait),
            None => acquire.wait_forever(),
        };
        let acquire = match self.kind {
            LockKind::Exclusive => acquire,
            LockKind::Permits { count, limit } => acquire.permits(count, limit),
            LockKind::Shared => acquire.shared(),
        };
        // It is for people who look: a server without LOCK commands has no place for it, and is asked all the same.
        let acquire = acquire.may_drop_meta();
        self.meta.iter().fold(acquire, |acquire, (field, value)| acquire.meta(field.as_str(), value.as_str()))
    }
}

/// Returns the lease, if there can be one.
///
/// # Errors
/// It ends at once.
pub(crate) fn check_lease(lease: Duration) -> Result<Duration, Fault> {
    match lease.is_zero() {
        true => Err("0: must be at least 1ms".to_owned()),
        false => Ok(lease),
    }
}

/// Returns the owner, if the server takes it.
///
/// # Errors
/// It is empty, or too long.
pub(crate) fn check_owner(owner: Vec<u8>) -> Result<Vec<u8>, Fault> {
    match owner.len() {
        1..=OWNER_BYTES_MAX => Ok(owner),
        _ => Err(format!("a name has 1 to {OWNER_BYTES_MAX} bytes")),
    }
}
