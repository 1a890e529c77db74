//! Changes that can be taken back: of a call that may turn out to take long, and then begins again elsewhere.
//!
//! Owns    what the keys held before: a copy where it is small, or else the object itself and what undoes each change of it.
//! Rule    nobody is told of what is tried out: the journal and listeners are when a call is over, whoever watches a key or
//!         keeps a copy when the trial is, and what is read is remembered then. What has expired and was removed by a look
//!         stays removed, and is told. What was counted stays counted.
//! Bounds  some keys, some changes of them, and strings that are copied soon.

use std::hash::{Hash, Hasher};

use ahash::RandomState;
use bytes::Bytes;
use indexmap::{Equivalent, IndexMap};

use super::View;
use crate::clock::Deadline;
use crate::keyspace::shard::Form;
use crate::keyspace::{Entry, Lease, Occupied};
use crate::state::clients::ClientId;
use crate::state::tracking::Tracking;
use crate::types::{Object, Typed};

/// The most keys that may be changed.
const KEYS_MAX: usize = 1024;
/// The most changes of large objects.
const UNDOS_MAX: usize = 4096;
/// Bytes up to which an object is copied.
const OBJECT_BYTES_MAX: usize = 2048;
/// Bytes up to which a string is, and beyond which it may not be changed.
const STRING_BYTES_MAX: usize = 64 * 1024;

/// What keys held before they were changed, in the order in which that came about.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Trial {
    before: IndexMap<(u16, Bytes), Option<Before>, RandomState>,
    undos: usize,
    /// What observers are to know of, in its order, should it stay.
    observed: Vec<(u16, Bytes, Observed)>,
    has_given_up: bool,
}

/// What was done to a key that somebody may keep a copy of.
#[derive(Debug)]
enum Observed {
    Changed,
    /// Somebody has read it, who is to be told of its next change, if there are no more such keys than that.
    Read(ClientId, usize),
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
    String(Bytes, Form),
    /// A copy.
    Object(Object),
    /// It is under its key, unless it has been `taken` away; what undoes the changes of it, the first one's first.
    Edited {
        undos: Vec<Undo>,
        taken: Option<Object>,
    },
}

/// Takes a change of an object back. All that came behind it have been.
pub(in crate::keyspace) struct Undo(pub(in crate::keyspace) Box<dyn FnOnce(&mut Object) + Send + Sync>);

impl Undo {
    pub(in crate::keyspace) fn of<T: Typed>(undo: impl FnOnce(&mut T) + Send + Sync + 'static) -> Self {
        Self(Box::new(|object| {
            if let Some(shape) = T::of_mut(object) {
                undo(shape);
            }
        }))
    }
}

impl std::fmt::Debug for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Undo")
    }
}

/// A key of a database that is looked for.
struct Name<'a>(u16, &'a [u8]);

impl Hash for Name<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0, self.1).hash(state);
    }
}

impl Equivalent<(u16, Bytes)> for Name<'_> {
    fn equivalent(&self, (database, key): &(u16, Bytes)) -> bool {
        (self.0, self.1) == (*database, key)
    }
}

impl Trial {
    /// What undoes the changes of an object that is not copied.
    fn edited(&mut self, database: u16, key: &[u8]) -> Option<(&mut Vec<Undo>, &mut Option<Object>)> {
        match &mut self.before.get_mut(&Name(database, key))?.as_mut()?.value {
            Value::Edited { undos, taken } => Some((undos, taken)),
            _ => None,
        }
    }

    /// Whether each change of the object under a key is to be kept.
    #[cold]
    pub(in crate::keyspace) fn keeps_edits(&mut self, database: u16, key: &[u8]) -> bool {
        self.edited(database, key).is_some_and(|(_, taken)| taken.is_none())
    }

    /// Keeps what undoes a change.
    #[cold]
    pub(in crate::keyspace) fn keep_undo(&mut self, database: u16, key: &[u8], undo: Undo) {
        if let Some((undos, _)) = self.edited(database, key) {
            undos.push(undo);
            self.undos += 1;
            self.has_given_up |= self.undos > UNDOS_MAX;
        }
    }

    /// Keeps an object that was taken away from its key, if it was there when the trial began; or else gives it back.
    #[cold]
    pub(in crate::keyspace) fn keep_object(
        &mut self,
        database: u16,
        key: &[u8],
        object: Object,
    ) -> Option<Object> {
        match self.edited(database, key) {
            Some((_, taken @ None)) => {
                *taken = Some(object);
                None
            }
            _ => Some(object),
        }
    }

