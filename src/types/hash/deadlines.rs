//! The deadlines of the fields of a hash.
//!
//! Owns    the deadlines by field and in order of time. Both share one copy of a field's name.
//! Rule    fields that end in one millisecond are removed in the order of their names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::{Deadline, LockTime};

/// The deadlines of a hash's fields.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Deadlines {
    of: BTreeMap<Arc<[u8]>, Deadline>,
    order: BTreeSet<(Deadline, Arc<[u8]>)>,
    name_bytes: usize,
}

impl Deadlines {
    /// Sets the deadline of a field.
    pub(super) fn set(&mut self, field: &[u8], deadline: Deadline) {
        self.remove(field);
        let name: Arc<[u8]> = field.into();
        self.name_bytes += name.len();
        self.of.insert(Arc::clone(&name), deadline);
        self.order.insert((deadline, name));
    }

    /// Removes the deadline of a field.
    pub(super) fn remove(&mut self, field: &[u8]) {
        if let Some((name, deadline)) = self.of.remove_entry(field) {
            self.name_bytes -= name.len();
            self.order.remove(&(deadline, name));
        }
    }

    pub(super) fn get(&self, field: &[u8]) -> Option<Deadline> {
        self.of.get(field).copied()
    }

    pub(super) fn earliest(&self) -> Option<Deadline> {
        self.order.first().map(|(deadline, _)| *deadline)
    }

    /// The field that ended first, if one has ended.
    pub(super) fn due(&self, now: LockTime) -> Option<&[u8]> {
        let (deadline, field) = self.order.first()?;
        deadline.has_passed(now).then_some(field)
    }

    /// True if all deadlines have passed.
    pub(super) fn have_passed(&self, now: LockTime) -> bool {
        self.order.last().is_none_or(|(deadline, _)| deadline.has_passed(now))
    }

    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.name_bytes + self.of.len() * FIELD_BYTES
    }
}

/// Approximate bytes of a deadline and a pointer in each tree, and of the name's counters.
const FIELD_BYTES: usize = 2 * 40 + 16;
