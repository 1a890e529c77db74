//! Deadlines of entries, and of elements inside of objects.
//!
//! Owns    the deadline of each key, and the time for which the timer of its entry is armed.
//! Rule    one word of the entry holds both. If elements of an object expire, the word is the earliest of all deadlines,
//!         and the value of the entry holds the key's own deadline behind the object's number. Other entries need no
//!         memory for it.

use redlatch_proto::clock::{Deadline, LockTime};

use super::objects::NUMBER_BYTES;
use super::{EntryId, Form, Shard, millis};
use crate::keyspace::arena::NO_DEADLINE;
use crate::types::Object;
use crate::wheel::Timers;

impl Shard {
    /// Sets or removes the deadline of a key, and renews its grant. A deadline that moves later leaves the wheel unchanged.
    pub(crate) fn set_deadline(&mut self, id: EntryId, deadline: Option<Deadline>) {
        let (own, new) = (self.own_ms(id), millis(deadline));
        let old = own.unwrap_or_else(|| self.arena.deadline_ms(id.0));
        let deadlines = &mut self.tables[usize::from(self.arena.table(id.0))].deadlines;
        match (old != NO_DEADLINE, new != NO_DEADLINE) {
            (true, false) => *deadlines -= 1,
            (false, true) => *deadlines += 1,
            _ => {}
        }
        if own.is_some() {
            self.arena.value_mut(id.0)[NUMBER_BYTES..].copy_from_slice(&new.to_le_bytes());
            self.set_timer(id, new.min(self.inner_ms(id)));
        } else {
            self.set_timer(id, new);
        }
        self.renew_grant(id, deadline);
    }

    /// Arms the timer for an object that has been changed. Returns the new id of the entry.
    pub(crate) fn rearm(&mut self, id: EntryId, hash: u64) -> EntryId {
        let (own, inner) = (self.own_ms(id), self.inner_ms(id));
        match own {
            None if inner == NO_DEADLINE => id,
            None => {
                let own = self.arena.deadline_ms(id.0);
                let len = NUMBER_BYTES + size_of::<u64>();
                let new = self.arena.resize(id.0, len, NUMBER_BYTES, 0);
                self.arena.value_mut(new)[NUMBER_BYTES..].copy_from_slice(&own.to_le_bytes());
                let id = self.renamed(id, hash, new);
                self.set_timer(id, own.min(inner));
                id
            }
            Some(own) if inner == NO_DEADLINE => {
                let new = self.arena.resize(id.0, NUMBER_BYTES, NUMBER_BYTES, 0);
                let id = self.renamed(id, hash, new);
                self.set_timer(id, own);
                id
            }
            Some(own) => {
                self.set_timer(id, own.min(inner));
                id
            }
        }
    }

    /// The deadline of a key; `None` when it has none.
    pub(crate) fn deadline(&self, id: EntryId) -> Option<Deadline> {
        match self.arena.deadline_ms(id.0) {
            NO_DEADLINE => None,
            earliest => deadline(self.own_ms(id).unwrap_or(earliest)),
        }
    }

    /// The deadline of a key, or the earlier one of an element of its object.
    pub(crate) fn earliest_deadline(&self, id: EntryId) -> Option<Deadline> {
        deadline(self.arena.deadline_ms(id.0))
    }

    /// Whether the key or elements of its object have expired.
    #[inline]
    pub(crate) fn is_due(&self, id: EntryId, now: LockTime) -> bool {
        self.arena.deadline_ms(id.0) < now.as_millis()
    }

    /// Keeps keys whose deadlines have passed.
    pub(crate) fn keep_ended(&mut self) {
        self.keeps_ended = true;
    }

    /// Whether keys stay when their deadlines have passed.
    pub(crate) fn keeps_ended(&self) -> bool {
        self.keeps_ended
    }

    /// Whether the key has expired, or every element of its object.
    pub(crate) fn has_ended(&self, id: EntryId, now: LockTime) -> bool {
        self.is_due(id, now)
            && !self.keeps_ended
            && (self.deadline(id).is_some_and(|deadline| deadline.has_passed(now))
                || self.object(id).is_some_and(|object| object.has_ended(now)))
    }

    /// Panics if the deadlines of an entry contradict each other.
    pub(super) fn assert_timer_laws(&self, id: EntryId) {
        let (own, inner) = (self.own_ms(id), self.inner_ms(id));
        assert_eq!(own.is_some(), inner != NO_DEADLINE, "{id:?}: a deadline of its own iff elements end");
        if let Some(own) = own {
            assert_eq!(
                self.arena.deadline_ms(id.0),
                own.min(inner),
                "{id:?}: the timer is the earliest deadline"
            );
        }
    }

    /// Sets the timer to the key's own deadline, because the object leaves the entry.
    pub(super) fn forget_inner(&mut self, id: EntryId) {
        if let Some(own) = self.own_ms(id) {
            self.set_timer(id, own);
        }
    }

    fn set_timer(&mut self, id: EntryId, new: u64) {
        let old = self.arena.deadline_ms(id.0);
        self.arena.set_deadline_ms(id.0, new);
        match (old != NO_DEADLINE, new != NO_DEADLINE) {
            // The timer stays where it is. Renewals outnumber expiries by far: a timer that fires early costs one move,
            // while cutting and arming would cost several writes on every renewal.
            (true, true) if new >= old => {}
            (true, true) => {
                self.wheel.cut(id.0, &mut self.arena);
                self.arm(id.0);
            }
            (true, false) => self.wheel.cut(id.0, &mut self.arena),
            (false, true) => self.arm(id.0),
            (false, false) => {}
        }
    }

    /// The key's own deadline, if elements of its object expire.
    #[inline]
    fn own_ms(&self, id: EntryId) -> Option<u64> {
        if self.arena.form(id.0) != Form::Object as u8 {
            return None;
        }
        let own = self.arena.value(id.0).get(NUMBER_BYTES..)?.first_chunk()?;
        Some(u64::from_le_bytes(*own))
    }

    /// The earliest deadline of an element.
    fn inner_ms(&self, id: EntryId) -> u64 {
        millis(self.object(id).and_then(Object::earliest_deadline))
    }
}

fn deadline(ms: u64) -> Option<Deadline> {
    (ms != NO_DEADLINE).then(|| Deadline::at(LockTime::from_millis(ms)))
}
