//! The memory that clients make the server hold beside keys, values, texts of scripts and buffers, by kind.
//!
//! Owns    a sum of bytes for each [`Kind`]. `used_memory` and `maxmemory` count them.
//! Rule    what a client registers has a [`Charge`], which ends with it. So no end can be forgotten: that of a request, of a
//!         connection, or of a thread that panics.
//! Rule    reads, SET NX, releases and extensions charge nothing. Keys are counted by their shards.
//! Bounds  the bytes are those that are asked of the allocator, within a fifth: nodes of trees are counted by the entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What memory is held for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Libraries of functions: their texts and the names of their functions.
    Libraries,
    /// Ends of locks, for LOCK.HISTORY and LOCK.EXPLAIN.
    LockHistory,
    /// Sessions of locks, and which locks they have.
    LockSessions,
    /// The interpreter, with what it has compiled and what its libraries hold.
    Lua,
    /// Other namespaces of the test backend, and the histories and faults of all.
    Namespaces,
    /// Parsed scripts, beside their texts.
    Scripts,
    /// Channels, patterns and shard channels, with their subscribers.
    Subscriptions,
    /// CLIENT TRACKING: the keys that clients have read, and prefixes.
    Tracking,
    /// The requests since MULTI.
    Transactions,
    /// The rules of ACL users.
    Users,
    /// Requests that wait, and the queues of their keys.
    Waits,
    /// Keys that clients WATCH.
    Watches,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Libraries,
        Self::LockHistory,
        Self::LockSessions,
        Self::Lua,
        Self::Namespaces,
        Self::Scripts,
        Self::Subscriptions,
        Self::Tracking,
        Self::Transactions,
        Self::Users,
        Self::Waits,
        Self::Watches,
    ];

    /// Its field in MEMORY STATS.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Libraries => "libraries",
            Self::LockHistory => "lock.history",
            Self::LockSessions => "lock.sessions",
            Self::Lua => "lua",
            Self::Namespaces => "namespaces",
            Self::Scripts => "scripts.parsed",
            Self::Subscriptions => "subscriptions",
            Self::Tracking => "tracking",
            Self::Transactions => "transactions",
            Self::Users => "users",
            Self::Waits => "waits",
            Self::Watches => "watches",
        }
    }
}

/// The sums of all kinds.
#[derive(Debug, Default)]
pub struct Ledger([AtomicUsize; Kind::ALL.len()]);

impl Ledger {
    /// A charge of no bytes yet.
    pub fn open(self: &Arc<Self>, kind: Kind) -> Charge {
        Charge { ledger: Arc::clone(self), kind, bytes: AtomicUsize::new(0) }
    }

    /// Bytes that are held for a kind.
    pub fn bytes(&self, kind: Kind) -> u64 {
        self.0[kind as usize].load(Relaxed) as u64
    }

    /// Bytes that are held for all kinds.
    #[inline]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, bytes| sum.saturating_add(bytes.load(Relaxed) as u64))
    }
}

/// The bytes that a resource holds: part of the sum of its kind until it is dropped. One thread at a time changes it: its
/// owner, or the one that has locked what it belongs to.
#[derive(Debug)]
pub struct Charge {
    ledger: Arc<Ledger>,
    kind: Kind,
    bytes: AtomicUsize,
}

impl Charge {
    /// The resource holds this many bytes now.
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Relaxed);
        // Wraps for a difference below zero: what was added before is part of the sum, so the sum never falls below zero.
        self.ledger.0[self.kind as usize].fetch_add(bytes.wrapping_sub(before), Relaxed);
    }

    /// The resource holds so many bytes more.
    pub fn add(&self, bytes: usize) {
        self.set(self.bytes().saturating_add(bytes));
    }

    /// The resource holds so many bytes less.
    pub fn sub(&self, bytes: usize) {
        debug_assert!(bytes <= self.bytes(), "{:?}: gives back more than it has taken", self.kind);
        self.set(self.bytes().saturating_sub(bytes));
    }

    /// Bytes that the resource holds.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Bytes that the other resources of its kind hold.
    pub fn others(&self) -> u64 {
        self.ledger.bytes(self.kind).saturating_sub(self.bytes() as u64)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_part_of_its_sum_until_it_is_dropped() {
        let ledger = Arc::<Ledger>::default();
        let [one, other] = [Kind::Waits, Kind::Watches].map(|kind| ledger.open(kind));
        one.add(100);
        other.add(7);
        one.sub(30);
        assert_eq!([Kind::Waits, Kind::Watches, Kind::Tracking].map(|kind| ledger.bytes(kind)), [70, 7, 0]);
        assert_eq!((one.bytes(), ledger.total()), (70, 77));
        one.set(5);
        drop(other);
        assert_eq!((ledger.bytes(Kind::Watches), ledger.total()), (0, 5));
        drop(one);
        assert_eq!(ledger.total(), 0);
    }

    #[test]
    fn each_kind_has_a_place_and_a_name_of_its_own() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(Kind::ALL.iter().filter(|other| other.name() == kind.name()).count(), 1, "{kind:?}");
        }
    }
}
