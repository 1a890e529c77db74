//! What clients do wrong with locks, as LOCK.LINT shows it.
//!
//! Owns    the rules, the findings, and the orders in which clients have taken locks.
//! Rule    nothing is noted unless the setting `lock-lint` is on: the caller looks first.
//! Locks   one mutex, under which nothing else is locked.
//! Bounds  [`FINDINGS_MAX`] findings and [`PAIRS_MAX`] pairs of locks; [`CLIENTS_MAX`] clients are followed, each for
//!         [`HELD_MAX`] locks at a time.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects, clippy::disallowed_methods)]

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use super::clients::{Client, ClientId, Names};
use crate::clock::LockTime;

/// Findings that are kept; further ones are not noted until LOCK.LINT RESET.
pub const FINDINGS_MAX: usize = 1_000;
/// Pairs of locks whose order is known; all are forgotten when there are more.
pub const PAIRS_MAX: usize = 10_000;
/// Clients whose locks are followed; all are forgotten when there are more.
pub const CLIENTS_MAX: usize = 10_000;
/// Locks of one client whose order is followed.
pub const HELD_MAX: usize = 16;

/// A mistake that LOCK.LINT knows.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Rule {
    /// A lock is taken without a lease.
    NoLease,
    /// DEL of a lock that another client holds.
    ForeignDelete,
    /// An extension or release after the lease has ended.
    Late,
    /// A release after the lease has ended, without a renewal: the work takes longer than the lease.
    ShortLease,
    /// A renewal with less than a third of the lease left.
    LateRenewal,
    /// Two clients use one value.
    SharedValue,
    /// A refused client asks more often than 20 times a second.
    FastPolling,
    /// Two locks are taken in opposite orders.
    OppositeOrders,
}

impl Rule {
    /// Every rule, in the order of LOCK.LINT.
    pub const ALL: [Self; 8] = [
        Self::NoLease,
        Self::ForeignDelete,
        Self::Late,
        Self::ShortLease,
        Self::LateRenewal,
        Self::SharedValue,
        Self::FastPolling,
        Self::OppositeOrders,
    ];

    /// Its name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoLease => "no-lease",
            Self::ForeignDelete => "foreign-delete",
            Self::Late => "late",
            Self::ShortLease => "short-lease",
            Self::LateRenewal => "late-renewal",
            Self::SharedValue => "shared-value",
            Self::FastPolling => "fast-polling",
            Self::OppositeOrders => "opposite-orders",
        }
    }

    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NoLease => {
                "take the lock with SET key value NX PX: without a lease it stays when its holder crashes"
            }
            Self::ForeignDelete => {
                "release with a script that compares the value first: this DEL took another's lock"
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
    /// The locks of each client, in the order in which it took them, and the end of their leases.
    held: BTreeMap<ClientId, Vec<(Bytes, Option<LockTime>)>>,
    /// Pairs of locks: the second was taken while the first was held.
    pairs: BTreeMap<(Bytes, Bytes), ()>,
}

impl LockLint {
    /// Notes a mistake of a client.
    pub fn note(&self, rule: Rule, key: &[u8], client: &Client, now: LockTime) {
        let names = client.names.lock().clone();
        let mut findings = self.0.lock();
        let place = (rule, Bytes::copy_from_slice(key), client.id);
        if findings.found.len() >= FINDINGS_MAX && !findings.found.contains_key(&place) {
            return;
        }
        let new = || Finding { peer: client.peer.clone(), names, count: 0, last: now };
        let finding = findings.found.entry(place).or_insert_with(new);
        finding.count = finding.count.saturating_add(1);
        finding.last = now;
    }

    /// A client has taken locks, all at once. Returns those of them that have been taken before a lock which it holds.
    pub fn taken(
        &self,
        client: ClientId,
        keys: &[Bytes],
        until: Option<LockTime>,
        now: LockTime,
    ) -> Vec<Bytes> {
        let keys = &keys[..keys.len().min(HELD_MAX)];
        let findings = &mut *self.0.lock();
        if findings.held.len() >= CLIENTS_MAX && !findings.held.contains_key(&client) {
            findings.held.clear();
        }
        let held = findings.held.entry(client).or_default();
        held.retain(|(other, until)| !keys.contains(other) && until.is_none_or(|until| until > now));
        if findings.pairs.len().saturating_add(held.len().saturating_mul(keys.len())) > PAIRS_MAX {
            findings.pairs.clear();
        }
        let mut opposite = Vec::new();
        for key in keys {
            if held.iter().any(|(other, _)| findings.pairs.contains_key(&(key.clone(), other.clone()))) {
                opposite.push(key.clone());
            }
            findings.pairs.extend(held.iter().map(|(other, _)| ((other.clone(), key.clone()), ())));
        }
        held.extend(keys.iter().map(|key| (key.clone(), until)));
        held.drain(..held.len().saturating_sub(HELD_MAX));
        opposite
    }

