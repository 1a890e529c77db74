//! Sessions that a change of the ACL ends.
//!
//! Source  Redis 7.0 `acl.c`: `ACLKillPubsubClientsIfNeeded`, `ACLFreeUserAndKillClients`.

use std::sync::Arc;

use crate::commands::Shared;
use crate::state::acl::Account;
use crate::state::channels::Kind;

/// Ends the sessions of a user that are subscribed to a channel which the user may no longer use.
///
/// The session of client `own` is spared, because its reply is not sent yet. Returns true if it was among these
/// sessions.
pub(in crate::commands) fn end_listeners(shared: &Shared, account: &Arc<Account>, own: u64) -> bool {
    let user = account.user();
    let mut is_own = false;
    shared.registries.channels.each(|kind, name, client| {
        if !client.login.is_as(account) || user.may_listen(name, kind == Kind::Pattern) {
            return;
        }
        if client.id == own {
            is_own = true;
        } else {
            client.cut("its user may no longer listen to that channel");
        }
    });
    is_own
}

/// Ends the sessions of these users.
///
/// The session of client `own` is spared, because its reply is not sent yet. Returns true if it was among these
/// sessions.
pub(in crate::commands) fn end_sessions(shared: &Shared, gone: &[Arc<Account>], own: u64) -> bool {
    let mut is_own = false;
    if gone.is_empty() {
        return is_own;
    }
    shared.registries.clients.each(|client| {
        if !client.login.account().is_some_and(|account| gone.iter().any(|gone| Arc::ptr_eq(gone, &account)))
        {
            return;
        }
        if client.id == own {
            is_own = true;
        } else {
            client.cut("its user is gone");
        }
    });
    is_own
}
