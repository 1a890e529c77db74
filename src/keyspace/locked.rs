//! The shards of a view: locked in ascending order, all of them before the first look.
//!
//! Locks   a shard whose parked calls reach further when they are served is never locked without the shards they
//!         reach: found to be so, the whole is unlocked, and the union locked in order.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::{Keyspace, ShardSet, ShardState};
use crate::clock::LockTime;
use crate::sync::MutexGuard;

/// Shards that are locked, by their index.
#[derive(Debug)]
pub(super) enum Locked<'k> {
    One(usize, MutexGuard<'k, ShardState>),
    Many(SmallVec<[(usize, MutexGuard<'k, ShardState>); 2]>),
}

/// None.
impl Default for Locked<'_> {
    fn default() -> Self {
        Self::Many(SmallVec::new())
    }
}

/// What a call does when a long call holds what it needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LockWait {
    /// It waits, and its thread with it.
    Endless,
    /// It comes again later.
    Short,
}

/// The key that chose the shard, by address and length, and its hash: hashed once, though looked at again.
pub(super) type Hashed = (usize, usize, u64);

impl<'k> Locked<'k> {
    /// Locks what `reach` needs. `None`: a long call holds it, and `patience` was short.
    #[inline]
    pub(super) fn acquire(
        keyspace: &'k Keyspace,
        reach: ShardSet<'_>,
        patience: LockWait,
        hashed: &mut Hashed,
    ) -> Option<Self> {
        let locked = match reach {
            ShardSet::One(key) => {
                let hash = keyspace.hash(key);
                *hashed = (key.as_ptr() as usize, key.len(), hash);
                Self::one(keyspace, keyspace.shard_of(hash), patience)?
            }
            ShardSet::Keys(keys) => {
                let mut indices: SmallVec<[usize; 8]> =
                    keys.iter().map(|key| keyspace.shard_of(keyspace.hash(key))).collect();
                indices.sort_unstable();
                indices.dedup();
                Self::many(keyspace, indices.into_iter(), patience)?
            }
            ShardSet::All => return Self::many(keyspace, 0..keyspace.shards(), patience),
            ShardSet::Nothing => return Some(Self::default()),
        };
        locked.with_beyond(keyspace, patience)
    }

    /// Locks the shard of that index, and what its parked calls reach.
    pub(super) fn shard(keyspace: &'k Keyspace, index: usize, patience: LockWait) -> Option<Self> {
        Self::one(keyspace, index, patience)?.with_beyond(keyspace, patience)
    }

    #[inline]
    fn one(keyspace: &'k Keyspace, index: usize, patience: LockWait) -> Option<Self> {
        Some(Self::One(index, keyspace.hold(index, patience)?))
    }

    fn many(
        keyspace: &'k Keyspace,
        indices: impl Iterator<Item = usize>,
        patience: LockWait,
    ) -> Option<Self> {
        let mut many = SmallVec::with_capacity(indices.size_hint().0);
        for index in indices {
            many.push((index, keyspace.hold(index, patience)?));
        }
        Some(Self::Many(many))
    }

    #[inline]
    fn with_beyond(self, keyspace: &'k Keyspace, patience: LockWait) -> Option<Self> {
        let reaches_beyond = match &self {
            Self::One(_, held) => held.parked.need_other_shards(),
            Self::Many(many) => many.iter().any(|(_, held)| held.parked.need_other_shards()),
        };
        if reaches_beyond { self.widened(keyspace, patience) } else { Some(self) }
    }

    /// Unlocks, locks the union, and looks again, until nothing is missing. Each round adds shards, so that it ends.
    #[cold]
    fn widened(mut self, keyspace: &'k Keyspace, patience: LockWait) -> Option<Self> {
        loop {
            let (mut own, mut union) = (0, BTreeSet::new());
            self.each(|index, held| {
                own += 1;
                union.insert(index);
                union.extend(held.parked.other_shards());
            });
            if union.len() == own {
                return Some(self);
            }
            drop(self);
            self = Self::many(keyspace, union.into_iter(), patience)?;
        }
    }

    /// The latest time that any of them has seen, and at least `now`; all of them have seen it from here on.
    #[inline]
    pub(super) fn advance(&mut self, now: LockTime) -> LockTime {
        match self {
            Self::One(_, held) => held.shard.advance(now),
            Self::Many(many) => {
                let latest = many.iter().map(|(_, held)| held.shard.time()).fold(now, Ord::max);
                for (_, held) in many {
                    held.shard.advance(latest);
                }
                latest
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Many(many) => many.len(),
        }
    }

    /// The shard of that index.
    ///
    /// # Panics
    /// When it is not locked.
    #[inline]
    pub(super) fn held(&mut self, index: usize) -> &mut ShardState {
        match self {
            Self::One(locked, held) if *locked == index => held,
            Self::Many(many) => {
                // All shards are locked in order, so that the index is the place; a few are found by looking.
                let at = match many.get(index) {
                    Some((locked, _)) if *locked == index => index,
                    _ => many
                        .binary_search_by_key(&index, |(locked, _)| *locked)
                        .expect("the view has locked the shard of every key it is asked for"),
                };
                &mut many[at].1
            }
            Self::One(..) => panic!("the view has locked the shard of every key it is asked for"),
        }
    }

    pub(super) fn each(&mut self, mut visit: impl FnMut(usize, &mut ShardState)) {
        match self {
            Self::One(index, held) => visit(*index, held),
            Self::Many(many) => many.iter_mut().for_each(|(index, held)| visit(*index, held)),
        }
    }
}
