//! Trials: what is taken back leaves no trace.

use std::sync::Arc;

use super::*;
use crate::clock::{LockTime, Now};
use crate::journal::{Journal, Mutation};
use crate::keyspace::view::Standing;
use crate::keyspace::{Keyspace, Layout, ShardSet};
use crate::state::settings::Events;
use crate::state::tracking::Tracking;
use crate::state::transaction::Watch;
use crate::types::list::End;
use crate::types::stream::{Keep, StreamId, Trim};
use crate::types::{Hash, List, Set, Shape, SortedSet, Stream};

const KEYS: [&str; 8] = ["string", "edited", "hash", "list", "set", "sorted set", "absent", "leased"];

fn view(keyspace: &Keyspace) -> View<'_> {
    let now = Now { lock: LockTime::from_millis(5), wall_offset_ms: 0 };
    View::lock(keyspace, ShardSet::All, 0, now, Events::default())
}

fn filled() -> Keyspace {
    let keyspace = Keyspace::new(Layout { shards: 4, databases: 2, seed: 7, journal: None }, || {});
    let mut all = view(&keyspace);
    all.entry(b"string").put(b"value", Lease::Never);
    all.entry(b"edited").put(b"value", Lease::Never).append(b"d");
    all.entry(b"leased").put(b"value", Lease::Until(Deadline::at(LockTime::from_millis(1000))));
    all.open::<Hash>(b"hash").unwrap().set(b"field", b"value");
    all.open::<List>(b"list").unwrap().push(End::Tail, b"element");
    all.open::<Set>(b"set").unwrap().insert(b"member");
    all.open::<SortedSet>(b"sorted set").unwrap().insert(b"member", 1.5);
    all.select(1);
    all.entry(b"string").put(b"in another database", Lease::Never);
    all.select(0);
    drop(all);
    keyspace
}

/// Everything that is there, in order.
fn standing(view: &mut View<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for database in [1, 0] {
        view.select(database);
        view.survey(|standing| found.push(format!("{database} {standing:?}")));
    }
    found.sort();
    found
}

/// What can be done to a key, each by its number.
fn change(view: &mut View<'_>, key: &[u8], how: usize) {
    match how {
        0 => drop(view.remove(key)),
        1 => drop(view.entry(key).put(b"another", Lease::Until(Deadline::at(LockTime::from_millis(77))))),
        2 => drop(view.entry(key).put_object(List::new().into(), Lease::Never)),
        3 => view.entry(key).occupied().into_iter().for_each(|mut key| key.set_deadline(None)),
        4 => drop(view.open::<Hash>(key).map(|mut hash| hash.set(b"field", b"other"))),
        5 => drop(view.open::<List>(key).map(|mut list| list.push(End::Head, b"new"))),
        6 => drop(view.open::<Set>(key).map(|mut set| set.remove(b"member"))),
        _ => drop(view.open::<SortedSet>(key).map(|mut set| set.insert(b"member", 3.0))),
    }
}

#[test]
fn what_is_taken_back_leaves_no_trace() {
    let keyspace = filled();
    let mut view = view(&keyspace);
    let before = standing(&mut view);
    for first in 0..8 {
        for second in 0..8 {
            assert!(view.try_out());
            for key in KEYS {
                for (database, how) in [(0, first), (1, second), (0, second)] {
                    view.select(database);
                    assert!(view.keep(key.as_bytes()));
                    change(&mut view, key.as_bytes(), how);
                }
            }
            assert_ne!(standing(&mut view), before);
            view.take_back();
            assert_eq!(standing(&mut view), before, "after changes {first} and {second}");
            assert_eq!(view.database(), 0);
        }
    }
    drop(view);
    keyspace.assert_laws();
}

#[test]
fn a_trial_keeps_no_more_than_it_may() {
    let keyspace = filled();
    let mut view = view(&keyspace);
    assert!(view.try_out() && !view.try_out());
    view.entry(b"large").put(&[0; STRING_BYTES_MAX + 1], Lease::Never);
    assert!(!view.keep(b"large"));
    for n in 0..KEYS_MAX {
        assert!(view.keep(format!("{n}").as_bytes()));
    }
    assert!(view.keep(b"0") && !view.keep(b"one more"));
    view.end_trial(&Tracking::default());
    assert!(!view.try_out(), "something has been changed already");
    drop(view);

    let keyspace = with_large_objects();
    let mut view = self::view(&keyspace);
    assert!(view.try_out() && view.keep(b"list"));
    for _ in 0..UNDOS_MAX {
        view.open::<List>(b"list").unwrap().push(End::Head, b"element");
    }
    assert!(!view.has_given_up());
    view.open::<List>(b"list").unwrap().push(End::Head, b"one more");
    assert!(view.has_given_up());
    let before = canonical(&mut self::view(&with_large_objects()));
    view.take_back();
    assert_eq!(canonical(&mut view), before);
}

