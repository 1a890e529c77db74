//! Changes that can be taken back: of a call that may turn out to take long, and then begins again elsewhere.
//!
//! Rule    only as long as nobody has been told of them: the journal and listeners are when a call is over, but whoever
//!         watches a key or keeps a copy is at once, so that such keys are not changed. What has expired and was removed by a
//!         look stays removed, and is told. What was counted stays counted.
//! Bounds  few keys, and small values.

use bytes::Bytes;

use super::View;
use crate::clock::Deadline;
use crate::keyspace::shard::Form;
use crate::keyspace::{Entry, Lease, Occupied};
use crate::types::Object;

/// The most keys whose values are kept.
const KEYS_MAX: usize = 32;
/// The most bytes of a value that is.
const VALUE_BYTES_MAX: usize = 2048;

/// What keys held before they were changed, in the order in which that came about.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Trial {
    before: Vec<(u16, Bytes, Option<Before>)>,
    has_given_up: bool,
}

/// A key that was there.
#[derive(Debug)]
struct Before {
    value: Value,
    deadline: Option<Deadline>,
    stamp: u32,
}

#[derive(Debug)]
enum Value {
    Object(Object),
    String(Bytes, Form),
}

impl View<'_> {
    /// Begins a trial; false where something has been changed already, or one is under way.
    pub fn try_out(&mut self) -> bool {
        let may_begin = !self.is_tried_out() && self.changes.are_none();
        if may_begin {
            *self.changes.trial_mut() = Some(Trial::default());
        }
        may_begin
    }

    /// Whether a trial is under way.
    #[inline]
    pub fn is_tried_out(&self) -> bool {
        self.changes.trial().is_some()
    }

    /// What is tried out is not short, or cannot be taken back from here on.
    pub fn give_up(&mut self) {
        self.changes.trial_mut().iter_mut().for_each(|trial| trial.has_given_up = true);
    }

    /// Whether it has been given up.
    pub fn has_given_up(&self) -> bool {
        self.changes.trial().is_some_and(|trial| trial.has_given_up)
    }

    /// Keeps what a key holds, which is about to be changed; false where that is too much, or somebody would be told.
    pub fn keep(&mut self, key: &[u8]) -> bool {
        let Some(mut trial) = self.changes.trial_mut().take() else { return false };
        let is_kept = self.keep_in(&mut trial, key);
        *self.changes.trial_mut() = Some(trial);
        is_kept
    }

    fn keep_in(&mut self, trial: &mut Trial, key: &[u8]) -> bool {
        let database = self.database;
        if trial.before.iter().any(|(known, name, _)| *known == database && name == key) {
            return true;
        }
        if trial.before.len() == KEYS_MAX || self.value_bytes(key) > VALUE_BYTES_MAX {
            return false;
        }
        let entry = self.entry(key);
        if entry.is_observed() {
            return false;
        }
        let before = entry.occupied().map(|occupied| Before::of(&occupied));
        trial.before.push((database, Bytes::copy_from_slice(key), before));
        true
    }

    /// Ends a trial: what has been done stays.
    pub fn end_trial(&mut self) {
        *self.changes.trial_mut() = None;
    }

    /// Ends a trial and puts back what the keys held: it is as if nothing had been done since it began.
    pub fn take_back(&mut self) {
        let Some(trial) = self.changes.trial_mut().take() else { return };
        let home = self.database;
        for (database, key, before) in trial.before.into_iter().rev() {
            self.select(database);
            match (self.entry_as_it_is(&key), before) {
                (entry, Some(before)) => before.put_back(entry),
                (Entry::Occupied(occupied), None) => occupied.remove(),
                (Entry::Vacant(_), None) => {}
            }
        }
        self.select(home);
        self.changes.forget();
    }
}

impl Before {
    fn of(occupied: &Occupied<'_>) -> Self {
        let value = match occupied.object() {
            Some(object) => Value::Object(object.clone()),
            None => Value::String(Bytes::copy_from_slice(occupied.raw()), occupied.form()),
        };
        Self { value, deadline: occupied.deadline(), stamp: occupied.last_used_secs() }
    }

    fn put_back(self, entry: Entry<'_>) {
        let lease = self.deadline.map_or(Lease::Never, Lease::Until);
        let mut occupied = match self.value {
            Value::Object(object) => match entry {
                Entry::Occupied(mut occupied) => {
                    occupied.put_object(object, lease);
                    occupied
                }
                Entry::Vacant(vacant) => vacant.insert_object(object, lease),
            },
            Value::String(text, form) => {
                let mut occupied = entry.put(&text, lease);
                occupied.set_form(form);
                occupied
            }
        };
        occupied.stamp(self.stamp);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::{LockTime, Now};
    use crate::journal::{Journal, Mutation};
    use crate::keyspace::{Keyspace, Layout, Reach};
    use crate::state::settings::Events;
    use crate::state::transaction::Watch;
    use crate::types::list::End;
    use crate::types::{Hash, List, Set, SortedSet};

    const KEYS: [&str; 8] = ["string", "edited", "hash", "list", "set", "sorted set", "absent", "leased"];

    fn view(keyspace: &Keyspace) -> View<'_> {
        let now = Now { lock: LockTime::from_millis(5), wall_offset_ms: 0 };
        View::lock(keyspace, Reach::All, 0, now, Events::default())
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
            2 => view.entry(key).put_object(List::new().into(), Lease::Never),
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
    fn a_trial_keeps_little_and_nothing_that_somebody_observes() {
        let keyspace = filled();
        let mut view = view(&keyspace);
        assert!(view.try_out() && !view.try_out());
        view.entry(b"large").put(&[0; VALUE_BYTES_MAX + 1], Lease::Never);
        assert!(!view.keep(b"large"));
        for n in 0..KEYS_MAX {
            assert!(view.keep(format!("{n}").as_bytes()));
        }
        assert!(view.keep(b"0") && !view.keep(b"one more"));
        view.end_trial();
        assert!(!view.try_out(), "something has been changed already");
        drop(view);

        let mut view = self::view(&keyspace);
        let watch = Arc::new(Watch::new());
        view.watch(&Bytes::from_static(b"string"), &watch);
        for (database, is_kept) in [(0, false), (1, true)] {
            view.select(database);
            assert!(view.try_out());
            assert_eq!(view.keep(b"string"), is_kept);
            view.take_back();
        }
        assert!(!watch.is_broken());
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
        let mut view = View::lock(&keyspace, Reach::All, 0, now, Events::parse("KEA").unwrap());
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
        assert_eq!(view.changes.told_events(), [("expired", "soon".into()), ("expired", "sooner".into())]);
    }

    /// A journal that keeps nothing.
    #[derive(Debug)]
    struct Silent;

    impl Journal for Silent {
        fn append(&self, _: u64, _: &[Mutation]) {}
    }
}
