//! The login of a client by its TLS certificate: `tls-auth-clients-user`.
//!
//! Rule    the certificate is valid: the shell has checked it. A failed login is no guess, so it delays no other.
//! Source  Redis 8.6 and Valkey 9 `networking.c`, `clientAcceptHandler`; Valkey 9.1 for several names.

use crate::commands::Shared;
use crate::commands::admin::acl_check;
use crate::state::acl::log::{Context, Reason};
use crate::state::audit::Author;
use crate::state::session::Session;

/// Logs a client in as the first user that is on among `names`, which are those in its certificate. If there is none, the
/// session stays as it is, and the first name is told to ACL LOG and the logs.
pub(crate) fn log_in(session: &mut Session, shared: &Shared, names: &[Vec<u8>]) {
    let Some(first) = names.first() else { return };
    let now = shared.clock.now();
    let mut accounts = names.iter().filter_map(|name| shared.access.acl.find(name));
    if let Some(account) = accounts.find(|account| account.user().is_on()) {
        session.enter_as(account, true);
        shared.access.audit.login(now, Author::of(session));
        return;
    }
    shared.stats.metrics.denied_certificate.add(1);
    acl_check::note(session, shared, (Reason::Certificate, Context::Request), b"", first);
    super::tell_failed_login(session, shared, now, Some(first));
}
