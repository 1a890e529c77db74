//! The laws of a shard, compared with a model made of maps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::locks::Grant;

const DATABASES: usize = 3;

/// A shard, and what it must hold.
struct Harness {
    shard: Shard,
    model: Vec<BTreeMap<Vec<u8>, Record>>,
    now: u64,
    /// The highest token so far; it begins just below a number that a record cannot hold.
    token: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Record {
    value: Vec<u8>,
    deadline_ms: Option<u64>,
    stamp: u32,
    grant: Option<Grant>,
}

#[derive(Clone, Debug)]
enum Move {
    Append(u16, u8, usize),
    Clear(u16),
    Grant(u16, u8, u64),
    Ungrant(u16, u8),
    Pass(u64),
    Put(u16, u8, usize, Option<u64>),
    Remove(u16, u8),
    Renew(u16, u8, Option<u64>),
    Resize(u16, u8, usize),
    Stamp(u16, u8, u32),
    Swap(u16, u16),
}

impl Record {
    /// A new deadline renews the grant.
    fn set_deadline(&mut self, deadline_ms: Option<u64>, ttl: Option<u64>) {
        self.deadline_ms = deadline_ms;
        if let Some(grant) = &mut self.grant {
            grant.renewals = grant.renewals.saturating_add(u8::from(grant.lease_ms.is_some()));
            grant.lease_ms = ttl.map(|ttl| (ttl as u32).max(1));
        }
    }
}

/// A hash with collisions in the low bits, so that a table's runs are long and equal hashes occur.
fn hash(key: &[u8]) -> u64 {
    let sum = key.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    u64::from(sum as u32 % 97 * 0x0260_0000)
}

/// A key of the `n`th name; some are long.
fn key(n: u8) -> Vec<u8> {
    let len = if n.is_multiple_of(31) { 20_000 } else { usize::from(n) % 40 };
    let mut key = vec![n; len];
    key.push(n);
    key
}

/// `len` bytes that differ from place to place and from length to length.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + len) as u8).collect()
}

impl Harness {
    fn new() -> Self {
        let model = vec![BTreeMap::new(); DATABASES];
        Self { shard: Shard::new(DATABASES, Seed::of(7)), model, now: 0, token: (1 << 48) - 50 }
    }

    fn play(&mut self, step: Move) {
        match step {
            Move::Append(db, n, len) => self.change(db, n, |shard, id, hash, record| {
                record.value.extend_from_slice(&bytes(len));
                shard.append(id, hash, &bytes(len))
            }),
            Move::Clear(db) => {
                self.shard.clear(db);
                self.model[usize::from(db)].clear();
            }
            Move::Grant(db, n, holder) => {
                self.token += 1 + holder % 7;
                let (token, since, is_native) = (self.token, LockTime::from_millis(self.now), n % 2 == 0);
                self.change(db, n, |shard, id, _, record| {
                    let left =
                        |deadline_ms: u64| (deadline_ms.saturating_sub(since.as_millis()) as u32).max(1);
                    let lease_ms = record.deadline_ms.map(left);
                    record.grant = Some(Grant { token, holder, since, lease_ms, renewals: 0, is_native });
                    shard.grant(id, token, holder, is_native);
                    id
                });
            }
            Move::Ungrant(db, n) => self.change(db, n, |shard, id, _, record| {
                record.grant = None;
                shard.clear_grant(id);
                id
            }),
            Move::Pass(ms) => self.pass(ms),
            Move::Put(db, n, len, ttl) => self.put(db, n, len, ttl),
            Move::Remove(db, n) => {
                let removed = self.model[usize::from(db)].remove(&key(n));
                let found = self.find(db, n);
                assert_eq!(found.is_some(), removed.is_some());
                if let Some(id) = found {
                    self.shard.remove(id, hash(&key(n)));
                }
            }
            Move::Renew(db, n, ttl) => {
                let deadline_ms = ttl.map(|ttl| self.now + ttl);
                self.change(db, n, |shard, id, _, record| {
                    record.set_deadline(deadline_ms, ttl);
                    shard.set_deadline(id, deadline_ms.map(deadline));
                    id
                });
            }
            Move::Resize(db, n, len) => self.change(db, n, |shard, id, hash, record| {
                record.value.resize(len, 0);
                shard.resize(id, hash, len)
            }),
            Move::Stamp(db, n, stamp) => self.change(db, n, |shard, id, _, record| {
                record.stamp = stamp;
                shard.set_stamp(id, stamp);
                id
            }),
            Move::Swap(a, b) => {
                self.shard.swap(a, b);
                self.model.swap(usize::from(a), usize::from(b));
            }
        }
    }

