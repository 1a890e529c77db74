//! What a journal has received since a copy began makes the whole state.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::{Deadline, Now};

use super::*;
use crate::journal::{
    Edit, HashEdit, Journal, ListEdit, LockEdit, Mutation, Record, SetEdit, SortedSetEdit, StreamEdit,
};
use crate::keyspace::{Entry, Layout, Lease, ShardSet, View};
use crate::locks::{Grant, GrantDetails};
use crate::state::lock_sessions::{RestoredLock, SessionLock};
use crate::state::registries::Registries;
use crate::state::settings::Events;
use crate::state::wait::Place;
use crate::sync::Mutex;
use crate::types::list::End;
use crate::types::lock::{Holder, LockKind};
use crate::types::stream::StreamId;
use crate::types::{Hash, List, Lock, Object, Set, Shape, SortedSet, Stream, Typed};

const DATABASES: u16 = 3;

/// All records, each with its time.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<(LockTime, Vec<Mutation>)>>);

impl Journal for Log {
    fn append(&self, record: &Record<'_>) {
        self.0.lock().push((record.now, record.mutations.to_vec()));
    }
}

fn keyspace(shards: usize, seed: u64, journal: Option<Arc<dyn Journal>>) -> Keyspace {
    Keyspace::new(Layout { shards, databases: DATABASES, seed, journal }, || {})
}

fn now(millis: u64) -> Now {
    Now { lock: LockTime::from_millis(millis), wall_offset_ms: 0 }
}

/// A generator of numbers below its argument, repeatable by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn lease(&mut self, now: Now) -> Lease {
        match self.below(4) {
            0 => Lease::Never,
            1 => Lease::Keep,
            _ => Lease::Until(now.deadline_in(self.below(300) as i64)),
        }
    }

    fn deadline(&mut self, now: Now) -> Option<Deadline> {
        (self.below(4) > 0).then(|| now.deadline_in(self.below(300) as i64))
    }

    fn word(&mut self) -> Bytes {
        Bytes::from(vec![b'a' + self.below(6) as u8; 1 + self.below(40) as usize])
    }
}

/// What is known of a key.
#[derive(Debug, PartialEq)]
struct Known {
    string: Option<Vec<u8>>,
    object: Option<Object>,
    deadline: Option<Deadline>,
    grant: Option<Grant>,
    details: Option<GrantDetails>,
}

/// Every key, including those that have expired. The number of renewals is not part of a journal.
fn state_of(keyspace: &Keyspace) -> BTreeMap<(u16, Vec<u8>), Known> {
    keyspace.assert_laws();
    let mut state = BTreeMap::new();
    for cell in &keyspace.cells {
        let held = cell.held.lock();
        let shard = &held.shard;
        for table in 0..shard.tables() {
            let mut cursor = 0;
            loop {
                cursor = shard.scan_table(table, cursor, &mut |database, id| {
                    let object = shard.object(id).cloned();
                    let known = Known {
                        string: object.is_none().then(|| shard.value(id).to_vec()),
                        object,
                        deadline: shard.deadline(id),
                        grant: shard.granted(id).map(|grant| Grant { renewals: 0, ..grant }),
                        details: shard.grant_details(id).cloned(),
                    };
                    state.insert((database, shard.key(id).to_vec()), known);
                });
                if cursor == 0 {
                    break;
                }
            }
        }
    }
    state
}

fn replayed(log: &Log, shards: usize) -> Keyspace {
    let keyspace = keyspace(shards, 99, None);
    let mut replay = keyspace.replay();
    for (now, mutations) in log.0.lock().iter() {
        replay.at(*now);
        mutations.iter().for_each(|mutation| replay.apply(mutation));
    }
    drop(replay);
    keyspace
}

/// Changes an object of this type under a key, if the key holds no other.
fn edit<T: Typed>(view: &mut View<'_>, key: &[u8], edit: impl FnOnce(&mut crate::keyspace::Editor<'_, T>)) {
    if let Ok(mut editor) = view.open::<T>(key) {
        edit(&mut editor);
    }
}