#[test]
fn observers_learn_of_what_stays_and_of_nothing_else() {
    for stays in [false, true] {
        let keyspace = filled();
        let mut view = view(&keyspace);
        let (here, elsewhere) = (Arc::new(Watch::new()), Arc::new(Watch::new()));
        view.watch(&Bytes::from_static(b"string"), &here);
        view.select(1);
        view.watch(&Bytes::from_static(b"string"), &elsewhere);
        view.select(0);
        assert!(view.try_out() && view.keep(b"string"));
        view.entry(b"string").put(b"another", Lease::Never);
        assert!(!here.is_broken(), "it is not yet known whether that stays");
        if stays {
            view.end_trial(&Tracking::default())
        } else {
            view.take_back()
        }
        assert_eq!((here.is_broken(), elsewhere.is_broken()), (stays, false));
    }
}

fn with_large_objects() -> Keyspace {
    let keyspace = Keyspace::new(Layout { shards: 4, databases: 1, seed: 7, journal: None }, || {});
    let mut all = view(&keyspace);
    let name = |n: u32| format!("some element: {n}");
    for n in 0..250 {
        all.open::<Hash>(b"table").unwrap().set(name(n).as_bytes(), name(n * 7).as_bytes());
        all.open::<Hash>(b"hash").unwrap().set(name(n).as_bytes(), name(n * 5).as_bytes());
        all.open::<List>(b"list").unwrap().push(End::Tail, name(n % 90).as_bytes());
        all.open::<Set>(b"set").unwrap().insert(name(n).as_bytes());
        all.open::<SortedSet>(b"sorted set").unwrap().insert(name(n).as_bytes(), f64::from(n % 40));
        let id = StreamId { ms: u64::from(n) + 1, seq: 0 };
        all.open::<Stream>(b"stream").unwrap().append(id, &[b"field", name(n).as_bytes()]);
    }
    for n in 0..9 {
        let member = [name(n), "and longer: ".repeat(30)].concat();
        all.open::<Set>(b"few").unwrap().insert(member.as_bytes());
    }
    let leased = Some(Deadline::at(LockTime::from_millis(9_000)));
    all.open::<Hash>(b"table").unwrap().set_deadline(name(3).as_bytes(), leased);
    drop(all);
    keyspace
}

/// Everything that is there: with the places of elements, which walks go by.
fn canonical(view: &mut View<'_>) -> Vec<String> {
    let mut found = Vec::new();
    view.survey(|standing| {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let object = standing.object.map(|object| match object {
            Object::Hash(hash) => {
                let field = |(name, value)| (text(name), text(value), hash.deadline(name));
                format!("{:?}", hash.iter().map(field).collect::<Vec<_>>())
            }
            Object::List(list) => format!("{list:?}"),
            Object::Set(set) => format!("{:?}", set.iter().collect::<Vec<_>>()),
            Object::SortedSet(set) => {
                let (mut ranked, mut placed) = (Vec::new(), Vec::new());
                set.entries().for_each(|(member, score)| ranked.push((text(member), score)));
                set.scan(0, u64::MAX, |member, score| placed.push((text(member), score)));
                format!("{ranked:?} {placed:?}")
            }
            Object::Stream(stream) => format!("{stream:?}"),
        });
        let encoding = standing.object.map(|object| object.shape().encoding());
        let Standing { key, string, deadline, .. } = standing;
        found.push(format!("{} {} {deadline:?} {encoding:?} {object:?}", text(key), text(string)));
    });
    found.sort();
    found
}

