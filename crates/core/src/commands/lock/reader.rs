//! What a client may learn of locks: of those keys alone for which it may send LOCK.WHO, from refusals also of those that it
//! may read.
//!
//! Rule    every reply that names a key, an owner or a holder which the request has not named asks here.

use std::sync::Arc;

use crate::commands::admin::acl_check;
use crate::state::acl::{Account, User};
use crate::state::clients::Client;
use crate::state::session::Session;

/// Who reads a reply, if its rights are limited.
#[derive(Debug)]
pub(in crate::commands) struct Reader(Option<Arc<User>>);

impl Reader {
    /// One who may see everything: the log.
    pub(in crate::commands) const UNLIMITED: Self = Self(None);

    pub(in crate::commands) fn of(session: &Session) -> Self {
        Self::of_account(&session.account)
    }

    /// A client that another call answers.
    pub(in crate::commands) fn of_client(client: &Client) -> Self {
        client.login.account().map_or(Self::UNLIMITED, |account| Self::of_account(&account))
    }

    /// Whether it may see everything.
    pub(in crate::commands) fn is_unlimited(&self) -> bool {
        self.0.is_none()
    }

    fn of_account(account: &Account) -> Self {
        Self((!account.is_unlimited()).then(|| account.user()))
    }

    /// Whether a refusal tells it who holds the lock of a key.
    pub(in crate::commands) fn may_learn(&self, name: &[u8]) -> bool {
        let may_read = |user: &Arc<User>| acl_check::may_send(user, &[b"GET", name]);
        self.may_see(name) || self.0.as_ref().is_some_and(may_read)
    }

    /// Whether it may see who holds the lock of a key.
    pub(in crate::commands) fn may_see(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_none_or(|user| acl_check::may_send(user, &[b"LOCK.WHO", name]))
    }
}