    fn find(&self, db: u16, n: u8) -> Option<EntryId> {
        self.shard.find(db, hash(&key(n)), &key(n))
    }

    fn change(
        &mut self,
        db: u16,
        n: u8,
        change: impl FnOnce(&mut Shard, EntryId, u64, &mut Record) -> EntryId,
    ) {
        let found = self.find(db, n);
        let record = self.model[usize::from(db)].get_mut(&key(n));
        assert_eq!(found.is_some(), record.is_some());
        if let (Some(id), Some(record)) = (found, record) {
            let new = change(&mut self.shard, id, hash(&key(n)), record);
            assert_eq!(
                self.shard.find(db, hash(&key(n)), &key(n)),
                Some(new),
                "the id it returns is the id it has"
            );
        }
    }

    fn put(&mut self, db: u16, n: u8, len: usize, ttl: Option<u64>) {
        let deadline_ms = ttl.map(|ttl| self.now + ttl);
        let old = self.model[usize::from(db)].get(&key(n));
        let grant = old.and_then(|old| old.grant);
        let mut record = Record { value: bytes(len), deadline_ms, stamp: u32::from(n), grant };
        record.set_deadline(deadline_ms, ttl);
        match self.find(db, n) {
            Some(id) => {
                let id = self.shard.set_value(id, hash(&key(n)), &record.value);
                self.shard.set_deadline(id, deadline_ms.map(deadline));
                self.shard.set_stamp(id, record.stamp);
            }
            None => {
                let (at, stamp) = (deadline_ms.map(deadline), record.stamp);
                self.shard.insert(db, hash(&key(n)), &key(n), &record.value, at, stamp);
            }
        }
        self.model[usize::from(db)].insert(key(n), record);
    }

    /// Advances the time. Exactly the due entries are removed, earliest first.
    fn pass(&mut self, ms: u64) {
        self.now += ms;
        let now = LockTime::from_millis(self.now);
        let mut last_ms = 0;
        let mut budget = u32::MAX;
        while let Some(id) = self.shard.due(now, &mut budget) {
            let (db, name) = (self.shard.db(id), self.shard.key(id).to_vec());
            let deadline = self.shard.deadline(id).expect("only an entry with a deadline is ever due");
            assert!(deadline.has_passed(now), "{deadline:?}: not yet at {now:?}");
            assert!(deadline.as_millis() >= last_ms, "{deadline:?}: after one of {last_ms}");
            last_ms = deadline.as_millis();
            self.shard.remove(id, hash(&name));
            assert!(self.model[usize::from(db)].remove(&name).is_some());
        }
        let rest = self.model.iter().flat_map(BTreeMap::values).filter_map(|record| record.deadline_ms).min();
        assert!(
            rest.is_none_or(|deadline_ms| deadline_ms >= self.now),
            "a deadline of {rest:?} is still here"
        );
        let wakeup = self.shard.next_wakeup().map(LockTime::as_millis);
        assert_eq!(wakeup.is_some(), rest.is_some());
        if let (Some(wakeup), Some(rest)) = (wakeup, rest) {
            assert!((self.now + 1..=rest + 1).contains(&wakeup), "wakes at {wakeup} for {rest} at {now:?}");
        }
    }

