//! How locks have ended: the last ones of each shard.
//!
//! Owns    a ring of records of one size. A record is written when a lock ends, in memory that is allocated once.
//! Rule    releases, which are many, are recorded from the first question on: until then they cost nothing.
//! Rule    what came next is read from the next record of the same key, or from the lock's current grant.
//! Bounds  `lock-history-len` records in all shards together. A long key or owner is cut.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::clock::{Deadline, LockTime};

use super::event::{Breaker, EndReason};
use super::record::Grant;
use crate::state::clients::ClientId;
use crate::state::ledger::{Charge, Kind, Ledger};
use crate::sync::AtomicBool;
use crate::types::lock::Holder;

/// The ended locks of one shard, the oldest first.
#[derive(Debug)]
pub(crate) struct History {
    lost: Ring,
    /// Apart from these, because releases are many and would push the others out.
    released: Ring,
    /// How many of each are kept.
    len_max: usize,
    /// Whether releases are recorded: from the first question about a lock on. All shards of a keyspace share it.
    keeps_releases: Arc<AtomicBool>,
    charge: Charge,
}

/// Records, the oldest first, and beside each other the places of their keys: nearly all questions are about a key that is
/// in no record, and a record is four cache lines long.
#[derive(Debug, Default)]
struct Ring {
    places: VecDeque<u64>,
    records: VecDeque<PastLock>,
}

/// A lock that has ended.
#[derive(Clone, Debug)]
pub struct PastLock {
    /// Its key.
    pub key: Excerpt,
    /// Under which name it was held; `None`: the value did not say.
    pub owner: Option<Excerpt>,
    /// The fencing token.
    pub token: u64,
    /// The client that held it.
    pub holder: ClientId,
    /// The client whose call has ended it; zero: none.
    pub author: ClientId,
    /// When it was granted.
    pub since: LockTime,
    /// When it ended.
    pub ended: LockTime,
    /// The lease as it was last set, in milliseconds.
    pub lease_ms: Option<u64>,
    /// How often the lease was renewed.
    pub renewals: u32,
    /// Why it has ended.
    pub reason: EndReason,
    /// The first request of its holder that came too late to extend or release it, and when.
    pub late: Option<(&'static str, LockTime)>,
    /// Who has broken it, if somebody has.
    pub breaker: Option<Arc<Breaker>>,
}

/// The first bytes of a text, and its length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Excerpt {
    len: u32,
    bytes: [u8; EXCERPT_BYTES],
}

const _: () = assert!(size_of::<PastLock>() <= 256, "the help of lock-history-len says so");

/// Bytes of a key or an owner that a record keeps. A UUID has 36, Redisson's owner about 40.
const EXCERPT_BYTES: usize = 64;

impl Excerpt {
    /// The excerpt of a text.
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut bytes = [0; EXCERPT_BYTES];
        let kept = text.len().min(EXCERPT_BYTES);
        bytes[..kept].copy_from_slice(&text[..kept]);
        Self { len: u32::try_from(text.len()).unwrap_or(u32::MAX), bytes }
    }

    /// The bytes that were kept.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..EXCERPT_BYTES.min(self.len as usize)]
    }

    /// Whether all of the text was kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.len as usize <= EXCERPT_BYTES
    }
}

impl PastLock {
    /// The end of a lock that was granted so.
    pub(crate) fn new(key: &[u8], owner: Option<&[u8]>, grant: &Grant) -> Self {
        Self {
            key: Excerpt::of(key),
            owner: owner.map(Excerpt::of),
            token: grant.token,
            holder: grant.holder,
            author: 0,
            since: grant.since,
            ended: grant.since,
            lease_ms: grant.lease_ms.map(u64::from),
            renewals: grant.renewals.into(),
            reason: EndReason::Deleted,
            late: None,
            breaker: None,
        }
    }

    /// The end of a holder of a value of the type lock, at the end of its lease.
    pub(crate) fn of_holder(key: &[u8], owner: &[u8], holder: &Holder) -> Self {
        Self {
            key: Excerpt::of(key),
            owner: Some(Excerpt::of(owner)),
            token: holder.token,
            holder: holder.client,
            author: 0,
            since: holder.since,
            ended: holder.deadline.map_or(holder.since, Deadline::time),
            lease_ms: holder.lease_ms,
            renewals: holder.renewals,
            reason: EndReason::Deleted,
            late: None,
            breaker: None,
        }
    }

    /// Whether it was held under that name.
    pub(crate) fn is_of(&self, owner: &[u8]) -> bool {
        self.owner == Some(Excerpt::of(owner))
    }