    /// Whether anybody has read a key and is to be told of its next change.
    pub(in crate::keyspace) fn remembers(&self) -> bool {
        !self.observed.is_empty()
    }

    /// The observers of a key are to know of a change.
    #[cold]
    pub(in crate::keyspace) fn touch(&mut self, database: u16, key: &[u8]) {
        self.observed.push((database, Bytes::copy_from_slice(key), Observed::Changed));
    }

    /// A client has read a key, and keeps a copy of what it holds.
    #[cold]
    pub(super) fn remember(&mut self, database: u16, key: &[u8], reader: ClientId, keys_max: usize) {
        self.observed.push((database, Bytes::copy_from_slice(key), Observed::Read(reader, keys_max)));
    }
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

    /// Keeps what a key holds, which is about to be changed; false where that is too much.
    pub fn keep(&mut self, key: &[u8]) -> bool {
        let Some(mut trial) = self.changes.trial_mut().take() else { return false };
        let is_kept = self.keep_in(&mut trial, key);
        *self.changes.trial_mut() = Some(trial);
        is_kept
    }

    fn keep_in(&mut self, trial: &mut Trial, key: &[u8]) -> bool {
        let database = self.database;
        if trial.before.contains_key(&Name(database, key)) {
            return true;
        }
        if trial.before.len() == KEYS_MAX {
            return false;
        }
        let before = match self.entry(key).occupied().map(|occupied| Before::of(&occupied)) {
            Some(None) => return false,
            before => before.flatten(),
        };
        trial.before.insert((database, Bytes::copy_from_slice(key)), before);
        true
    }

    /// Ends a trial: what has been done stays.
    pub fn end_trial(&mut self, tracking: &Tracking) {
        let Some(trial) = self.changes.trial_mut().take() else { return };
        let home = self.database;
        for (database, key, what) in trial.observed {
            self.select(database);
            match what {
                Observed::Changed => self.entry_as_it_is(&key).into_place().touched(),
                Observed::Read(reader, keys_max) => self.remember(&key, reader, tracking, keys_max),
            }
        }
        self.select(home);
        for before in trial.before.into_values().flatten() {
            if let Value::Edited { taken, .. } = before.value {
                self.changes.discard(taken);
            }
        }
    }

    /// Ends a trial and puts back what the keys held: it is as if nothing had been done since it began.
    pub fn take_back(&mut self) {
        let Some(trial) = self.changes.trial_under_way() else { return };
        let (before, home) = (std::mem::take(&mut trial.before), self.database);
        for ((database, key), before) in before.into_iter().rev() {
            self.select(database);
            match (self.entry_as_it_is(&key), before) {
                (entry, Some(before)) => before.put_back(entry),
                (Entry::Occupied(occupied), None) => occupied.remove(),
                (Entry::Vacant(_), None) => {}
            }
        }
        self.select(home);
        // Up to here it has kept from observers what was put back, too.
        *self.changes.trial_mut() = None;
        self.changes.forget();
    }
}

impl Before {
    /// What a key holds; `None` where it is too much.
    fn of(occupied: &Occupied<'_>) -> Option<Self> {
        let value = match occupied.object() {
            Some(object) if object.shape().heap_bytes() <= OBJECT_BYTES_MAX || object.is_light() => {
                Value::Object(object.clone())
            }
            Some(Object::Stream(_)) => return None,
            Some(_) => Value::Edited { undos: Vec::new(), taken: None },
            None if occupied.raw().len() > STRING_BYTES_MAX => return None,
            None => Value::String(Bytes::copy_from_slice(occupied.raw()), occupied.form()),
        };
        Some(Self { value, deadline: occupied.deadline(), stamp: occupied.last_used_secs() })
    }

    fn put_back(self, entry: Entry<'_>) {
        let lease = self.deadline.map_or(Lease::Never, Lease::Until);
        let mut occupied = match (self.value, entry) {
            (Value::Edited { undos, taken: None }, Entry::Occupied(mut occupied)) => {
                occupied.undo(undos);
                occupied.set_lease(lease);
                occupied
            }
            // It has ended meanwhile, by itself.
            (Value::Edited { taken: None, .. }, Entry::Vacant(_)) => return,
            (Value::Edited { undos, taken: Some(mut object) }, entry) => {
                undos.into_iter().rev().for_each(|Undo(undo)| undo(&mut object));
                entry.put_object(object, lease)
            }
            (Value::Object(object), entry) => entry.put_object(object, lease),
            (Value::String(text, form), entry) => {
                let mut occupied = entry.put(&text, lease);
                occupied.set_form(form);
                occupied
            }
        };
        occupied.stamp(self.stamp);
    }
}

#[cfg(test)]
mod tests;