/// Changes a large object in some way, by numbers that `random` draws.
fn change_large(view: &mut View<'_>, key: &[u8], random: &mut impl FnMut(usize) -> usize) {
    let text = format!("some element: {}", random(300));
    let (name, end) = (text.as_bytes(), [End::Head, End::Tail][random(2)]);
    let long = [name, &[b'x'; 90]].concat();
    let value = [name, b"another", &long][random(3)];
    let deadline = [None, Some(Deadline::at(LockTime::from_millis(7_000)))][random(2)];
    match (key, random(40)) {
        (_, 0) => drop(view.remove(key)),
        (_, 1) => drop(view.entry(key).put(b"a string", Lease::Never)),
        (_, 2) => drop(view.entry(key).put_object(List::new().into(), Lease::Never)),
        (_, 3..6) => view.entry(key).occupied().into_iter().for_each(|mut key| key.set_deadline(deadline)),
        (b"hash" | b"table", how) => drop(view.open::<Hash>(key).map(|mut hash| match how {
            0..15 => drop(hash.set(name, value)),
            15..30 => drop(hash.remove(name)),
            _ => hash.set_deadline(name, deadline),
        })),
        (b"list", how) => drop(view.open::<List>(key).map(|mut list| match how {
            0..12 => list.push(end, value),
            12..20 => drop(list.pop(end)),
            20..24 => list.drop_from(end, random(30)),
            24..27 => list.keep(random(20), list.get().len().saturating_sub(random(20))),
            27..31 => drop(list.set(random(300), value)),
            31..35 => list.insert(random(300), value),
            _ => drop(list.remove(name, end, random(4))),
        })),
        (b"set" | b"few", how) => drop(view.open::<Set>(key).map(|mut set| match how {
            0..18 => drop(set.insert(value)),
            18..30 if !set.get().is_empty() => drop(set.take_at(random(set.get().len()))),
            _ => drop(set.remove(name)),
        })),
        (b"sorted set", how) => drop(view.open::<SortedSet>(key).map(|mut set| match how {
            0..20 => set.insert(value, random(40) as f64),
            20..25 if !set.get().is_empty() => {
                let from = random(set.get().len());
                set.remove_range(from..set.get().len().min(from + random(5)));
            }
            _ => drop(set.remove(name)),
        })),
        (_, how) => drop(view.open::<Stream>(key).map(|mut stream| match how {
            0..25 => {
                let StreamId { ms, .. } = stream.get().last_id();
                stream.append(StreamId { ms: ms + 1, seq: 0 }, &[b"field", value]);
            }
            25..35 => drop(stream.delete(StreamId { ms: random(300) as u64, seq: 0 })),
            _ => {
                let keep = Keep::Last(random(250) as u64);
                stream.trim(Trim { keep, is_approximate: random(2) == 0, limit: 0 });
            }
        })),
    }
}

#[test]
fn what_was_changed_in_large_objects_is_undone_to_the_last_place() {
    let keyspace = with_large_objects();
    let mut view = view(&keyspace);
    let before = canonical(&mut view);
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let (mut changed, mut edited) = (0, 0);
    for round in 0..200 {
        assert!(view.try_out());
        for _ in 0..=random(60) {
            let key = [&b"table"[..], b"hash", b"list", b"set", b"few", b"sorted set", b"stream"][random(7)];
            assert!(view.keep(key));
            change_large(&mut view, key, &mut random);
        }
        let trial = view.changes.trial().unwrap();
        edited += trial.undos;
        changed += usize::from(canonical(&mut view) != before);
        view.take_back();
        assert!(canonical(&mut view) == before, "round {round}");
    }
    assert!(changed > 190 && edited > 2_000, "{changed} rounds, {edited} changes");
    drop(view);
    keyspace.assert_laws();
}

#[test]
fn what_is_taken_back_nobody_is_told_of_but_of_what_has_expired() {
    let journal: Arc<dyn Journal> = Arc::new(Silent);
    let layout = Layout { shards: 4, databases: 2, seed: 7, journal: Some(journal) };
    let keyspace = Keyspace::new(layout, || {});
    let mut view = view(&keyspace);
    for (key, millis) in [("soon", 10), ("sooner", 8), ("late", 1000)] {
        let lease = Lease::Until(Deadline::at(LockTime::from_millis(millis)));
        view.entry(key.as_bytes()).put(b"value", lease);
    }
    drop(view);
    let now = Now { lock: LockTime::from_millis(500), wall_offset_ms: 0 };
    let mut view = View::lock(&keyspace, ShardSet::All, 0, now, Events::parse("KEA").unwrap());
    assert!(view.try_out());
    for key in ["late", "soon", "new", "sooner"] {
        assert!(view.keep(key.as_bytes()));
        view.entry(key.as_bytes()).put(b"changed", Lease::Never);
        view.event(b'$', "set", key.as_bytes());
    }
    view.take_back();
    let told: Vec<_> = view.changes.mutations().into_iter().flatten().collect();
    let [
        Mutation::Remove { key: first, expired: true, .. },
        Mutation::Remove { key: second, expired: true, .. },
    ] = told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!([first, second], ["soon", "sooner"]);
    assert_eq!(view.changes.pending_events(), [("expired", "soon".into()), ("expired", "sooner".into())]);
}

/// A journal that keeps nothing.
#[derive(Debug)]
struct Silent;

impl Journal for Silent {
    fn append(&self, _: u64, _: &[Mutation]) {}
}
