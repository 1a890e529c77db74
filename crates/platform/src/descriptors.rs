//! How many descriptors the process may hold.

use std::io;

/// Raises the limit of open files to `wanted`, as far as the system allows; returns how many there may be.
///
/// # Errors
/// The system does not report the limit.
#[cfg(unix)]
pub fn raise_limit(wanted: u64) -> io::Result<u64> {
    use rlimit::Resource;
    let (soft, hard) = Resource::NOFILE.get()?;
    if soft < wanted {
        // Only a privileged process may go beyond the hard limit.
        let raised = Resource::NOFILE.set(wanted, hard.max(wanted));
        raised.or_else(|_| Resource::NOFILE.set(hard.min(wanted), hard))?;
    }
    Resource::NOFILE.get_soft()
}

/// There is no limit that a server could meet: returns `wanted`.
///
/// # Errors
/// None on this system.
#[cfg(not(unix))]
pub fn raise_limit(wanted: u64) -> io::Result<u64> {
    Ok(wanted)
}
