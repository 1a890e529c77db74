//! Scans and random keys of a whole database.

use std::collections::BTreeMap;

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::*;
use crate::keyspace::{Layout, Lease};
use crate::state::registries::Registries;

fn keyspace(shards: usize) -> Keyspace {
    Keyspace::new(Layout { shards, databases: 2, seed: 7, journal: None }, || {})
}

fn at(millis: u64) -> Now {
    Now { lock: LockTime::from_millis(millis), wall_offset_ms: 0 }
}

fn put(keyspace: &Keyspace, database: u16, name: &str, lease: Lease) {
    let events = Events::default();
    let mut view = View::lock(keyspace, ShardSet::One(name.as_bytes()), database, at(0), events);
    view.entry(name.as_bytes()).put(b"v", lease);
}

fn nothing_locked(keyspace: &Keyspace, now: Now) -> View<'_> {
    View::lock(keyspace, ShardSet::Nothing, 0, now, Events::default())
}

/// How often each key of database 0 is visited by a scan whose steps visit about `keys` keys.
fn scan_all(keyspace: &Keyspace, keys: u64, now: Now, between: impl Fn(u64)) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = nothing_locked(keyspace, now)
            .whole()
            .scan(cursor, keys, &mut |name, type_name| {
                assert_eq!(type_name, "string");
                *seen.entry(String::from_utf8_lossy(name).into_owned()).or_insert(0) += 1;
            })
            .unwrap();
        between(cursor);
        if cursor == 0 {
            return seen;
        }
    }
}

#[test]
fn a_scan_visits_every_key_of_its_database_once_whatever_its_steps() {
    for shards in [1, 4, 64] {
        let keyspace = keyspace(shards);
        for n in 0..500 {
            put(&keyspace, 0, &format!("key {n}"), Lease::Never);
            put(&keyspace, 1, &format!("other {n}"), Lease::Never);
        }
        for keys in [0, 1, 7, 16, 10_000] {
            let seen = scan_all(&keyspace, keys, at(0), |_| {});
            assert_eq!(seen.len(), 500, "{shards} shards, {keys} keys a step");
            assert!(seen.iter().all(|(name, times)| name.starts_with("key ") && *times == 1));
        }
    }
}

#[test]
fn a_scan_misses_no_key_that_stays_while_others_come() {
    let keyspace = keyspace(4);
    for n in 0..100 {
        put(&keyspace, 0, &format!("stays {n}"), Lease::Never);
    }
    let seen = scan_all(&keyspace, 3, at(0), |cursor| {
        // Enough to make every table grow several times during the scan.
        for n in 0..20 {
            put(&keyspace, 0, &format!("comes {cursor} {n}"), Lease::Until(at(0).deadline_in(0)));
        }
        keyspace.tick(at(1), Events::default(), &Registries::default());
    });
    assert!((0..100).all(|n| seen.get(&format!("stays {n}")) == Some(&1)));
}

#[test]
fn a_step_of_a_scan_visits_no_more_keys_than_asked() {
    let keyspace = keyspace(1);
    for n in 0..100 {
        put(&keyspace, 0, &format!("{n}"), Lease::Never);
    }
    let mut visits = 0;
    let cursor = nothing_locked(&keyspace, at(0)).whole().scan(0, 5, &mut |_, _| visits += 1).unwrap();
    assert!(cursor != 0 && visits == 5, "{visits} visits, then {cursor}");
}

#[test]
fn a_cursor_that_no_scan_returned_ends() {
    let keyspace = keyspace(4);
    put(&keyspace, 0, "key", Lease::Never);
    for start in [u64::MAX, u64::MAX - 2, 1 << 63, 1 << 40] {
        let mut cursor = start;
        let ends = (0..10).any(|_| {
            cursor = nothing_locked(&keyspace, at(0)).whole().scan(cursor, 10, &mut |_, _| {}).unwrap();
            cursor == 0
        });
        assert!(ends, "from {start}");
    }
}

#[test]
fn an_expired_key_is_neither_scanned_nor_chosen() {
    let keyspace = keyspace(4);
    for n in 0..200 {
        put(&keyspace, 0, &format!("ends {n}"), Lease::Until(at(0).deadline_in(10)));
    }
    put(&keyspace, 0, "stays", Lease::Never);
    let seen = scan_all(&keyspace, 16, at(11), |_| {});
    assert_eq!(seen.into_keys().collect::<Vec<_>>(), ["stays"]);

    let mut view = View::lock(&keyspace, ShardSet::All, 0, at(11), Events::default());
    for entropy in 0..100_u64 {
        let chosen = view.whole().random_key(entropy.wrapping_mul(0x9E37_79B9_7F4A_7C15), false);
        assert_eq!(chosen.as_deref(), Some(b"stays".as_slice()), "one key is left");
    }
}

#[test]
fn every_key_of_the_database_is_chosen_by_some_entropy() {
    let keyspace = keyspace(4);
    for n in 0..20 {
        put(&keyspace, 0, &format!("key {n}"), Lease::Never);
    }
    put(&keyspace, 1, "other", Lease::Never);
    let mut view = View::lock(&keyspace, ShardSet::All, 0, at(0), Events::default());
    let choices =
        (0..5_000_u64).map(|n| view.whole().random_key(n.wrapping_mul(0x9E37_79B9_7F4A_7C15), false));
    let chosen: std::collections::BTreeSet<_> = choices.flatten().collect();
    assert_eq!(chosen.len(), 20);
    assert!(!chosen.contains(b"other".as_slice()));
}

#[test]
fn a_removal_during_a_long_call_is_postponed_until_the_call_is_over() {
    let keyspace = keyspace(1);
    let mut long = View::lock(&keyspace, ShardSet::Nothing, 0, at(0), Events::default());
    long.lock_all_for_long();
    let mut watching = crate::state::transaction::Watching::new(keyspace.ledger());
    assert!(watching.insert(0, &Bytes::from_static(b"watched")));
    keyspace.unwatch(watching);
    let retry = || keyspace.retry_postponed(at(0), Events::default(), &Registries::default());
    for _ in 0..2 {
        retry();
        assert_eq!(keyspace.postponed.lock().len(), 1, "the call still holds the shard");
    }
    long.finish(&Registries::default());
    assert!(!keyspace.long_call.is_on());
    retry();
    assert!(keyspace.postponed.lock().is_empty());
}