    /// Whether the lock was lost: its holder has not released it.
    pub(crate) fn is_lost(&self) -> bool {
        self.reason != EndReason::Released
    }
}

/// The hash of a key with its database.
pub(crate) fn place(hash: u64, database: u16) -> u64 {
    hash.wrapping_add(u64::from(database))
}

/// That of a shard that belongs to no keyspace.
impl Default for History {
    fn default() -> Self {
        Self::new(&Arc::default(), &Arc::default())
    }
}

impl History {
    /// The history of a shard of a keyspace, which shares `keeps_releases`.
    pub(crate) fn new(keeps_releases: &Arc<AtomicBool>, ledger: &Arc<Ledger>) -> Self {
        let (lost, released, len_max) = Default::default();
        let charge = ledger.open(Kind::LockHistory);
        Self { lost, released, len_max, keeps_releases: Arc::clone(keeps_releases), charge }
    }

    /// Keeps that many records from now on, half of them of releases.
    pub(crate) fn set_len_max(&mut self, len_max: usize) {
        (self.lost, self.released, self.len_max) = (Ring::default(), Ring::default(), len_max.div_ceil(2));
        self.charge.set(0);
    }

    /// Whether ends are recorded.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.len_max > 0
    }

    /// Whether releases are recorded, too.
    #[inline]
    pub(crate) fn keeps_releases(&self) -> bool {
        self.keeps_releases.load(Relaxed)
    }

    /// Whether a lock was lost.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.records.is_empty()
    }

    /// Adds the newest record, of a key with this [`place`].
    pub(crate) fn push(&mut self, place: u64, ended: PastLock) {
        let ring = if ended.is_lost() { &mut self.lost } else { &mut self.released };
        if ring.records.len() == self.len_max {
            let oldest = ring.pop().and_then(|oldest| oldest.breaker);
            oldest.iter().for_each(|breaker| self.charge.sub(breaker.held_bytes()));
        }
        if ring.records.capacity() == 0 {
            self.charge.add(ring.reserve(self.len_max));
        }
        ended.breaker.iter().for_each(|breaker| self.charge.add(breaker.held_bytes()));
        ring.push(place, ended);
    }

    /// All records with the places of their keys, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &PastLock)> {
        [&self.lost, &self.released].into_iter().flat_map(|ring| {
            let places = ring.places.iter().copied();
            places.zip(&ring.records)
        })
    }

    /// The records of a key, the newest first.
    pub(crate) fn of(&self, place: u64, key: &[u8]) -> Vec<PastLock> {
        let rings = [&self.lost, &self.released].into_iter();
        let of_key = rings.flat_map(|ring| ring.newest_first(place, key).map(|at| ring.records[at].clone()));
        let mut found: Vec<PastLock> = of_key.collect();
        found.sort_by_key(|record| std::cmp::Reverse((record.ended, record.token)));
        found
    }

    /// Notes that the holder of an ended lock has asked for it too late. Only the newest lock of the key that fits counts,
    /// and only its first such request. One that it has handed over does not count. Returns it.
    pub(crate) fn note_late(
        &mut self,
        (place, key): (u64, &[u8]),
        (holder, owner): (ClientId, Option<&[u8]>),
        (request, now): (&'static str, LockTime),
    ) -> Option<&PastLock> {
        let find = |ring: &Ring| {
            ring.newest_first(place, key).find(|at| {
                let record = &ring.records[*at];
                owner.map_or(record.holder == holder, |owner| record.is_of(owner))
            })
        };
        let lost = find(&self.lost)?;
        let released = find(&self.released).map(|at| &self.released.records[at]);
        let record = &mut self.lost.records[lost];
        let is_handed_over = record.reason == EndReason::Transferred;
        let is_released = released.is_some_and(|released| released.token > record.token);
        if is_handed_over || is_released || record.late.is_some() {
            return None;
        }
        record.late = Some((request, now));
        Some(record)
    }
}

impl Ring {
    /// Makes room for so many records. Returns its bytes.
    fn reserve(&mut self, len: usize) -> usize {
        self.places.reserve_exact(len);
        self.records.reserve_exact(len);
        self.places.capacity() * size_of::<u64>() + self.records.capacity() * size_of::<PastLock>()
    }

    fn push(&mut self, place: u64, record: PastLock) {
        self.places.push_back(place);
        self.records.push_back(record);
    }

    /// Removes the oldest record.
    fn pop(&mut self) -> Option<PastLock> {
        self.places.pop_front();
        self.records.pop_front()
    }