    fn assert_laws(&self) {
        self.shard.assert_laws(hash);
        for (db, records) in (0..).zip(&self.model) {
            assert_eq!(self.shard.len(db), records.len());
            assert_eq!(self.shard.random(db, self.now).is_none(), records.is_empty());
            let with_deadline = records.values().filter(|record| record.deadline_ms.is_some()).count();
            assert_eq!(self.shard.deadlines(db), with_deadline);
            for (key, record) in records {
                let id = self.shard.find(db, hash(key), key).expect("what was stored is found");
                assert_eq!((self.shard.key(id), self.shard.db(id)), (&key[..], db));
                let deadline_ms = self.shard.deadline(id).map(Deadline::as_millis);
                let (stamp, grant) = (self.shard.stamp(id), self.shard.granted(id));
                let found = Record { value: self.shard.value(id).to_vec(), deadline_ms, stamp, grant };
                assert!(found == *record, "{:?}: another value, deadline, stamp or grant", &key[0]);
            }
        }
    }

    fn keys_by_scan(&self, db: u16) -> Vec<Vec<u8>> {
        let (mut keys, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = self.shard.scan(db, cursor, &mut |id| keys.push(self.shard.key(id).to_vec()));
            if cursor == 0 {
                keys.sort_unstable();
                return keys;
            }
        }
    }
}

fn deadline(ms: u64) -> Deadline {
    Deadline::at(LockTime::from_millis(ms))
}

