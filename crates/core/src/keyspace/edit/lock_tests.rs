//! Locks with deadlines of keys and of holders, compared with a model that is a map, and with a replay of the journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use redlatch_proto::clock::{Deadline, LockTime};

use crate::keyspace::edit::tests::{Log, keyspace, now};
use crate::keyspace::{Due, Editor, Entry, Keyspace, Layout, Lease, ShardSet, View};
use crate::state::registries::Registries;
use crate::state::settings::Events;
use crate::types::lock::{Holder, LockKind};
use crate::types::{Lock, Shape};

fn at(millis: u64) -> Deadline {
    Deadline::at(LockTime::from_millis(millis))
}

/// A holder with a lease until this millisecond.
fn holder(token: u8, ends: Option<u64>) -> Holder {
    Holder {
        token: token.into(),
        client: 1,
        permits: 1,
        since: LockTime::from_millis(0),
        deadline: ends.map(at),
        lease_ms: None,
        renewals: 0,
        session: None,
        meta: Box::default(),
    }
}

fn put(lock: &mut Editor<'_, Lock>, owner: &str, ends: Option<u64>) {
    lock.put(LockKind::Shared, &Bytes::copy_from_slice(owner.as_bytes()), holder(1, ends));
}

/// Does `work` in a call of its own.
fn call<R>(keyspace: &Keyspace, millis: u64, work: impl FnOnce(&mut View<'_>) -> R) -> R {
    let mut view = View::lock(keyspace, ShardSet::All, 0, now(millis), Events::default());
    let result = work(&mut view);
    view.finish(&Registries::default());
    result
}

fn tick(keyspace: &Keyspace, millis: u64) -> Option<u64> {
    loop {
        let due = keyspace.tick(now(millis), Events::default(), &Registries::default());
        if let Due::Next(next) = due {
            return next.map(LockTime::as_millis);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelKey {
    /// The token of each owner, and the last millisecond of its lease.
    owners: BTreeMap<u8, (u8, Option<u64>)>,
    ends: Option<u64>,
}

type Model = BTreeMap<u8, ModelKey>;

fn settle(model: &mut Model, millis: u64) {
    let lives = |ends: Option<u64>| ends.is_none_or(|ends| ends >= millis);
    for key in model.values_mut() {
        key.owners.retain(|_, (_, ends)| lives(*ends));
    }
    model.retain(|_, key| lives(key.ends) && !key.owners.is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u8, u8, u8, Option<u64>),
    Remove(u8, u8),
    KeyDeadline(u8, Option<u64>),
    Copy(u8, u8),
    String(u8),
    Delete(u8),
    Pass(u64),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let (key, owner) = (0..3_u8, 0..4_u8);
    let lease = prop::option::weighted(0.8, 1..30_u64);
    prop_oneof![
        8 => (key.clone(), owner.clone(), any::<u8>(), lease.clone())
            .prop_map(|(key, owner, token, lease)| Step::Put(key, owner, token, lease)),
        2 => (key.clone(), owner).prop_map(|(key, owner)| Step::Remove(key, owner)),
        2 => (key.clone(), lease).prop_map(|(k, l)| Step::KeyDeadline(k, l)),
        1 => (key.clone(), key.clone()).prop_map(|(from, to)| Step::Copy(from, to)),
        1 => key.clone().prop_map(Step::String),
        1 => key.prop_map(Step::Delete),
        3 => (1..12_u64).prop_map(Step::Pass),
        1 => Just(Step::Tick),
    ]
}

/// Does the step in both worlds. A string keeps the key's lease, and goes at the end of the step.
fn act(step: Step, millis: u64, view: &mut View<'_>, model: &mut Model) {
    match step {
        Step::Put(key, owner, token, lease) => {
            let ends = lease.map(|lease| millis + lease);
            let holder = holder(token, ends);
            let owner_name = Bytes::copy_from_slice(&[owner]);
            view.open::<Lock>(&[key]).unwrap().put(LockKind::Shared, &owner_name, holder);
            model.entry(key).or_default().owners.insert(owner, (token, ends));
        }
        Step::Remove(key, owner) => {
            if let Some(mut lock) = view.find::<Lock>(&[key]).unwrap() {
                lock.remove(&[owner], crate::locks::EndReason::Released);
            }
            model.entry(key).or_default().owners.remove(&owner);
        }
        Step::KeyDeadline(key, lease) => {
            let ends = lease.map(|lease| millis + lease);
            if let Some(mut found) = view.entry(&[key]).occupied() {
                found.set_deadline(ends.map(at));
            }
            model.entry(key).or_default().ends = ends;
        }
        Step::Copy(from, to) => {
            let (from_name, to_name) = ([from], [to]);
            let found = view.entry(&from_name).occupied();
            let content = found.and_then(|found| Some((found.object()?.clone(), found.deadline())));
            if let Some((object, deadline)) = content {
                view.entry(&to_name).put_object(object, deadline.map_or(Lease::Never, Lease::Until));
                model.insert(to, model[&from].clone());
            }
        }
        Step::String(key) => {
            let ends = view.entry(&[key]).put(b"string", Lease::Keep).deadline();
            let expected = model.remove(&key).and_then(|key| key.ends);
            assert_eq!(ends.map(Deadline::as_millis), expected, "a string keeps the lease of the key alone");
            view.remove(&[key]);
        }
        Step::Delete(key) => {
            view.remove(&[key]);
            model.remove(&key);
        }
        Step::Pass(_) | Step::Tick => {}
    }
}

fn agree(view: &mut View<'_>, model: &Model) {
    let mut names = Vec::new();
    view.whole().for_each_key(|name| names.push(name[0]));
    names.sort_unstable();
    assert_eq!(names, model.keys().copied().collect::<Vec<_>>(), "the keys that a scan returns");
    for (name, key) in model {
        let mut found = BTreeMap::new();
        let lock = view.read_as::<Lock>(std::slice::from_ref(name)).unwrap().unwrap();
        for (owner, holder) in lock.holders() {
            found.insert(owner[0], (holder.token as u8, holder.deadline.map(Deadline::as_millis)));
        }
        assert_eq!(lock.len(), found.len());
        assert_eq!(found, key.owners, "the holders of {name}");
        let ends = view.entry(std::slice::from_ref(name)).occupied().and_then(|found| found.deadline());
        assert_eq!(ends.map(Deadline::as_millis), key.ends, "the lease of {name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_call_sees_the_living_holders_and_a_replay_restores_them(
        steps in prop::collection::vec(step(), 1..60),
        looks in any::<bool>(),
    ) {
        let log = Arc::new(Log::default());
        let (original, mut model, mut millis) = (keyspace(Some(log.clone())), Model::new(), 1);
        for step in steps {
            match step {
                Step::Pass(time) => millis += time,
                Step::Tick => {
                    let next = tick(&original, millis);
                    prop_assert!(next.is_none_or(|next| next >= millis), "{next:?} is before {millis}");
                }
                _ => {}
            }
            settle(&mut model, millis);
            call(&original, millis, |view| {
                act(step, millis, view, &mut model);
                settle(&mut model, millis);
                if looks {
                    agree(view, &model);
                }
            });
            original.assert_laws();
        }
        call(&original, millis, |view| agree(view, &model));

        // What has ended and was not looked at since is known to the journal when the ticker has been there.
        tick(&original, millis);
        let replayed = keyspace(None);
        log.0.lock().iter().for_each(|mutation| replayed.apply(mutation, now(0)));
        replayed.assert_laws();
        call(&replayed, 0, |view| agree(view, &model));
        tick(&replayed, millis + 1_000);
        prop_assert!(replayed.size(0).1 == 0, "every lease has ended");
    }
}

#[test]
fn many_holders_that_end_at_once_leave_in_bounded_parts() {
    let keyspace = keyspace(None);
    call(&keyspace, 1, |view| {
        let mut lock = view.open::<Lock>(b"lock").unwrap();
        for n in 0..5_000 {
            put(&mut lock, &format!("owner-{n}"), Some(10));
        }
    });
    let mut parts = 0;
    while keyspace.tick(now(11), Events::default(), &Registries::default()) == Due::More {
        parts += 1;
        assert_eq!(keyspace.size(0).0, 1, "the key stays until its last holder goes");
        keyspace.assert_laws();
    }
    assert!(parts > 5, "{parts}");
    assert_eq!(keyspace.size(0).0, 0);
}

#[test]
fn no_reader_sees_a_holder_that_has_ended_however_many_have_ended() {
    let keyspace = keyspace(None);
    call(&keyspace, 1, |view| {
        let mut lock = view.open::<Lock>(b"lock").unwrap();
        for n in 0..1_000 {
            put(&mut lock, &format!("owner-{n}"), Some(10));
        }
        put(&mut lock, "stays", None);
    });
    let len = |millis| call(&keyspace, millis, |view| view.read_as::<Lock>(b"lock").unwrap().map(Shape::len));
    assert_eq!((len(10), len(11)), (Some(1_001), Some(1)));
    keyspace.assert_laws();
}

#[test]
fn a_holder_with_the_earliest_deadline_wakes_the_ticker() {
    let rings = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&rings);
    let layout = Layout { shards: 1, databases: 1, seed: 7, journal: None };
    let keyspace = Keyspace::new(layout, move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let put_until = |ends: Option<u64>| {
        call(&keyspace, 1, |view| put(&mut view.open::<Lock>(b"lock").unwrap(), "owner", ends));
        rings.load(Ordering::Relaxed)
    };
    put_until(None);
    assert_eq!(tick(&keyspace, 1), None);
    let end = |lease: u64| put_until(Some(1 + lease));
    assert_eq!(end(50_000), 1);
    assert_eq!(tick(&keyspace, 1).map(|next| next <= 50_001), Some(true));
    assert_eq!((end(90_000), end(20)), (1, 2), "later is no news, sooner is");
    let is_gone = call(&keyspace, 22, |view| matches!(view.entry(b"lock"), Entry::Vacant(_)));
    assert!(is_gone, "the key went with its last holder");
}