    /// Where the records of a key are, the newest first.
    fn newest_first(&self, place: u64, key: &[u8]) -> impl Iterator<Item = usize> {
        let of_place = self.places.iter().enumerate().rev().filter(move |(_, other)| **other == place);
        of_place.map(|(at, _)| at).filter(|at| self.records[*at].key == Excerpt::of(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> LockTime {
        LockTime::from_millis(millis)
    }

    fn ended(key: &[u8], owner: &[u8], holder: ClientId, reason: EndReason) -> PastLock {
        let grant = Grant {
            token: holder,
            holder,
            since: at(100),
            lease_ms: Some(50),
            renewals: 1,
            is_native: false,
        };
        PastLock { ended: at(150), reason, ..PastLock::new(key, Some(owner), &grant) }
    }

    fn history(len_max: usize, records: &[PastLock]) -> History {
        let mut history = History::default();
        history.set_len_max(len_max);
        records.iter().for_each(|record| history.push(7, record.clone()));
        history
    }

    fn tokens(history: &History) -> Vec<u64> {
        history.of(7, b"lock").iter().map(|record| record.token).collect()
    }

    #[test]
    fn the_oldest_records_make_room() {
        let records: Vec<_> = (0..10).map(|n| ended(b"lock", b"owner", n, EndReason::Expired)).collect();
        let mut history = history(6, &records);
        assert_eq!(tokens(&history), [9, 8, 7]);
        for token in 10..20 {
            history.push(7, ended(b"lock", b"owner", token, EndReason::Released));
        }
        assert_eq!(tokens(&history), [19, 18, 17, 9, 8, 7], "releases do not push out the others");
        assert_eq!(history.of(7, b"other").len() + history.of(8, b"lock").len(), 0);
        assert_eq!((history.lost.records.capacity(), history.released.records.capacity()), (3, 3));
    }

    #[test]
    fn who_has_broken_a_lock_is_charged_as_long_as_it_is_remembered() {
        let (mut history, broken) = (history(2, &[]), ended(b"lock", b"a", 1, EndReason::Broken));
        let text = Some(bytes::Bytes::from_static(b"deploy"));
        let breaker = Breaker { user: bytes::Bytes::from_static(b"ops"), peer: "10.0.0.7:50".into(), text };
        let held = breaker.held_bytes();
        history.push(7, ended(b"lock", b"a", 1, EndReason::Expired));
        let before = history.charge.bytes();
        for _ in 0..3 {
            history.push(7, PastLock { breaker: Some(Arc::new(breaker.clone())), ..broken.clone() });
            assert_eq!(history.charge.bytes(), before + held);
        }
        history.push(7, ended(b"lock", b"a", 1, EndReason::Expired));
        assert_eq!(history.charge.bytes(), before);
    }

    #[test]
    fn long_keys_are_told_apart_by_their_first_bytes_and_lengths() {
        let long = [b'k'; 100];
        let history = history(9, &[ended(&long, &long, 1, EndReason::Expired)]);
        assert_eq!(history.of(7, &long).len(), 1);
        assert_eq!(history.of(7, &long[..99]).len(), 0);
        let owner = history.of(7, &long)[0].owner.unwrap();
        assert_eq!((owner.bytes().len(), owner.is_whole()), (EXCERPT_BYTES, false));
    }

    #[test]
    fn the_first_late_request_for_the_newest_lost_lock_is_noted() {
        let records = [
            ended(b"lock", b"a", 1, EndReason::Expired),
            ended(b"lock", b"b", 2, EndReason::Released),
            ended(b"lock", b"c", 3, EndReason::Expired),
        ];
        let mut history = history(9, &records);
        let place = (7, b"lock".as_slice());
        assert!(history.note_late(place, (9, Some(b"b")), ("PEXPIRE", at(191))).is_none(), "released");
        assert!(history.note_late(place, (9, None), ("PEXPIRE", at(191))).is_none(), "another client");
        assert!(history.note_late(place, (9, Some(b"a")), ("PEXPIRE", at(191))).is_some());
        assert!(history.note_late(place, (1, None), ("DEL", at(200))).is_none(), "the first one stays");
        assert!(history.note_late(place, (3, None), ("DEL", at(201))).is_some());
        let late: Vec<_> = history.of(7, b"lock").iter().map(|record| record.late).collect();
        assert_eq!(late, [Some(("DEL", at(201))), None, Some(("PEXPIRE", at(191)))]);
    }
}
