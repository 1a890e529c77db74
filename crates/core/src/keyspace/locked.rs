//! The shards of a view: all locked in ascending order before the first look.
//!
//! Locks   a shard whose parked calls use keys of other shards is linked, and never locked without all others that are
//!         linked: when that is found, all shards are unlocked, and the union is locked in order.

use std::collections::BTreeSet;

use redlatch_proto::clock::LockTime;
use smallvec::{SmallVec, smallvec};

use super::{Keyspace, ShardSet, ShardState};
use crate::sync::MutexGuard;

/// Shards that are locked, by their index.
#[derive(Debug, Default)]
pub(super) enum Locked<'k> {
    #[default]
    Nothing,
    One(usize, MutexGuard<'k, ShardState>),
    Several(SmallVec<[(usize, MutexGuard<'k, ShardState>); 2]>),
}

/// What a call does if a long call holds a shard that the call needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LockWait {
    /// The thread waits, without any shard.
    Endless,
    /// The call gives its thread back and is tried again later.
    Short,
}

/// Address, length and hash of the key by which the shard was chosen.
pub(super) type KeyHash = (usize, usize, u64);

impl<'k> Locked<'k> {
    /// Locks the shards of `set`. `None` if a long call holds a shard and `wait` is short.
    #[inline]
    pub(super) fn acquire(
        keyspace: &'k Keyspace,
        set: ShardSet<'_>,
        wait: LockWait,
        hashed: &mut KeyHash,
    ) -> Option<Self> {
        let locked = match set {
            ShardSet::One(key) => {
                let hash = keyspace.hash(key);
                *hashed = (key.as_ptr() as usize, key.len(), hash);
                Self::one(keyspace, keyspace.shard_of(hash), wait)?
            }
            ShardSet::Keys(keys) => {
                let mut indices: SmallVec<[usize; 8]> =
                    keys.iter().map(|key| keyspace.shard_of(keyspace.hash(key))).collect();
                indices.sort_unstable();
                indices.dedup();
                Self::several(keyspace, indices.iter().copied(), wait)?
            }
            ShardSet::All => return Self::several(keyspace, 0..keyspace.shards(), wait),
            ShardSet::Nothing => return Some(Self::Nothing),
        };
        locked.with_other_shards(keyspace, wait)
    }

    /// Locks the shard with that index, and the shards that its parked calls use.
    pub(super) fn shard(keyspace: &'k Keyspace, index: usize, wait: LockWait) -> Option<Self> {
        Self::one(keyspace, index, wait)?.with_other_shards(keyspace, wait)
    }

    #[inline]
    fn one(keyspace: &'k Keyspace, index: usize, wait: LockWait) -> Option<Self> {
        match wait {
            LockWait::Endless => Some(Self::One(index, keyspace.hold_on(index))),
            LockWait::Short => Some(Self::One(index, keyspace.hold(index)?)),
        }
    }

    fn several(
        keyspace: &'k Keyspace,
        indices: impl Iterator<Item = usize> + Clone,
        wait: LockWait,
    ) -> Option<Self> {
        loop {
            let mut guards = SmallVec::with_capacity(indices.size_hint().0);
            let occupied = indices.clone().find(|index| match keyspace.hold(*index) {
                Some(held) => {
                    guards.push((*index, held));
                    false
                }
                None => true,
            });
            match (occupied, wait) {
                (None, _) => return Some(Self::Several(guards)),
                (Some(_), LockWait::Short) => return None,
                (Some(index), LockWait::Endless) => {
                    // The long call may ask for the shards that were locked already.
                    drop(guards);
                    drop(keyspace.hold_on(index));
                }
            }
        }
    }

    /// Locks further shards, and those that their parked calls use, for a call on the script thread: it keeps its shards
    /// while it waits. `took` is told of each.
    #[cold]
    pub(super) fn extend(
        self,
        keyspace: &'k Keyspace,
        missing: impl Iterator<Item = usize>,
        mut took: impl FnMut(usize, &ShardState),
    ) -> Self {
        let mut missing: BTreeSet<usize> = missing.collect();
        let mut guards = match self {
            Self::Nothing => SmallVec::new(),
            Self::One(index, held) => smallvec![(index, held)],
            Self::Several(guards) => guards,
        };
        while let Some(index) = missing.pop_first() {
            let Err(place) = guards.binary_search_by_key(&index, |(locked, _)| *locked) else { continue };
            let held = keyspace.hold_on(index);
            took(index, &held);
            if held.queues.are_linked() {
                missing.extend(keyspace.linked_shards());
            }
            guards.insert(place, (index, held));
        }
        Self::Several(guards)
    }

    #[inline]
    fn with_other_shards(self, keyspace: &'k Keyspace, wait: LockWait) -> Option<Self> {
        let is_linked = match &self {
            Self::Nothing => false,
            Self::One(_, held) => held.queues.are_linked(),
            Self::Several(guards) => guards.iter().any(|(_, held)| held.queues.are_linked()),
        };
        if is_linked { self.widened(keyspace, wait) } else { Some(self) }
    }

    /// Unlocks, locks the union, and checks again, until no shard is missing. Each round adds shards, so the loop ends.
    #[cold]
    fn widened(mut self, keyspace: &'k Keyspace, wait: LockWait) -> Option<Self> {
        loop {
            let (mut union, mut is_linked) = (BTreeSet::new(), false);
            self.each(|index, held| {
                union.insert(index);
                is_linked |= held.queues.are_linked();
            });
            if is_linked {
                union.extend(keyspace.linked_shards());
            }
            if union.len() == self.len() {
                return Some(self);
            }
            drop(self);
            self = Self::several(keyspace, union.iter().copied(), wait)?;
        }
    }

    /// Advances all locked shards to the latest of their times, and at least to `now`; returns that time.
    #[inline]
    pub(super) fn advance(&mut self, now: LockTime) -> LockTime {
        match self {
            Self::Nothing => now,
            Self::One(_, held) => held.shard.advance(now),
            Self::Several(guards) => {
                let latest = guards.iter().map(|(_, held)| held.shard.time()).fold(now, Ord::max);
                for (_, held) in guards {
                    held.shard.advance(latest);
                }
                latest
            }
        }
    }

    /// Whether the shard of that index is locked.
    pub(super) fn has(&self, index: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::One(locked, _) => *locked == index,
            Self::Several(guards) => guards.binary_search_by_key(&index, |(locked, _)| *locked).is_ok(),
        }
    }

    /// How many shards are locked.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(..) => 1,
            Self::Several(guards) => guards.len(),
        }
    }

    /// The shard with that index.
    ///
    /// # Panics
    /// When it is not locked.
    #[inline]
    pub(super) fn held(&mut self, index: usize) -> &mut ShardState {
        match self {
            Self::One(locked, held) if *locked == index => held,
            Self::Several(guards) => {
                // If all shards are locked, the index is the position; a few are found by binary search.
                let at = match guards.get(index) {
                    Some((locked, _)) if *locked == index => index,
                    _ => guards
                        .binary_search_by_key(&index, |(locked, _)| *locked)
                        .expect("the view has locked the shard of every key it is asked for"),
                };
                &mut guards[at].1
            }
            Self::Nothing | Self::One(..) => {
                panic!("the view has locked the shard of every key it is asked for")
            }
        }
    }

    /// The first of the shards.
    #[inline]
    pub(super) fn first(&mut self) -> Option<&mut ShardState> {
        match self {
            Self::Nothing => None,
            Self::One(_, held) => Some(held),
            Self::Several(guards) => guards.first_mut().map(|(_, held)| &mut **held),
        }
    }

    pub(super) fn each(&mut self, mut visit: impl FnMut(usize, &mut ShardState)) {
        match self {
            Self::Nothing => {}
            Self::One(index, held) => visit(*index, held),
            Self::Several(guards) => guards.iter_mut().for_each(|(index, held)| visit(*index, held)),
        }
    }
}