fn edit_object(view: &mut View<'_>, key: &[u8], random: &mut Random) {
    let word = random.word();
    let (action, number) = (random.below(4), random.below(6) as usize);
    match random.below(5) {
        0 => edit::<Hash>(view, key, |hash| match action {
            0 => {
                hash.remove(&word);
            }
            _ => {
                hash.set(&word, b"value");
            }
        }),
        1 => edit::<List>(view, key, |list| match action {
            0 => list.insert(number, &word),
            1 => list.keep(1, list.get().len()),
            2 => {
                list.set(number, &word);
            }
            _ => list.push(End::Tail, &word),
        }),
        2 => edit::<Set>(view, key, |set| {
            if action == 0 {
                set.remove(&word);
            } else {
                set.insert(&word);
            }
        }),
        3 => edit::<SortedSet>(view, key, |set| match action {
            0 => set.remove_range(0..set.get().len().min(2)),
            1 => {
                set.remove(&word);
            }
            _ => set.insert(&word, number as f64),
        }),
        _ => edit::<Stream>(view, key, |stream| match action {
            0 => {
                stream.trim(2);
            }
            _ => {
                let StreamId { ms, .. } = stream.get().last_id();
                stream.append(StreamId { ms: ms + 1, seq: 0 }, &[b"field", &word]);
            }
        }),
    }
}

fn lock(view: &mut View<'_>, key: &[u8], random: &mut Random) {
    let (owner, now, token) = (random.word(), view.now(), view.next_token());
    let session = (random.below(2) == 0).then(|| (random.below(9), random.below(500)));
    let meta: Box<[Bytes]> = if random.below(2) == 0 { Box::default() } else { [random.word()].into() };
    let client = 1 + random.below(50);
    match random.below(4) {
        0 => {
            let lease = random.lease(now);
            view.locks().hold_exclusive(key, &owner, lease, (token, client), GrantDetails { session, meta });
        }
        1 => {
            let deadline = random.deadline(now);
            let (since, lease_ms, renewals) = (now.lock, None, 0);
            let permits = 1;
            let holder =
                Holder { token, client, permits, since, deadline, lease_ms, renewals, session, meta };
            view.locks().put_holder(key, LockKind::Permits(9), &owner, holder);
        }
        2 => edit::<Lock>(view, key, |lock| lock.remove(&owner, crate::locks::EndReason::Released)),
        _ => {
            if let Entry::Occupied(mut found) = view.entry(key) {
                found.grant(token, client, false);
            }
        }
    }
}

/// One call with a few random changes.
fn call(keyspace: &Keyspace, random: &mut Random, now: Now) {
    let database = random.below(DATABASES.into()) as u16;
    let mut view = View::lock(keyspace, ShardSet::All, database, now, Events::default());
    for _ in 0..=random.below(3) {
        let key = format!("key {}", random.below(60)).into_bytes();
        match random.below(100) {
            0 => view.whole().swap(database, random.below(DATABASES.into()) as u16),
            1 if random.below(6) == 0 => view.whole().clear(database),
            2..=25 => drop(view.entry(&key).put(&random.word(), random.lease(now))),
            26..=35 => {
                view.remove(&key);
            }
            36..=42 => {
                if let Entry::Occupied(mut found) = view.entry(&key) {
                    found.set_deadline(random.deadline(now));
                }
            }
            43 => {
                let mut large = Set::new(view.seed());
                for n in 0..2_000_u32 {
                    large.insert(&n.to_le_bytes());
                }
                view.entry(&key).put_object(large.into(), random.lease(now));
            }
            44..=65 => lock(&mut view, &key, random),
            _ => edit_object(&mut view, &key, random),
        }
    }
    view.finish(&Registries::default());
}

#[test]
fn what_is_recorded_since_a_copy_began_makes_the_whole_state() {
    for seed in 1..=12 {
        let mut random = Random(seed);
        let log = Arc::new(Log::default());
        let original = keyspace(4, seed, Some(log.clone()));
        let mut millis = 1_700_000_000_000;
        let mut calls = |count: u64, random: &mut Random| {
            for _ in 0..count {
                millis += random.below(20);
                call(&original, random, now(millis));
                if random.below(8) == 0 {
                    original.tick(now(millis), Events::default(), &Registries::default());
                }
            }
            millis
        };
        calls(400, &mut random);
        log.0.lock().clear();
        let mut cursor = CopyCursor::default();
        loop {
            let at = calls(3, &mut random);
            if original.copy(&mut cursor, LockTime::from_millis(at)) == Copied::All {
                break;
            }
        }
        assert_eq!(
            state_of(&replayed(&log, 2)),
            state_of(&original),
            "seed {seed}: when the copy is complete"
        );
        calls(100, &mut random);
        assert_eq!(state_of(&replayed(&log, 8)), state_of(&original), "seed {seed}: 100 calls later");
    }
}

