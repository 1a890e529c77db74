//! Who may do what: the users of one server, and what each may do.
//!
//! Owns    the accounts by name, and the log of what was denied.
//! Knows   commands by number only; what rules may say of them comes from a [`Catalog`].
//! Rule    a user changes as a whole and at once for every session that is in its name. Whoever may do everything
//!         pays one branch: [`Account::is_unlimited`].
//! Locks   the registry's lock is held while an account takes another user, so that changes have one order; the
//!         account's own is held for no more than a copy of a pointer.
//! Source  Redis 7.0 `acl.c`.

pub mod file;
pub mod log;
pub mod password;
pub mod rules;
pub mod selector;
pub mod user;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

use bytes::Bytes;
use parking_lot::RwLock;

use crate::limits::{ACL_RULES_MAX, ACL_USERS_MAX};
use log::Log;
use password::Digest;
use rules::RuleError;
pub use selector::{Access, Asked, Catalog, Denied};
pub use user::{Terms, User};

/// The name of the user that everybody is who does not say otherwise.
pub const DEFAULT: &[u8] = b"default";

/// A user's name, and the user behind it: what sessions hold on to.
#[derive(Debug)]
pub struct Account {
    name: Bytes,
    is_unlimited: AtomicBool,
    user: RwLock<Arc<User>>,
}

impl Account {
    fn new(name: &[u8], user: User, catalog: &dyn Catalog) -> Self {
        let is_unlimited = AtomicBool::new(user.is_unlimited(catalog));
        Self { name: Bytes::copy_from_slice(name), is_unlimited, user: RwLock::new(Arc::new(user)) }
    }

    /// Its name.
    pub fn name(&self) -> &Bytes {
        &self.name
    }

    /// Whether it may do everything, so that nothing needs to be checked.
    #[inline]
    pub fn is_unlimited(&self) -> bool {
        self.is_unlimited.load(Relaxed)
    }

    /// What it may do now.
    pub fn user(&self) -> Arc<User> {
        Arc::clone(&self.user.read())
    }

    fn become_user(&self, user: User, catalog: &dyn Catalog) {
        // Whoever is not unlimited any more is checked from here on, against the old user at first.
        let is_unlimited = user.is_unlimited(catalog);
        if !is_unlimited {
            self.is_unlimited.store(false, SeqCst);
        }
        *self.user.write() = Arc::new(user);
        self.is_unlimited.store(is_unlimited, SeqCst);
    }
}

/// The users of one server.
#[derive(Debug)]
pub struct Acl {
    accounts: RwLock<BTreeMap<Bytes, Arc<Account>>>,
    default: Arc<Account>,
    /// Whether nobody has to say who it is.
    is_open: AtomicBool,
    /// What was denied.
    pub log: Log,
}

/// Why a user is not made or changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SetError {
    /// Its name has a space or a NUL in it.
    Name,
    /// There are too many users.
    Users,
    /// A parenthesis is opened by this word and not closed.
    Parenthesis(Vec<u8>),
    /// This rule is wrong.
    Rule(Vec<u8>, RuleError),
}

impl Acl {
    /// One user, the default one, which may do everything, with this password if there is one.
    pub fn new(password: &[u8], terms: Terms<'_>) -> Self {
        let default = Arc::new(Account::new(DEFAULT, User::default(password, terms), terms.catalog));
        let acl = Self {
            accounts: RwLock::new(BTreeMap::from([(default.name.clone(), Arc::clone(&default))])),
            default,
            is_open: AtomicBool::new(false),
            log: Log::default(),
        };
        acl.look_at_default();
        acl
    }

    /// Whether nobody has to say who it is: the default user is on and needs no password.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// The account that sessions begin with.
    pub fn default_account(&self) -> &Arc<Account> {
        &self.default
    }

    /// The account of that name.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Account>> {
        self.accounts.read().get(name).cloned()
    }

    /// Every account, by name.
    pub fn all(&self) -> Vec<Arc<Account>> {
        self.accounts.read().values().cloned().collect()
    }

    /// The account of that name, if that is its password. Takes the same time where there is no such user.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<Account>> {
        let digest = Digest::of(password);
        let account = self.find(name)?;
        let is_admitted = bool::from(account.user().admits(&digest));
        is_admitted.then_some(account)
    }

    /// Makes or changes a user by the rules that `words` spell: by all of them, or not at all. Returns its account and
    /// the user that it was before.
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
                let account = Arc::new(Account::new(name, user, terms.catalog));
                accounts.insert(account.name.clone(), Arc::clone(&account));
                account
            }
        };
        self.look_at_default();
        Ok(account)
    }

    /// The default user has this password and no other; an empty one: it needs none.
    pub fn use_password(&self, password: &[u8], catalog: &dyn Catalog) {
        let _order = self.accounts.write();
        let mut user = User::clone(&self.default.user());
        user.use_password(password);
        self.default.become_user(user, catalog);
        self.look_at_default();
    }

    /// Removes a user, which may do nothing from now on; its account, for its sessions to be ended. The default user
    /// stays.
    pub fn remove(&self, name: &[u8], terms: Terms<'_>) -> Option<Arc<Account>> {
        if name == DEFAULT {
            return None;
        }
        let account = self.accounts.write().remove(name)?;
        account.become_user(User::new(Terms { all_channels: false, ..terms }), terms.catalog);
        Some(account)
    }

    /// These users and no others; where the default one is not among them it is as `password` makes it. Returns the
    /// accounts that are gone.
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
                let account = Arc::new(Account::new(&name, user, terms.catalog));
                accounts.insert(account.name.clone(), account);
            }
        }
        self.look_at_default();
        gone
    }

    fn look_at_default(&self) {
        self.is_open.store(self.default.user().is_open(), SeqCst);
    }
}

/// The user that rules make out of `user`.
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
    let is_bad = name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0 || *byte == 0x0b);
    if is_bad { Err(SetError::Name) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
