//! What clients do wrong with locks: the rules of LOCK.LINT and TEST.CHECK, and the findings of LOCK.LINT.
//!
//! Owns    the rules, the findings, and the orders in which clients have taken locks.
//! Rule    nothing is noted unless the setting `lock-lint` is on.
//! Rule    what clients do is seen by `keyspace::locks::linter`.
//! Locks   one mutex, under which nothing else is locked.
//! Bounds  [`FINDINGS_MAX`] findings and [`PAIRS_MAX`] pairs of locks; [`CLIENTS_MAX`] clients are followed, each for
//!         [`HELD_MAX`] locks at a time. A finding keeps [`KEY_BYTES_MAX`] bytes of its key; of other locks hashes are kept.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use parking_lot::Mutex;
use redlatch_proto::clock::LockTime;

use crate::state::clients::{Client, ClientId, Names};

/// Findings that are kept; further ones are not noted until LOCK.LINT RESET.
const FINDINGS_MAX: usize = 1_000;
/// Pairs of locks whose order is known; all are forgotten when there are more.
const PAIRS_MAX: usize = 10_000;
/// Clients whose locks are followed; all are forgotten when there are more.
const CLIENTS_MAX: usize = 10_000;
/// Locks of one client whose order is followed.
const HELD_MAX: usize = 16;
/// Bytes of the key of a finding that are kept.
const KEY_BYTES_MAX: usize = 1024;

/// A mistake. LOCK.LINT sees most of them in live traffic, TEST.CHECK most of them in the history of a test.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Rule {
    /// A lock is taken without a lease.
    NoLease,
    /// A lock that another client holds is deleted or overwritten.
    ForeignDelete,
    /// A lock is deleted without a comparison of its value. In a history only.
    BlindDelete,
    /// An extension or release after the lease has ended.
    Late,
    /// A release after the lease has ended, without a renewal: the work takes longer than the lease. In live traffic only.
    ShortLease,
    /// A renewal with less than a third of the lease left.
    LateRenewal,
    /// Two clients use one value. In live traffic only.
    SharedValue,
    /// A refused client asks more often than 20 times a second. In live traffic only.
    FastPolling,
    /// Two locks are taken in opposite orders. In live traffic only.
    OppositeOrders,
    /// Two owners have one lock at the same time. In a history only.
    TwoHolders,
    /// A client waits for a lock that is free. In a history only.
    NeverServed,
}

impl Rule {
    /// Every rule, in the order of LOCK.LINT.
    pub const ALL: [Self; 11] = [
        Self::NoLease,
        Self::ForeignDelete,
        Self::BlindDelete,
        Self::Late,
        Self::ShortLease,
        Self::LateRenewal,
        Self::SharedValue,
        Self::FastPolling,
        Self::OppositeOrders,
        Self::TwoHolders,
        Self::NeverServed,
    ];

    /// Its name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoLease => "no-lease",
            Self::ForeignDelete => "foreign-delete",
            Self::BlindDelete => "blind-delete",
            Self::Late => "late",
            Self::ShortLease => "short-lease",
            Self::LateRenewal => "late-renewal",
            Self::SharedValue => "shared-value",
            Self::FastPolling => "fast-polling",
            Self::OppositeOrders => "opposite-orders",
            Self::TwoHolders => "two-holders",
            Self::NeverServed => "never-served",
        }
    }

    /// What to do about it.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::NoLease => {
                "take the lock with SET key value NX PX: without a lease it stays when its holder crashes"
            }
            Self::ForeignDelete | Self::BlindDelete => {
                "release with a script that compares the value first: this takes another's lock"
            }
            Self::Late => {
                "the lease had ended and the work went on without the lock: renew earlier, or use a token"
            }
            Self::ShortLease => "the work takes longer than the lease: make the lease longer, or renew it",
            Self::LateRenewal => "renew at a third of the lease: one delay more, and the lock is lost",
            Self::SharedValue => {
                "make a new random value for each acquisition: one client releases the other's lock"
            }
            Self::FastPolling => "wait in a queue with LOCK.ACQUIRE WAIT, or poll less often and with jitter",
            Self::OppositeOrders => "take locks in one order everywhere, or at once with LOCK.MACQUIRE",
            Self::TwoHolders => "check the token of the lock where the work is done",
            Self::NeverServed => "listen before the lock is asked for, or wait with LOCK.ACQUIRE WAIT",
        }
    }
}