fn one_move() -> impl Strategy<Value = Move> {
    let db = || 0..DATABASES as u16;
    let len = || prop_oneof![8 => 0..100usize, 2 => 0..3_000usize, 1 => 10_000..60_000usize];
    let ttl = || prop::option::of(prop_oneof![0..100u64, 0..100_000u64]);
    prop_oneof![
        2 => (db(), any::<u8>(), len()).prop_map(|(db, n, len)| Move::Append(db, n, len)),
        1 => db().prop_map(Move::Clear),
        6 => (db(), any::<u8>(), any::<u32>()).prop_map(|(db, n, holder)| Move::Grant(db, n, holder.into())),
        1 => (db(), any::<u8>()).prop_map(|(db, n)| Move::Ungrant(db, n)),
        4 => (0..5_000u64).prop_map(Move::Pass),
        20 => (db(), any::<u8>(), len(), ttl()).prop_map(|(db, n, len, ttl)| Move::Put(db, n, len, ttl)),
        6 => (db(), any::<u8>()).prop_map(|(db, n)| Move::Remove(db, n)),
        6 => (db(), any::<u8>(), ttl()).prop_map(|(db, n, ttl)| Move::Renew(db, n, ttl)),
        2 => (db(), any::<u8>(), len()).prop_map(|(db, n, len)| Move::Resize(db, n, len)),
        1 => (db(), any::<u8>(), any::<u32>()).prop_map(|(db, n, stamp)| Move::Stamp(db, n, stamp)),
        1 => (db(), db()).prop_map(|(a, b)| Move::Swap(a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_shard_holds_what_a_map_would_hold(moves in prop::collection::vec(one_move(), 1..300)) {
        let mut harness = Harness::new();
        for (number, step) in moves.into_iter().enumerate() {
            harness.play(step);
            if number % 16 == 0 {
                harness.assert_laws();
            }
        }
        harness.assert_laws();
        for (db, records) in (0..).zip(&harness.model) {
            prop_assert!(harness.keys_by_scan(db).iter().eq(records.keys()), "a scan visits every entry once");
        }
    }
}

#[test]
fn a_renewal_to_a_later_deadline_does_not_touch_the_wheel() {
    let mut shard = Shard::new(1, Seed::of(7));
    let ids = [1u8, 2].map(|n| shard.insert(0, hash(&[n]), &[n], b"token", Some(deadline(50)), 0));
    let before = ids.map(|id| shard.arena.timer(id.0));
    shard.set_deadline(ids[0], Some(deadline(5_000)));
    assert_eq!(ids.map(|id| shard.arena.timer(id.0)), before);
    assert_eq!(shard.deadline(ids[0]), Some(deadline(5_000)));

    let mut budget = 100;
    assert_eq!(shard.due(LockTime::from_millis(51), &mut budget), Some(ids[1]));
    shard.remove(ids[1], hash(&[2]));
    assert_eq!(shard.due(LockTime::from_millis(5_000), &mut budget), None);
    assert_eq!(shard.due(LockTime::from_millis(5_001), &mut budget), Some(ids[0]));
    shard.assert_laws(hash);
}

#[test]
fn an_earlier_deadline_applies_at_once() {
    let mut shard = Shard::new(1, Seed::of(7));
    let id = shard.insert(0, 1, b"lock", b"token", Some(deadline(1_000_000)), 0);
    shard.set_deadline(id, Some(deadline(9)));
    assert_eq!(shard.next_wakeup(), Some(LockTime::from_millis(10)));
    assert_eq!(shard.due(LockTime::from_millis(10), &mut 10), Some(id));
}

#[test]
fn a_shard_that_was_idle_wakes_for_a_near_deadline_only() {
    // No boundary of a level lies between now and the deadline, so there is nothing to move on the way.
    let now = 1_700_000_000_010;
    let mut shard = Shard::new(1, Seed::of(7));
    shard.advance(LockTime::from_millis(now));
    shard.insert(0, 1, b"lock", b"token", Some(deadline(now + 20)), 0);
    assert_eq!(shard.next_wakeup(), Some(LockTime::from_millis(now + 21)));
}

#[test]
fn the_last_millisecond_of_all_counts_as_the_one_before() {
    let mut shard = Shard::new(1, Seed::of(7));
    let id = shard.insert(0, 1, b"lock", b"token", Some(deadline(u64::MAX)), 0);
    assert_eq!(shard.deadline(id), Some(deadline(u64::MAX - 1)));
    assert_eq!(shard.due(LockTime::from_millis(u64::MAX), &mut 100), Some(id));
}

#[test]
fn due_entries_come_in_batches_of_the_budget() {
    let mut shard = Shard::new(1, Seed::of(7));
    for n in 0..1_000u32 {
        shard.insert(0, u64::from(n), &n.to_le_bytes(), b"token", Some(deadline(100_000)), 0);
    }
    let now = LockTime::from_millis(100_001);
    let (mut gone, mut batches) = (0, 0);
    while shard.len(0) > 0 {
        batches += 1;
        let mut budget = 50;
        while let Some(id) = shard.due(now, &mut budget) {
            let hash = u32::from_le_bytes(shard.key(id).try_into().unwrap());
            shard.remove(id, hash.into());
            gone += 1;
        }
        assert_eq!(budget, 0, "a batch ends with its budget");
        assert!(batches < 1_000, "every batch gets on");
    }
    assert_eq!(gone, 1_000);
    let mut budget = 50;
    assert_eq!((shard.due(now, &mut budget), budget), (None, 50));
}

#[test]
fn time_never_runs_backwards() {
    let mut shard = Shard::new(1, Seed::of(7));
    assert_eq!(shard.advance(LockTime::from_millis(10)), LockTime::from_millis(10));
    assert_eq!(shard.advance(LockTime::from_millis(9)), LockTime::from_millis(10));
    assert_eq!(shard.time(), LockTime::from_millis(10));
}

#[test]
fn an_entry_keeps_its_database_through_a_swap_until_it_expires() {
    let mut shard = Shard::new(3, Seed::of(7));
    let id = shard.insert(0, 1, b"lock", b"token", Some(deadline(5)), 0);
    shard.swap(0, 2);
    shard.swap(2, 1);
    assert_eq!((shard.len(0), shard.len(1), shard.len(2)), (0, 1, 0));
    assert_eq!(shard.due(LockTime::from_millis(6), &mut 10), Some(id));
    assert_eq!(shard.db(id), 1);
    shard.swap(1, 1);
    shard.remove(id, 1);
    assert!(shard.len(1) == 0);
    shard.assert_laws(hash);
}

#[test]
fn memory_is_freed_when_entries_are_removed() {
    let mut shard = Shard::new(2, Seed::of(7));
    let idle = shard.used_bytes();
    let mut ids = Vec::new();
    for n in 0..20_000u32 {
        let value = bytes(n as usize % 300);
        let hash = u64::from(n.wrapping_mul(0x9e37_79b9));
        ids.push((shard.insert(0, hash, &n.to_le_bytes(), &value, Some(deadline(9)), 0), hash));
    }
    let full = shard.used_bytes();
    for (id, hash) in ids {
        shard.remove(id, hash);
    }
    shard.assert_laws(|_| 0);
    assert!(shard.used_bytes() < full / 20, "{} of {full} bytes left when removed", shard.used_bytes());

    let id = shard.insert(1, 7, b"other", b"", None, 0);
    for n in 0..20_000u32 {
        shard.insert(0, u64::from(n) << 16, &n.to_le_bytes(), &bytes(40), Some(deadline(9)), 0);
    }
    shard.clear(0);
    assert!(shard.used_bytes() < full / 20, "{} of {full} bytes left when cleared", shard.used_bytes());
    assert_eq!((shard.key(id), shard.next_wakeup()), (&b"other"[..], None));
    shard.clear(1);
    assert!(
        shard.used_bytes() < idle + 16 * 1024,
        "{} bytes left of nothing, {idle} at first",
        shard.used_bytes()
    );
}

#[test]
fn a_lock_that_is_taken_again_reuses_its_slot() {
    let mut shard = Shard::new(1, Seed::of(7));
    let first = shard.insert(0, 1, b"lock", b"token", Some(deadline(9)), 0);
    shard.remove(first, 1);
    let used = shard.used_bytes();
    for _ in 0..100 {
        let id = shard.insert(0, 1, b"lock", b"token", Some(deadline(9)), 0);
        assert_eq!(id, first);
        shard.remove(id, 1);
    }
    assert_eq!(shard.used_bytes(), used);
}

#[test]
fn a_value_built_bit_by_bit_moves_a_few_times_only() {
    let mut shard = Shard::new(1, Seed::of(7));
    let mut id = shard.insert(0, 1, b"log", b"", Some(deadline(9)), 0);
    let mut moves = 0;
    for n in 0..40_000usize {
        let new = shard.append(id, 1, &[n as u8]);
        moves += usize::from(new != id);
        id = new;
    }
    assert!(moves < 30, "{moves} moves");
    assert!(shard.value(id).iter().enumerate().all(|(at, byte)| *byte == at as u8));
    assert_eq!(shard.due(LockTime::from_millis(10), &mut 10), Some(id), "its timer has come along");
    shard.assert_laws(|_| 1);
}

#[test]
fn a_value_that_shrinks_frees_its_memory() {
    let mut shard = Shard::new(1, Seed::of(7));
    let id = shard.insert(0, 1, b"lock", &bytes(1_000_000), None, 0);
    assert!(shard.bytes(id) > 1_000_000);
    let id = shard.resize(id, 1, 100_000);
    assert!(shard.bytes(id) < 250_000, "{}", shard.bytes(id));
    let id = shard.set_value(id, 1, &bytes(5_000));
    assert!(shard.bytes(id) < 7_000, "{}", shard.bytes(id));
    let id = shard.set_value(id, 1, b"token");
    assert!(shard.bytes(id) < 100, "{}", shard.bytes(id));
    assert_eq!((shard.key(id), shard.value(id)), (&b"lock"[..], &b"token"[..]));
    shard.assert_laws(|_| 1);
}

#[test]
fn a_lock_of_a_uuid_costs_less_than_120_bytes() {
    const LOCKS: u64 = 60_000;
    let mut shard = Shard::new(16, Seed::of(7));
    for n in 0..LOCKS {
        let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let key = format!("lock:resource:{n:010}");
        let id = shard.insert(0, hash, key.as_bytes(), &[b'u'; 36], Some(deadline(30_000)), 0);
        shard.grant(id, n + 1, n, false);
    }
    let per_lock = shard.used_bytes() as f64 / LOCKS as f64;
    assert!(per_lock < 120.0, "{per_lock} bytes");
}
