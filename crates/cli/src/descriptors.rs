//! How many descriptors the process may hold.
//!
//! Rule    the binary raises its limit for `maxclients`, as Redis does; a server that is embedded in another program
//!         takes the limit as it is.
//! Source  Redis 7.0 `adjustOpenFilesLimit`.

use std::io;

use redlatch_core::state::settings::{self, Settings};
use redlatch_platform::descriptors;
use redlatch_proto::limits::{HTTP_CONNECTIONS_MAX, HTTP_WAITS_MAX};
use redlatch_server::process::Inherited;

/// Descriptors that are not for clients: listeners, log, runtimes. Redis reserves as many.
const RESERVED: u64 = 32;
/// Descriptors of HTTP that are not for its connections.
const HTTP_RESERVED: u64 = 16;

/// Descriptors for the places beyond `maxclients`, and for HTTP if the settings ask for it or it has inherited a socket: its
/// connections, its sockets, its runtime. Only where HTTP may change something, requests wait.
pub(super) fn for_others(settings: &Settings, inherited: &Inherited) -> u64 {
    let reserved = settings.get(settings::MAXCLIENTS_RESERVED);
    let has_socket = !inherited.http.is_empty() || !settings.get(settings::HTTP_UNIXSOCKET).is_empty();
    let is_on = has_socket || settings.get(settings::HTTP_PORT) != "0";
    let waits = if settings.get(settings::HTTP_ADMIN) { HTTP_WAITS_MAX as u64 } else { 0 };
    reserved + if is_on { HTTP_CONNECTIONS_MAX as u64 + waits + HTTP_RESERVED } else { 0 }
}

/// Raises the process' limit of open files so that `clients` can be served, besides `others` that need a descriptor, as far
/// as the system allows; returns how many clients can be served.
///
/// # Errors
/// The system does not report the limit.
pub(super) fn raise_limit(clients: u64, others: u64) -> io::Result<u64> {
    let reserved = RESERVED + others;
    let limit = descriptors::raise_limit(clients.saturating_add(reserved))?;
    Ok(clients.min(limit.saturating_sub(reserved)))
}
