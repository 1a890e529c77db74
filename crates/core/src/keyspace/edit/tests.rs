//! A replay of the recorded edits makes equal objects.

use std::sync::Arc;

use redlatch_proto::clock::{LockTime, Now};

use super::*;
use crate::journal::{Journal, Record};
use crate::keyspace::{Keyspace, Layout, ShardSet, View};
use crate::state::registries::Registries;
use crate::state::settings::Events;
use crate::sync::Mutex;
use crate::types::list::End;
use crate::types::stream::StreamId;
use crate::types::{Hash, List, Set, Shape, SortedSet, Stream};

/// All mutations of a keyspace.
#[derive(Debug, Default)]
pub(super) struct Log(pub(super) Mutex<Vec<Mutation>>);

impl Journal for Log {
    fn append(&self, record: &Record<'_>) {
        self.0.lock().extend(record.mutations.to_vec());
    }
}

pub(super) fn keyspace(journal: Option<Arc<dyn Journal>>) -> Keyspace {
    Keyspace::new(Layout { shards: 1, databases: 1, seed: 7, journal }, || {})
}

pub(super) fn now(millis: u64) -> Now {
    Now { lock: LockTime::from_millis(millis), wall_offset_ms: 0 }
}

fn view(keyspace: &Keyspace) -> View<'_> {
    View::lock(keyspace, ShardSet::All, 0, now(0), Events::default())
}

/// A generator of numbers below its argument, repeatable by its seed.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

fn edit_hash(editor: &mut Editor<'_, Hash>, random: &mut impl FnMut(usize) -> usize) {
    let field = [b'a' + random(5) as u8];
    match random(4) {
        0 => {
            editor.remove(&field);
        }
        _ => {
            editor.set(&field, &[b'v'; 70][..random(70)]);
        }
    }
}

fn edit_list(editor: &mut Editor<'_, List>, random: &mut impl FnMut(usize) -> usize) {
    let element = [b'a' + random(3) as u8];
    let end = [End::Head, End::Tail][random(2)];
    match random(12) {
        0..=4 => editor.push(end, &element),
        5 => {
            editor.pop(end);
        }
        6 => editor.drop_from(end, random(3)),
        7 => editor.keep(random(2), editor.get().len().saturating_sub(random(2))),
        8 => {
            editor.set(random(5), &element);
        }
        9 => editor.insert(random(5), &element),
        _ => {
            editor.remove(&element, end, random(3));
        }
    }
}

fn edit_set(editor: &mut Editor<'_, Set>, random: &mut impl FnMut(usize) -> usize) {
    let member = [b"1".as_slice(), b"2", b"three", b"4", b"5"][random(5)];
    match random(5) {
        0 | 1 => {
            editor.insert(member);
        }
        2 if !editor.get().is_empty() => {
            editor.take_at(random(editor.get().len()));
        }
        _ => {
            editor.remove(member);
        }
    }
}

fn edit_sorted_set(editor: &mut Editor<'_, SortedSet>, random: &mut impl FnMut(usize) -> usize) {
    let member = [b'a' + random(5) as u8];
    let len = editor.get().len();
    match random(8) {
        0..=4 => editor.insert(&member, random(9) as f64 / 4.0),
        5 if len > 0 => {
            let from = random(len);
            editor.remove_range(from..len.min(from + random(2)));
        }
        _ => {
            editor.remove(&member);
        }
    }
}

fn edit_stream(editor: &mut Editor<'_, Stream>, random: &mut impl FnMut(usize) -> usize) {
    let StreamId { ms, seq } = editor.get().last_id();
    match random(9) {
        0 => {
            editor.trim(random(160) as u64);
        }
        _ => editor.append(StreamId { ms: ms + 1, seq: seq + 1 }, &[b"field", &[b'a'; 300][..random(300)]]),
    }
}

#[test]
fn a_replay_of_the_edits_makes_equal_objects() {
    for seed in 1..=40 {
        let mut random = numbers(seed);
        let log = Arc::new(Log::default());
        let original = keyspace(Some(log.clone()));
        for _ in 0..200 {
            let mut view = view(&original);
            for _ in 0..random(4) {
                edit_hash(&mut view.open::<Hash>(b"hash").unwrap(), &mut random);
                edit_list(&mut view.open::<List>(b"list").unwrap(), &mut random);
                edit_set(&mut view.open::<Set>(b"set").unwrap(), &mut random);
                edit_sorted_set(&mut view.open::<SortedSet>(b"sorted").unwrap(), &mut random);
                edit_stream(&mut view.open::<Stream>(b"stream").unwrap(), &mut random);
            }
            view.finish(&Registries::default());
        }

        let replayed = keyspace(None);
        for mutation in log.0.lock().iter() {
            replayed.apply(mutation, now(0));
        }
        let (mut here, mut there) = (view(&original), view(&replayed));
        let hash = here.read_as::<Hash>(b"hash").unwrap().cloned();
        assert_eq!(there.read_as::<Hash>(b"hash").unwrap().cloned(), hash, "seed {seed}");
        let list = here.read_as::<List>(b"list").unwrap().cloned();
        assert_eq!(there.read_as::<List>(b"list").unwrap().cloned(), list, "seed {seed}");
        let set = here.read_as::<Set>(b"set").unwrap().cloned();
        assert_eq!(there.read_as::<Set>(b"set").unwrap().cloned(), set, "seed {seed}");
        let sorted = here.read_as::<SortedSet>(b"sorted").unwrap().cloned();
        assert_eq!(there.read_as::<SortedSet>(b"sorted").unwrap().cloned(), sorted, "seed {seed}");
        let stream = here.read_as::<Stream>(b"stream").unwrap().cloned();
        assert_eq!(there.read_as::<Stream>(b"stream").unwrap().cloned(), stream, "seed {seed}");
    }
}

#[test]
fn an_edit_that_changes_nothing_leaves_no_record_and_no_key() {
    let log = Arc::new(Log::default());
    let keyspace = keyspace(Some(log.clone()));
    let mut view = view(&keyspace);
    {
        let mut list = view.open::<List>(b"list").unwrap();
        assert!(list.pop(End::Head).is_none() && list.remove(b"a", End::Tail, 9) == 0 && !list.set(0, b"a"));
        list.drop_from(End::Tail, 0);
        list.keep(0, 9);
    }
    assert!(!view.open::<Set>(b"set").unwrap().remove(b"member"));
    {
        let mut sorted = view.open::<SortedSet>(b"sorted").unwrap();
        assert!(sorted.remove(b"member").is_none());
        sorted.remove_range(0..0);
    }
    assert!(view.read_as::<SortedSet>(b"sorted").unwrap().is_none());
    assert_eq!(view.open::<Stream>(b"stream").unwrap().trim(0), 0);
    assert!(view.read_as::<Stream>(b"stream").unwrap().is_none());
    assert!(view.read_as::<List>(b"list").unwrap().is_none());
    assert!(view.read_as::<Set>(b"set").unwrap().is_none());
    view.finish(&Registries::default());
    assert_eq!(*log.0.lock(), []);
}

#[test]
fn an_object_of_another_shape_cannot_be_opened() {
    let keyspace = keyspace(None);
    let mut view = view(&keyspace);
    view.open::<List>(b"list").unwrap().push(End::Head, b"a");
    view.entry(b"string").put(b"v", Lease::Never);
    for key in [b"list".as_slice(), b"string"] {
        assert_eq!(view.open::<Set>(key).unwrap_err(), Refusal::WrongType);
        assert_eq!(view.read_as::<Set>(key).unwrap_err(), Refusal::WrongType);
    }
}
