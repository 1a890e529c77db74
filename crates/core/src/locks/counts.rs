//! Counters of locks: how many are held, how they were granted, how they have ended.
//!
//! Owns    [`LockCounts`], [`Durations`], and [`LockGroups`]: some of these counters by the prefix of the key.
//! Time    durations are whole milliseconds of lock time.
//! Rule    plain numbers under the mutex of their shard: an event costs a few instructions. Sums are made by the reader.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::LockTime;
use redlatch_proto::number::total;

use crate::types::lock::LockKind;

/// How many kinds of locks there are.
pub(crate) const KINDS: usize = LockKind::NAMES.len();

/// How many locks there are, and what has become of others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LockCounts {
    /// Keys that are locks, by the index of their kind, including expired ones that were not yet removed.
    pub held: [usize; KINDS],
    /// Grants, by the index of the kind. A renewal, or the same request again, is no grant.
    pub acquired: [u64; KINDS],
    /// Requests for locks that were not granted.
    pub refused: u64,
    /// Locks, and holders of locks, removed because their lease had ended.
    pub expired: u64,
    /// Locks whose key was deleted or overwritten by another client than their holder.
    pub deleted_by_others: u64,
    /// From a grant to its end.
    pub hold: Durations,
    /// From the end of a lock to its next grant, if that went to a client that had waited in its queue or polled it.
    pub handover: Durations,
    /// How long requests waited in a queue, by the index of how the wait has ended.
    pub waits: [Durations; Waited::NAMES.len()],
}

/// How the wait of a request in a queue has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Waited {
    /// It was granted.
    Granted,
    /// It was refused: its time was over, its wait was a deadlock, or it was unblocked.
    Refused,
    /// Its connection has ended.
    Abandoned,
}

impl Waited {
    /// Their names, by index.
    pub(crate) const NAMES: [&'static str; 3] = ["granted", "refused", "abandoned"];
}

impl LockCounts {
    /// Keys that are locks of any kind.
    pub(crate) fn all_held(&self) -> usize {
        self.held.iter().fold(0, |sum, held| sum.saturating_add(*held))
    }

    /// The sum of both.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.held.iter_mut().zip(other.held).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.acquired.iter_mut().zip(other.acquired).for_each(|(sum, more)| add(sum, more));
        add(&mut self.refused, other.refused);
        add(&mut self.expired, other.expired);
        add(&mut self.deleted_by_others, other.deleted_by_others);
        self.hold.add_all(&other.hold);
        self.handover.add_all(&other.handover);
        self.waits.iter_mut().zip(&other.waits).for_each(|(sum, more)| sum.add_all(more));
        self
    }
}

/// How long something took: a histogram whose buckets double.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Durations {
    /// The first bucket counts durations of 0 ms. The bucket of index `n` after it counts those up to `1 << (n - 1)` ms that
    /// the bucket before it does not count. The last one counts all longer ones.
    buckets: [u64; BUCKETS],
    total_ms: u64,
}

/// Buckets of a histogram: the last bound is 2^20 ms, about 17 minutes.
const BUCKETS: usize = 23;

impl Durations {
    /// Counts one duration.
    #[inline]
    pub fn add(&mut self, millis: u64) {
        let bucket = match millis {
            0 => 0,
            _ => (u64::BITS.saturating_sub(millis.saturating_sub(1).leading_zeros()) as usize)
                .saturating_add(1),
        };
        add(&mut self.buckets[bucket.min(BUCKETS - 1)], 1);
        add(&mut self.total_ms, millis);
    }

    /// The sum of all durations, in milliseconds.
    pub fn total_ms(&self) -> u64 {
        self.total_ms
    }

    /// How many durations there are.
    pub fn count(&self) -> u64 {
        total(self.buckets)
    }

    /// For each bucket: the milliseconds that its durations have at most, `None` for the last one; and how many it counts.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bound = |index: usize| (index < BUCKETS - 1).then(|| (1 << index) >> 1);
        self.buckets.iter().enumerate().map(move |(index, count)| (bound(index), *count))
    }

    fn add_all(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, more)| add(sum, more));
        add(&mut self.total_ms, other.total_ms);
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Counters of the locks whose keys have one prefix.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct GroupCounts {
    /// Keys that are locks.
    pub held: usize,
    /// Grants.
    pub acquired: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Locks, and holders of locks, removed because their lease had ended.
    pub expired: u64,
}

/// Prefixes of keys, and the counters of the locks of each.
#[derive(Clone, Debug)]
pub(crate) struct LockGroups {
    /// Longer ones before shorter ones, so that the first that fits is the longest.
    prefixes: Arc<[Bytes]>,
    /// One for each prefix, and one more for the keys that have none of them.
    counts: Box<[GroupCounts]>,
}

