//! The descriptors of a server: for its clients, and for all else.
//!
//! Rule    the binary raises its limit for `maxclients`, as Redis does; a server that is embedded in another program
//!         takes the limit as it is.

use redlatch_core::state::proposal::Proposal;
use redlatch_core::state::settings::{self, SettingError, Settings};
use redlatch_proto::limits::{HTTP_CONNECTIONS_MAX, HTTP_WAITS_MAX};
use redlatch_server::process::Inherited;

use crate::common::{Fault, descriptors};

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

/// Raises the limit of open files for `maxclients` and for others. Returns how many clients it allows; the log says so if it
/// is fewer.
pub(super) fn client_limit(settings: &Settings, for_others: u64) -> Result<u64, Fault> {
    let wanted = settings.get(settings::MAXCLIENTS);
    // A standby has a connection to the leader for each client.
    let each = if settings.get(settings::CLUSTER_ETCD).is_empty() { 1 } else { 2 };
    let fit = descriptors::raise_limit(wanted * each, for_others);
    let fit = fit.map_err(|error| format!("maxclients: {error}"))? / each;
    match fit {
        0 => Err("the limit of open files leaves no room for a client: raise 'ulimit -n'".into()),
        _ if fit < wanted => {
            tracing::warn!(wanted, maxclients = fit, "maxclients lowered to what 'ulimit -n' allows");
            Ok(fit)
        }
        _ => Ok(wanted),
    }
}

/// CONFIG SET may set no `maxclients` that the system does not allow.
pub(super) fn check_maxclients(proposal: &Proposal<'_>, for_others: u64) -> Result<(), SettingError> {
    let Some(changed) = proposal.first(&[settings::MAXCLIENTS]) else { return Ok(()) };
    let wanted = proposal.get(changed);
    match descriptors::raise_limit(wanted, for_others) {
        Ok(fit) if fit < wanted => {
            let reply = format!(
                "The operating system is not able to handle the specified number of clients, try with {fit}"
            );
            let expected = format!("must be at most {fit}");
            Err(SettingError::Value { name: changed.name(), value: wanted.to_string(), expected, reply })
        }
        _ => Ok(()),
    }
}
