//! The numbers of a lock client that the server does not know: how often it tries, how long it pauses.
//!
//! Source  `packages/clients`, where the clients of all languages have the same.

use std::time::Duration;

use redlatch_proto::lock::{LEASE_MS_MAX, OWNER_BYTES_MAX};

/// The shortest and the longest lease.
pub(crate) const LEASE_MIN: Duration = Duration::from_millis(1);
const LEASE_MAX: Duration = Duration::from_millis(LEASE_MS_MAX);
/// What is wrong with a lease that no server grants.
pub(crate) const LEASE_FAULT: &str = "a lease lasts for 1 ms at least, and ten years at most";

/// What is wrong with a `stop_before` that leaves nothing of the lease.
pub(crate) const STOP_BEFORE_FAULT: &str =
    "stop_before is less than the lease, or than the delay of a session";

/// Whether a server grants a lease of this length.
pub(crate) fn is_lease(lease: Duration) -> bool {
    (LEASE_MIN..=LEASE_MAX).contains(&lease)
}

/// What is wrong with an owner that no server takes.
pub(crate) const OWNER_FAULT: &str = "an owner has 1 to 1,024 bytes";

/// Whether a server takes this owner.
pub(crate) fn is_owner(owner: &[u8]) -> bool {
    (1..=OWNER_BYTES_MAX).contains(&owner.len())
}

/// How long before its deadline a hold is lost, unless the caller chooses: a part of what it lasts, and the longest time.
pub(crate) const STOP_BEFORE_PART: u32 = 10;
pub(crate) const STOP_BEFORE_MAX: Duration = Duration::from_secs(1);
/// Tries of a call that fails, also where its wait has passed.
pub(crate) const TRIES_MIN: u32 = 3;
/// The pause before the second try, and the longest one.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(50);
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The pause between two requests of a wait for a lock of a plain server, at first and at most.
pub(crate) const POLL_MIN: Duration = Duration::from_millis(20);
pub(crate) const POLL_MAX: Duration = Duration::from_millis(500);
/// The longest pause after a renewal that failed.
pub(crate) const RENEWAL_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often a session is looked at, at least.
pub(crate) const BEAT_MAX: Duration = Duration::from_secs(10);
