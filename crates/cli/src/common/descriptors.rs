//! How many descriptors the process may hold.
//!
//! Source  Redis 7.0 `adjustOpenFilesLimit`.

use std::io;

use redlatch_platform::descriptors;

/// Descriptors that are not for clients: listeners, log, runtimes. Redis reserves as many.
const RESERVED: u64 = 32;

/// Raises the process' limit of open files so that `clients` can be served, besides `others` that need a descriptor, as far
/// as the system allows; returns how many clients can be served.
///
/// # Errors
/// The system does not report the limit.
pub(crate) fn raise_limit(clients: u64, others: u64) -> io::Result<u64> {
    let reserved = RESERVED + others;
    let limit = descriptors::raise_limit(clients.saturating_add(reserved))?;
    Ok(clients.min(limit.saturating_sub(reserved)))
}