impl LockGroups {
    /// Groups by these prefixes; `None` without one.
    pub(crate) fn new<'p>(prefixes: impl Iterator<Item = &'p str>) -> Option<Self> {
        let mut prefixes: Vec<Bytes> =
            prefixes.map(|prefix| Bytes::copy_from_slice(prefix.as_bytes())).collect();
        prefixes.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        prefixes.dedup();
        let counts = vec![GroupCounts::default(); prefixes.len().saturating_add(1)].into();
        (!prefixes.is_empty()).then(|| Self { prefixes: prefixes.into(), counts })
    }

    /// The counters of the group of a key.
    pub(crate) fn of(&mut self, key: &[u8]) -> &mut GroupCounts {
        let index = self.prefixes.iter().position(|prefix| key.starts_with(prefix));
        &mut self.counts[index.unwrap_or(self.prefixes.len())]
    }

    /// Every prefix with its counters; the last one is that of all other keys.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Option<&Bytes>, &GroupCounts)> {
        self.prefixes.iter().map(Some).chain([None]).zip(&self.counts)
    }

    /// Adds the counters of another shard, which has the same prefixes.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            sum.held = sum.held.saturating_add(more.held);
            add(&mut sum.acquired, more.acquired);
            add(&mut sum.refused, more.refused);
            add(&mut sum.expired, more.expired);
        }
    }

    /// No lock is held any more.
    pub(crate) fn clear_held(&mut self) {
        self.counts.iter_mut().for_each(|counts| counts.held = 0);
    }

    /// Resets the counters of what has happened.
    pub(crate) fn reset(&mut self) {
        for counts in &mut self.counts {
            *counts = GroupCounts { held: counts.held, ..GroupCounts::default() };
        }
    }
}

/// When the locks of a shard have ended that ended last, each at the place of its key. A later lock may take the place of
/// another: then no hand-over of that one is measured.
#[derive(Debug)]
pub(crate) struct RecentEnds([(u64, LockTime); RECENT_ENDS]);

/// How many ends a shard remembers. Only keys that are asked for again and again matter, and these are few.
const RECENT_ENDS: usize = 32;

impl Default for RecentEnds {
    fn default() -> Self {
        Self([(0, LockTime::from_millis(0)); RECENT_ENDS])
    }
}

impl RecentEnds {
    /// A lock has ended; `place` is the hash of its key and database.
    #[inline]
    pub(crate) fn note(&mut self, place: u64, ended: LockTime) {
        self.0[place as usize % RECENT_ENDS] = (place, ended);
    }

    /// When the lock of that key ended, if that is known. It is forgotten then.
    pub(crate) fn take(&mut self, place: u64) -> Option<LockTime> {
        let (known, ended) = &mut self.0[place as usize % RECENT_ENDS];
        (*known == place && place != 0).then(|| {
            *known = 0;
            *ended
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_counts_what_is_up_to_its_bound_and_above_the_one_before() {
        let mut durations = Durations::default();
        for millis in [0, 1, 2, 3, 4, 5, 1 << 20, (1 << 20) + 1, u64::MAX] {
            durations.add(millis);
        }
        let counted: Vec<_> = durations.buckets().filter(|(_, count)| *count > 0).collect();
        let bounds = [Some(0), Some(1), Some(2), Some(4), Some(8), Some(1 << 20), None];
        assert_eq!(counted, bounds.into_iter().zip([1, 1, 1, 2, 1, 1, 2]).collect::<Vec<_>>());
        assert_eq!((durations.count(), durations.total_ms()), (9, u64::MAX));
    }

    #[test]
    fn a_key_belongs_to_the_longest_prefix_that_it_has() {
        let mut groups = LockGroups::new("a: a:b: c a:".split(' ')).unwrap();
        for key in ["a:1", "a:b:1", "a:b", "c", "b", ""] {
            groups.of(key.as_bytes()).acquired += 1;
        }
        let seen: Vec<_> = groups
            .all()
            .map(|(prefix, counts)| (prefix.map_or(&b"other"[..], |prefix| prefix), counts.acquired))
            .collect();
        assert_eq!(seen, [(&b"a:b:"[..], 1), (b"a:", 2), (b"c", 1), (b"other", 2)]);
        assert!(LockGroups::new(std::iter::empty()).is_none());
    }

    #[test]
    fn an_end_is_told_once_and_to_its_key_only() {
        let (mut ends, at) = (RecentEnds::default(), LockTime::from_millis);
        ends.note(7, at(5));
        ends.note(8, at(6));
        ends.note(8 + RECENT_ENDS as u64, at(9));
        assert_eq!((ends.take(7), ends.take(7)), (Some(at(5)), None));
        assert_eq!((ends.take(8), ends.take(0)), (None, None));
        assert_eq!(ends.take(8 + RECENT_ENDS as u64), Some(at(9)));
    }
}
