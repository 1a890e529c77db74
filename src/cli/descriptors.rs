//! How many descriptors the process may hold.
//!
//! Rule    a process of our own raises its limit for `maxclients`, as Redis does; a server inside somebody else's process
//!         takes the limit as it is.
//! Source  Redis 7.0 `adjustOpenFilesLimit`.

use std::io;

use rlimit::Resource;

/// Descriptors that are not for clients: listeners, log, runtimes. Redis keeps back as many.
const RESERVED: u64 = 32;

/// Raises the process' limit of open files so that `clients` can be served, as far as the system lets it; how many can be.
///
/// # Errors
/// When the system does not tell what the limit is.
pub(super) fn make_room(clients: u64) -> io::Result<u64> {
    let wanted = clients.saturating_add(RESERVED);
    let (soft, hard) = Resource::NOFILE.get()?;
    if soft < wanted {
        // More than the hard limit is for privileged processes; up to it is for everybody.
        let raised = Resource::NOFILE.set(wanted, hard.max(wanted));
        raised.or_else(|_| Resource::NOFILE.set(hard.min(wanted), hard))?;
    }
    let limit = Resource::NOFILE.get_soft()?;
    Ok(clients.min(limit.saturating_sub(RESERVED)))
}
