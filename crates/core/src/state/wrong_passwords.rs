//! Wrong passwords that were looked at: one that comes again from the same address is refused unseen, and is no guess.
//!
//! Owns    for each address and user name, the digests of the last wrong passwords.
//! Rule    a digest counts as long as the user is the same: a user that has changed may have that password now.
//! Rule    digests are keyed, so that nobody can send a password that only looks like another one.
//! Bounds  [`PAIRS_MAX`] pairs of address and name, of which the one that failed first gives way, and [`KEPT_MAX`]
//!         passwords of each: 3 MB in all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use redlatch_proto::clock::LockTime;
use sha2::{Digest as _, Sha256};

use super::acl::{Acl, User};
use super::login_delays::Origin;

/// Wrong passwords of one user from one address that are remembered.
pub(crate) const KEPT_MAX: usize = 32;
/// Pairs of address and name.
pub(crate) const PAIRS_MAX: usize = 4_096;

/// Half of a SHA-256.
type Keyed = [u8; 16];

/// A login as a client sends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login<'l> {
    /// Where it comes from.
    pub origin: Origin,
    /// The name of the user.
    pub name: &'l [u8],
    /// The password.
    pub password: &'l [u8],
}

/// The wrong passwords of one server.
pub(crate) struct WrongPasswords {
    key: [u8; 20],
    pairs: Mutex<BTreeMap<(Origin, Keyed), Tried>>,
}

// Digests do not appear in logs.
impl std::fmt::Debug for WrongPasswords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WrongPasswords(..)")
    }
}

/// The wrong passwords for one name from one address.
struct Tried {
    /// The user of that name; dangling: there is none.
    user: Weak<User>,
    /// The latest last.
    passwords: VecDeque<Keyed>,
    last: LockTime,
}

impl WrongPasswords {
    /// None yet. `key`: bytes that no client knows.
    pub(crate) fn new(key: [u8; 20]) -> Self {
        Self { key, pairs: Mutex::default() }
    }

    /// Whether this login has failed before, and nothing has changed since.
    pub(crate) fn has(&self, login: Login<'_>, acl: &Acl) -> bool {
        let (name, password) = self.digests(login);
        let user = user_of(login.name, acl);
        let pairs = self.pairs.lock();
        let tried = pairs.get(&(login.origin, name));
        tried.is_some_and(|tried| tried.user.ptr_eq(&user) && tried.passwords.contains(&password))
    }

    /// The password of a login was looked at, and is wrong.
    pub(crate) fn note(&self, login: Login<'_>, acl: &Acl, now: LockTime) {
        let (name, password) = self.digests(login);
        let (place, user) = ((login.origin, name), user_of(login.name, acl));
        let mut pairs = self.pairs.lock();
        if pairs.len() >= PAIRS_MAX && !pairs.contains_key(&place) {
            let first = pairs.iter().min_by_key(|(_, tried)| tried.last).map(|(place, _)| *place);
            first.iter().for_each(|first| drop(pairs.remove(first)));
        }
        let new = || Tried { user: Weak::new(), passwords: VecDeque::new(), last: now };
        let tried = pairs.entry(place).or_insert_with(new);
        if !tried.user.ptr_eq(&user) {
            tried.passwords.clear();
        }
        if tried.passwords.len() >= KEPT_MAX {
            tried.passwords.pop_front();
        }
        tried.passwords.push_back(password);
        (tried.user, tried.last) = (user, now);
    }

    /// The digests of the name and the password.
    fn digests(&self, login: Login<'_>) -> (Keyed, Keyed) {
        let digest = |text: &[u8]| {
            let hash = Sha256::new().chain_update(self.key).chain_update(text).finalize();
            let mut keyed = Keyed::default();
            keyed.copy_from_slice(&hash[..16]);
            keyed
        };
        (digest(login.name), digest(login.password))
    }
}

/// The user of a name, as it is now.
fn user_of(name: &[u8], acl: &Acl) -> Weak<User> {
    acl.find(name).map_or_else(Weak::new, |account| Arc::downgrade(&account.user()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::acl::{Catalog, Terms};

    /// No commands.
    struct Nothing;

    impl Catalog for Nothing {
        fn total(&self) -> u16 {
            0
        }

        fn command(&self, _name: &[u8]) -> Option<std::ops::Range<u16>> {
            None
        }

        fn category(&self, _name: &[u8]) -> Option<Vec<u16>> {
            None
        }
    }

    fn login<'l>(peer: &str, name: &'l [u8], password: &'l [u8]) -> Login<'l> {
        Login { origin: Origin::of(peer).expect("an address"), name, password }
    }

    #[test]
    fn pairs_and_passwords_are_bounded_and_the_oldest_go_first() {
        let acl = Acl::new(b"secret", Terms { catalog: &Nothing, all_channels: false }, &Arc::default());
        let (known, at) = (WrongPasswords::new([7; 20]), LockTime::from_millis);
        for n in 0..=KEPT_MAX as u64 {
            known.note(login("10.0.0.7:1", b"default", &n.to_le_bytes()), &acl, at(1));
        }
        let has = |peer, name, n: u64| known.has(login(peer, name, &n.to_le_bytes()), &acl);
        assert!(!has("10.0.0.7:1", b"default", 0) && has("10.0.0.7:2", b"default", 1));
        assert!(!has("10.0.0.8:1", b"default", 1) && !has("10.0.0.7:1", b"alice", 1));
        for n in 0..PAIRS_MAX as u64 {
            known.note(login("10.0.0.9:1", &n.to_le_bytes(), b"x"), &acl, at(2));
        }
        assert_eq!(known.pairs.lock().len(), PAIRS_MAX);
        assert!(!has("10.0.0.7:2", b"default", 1), "it failed first");
    }
}