/// A mistake of one client with one key.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Where the client connected from.
    pub peer: String,
    /// The names of the client.
    pub names: Names,
    /// How often it was seen.
    pub count: u64,
    /// When it was seen last.
    pub last: LockTime,
}

/// The findings of one server.
#[derive(Debug, Default)]
pub struct LockLint(Mutex<Findings>);

#[derive(Debug, Default)]
struct Findings {
    found: BTreeMap<(Rule, Bytes, ClientId), Finding>,
    /// The locks of each client, in the order in which it took them.
    held: BTreeMap<ClientId, Vec<Held>>,
    /// Pairs of locks, by their hashes: the second was taken while the first was held.
    pairs: BTreeSet<(u64, u64)>,
}

/// A lock that a client has taken.
#[derive(Debug)]
pub(crate) struct Held {
    /// The hash of its key; see `View::key_hash`.
    pub(crate) key: u64,
    /// Locks that were taken at once have one number here, and no order among themselves.
    pub(crate) with: u64,
    /// The end of the lease.
    pub(crate) until: Option<LockTime>,
}

impl LockLint {
    /// Notes a mistake of a client; `None`: of one that is not known.
    pub fn note(&self, rule: Rule, key: &[u8], client: Option<&Client>, now: LockTime) {
        let names = client.map(|client| client.names.lock().clone()).unwrap_or_default();
        let mut findings = self.0.lock();
        let id = client.map_or(0, |client| client.id);
        let place = (rule, Bytes::copy_from_slice(&key[..key.len().min(KEY_BYTES_MAX)]), id);
        if findings.found.len() >= FINDINGS_MAX && !findings.found.contains_key(&place) {
            return;
        }
        let peer = || client.map(|client| client.address.peer.clone()).unwrap_or_default();
        let new = || Finding { peer: peer(), names, count: 0, last: now };
        let finding = findings.found.entry(place).or_insert_with(new);
        finding.count = finding.count.saturating_add(1);
        finding.last = now;
    }

    /// A client has taken a lock. Returns true if it has been taken before a lock which the client holds.
    pub(crate) fn taken(&self, client: ClientId, lock: Held, now: LockTime) -> bool {
        let Findings { held, pairs, .. } = &mut *self.0.lock();
        if held.len() >= CLIENTS_MAX && !held.contains_key(&client) {
            held.clear();
        }
        let held = held.entry(client).or_default();
        held.retain(|other| other.key != lock.key && other.until.is_none_or(|until| until > now));
        if pairs.len().saturating_add(held.len()) > PAIRS_MAX {
            pairs.clear();
        }
        let earlier = || held.iter().filter(|other| other.with != lock.with);
        let is_opposite = earlier().any(|other| pairs.contains(&(lock.key, other.key)));
        pairs.extend(earlier().map(|other| (other.key, lock.key)));
        held.push(lock);
        held.drain(..held.len().saturating_sub(HELD_MAX));
        is_opposite
    }

    /// A client does not hold a lock any more.
    pub(crate) fn released(&self, client: ClientId, key: u64) {
        let findings = &mut *self.0.lock();
        if let Some(held) = findings.held.get_mut(&client) {
            held.retain(|other| other.key != key);
            if held.is_empty() {
                findings.held.remove(&client);
            }
        }
    }

    /// The findings, by rule, key and client.
    pub fn all(&self) -> Vec<((Rule, Bytes, ClientId), Finding)> {
        self.0.lock().found.iter().map(|(place, finding)| (place.clone(), finding.clone())).collect()
    }

