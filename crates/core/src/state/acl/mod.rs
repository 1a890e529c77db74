//! Access control lists: the users of one server and their permissions.
//!
//! Owns    the accounts by name, and ACL LOG.
//! Knows   commands by number only; their names and categories come from a [`Catalog`].
//! Rule    a user changes as a whole and at once for all its sessions. A user without restrictions costs one branch per
//!         command: [`Account::is_unlimited`].
//! Locks   the registry is locked while an account changes its user, so that changes have one order. The lock of an
//!         account is held only to copy a pointer.
//! Source  Redis 7.0 `acl.c`.

pub mod file;
pub mod log;
pub mod password;
pub mod rules;
pub(crate) mod selector;
pub mod user;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

use bytes::Bytes;
use parking_lot::RwLock;

use log::Log;
use password::Digest;
use redlatch_proto::limits::{ACL_RULES_MAX, ACL_USERS_MAX};
use rules::RuleError;
pub use selector::{Access, Asked, Catalog, Denied};
pub use user::{Terms, User};

use super::ledger::{Charge, Kind, Ledger};

/// The user of connections that have not authenticated as another one.
pub const DEFAULT: &[u8] = b"default";

/// The name of a user and its current definition. Sessions hold accounts.
#[derive(Debug)]
pub struct Account {
    name: Bytes,
    is_unlimited: AtomicBool,
    user: RwLock<Arc<User>>,
    charge: Charge,
}

impl Account {
    fn new(name: &[u8], user: User, catalog: &dyn Catalog, ledger: &Arc<Ledger>) -> Self {
        let is_unlimited = AtomicBool::new(user.is_unlimited(catalog));
        let (name, charge) = (Bytes::copy_from_slice(name), ledger.open(Kind::Users));
        charge.set(size_of::<Self>() + name.len() + user.bytes());
        Self { name, is_unlimited, user: RwLock::new(Arc::new(user)), charge }
    }

    pub fn name(&self) -> &Bytes {
        &self.name
    }

    /// Whether it has all permissions, so that nothing needs to be checked.
    #[inline]
    pub fn is_unlimited(&self) -> bool {
        self.is_unlimited.load(Relaxed)
    }

    pub fn user(&self) -> Arc<User> {
        Arc::clone(&self.user.read())
    }

    fn become_user(&self, user: User, catalog: &dyn Catalog) {
        // If the new user is restricted, its sessions are checked from here on, at first against the old definition.
        let is_unlimited = user.is_unlimited(catalog);
        if !is_unlimited {
            self.is_unlimited.store(false, SeqCst);
        }
        self.charge.set(size_of::<Self>() + self.name.len() + user.bytes());
        *self.user.write() = Arc::new(user);
        self.is_unlimited.store(is_unlimited, SeqCst);
    }
}

/// The users of one server.
#[derive(Debug)]
pub struct Acl {
    accounts: RwLock<BTreeMap<Bytes, Arc<Account>>>,
    default: Arc<Account>,
    trusted: Arc<Account>,
    /// Whether clients need not authenticate.
    is_open: AtomicBool,
    /// ACL LOG.
    pub log: Log,
    ledger: Arc<Ledger>,
}

/// Why a user was not created or changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SetError {
    /// The name contains a space or a NUL.
    Name,
    /// There are too many users.
    Users,
    /// The parenthesis that this word opens is not closed.
    Parenthesis(Vec<u8>),
    Rule(Vec<u8>, RuleError),
}

impl Acl {
    /// One user, the default user, with all permissions and with this password if there is one. The memory of users is
    /// charged to `ledger`.
    pub fn new(password: &[u8], terms: Terms<'_>, ledger: &Arc<Ledger>) -> Self {
        let [default, trusted] = [password, b""].map(|password| {
            Arc::new(Account::new(DEFAULT, User::default(password, terms), terms.catalog, ledger))
        });
        let acl = Self {
            accounts: RwLock::new(BTreeMap::from([(default.name.clone(), Arc::clone(&default))])),
            default,
            trusted,
            is_open: AtomicBool::new(false),
            log: Log::default(),
            ledger: Arc::clone(ledger),
        };
        acl.update_is_open();
        acl
    }

    /// Whether clients need not authenticate: the default user is on and has no password.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// The account of new sessions.
    pub fn default_account(&self) -> &Arc<Account> {
        &self.default
    }

    /// An account with all permissions, which no command changes, with the name of the user that asks the server; empty: the
    /// server itself.
    pub fn trusted_account_of(&self, name: &Bytes) -> Arc<Account> {
        if name.is_empty() {
            return Arc::clone(&self.trusted);
        }
        let (is_unlimited, user) = (AtomicBool::new(true), RwLock::new(self.trusted.user()));
        Arc::new(Account { name: name.clone(), is_unlimited, user, charge: self.ledger.open(Kind::Users) })
    }