#[test]
fn a_copy_locks_a_shard_for_few_entries() {
    let log = Arc::new(Log::default());
    let keyspace = keyspace(1, 1, Some(log.clone()));
    let mut view = View::lock(&keyspace, ShardSet::All, 0, now(1), Events::default());
    for n in 0..1_000 {
        view.entry(format!("key {n}").as_bytes()).put(b"v", Lease::Never);
    }
    view.finish(&Registries::default());
    log.0.lock().clear();
    let (mut cursor, mut steps) = (CopyCursor::default(), 1);
    while keyspace.copy(&mut cursor, LockTime::from_millis(1)) == Copied::Some {
        steps += 1;
    }
    let records = log.0.lock();
    assert_eq!(records.iter().map(|(_, mutations)| mutations.len()).sum::<usize>(), 1_000);
    assert!(steps >= 1_000 / ENTRIES_PER_STEP, "{steps} steps");
    assert!(records.iter().all(|(_, mutations)| mutations.len() <= ENTRIES_PER_STEP));
}

#[test]
fn the_locks_of_sessions_end_after_a_replay_as_if_their_connections_had() {
    let keyspace = keyspace(2, 1, None);
    let database = 1;
    let key = Bytes::from_static(b"single");
    let value = Bytes::from_static(b"owner");
    let since = LockTime::from_millis(5);
    let mut replay = keyspace.replay();
    replay.at(LockTime::from_millis(10));
    replay.apply(&Mutation::Put { database, key: key.clone(), value, deadline: None });
    let grant = Grant { token: 7, holder: 30, since, lease_ms: None, renewals: 3, is_native: true };
    let details = GrantDetails { session: Some((1, 200)), meta: Box::default() };
    replay.apply(&Mutation::Grant { database, key, grant, details });
    for (owner, session) in [(&b"a"[..], Some((2, 300))), (b"b", None)] {
        let (deadline, lease_ms, renewals, meta) = (None, None, 0, Box::default());
        let (client, token, permits) = (41, 6, 1);
        let holder = Holder { token, client, permits, since, deadline, lease_ms, renewals, session, meta };
        let edit = LockEdit::Put(LockKind::Shared, Bytes::from_static(owner), holder);
        let key = Bytes::from_static(b"shared");
        replay.apply(&Mutation::Edit { database, key, edit: Edit::Lock(edit) });
    }
    let replayed = replay.finish(LockTime::from_millis(900), 100);
    assert_eq!((replayed.token, replayed.client), (7, 41));
    let restored = |session, key: &'static [u8], owner: &'static [u8], (token, delay_ms)| {
        let (key, owner) = (Bytes::from_static(key), Bytes::from_static(owner));
        RestoredLock { session, database, key, lock: SessionLock { owner, token, delay_ms } }
    };
    let mut session_locks = replayed.session_locks;
    session_locks.sort_by_key(|restored| restored.session);
    let expected = [restored(1, b"single", b"owner", (7, 200)), restored(2, b"shared", b"a", (6, 300))];
    assert_eq!(session_locks, expected, "a client may attach to these sessions");
    keyspace.assert_laws();
    assert_eq!(keyspace.next_token(), 8);

    let state = state_of(&keyspace);
    let single = &state[&(1, b"single".to_vec())];
    assert_eq!(single.deadline, Some(now(1_200).deadline_in(0)));
    assert_eq!(single.details.as_ref().and_then(|details| details.session), Some((1, 200)));
    let shared = &state[&(1, b"shared".to_vec())];
    assert_eq!(shared.deadline, None, "one holder has no session");
    let Some(Object::Lock(lock)) = &shared.object else { panic!("a lock") };
    assert_eq!(lock.earliest_deadline(), Some(now(1_300).deadline_in(0)));
    assert_eq!(lock.len(), 2);
}

