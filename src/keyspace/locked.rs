//! The shards of a view: all locked in ascending order before the first look.
//!
//! Locks   a shard whose parked calls use keys of other shards is never locked without these: when that is found, all
//!         shards are unlocked, and the union is locked in order.

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

/// No shard.
impl Default for Locked<'_> {
    fn default() -> Self {
        Self::Many(SmallVec::new())
    }
}

/// What a call does while a long call holds a shard that it needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LockWait {
    /// The thread waits.
    Endless,
    /// The call gives its thread back and is tried again later.
    Short,
}

/// Address, length and hash of the key that chose the shard.
pub(super) type Hashed = (usize, usize, u64);

impl<'k> Locked<'k> {
    /// Locks what `reach` needs. `None` if a long call holds a shard and `wait` is short.
    #[inline]
    pub(super) fn acquire(
        keyspace: &'k Keyspace,
        reach: ShardSet<'_>,
        wait: LockWait,
        hashed: &mut Hashed,
    ) -> Option<Self> {
        let locked = match reach {
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
                Self::many(keyspace, indices.into_iter(), wait)?
            }
            ShardSet::All => return Self::many(keyspace, 0..keyspace.shards(), wait),
            ShardSet::Nothing => return Some(Self::default()),
        };
        locked.with_beyond(keyspace, wait)
    }

    /// Locks the shard of that index, and those that its parked calls use.
    pub(super) fn shard(keyspace: &'k Keyspace, index: usize, wait: LockWait) -> Option<Self> {
        Self::one(keyspace, index, wait)?.with_beyond(keyspace, wait)
    }

    #[inline]
    fn one(keyspace: &'k Keyspace, index: usize, wait: LockWait) -> Option<Self> {
        Some(Self::One(index, keyspace.hold(index, wait)?))
    }

    fn many(keyspace: &'k Keyspace, indices: impl Iterator<Item = usize>, wait: LockWait) -> Option<Self> {
        let mut many = SmallVec::with_capacity(indices.size_hint().0);
        for index in indices {
            many.push((index, keyspace.hold(index, wait)?));
        }
        Some(Self::Many(many))
    }

    #[inline]
    fn with_beyond(self, keyspace: &'k Keyspace, wait: LockWait) -> Option<Self> {
        let reaches_beyond = match &self {
            Self::One(_, held) => held.parked.need_other_shards(),
            Self::Many(many) => many.iter().any(|(_, held)| held.parked.need_other_shards()),
        };
        if reaches_beyond { self.widened(keyspace, wait) } else { Some(self) }
    }

    /// Unlocks, locks the union, and looks again, until no shard is missing. Each round adds shards, so that it ends.
    #[cold]
    fn widened(mut self, keyspace: &'k Keyspace, wait: LockWait) -> Option<Self> {
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
            self = Self::many(keyspace, union.into_iter(), wait)?;
        }
    }

    /// Advances all locked shards to the latest of their times, and at least to `now`; returns that time.
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

    /// How many shards are locked.
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
                // If all shards are locked, the index is the position; a few are found by binary search.
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