    /// Forgets the findings about keys that are meant, and with the last one also the orders of locks.
    pub fn reset(&self, is_meant: impl Fn(&[u8]) -> bool) {
        let findings = &mut *self.0.lock();
        findings.found.retain(|(_, key, _), _| !is_meant(key));
        if findings.found.is_empty() {
            *findings = Findings::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> LockTime {
        LockTime::from_millis(millis)
    }

    #[test]
    fn findings_are_counted_and_bounded() {
        let lint = LockLint::default();
        let client = Client::new(7, "peer".into(), String::new(), false, at(1));
        for n in 0..FINDINGS_MAX + 10 {
            lint.note(Rule::Late, n.to_string().as_bytes(), Some(&client), at(5));
        }
        lint.note(Rule::Late, b"0", Some(&client), at(9));
        let all = lint.all();
        assert_eq!(all.len(), FINDINGS_MAX);
        let (_, first) = &all[0];
        assert_eq!((first.count, first.last, first.peer.as_str()), (2, at(9), "peer"));
        lint.reset(|key| key != b"0");
        assert_eq!(lint.all().len(), 1);
        lint.reset(|_| true);
        assert!(lint.all().is_empty());
        lint.note(Rule::Late, &[b'k'; 1_000_000], Some(&client), at(5));
        assert_eq!(lint.all()[0].0.1.len(), KEY_BYTES_MAX);
    }

    fn hash(key: &str) -> u64 {
        u64::from(key.as_bytes()[0])
    }

    /// A client has taken a lock, with this token. Returns whether another one has taken it in the opposite order.
    fn taken(
        lint: &LockLint,
        client: ClientId,
        (key, token): (&str, u64),
        until: Option<u64>,
        now: u64,
    ) -> bool {
        let lock = Held { key: hash(key), with: token, until: until.map(at) };
        lint.taken(client, lock, at(now))
    }

    #[test]
    fn opposite_orders_are_seen_while_both_locks_are_held() {
        let lint = LockLint::default();
        assert!(!taken(&lint, 1, ("a", 1), None, 1));
        assert!(!taken(&lint, 1, ("b", 2), None, 2));
        assert!(!taken(&lint, 2, ("b", 3), Some(9), 3));
        assert!(!taken(&lint, 2, ("a", 4), None, 10), "its lease of b has ended");
        lint.released(2, hash("a"));
        assert!(!taken(&lint, 2, ("b", 5), None, 11));
        lint.released(2, hash("b"));
        assert!(!taken(&lint, 2, ("a", 6), None, 12), "it has released b");
        assert!(!taken(&lint, 3, ("b", 7), None, 13));
        assert!(taken(&lint, 3, ("a", 8), None, 14));
    }

    #[test]
    fn locks_that_are_taken_at_once_have_no_order() {
        let lint = LockLint::default();
        assert!(!taken(&lint, 1, ("a", 1), None, 1) && !taken(&lint, 1, ("b", 1), None, 1));
        assert!(!taken(&lint, 2, ("b", 2), None, 2));
        assert!(!taken(&lint, 2, ("a", 3), None, 3));
        assert!(!taken(&lint, 3, ("c", 4), None, 4));
        assert!(!taken(&lint, 3, ("a", 5), None, 5) && !taken(&lint, 3, ("b", 5), None, 5));
        assert!(!taken(&lint, 4, ("a", 6), None, 6) && !taken(&lint, 4, ("b", 6), None, 6));
        assert!(taken(&lint, 4, ("c", 7), None, 7));
    }

    #[test]
    fn the_locks_that_are_followed_are_bounded() {
        let lint = LockLint::default();
        let lock = |key, with| Held { key, with, until: None };
        for n in 0..PAIRS_MAX as u64 {
            lint.taken(1, lock(n, n), at(1));
        }
        for client in 0..=CLIENTS_MAX as u64 {
            lint.taken(client, lock(u64::MAX, 1), at(2));
        }
        let findings = lint.0.lock();
        assert!(findings.held.values().all(|held| held.len() <= HELD_MAX));
        assert!(findings.pairs.len() <= PAIRS_MAX && findings.held.len() <= CLIENTS_MAX);
    }
}