    /// The account of that name.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Account>> {
        self.accounts.read().get(name).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Account>> {
        self.accounts.read().values().cloned().collect()
    }

    /// The account of that name, if the password is right. The password is hashed even if there is no such user.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<Account>> {
        let digest = Digest::of(password);
        let account = self.find(name)?;
        let is_admitted = bool::from(account.user().admits(&digest));
        is_admitted.then_some(account)
    }

    /// Creates or changes a user by the rules in `words`: by all rules, or not at all. Returns its account.
    ///
    /// # Errors
    /// [`SetError`]; nothing has changed then.
    pub fn set<'a>(
        &self,
        name: &[u8],
        words: impl Iterator<Item = &'a [u8]>,
        terms: Terms<'_>,
    ) -> Result<Arc<Account>, SetError> {
        let rules = rules::merged(words).map_err(SetError::Parenthesis)?;
        let mut accounts = self.accounts.write();
        let account = accounts.get(name).cloned();
        if account.is_none() {
            check_name(name)?;
            if accounts.len() >= ACL_USERS_MAX {
                return Err(SetError::Users);
            }
        }
        let start = account.as_ref().map_or_else(|| User::new(terms), |account| User::clone(&account.user()));
        let user = changed(start, &rules, terms)?;
        let account = match account {
            Some(account) => {
                account.become_user(user, terms.catalog);
                account
            }
            None => {
                let account = Arc::new(Account::new(name, user, terms.catalog, &self.ledger));
                accounts.insert(account.name.clone(), Arc::clone(&account));
                account
            }
        };
        self.update_is_open();
        Ok(account)
    }

    /// Sets the only password of the default user; an empty one: it needs none.
    pub(crate) fn use_password(&self, password: &[u8], catalog: &dyn Catalog) {
        let _order = self.accounts.write();
        let mut user = User::clone(&self.default.user());
        user.use_password(password);
        self.default.become_user(user, catalog);
        self.update_is_open();
    }

    /// Removes a user and all its permissions. Returns its account, whose sessions the caller ends. The default user
    /// cannot be removed.
    pub fn remove(&self, name: &[u8], terms: Terms<'_>) -> Option<Arc<Account>> {
        if name == DEFAULT {
            return None;
        }
        let account = self.accounts.write().remove(name)?;
        account.become_user(User::new(Terms { all_channels: false, ..terms }), terms.catalog);
        Some(account)
    }

    /// Replaces all users by these. If the default user is not among them, it is reset, with `password`. Returns the
    /// accounts that were removed.
    pub fn replace(
        &self,
        users: Vec<(Vec<u8>, User)>,
        password: &[u8],
        terms: Terms<'_>,
    ) -> Vec<Arc<Account>> {
        let mut accounts = self.accounts.write();
        let names: BTreeSet<&[u8]> = users.iter().map(|(name, _)| &name[..]).collect();
        if !names.contains(DEFAULT) {
            self.default.become_user(User::default(password, terms), terms.catalog);
        }
        let gone: Vec<_> =
            accounts.values().filter(|account| !names.contains(&account.name[..])).cloned().collect();
        let gone: Vec<_> = gone.into_iter().filter(|account| account.name != DEFAULT).collect();
        for account in &gone {
            accounts.remove(&account.name);
            account.become_user(User::new(Terms { all_channels: false, ..terms }), terms.catalog);
        }
        for (name, user) in users {
            if let Some(account) = accounts.get(&name[..]) {
                account.become_user(user, terms.catalog);
            } else {
                let account = Arc::new(Account::new(&name, user, terms.catalog, &self.ledger));
                accounts.insert(account.name.clone(), account);
            }
        }
        self.update_is_open();
        gone
    }

    fn update_is_open(&self) {
        self.is_open.store(self.default.user().is_open(), SeqCst);
    }
}

/// Applies rules to a user.
pub(super) fn changed(mut user: User, rules: &[Vec<u8>], terms: Terms<'_>) -> Result<User, SetError> {
    if rules.len() > ACL_RULES_MAX {
        let last = rules.last().cloned().unwrap_or_default();
        return Err(SetError::Rule(last, RuleError::TooMany));
    }
    for rule in rules {
        user.apply(rule, terms).map_err(|error| SetError::Rule(rule.clone(), error))?;
    }
    Ok(user)
}

pub(super) fn check_name(name: &[u8]) -> Result<(), SetError> {
    if selector::has_space(name) { Err(SetError::Name) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