#[test]
fn an_edit_of_a_key_that_is_not_copied_yet_does_no_harm() {
    let edits = [
        Edit::Hash(HashEdit::Set(Bytes::from_static(b"f"), Bytes::from_static(b"v"))),
        Edit::Hash(HashEdit::Remove(Bytes::from_static(b"f"))),
        Edit::List(ListEdit::Insert { index: 9, element: Bytes::from_static(b"e") }),
        Edit::List(ListEdit::Keep { start: 9, end: 5 }),
        Edit::List(ListEdit::Drop { end: End::Head, count: 9 }),
        Edit::List(ListEdit::Set { index: 9, element: Bytes::from_static(b"e") }),
        Edit::List(ListEdit::Remove { element: Bytes::from_static(b"e"), end: End::Tail, count: 9 }),
        Edit::Lock(LockEdit::Remove(Bytes::from_static(b"o"))),
        Edit::Set(SetEdit::Remove(Bytes::from_static(b"m"))),
        Edit::SortedSet(SortedSetEdit::Remove(Bytes::from_static(b"m"))),
        Edit::SortedSet(SortedSetEdit::RemoveRange { from: 3, to: 9 }),
        Edit::SortedSet(SortedSetEdit::RemoveRange { from: 9, to: 3 }),
        Edit::Stream(StreamEdit::Trim { len_max: 0 }),
    ];
    for first in &edits {
        for second in &edits {
            let keyspace = keyspace(1, 1, None);
            let mut replay = keyspace.replay();
            let (database, key) = (0, Bytes::from_static(b"k"));
            for edit in [first, second] {
                replay.apply(&Mutation::Edit { database, key: key.clone(), edit: edit.clone() });
            }
            replay.apply(&Mutation::SetDeadline { database, key: key.clone(), deadline: None });
            let value = Bytes::from_static(b"v");
            replay.apply(&Mutation::Put { database, key: key.clone(), value, deadline: None });
            replay.apply(&Mutation::Edit { database, key: key.clone(), edit: second.clone() });
            drop(replay);
            let state = state_of(&keyspace);
            assert_eq!(
                state[&(0, b"k".to_vec())].string.as_deref(),
                Some(&b"v"[..]),
                "{first:?}, {second:?}"
            );
            keyspace.apply(&Mutation::Remove { database, key, expired: false }, now(9));
            assert!(state_of(&keyspace).is_empty());
        }
    }
}

#[test]
fn a_place_that_is_kept_is_not_behind_what_comes_later() {
    let keyspace = keyspace(4, 7, None);
    let mut replay = keyspace.replay();
    let mut keep = |now, owner: &'static [u8], rank, number| {
        replay.at(LockTime::from_millis(now));
        let (key, owner, place) =
            (Bytes::from_static(b"k"), Bytes::from_static(owner), Some(Place { rank, number }));
        replay.apply(&Mutation::Place { database: 0, key, owner, place });
    };
    // Of a journal whose places have no rank, and of a clock that was ahead.
    keep(10, b"first", i64::MAX, 1);
    keep(20, b"second", i64::MAX, 5);
    keep(20, b"ahead", 21, 6);
    keep(30, b"forward", -70, 7);
    replay.finish(LockTime::from_millis(30), 0);
    let mut view = View::lock(&keyspace, ShardSet::Keys(&[b"k"]), 0, now(30), Events::default());
    let keys = [Bytes::from_static(b"k")];
    let mut place = |owner: &[u8]| view.queues().lock_place(&keys, owner, 0);
    let found = [&b"forward"[..], b"first", b"second", b"ahead", b"new"].map(&mut place);
    let expected =
        [(-70, 7), (10, 1), (20, 5), (20, 6), (30, 12)].map(|(rank, number)| Place { rank, number });
    assert_eq!(found, expected);
    assert!(found.is_sorted());
    // One that has come back with a priority is not behind where that would put it.
    view.shard_state(b"k").places.set((0, b"k"), b"hurried", Some(found[1]));
    assert_eq!(view.queues().lock_place(&keys, b"hurried", 25), Place { rank: 5, number: 13 });
    view.finish(&Registries::default());
}

/// Counts the places that it receives.
#[derive(Debug, Default)]
struct PlaceCounter(Mutex<usize>);

impl Journal for PlaceCounter {
    fn append(&self, record: &Record<'_>) {
        let mutations = record.mutations.to_vec();
        *self.0.lock() += mutations.iter().filter(|what| matches!(what, Mutation::Place { .. })).count();
    }

    fn keeps_places(&self) -> bool {
        true
    }
}

#[test]
fn a_place_is_copied_once_though_its_shard_takes_many_steps() {
    let counter = Arc::new(PlaceCounter::default());
    let keyspace = keyspace(1, 7, Some(counter.clone()));
    let mut replay = keyspace.replay();
    for number in 0..1_000_u32 {
        let (key, value) = (Bytes::from(number.to_string()), Bytes::from_static(b"v"));
        replay.apply(&Mutation::Put { database: 0, key, value, deadline: None });
    }
    for owner in [&b"one"[..], b"two"].map(Bytes::from_static) {
        let (key, place) = (Bytes::from_static(b"lock"), Some(Place { rank: 1, number: 3 }));
        replay.apply(&Mutation::Place { database: 0, key, owner, place });
    }
    replay.finish(LockTime::from_millis(1), 0);
    let (mut cursor, mut steps) = (CopyCursor::default(), 0);
    while keyspace.copy(&mut cursor, LockTime::from_millis(2)) == Copied::Some {
        steps += 1;
    }
    assert!(steps > 2, "{steps} steps");
    assert_eq!(*counter.0.lock(), 2);
}