    /// A client has released a lock, or tried to.
    pub fn released(&self, client: ClientId, key: &[u8]) {
        let findings = &mut *self.0.lock();
        if let Some(held) = findings.held.get_mut(&client) {
            held.retain(|(other, _)| other != key);
            if held.is_empty() {
                findings.held.remove(&client);
            }
        }
    }

    /// The findings, by rule, key and client.
    pub fn all(&self) -> Vec<((Rule, Bytes, ClientId), Finding)> {
        self.0.lock().found.iter().map(|(place, finding)| (place.clone(), finding.clone())).collect()
    }

    /// Forgets everything.
    pub fn reset(&self) {
        *self.0.lock() = Findings::default();
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
            lint.note(Rule::Late, n.to_string().as_bytes(), &client, at(5));
        }
        lint.note(Rule::Late, b"0", &client, at(9));
        let all = lint.all();
        assert_eq!(all.len(), FINDINGS_MAX);
        let (_, first) = &all[0];
        assert_eq!((first.count, first.last, first.peer.as_str()), (2, at(9), "peer"));
        lint.reset();
        assert!(lint.all().is_empty());
    }

    /// A client has taken locks. Returns how many of them it has taken in the opposite order.
    fn taken(
        lint: &LockLint,
        client: ClientId,
        keys: &[&'static str],
        until: Option<u64>,
        now: u64,
    ) -> usize {
        let keys: Vec<_> = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
        lint.taken(client, &keys, until.map(at), at(now)).len()
    }

    #[test]
    fn opposite_orders_are_seen_while_both_locks_are_held() {
        let lint = LockLint::default();
        assert_eq!(taken(&lint, 1, &["a"], None, 1), 0);
        assert_eq!(taken(&lint, 1, &["b"], None, 2), 0);
        assert_eq!(taken(&lint, 2, &["b"], Some(9), 3), 0);
        assert_eq!(taken(&lint, 2, &["a"], None, 10), 0, "its lease of b has ended");
        lint.released(2, b"a");
        assert_eq!(taken(&lint, 2, &["b"], None, 11), 0);
        lint.released(2, b"b");
        assert_eq!(taken(&lint, 2, &["a"], None, 12), 0, "it has released b");
        assert_eq!(taken(&lint, 3, &["b"], None, 13), 0);
        assert_eq!(taken(&lint, 3, &["a"], None, 14), 1);
    }

    #[test]
    fn locks_that_are_taken_at_once_have_no_order() {
        let lint = LockLint::default();
        assert_eq!(taken(&lint, 1, &["a", "b"], None, 1), 0);
        assert_eq!(taken(&lint, 2, &["b"], None, 2), 0);
        assert_eq!(taken(&lint, 2, &["a"], None, 3), 0);
        assert_eq!(taken(&lint, 3, &["c"], None, 4), 0);
        assert_eq!(taken(&lint, 3, &["a", "b"], None, 5), 0);
        assert_eq!(taken(&lint, 4, &["a", "b"], None, 6), 0);
        assert_eq!(taken(&lint, 4, &["c"], None, 7), 1);
    }

    #[test]
    fn the_locks_that_are_followed_are_bounded() {
        let lint = LockLint::default();
        for n in 0..1_000_u32 {
            let keys: Vec<_> = (0..n % 50).map(|k| Bytes::from(format!("{n}, {k}"))).collect();
            lint.taken(1, &keys, None, at(1));
        }
        for client in 0..=CLIENTS_MAX as u64 {
            lint.taken(client, &[Bytes::from_static(b"a")], None, at(2));
        }
        let findings = lint.0.lock();
        assert!(findings.held.values().all(|held| held.len() <= HELD_MAX));
        assert!(findings.pairs.len() <= PAIRS_MAX && findings.held.len() <= CLIENTS_MAX);
    }
}
