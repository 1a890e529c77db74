//! Hashes with deadlines of keys and of fields, compared with a model that is a map, and with a replay of the journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use crate::clock::{Deadline, LockTime};
use crate::keyspace::edit::tests::{Log, keyspace, now};
use crate::keyspace::{Due, Entry, Keyspace, Layout, Lease, ShardSet, View};
use crate::state::registries::Registries;
use crate::state::settings::Events;
use crate::types::{Hash, Shape};

fn at(millis: u64) -> Deadline {
    Deadline::at(LockTime::from_millis(millis))
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
    /// The value of each field, and the last millisecond in which it lives.
    fields: BTreeMap<u8, (u8, Option<u64>)>,
    ends: Option<u64>,
}

type Model = BTreeMap<u8, ModelKey>;

fn settle(model: &mut Model, millis: u64) {
    let lives = |ends: Option<u64>| ends.is_none_or(|ends| ends >= millis);
    for key in model.values_mut() {
        key.fields.retain(|_, (_, ends)| lives(*ends));
    }
    model.retain(|_, key| lives(key.ends) && !key.fields.is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(u8, u8, u8),
    Update(u8, u8, u8),
    Remove(u8, u8),
    Deadline(u8, u8, Option<u64>),
    KeyDeadline(u8, Option<u64>),
    Copy(u8, u8),
    String(u8),
    Delete(u8),
    Pass(u64),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    let (key, field) = (0..3_u8, 0..4_u8);
    let lease = prop::option::weighted(0.8, 1..30_u64);
    prop_oneof![
        4 => (key.clone(), field.clone(), any::<u8>()).prop_map(|(k, f, v)| Step::Set(k, f, v)),
        1 => (key.clone(), field.clone(), any::<u8>()).prop_map(|(k, f, v)| Step::Update(k, f, v)),
        1 => (key.clone(), field.clone()).prop_map(|(k, f)| Step::Remove(k, f)),
        4 => (key.clone(), field, lease.clone()).prop_map(|(k, f, l)| Step::Deadline(k, f, l)),
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
        Step::Set(key, field, value) => {
            view.open::<Hash>(&[key]).unwrap().set(&[field], &[value]);
            model.entry(key).or_default().fields.insert(field, (value, None));
        }
        Step::Update(key, field, value) => {
            view.open::<Hash>(&[key]).unwrap().update(&[field], &[value]);
            model.entry(key).or_default().fields.entry(field).or_default().0 = value;
        }
        Step::Remove(key, field) => {
            if let Some(mut hash) = view.find::<Hash>(&[key]).unwrap() {
                hash.remove(&[field]);
            }
            model.entry(key).or_default().fields.remove(&field);
        }
        Step::Deadline(key, field, lease) => {
            let ends = lease.map(|lease| millis + lease);
            if let Some(mut hash) = view.find::<Hash>(&[key]).unwrap() {
                hash.set_deadline(&[field], ends.map(at));
            }
            let fields = &mut model.entry(key).or_default().fields;
            fields.entry(field).and_modify(|(_, old)| *old = ends);
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
    view.for_each_key(|name| names.push(name[0]));
    names.sort_unstable();
    assert_eq!(names, model.keys().copied().collect::<Vec<_>>(), "the keys that a scan returns");
    for (name, key) in model {
        let mut found = BTreeMap::new();
        let hash = view.read_as::<Hash>(std::slice::from_ref(name)).unwrap().unwrap();
        for (field, value) in hash.iter() {
            found.insert(field[0], (value[0], hash.deadline(field).map(Deadline::as_millis)));
        }
        assert_eq!(hash.len(), found.len());
        assert_eq!(found, key.fields, "the fields of {name}");
        let ends = view.entry(std::slice::from_ref(name)).occupied().and_then(|found| found.deadline());
        assert_eq!(ends.map(Deadline::as_millis), key.ends, "the lease of {name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_call_sees_the_living_fields_and_a_replay_restores_them(
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
fn many_fields_that_end_at_once_leave_in_bounded_parts() {
    let keyspace = keyspace(None);
    call(&keyspace, 1, |view| {
        let mut hash = view.open::<Hash>(b"h").unwrap();
        for n in 0..5_000 {
            let field = format!("f{n}");
            hash.set(field.as_bytes(), b"v");
            hash.set_deadline(field.as_bytes(), Some(at(10)));
        }
    });
    let mut parts = 0;
    while keyspace.tick(now(11), Events::default(), &Registries::default()) == Due::More {
        parts += 1;
        assert_eq!(keyspace.size(0).0, 1, "the key stays until its last field goes");
        keyspace.assert_laws();
    }
    assert!(parts > 5, "{parts}");
    assert_eq!(keyspace.size(0).0, 0);
}

#[test]
fn no_reader_sees_a_field_that_has_ended_however_many_have_ended() {
    let keyspace = keyspace(None);
    call(&keyspace, 1, |view| {
        let mut hash = view.open::<Hash>(b"h").unwrap();
        for n in 0..1_000 {
            let field = format!("f{n}");
            hash.set(field.as_bytes(), b"v");
            hash.set_deadline(field.as_bytes(), Some(at(10)));
        }
        hash.set(b"stays", b"v");
    });
    let len = |millis| call(&keyspace, millis, |view| view.read_as::<Hash>(b"h").unwrap().map(Shape::len));
    assert_eq!((len(10), len(11)), (Some(1_001), Some(1)));
    keyspace.assert_laws();
}

#[test]
fn a_field_with_the_earliest_deadline_wakes_the_ticker() {
    let rings = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&rings);
    let layout = Layout { shards: 1, databases: 1, seed: 7, journal: None };
    let keyspace = Keyspace::new(layout, move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    call(&keyspace, 1, |view| {
        view.open::<Hash>(b"h").unwrap().set(b"f", b"v");
    });
    assert_eq!(tick(&keyspace, 1), None);
    let end = |lease: u64| {
        call(&keyspace, 1, |view| {
            view.open::<Hash>(b"h").unwrap().set_deadline(b"f", Some(at(1 + lease)));
        });
        rings.load(Ordering::Relaxed)
    };
    assert_eq!(end(50_000), 1);
    assert_eq!(tick(&keyspace, 1).map(|next| next <= 50_001), Some(true));
    assert_eq!((end(90_000), end(20)), (1, 2), "later is no news, sooner is");
    let is_gone = call(&keyspace, 22, |view| matches!(view.entry(b"h"), Entry::Vacant(_)));
    assert!(is_gone, "the key went with its last field");
}
