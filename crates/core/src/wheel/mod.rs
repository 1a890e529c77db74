//! A hierarchical timer wheel over every `u64` millisecond, whose timers live inside what they time.
//!
//! Owns    the list heads, one per slot, and the position up to which everything has left.
//! Knows   `clock`; of its entries only the links and the deadline, through `Timers`.
//! Time    comes in as an argument; the position only moves forward.
//! Source  Varghese and Lauck, "Hashed and hierarchical timing wheels", scheme 7; the level of a deadline is
//!         the highest base-64 digit in which it differs from the position.
//!
//! Every operation is a constant amount of work. A slot of a higher level is spread over the lower ones an
//! entry at a time, one per call of `Wheel::next_due`, so a million timers in one slot never hold the
//! caller up. A deadline that moves later needs no call at all: the timer fires early and is put back.

use redlatch_proto::clock::LockTime;

/// The links of an entry: its neighbours in the circular list of its slot.
///
/// A neighbour is another entry, or, from `HEADS_FROM` on, the head of the slot itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timer {
    /// The entry armed before this one.
    pub prev: u32,
    /// The entry armed after this one.
    pub next: u32,
}

impl Timer {
    /// The timer of an entry that is in no slot.
    pub(crate) const CUT: Self = Self { prev: u32::MAX, next: u32::MAX };

    /// True when the entry is in a slot of the wheel.
    pub(crate) fn is_armed(self) -> bool {
        self != Self::CUT
    }
}

/// Storage of the entries, which the wheel names by ids below [`HEADS_FROM`].
pub(crate) trait Timers {
    /// The links of an entry, as [`Timers::set_timer`] left them; [`Timer::CUT`] for a new one.
    fn timer(&self, id: u32) -> Timer;

    /// Stores the links of an entry.
    fn set_timer(&mut self, id: u32, timer: Timer);

    /// The last millisecond in which the entry lives; below `u64::MAX`. It may have grown since the entry was
    /// armed.
    fn deadline_ms(&self, id: u32) -> u64;
}

/// What one call of `Wheel::next_due` found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// The deadline of this entry has passed, and none passed earlier. It stays armed until it is cut.
    Due(u32),
    /// Nothing more is due.
    Idle,
    /// One timer was moved to another slot; there may be more to do.
    Moved,
}

#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    /// The head of each slot that was ever needed, whole levels at a time; an empty slot's head links to
    /// itself.
    heads: Vec<Timer>,
    /// One bit per slot: set while the slot has entries.
    occupied: [u64; LEVELS],
    /// Every deadline before this millisecond has left. The slot of this millisecond also takes timers
    /// armed late.
    position: u64,
    /// The level whose current slot is being spread over the levels below it; 0 when none is.
    spreading: usize,
}

impl Wheel {
    /// An empty wheel at the beginning of time.
    pub(crate) const fn new() -> Self {
        Self { heads: Vec::new(), occupied: [0; LEVELS], position: 0, spreading: 0 }
    }

    /// Moves an empty wheel forward to `now`. A wheel with timers is moved by [`Wheel::next_due`] alone.
    ///
    /// From an old position, every deadline is on a high level: its timer would wake the caller only to be moved.
    pub(crate) fn catch_up(&mut self, now: LockTime) {
        if self.is_empty() {
            self.spreading = 0;
            self.position = self.position.max(now.as_millis().saturating_sub(1));
        }
    }

    /// Adds an entry that is not armed at the end of the slot of its deadline.
    pub(crate) fn arm(&mut self, id: u32, timers: &mut impl Timers) {
        debug_assert!(!timers.timer(id).is_armed(), "{id}: armed twice");
        let (level, index) = self.slot_of(timers.deadline_ms(id));
        self.make_level(level);

        let head = HEADS_FROM | (level * SLOTS + index) as u32;
        let last = self.heads[level * SLOTS + index].prev;
        timers.set_timer(id, Timer { prev: last, next: head });
        self.set_next(last, id, timers);
        self.set_prev(head, id, timers);
        self.occupied[level] |= 1 << index;
    }

    /// Removes an entry from the wheel. Does nothing if it is not armed.
    pub(crate) fn cut(&mut self, id: u32, timers: &mut impl Timers) {
        let Timer { prev, next } = timers.timer(id);
        if prev == Timer::CUT.prev {
            return;
        }

        timers.set_timer(id, Timer::CUT);
        self.set_next(prev, next, timers);
        self.set_prev(next, prev, timers);
        if prev == next && prev >= HEADS_FROM {
            let slot = (prev - HEADS_FROM) as usize;
            self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        }
    }

    /// Updates the neighbours of an entry that has a new id. Its links have been copied to that id.
    pub(crate) fn rename(&mut self, new: u32, timers: &mut impl Timers) {
        let Timer { prev, next } = timers.timer(new);
        if prev == Timer::CUT.prev {
            return;
        }

        self.set_next(prev, new, timers);
        self.set_prev(next, new, timers);
    }

    /// Forgets every timer and keeps the position. The caller drops the entries, or sets their timers to
    /// [`Timer::CUT`].
    pub(crate) fn clear(&mut self) {
        self.heads = Vec::new();
        self.occupied = [0; LEVELS];
        self.spreading = 0;
    }

    /// The next entry whose deadline is before `now`, earliest first, and within a millisecond in the order
    /// of arming.
    ///
    /// Does a constant amount of work. Call again after [`Step::Moved`], and after the entry of a
    /// [`Step::Due`] has been cut or its deadline moved later.
    pub(crate) fn next_due(&mut self, now: LockTime, timers: &mut impl Timers) -> Step {
        let Some(last_due) = now.as_millis().checked_sub(1).filter(|last| *last >= self.position) else {
            return Step::Idle;
        };

        if let Some(step) = self.spread(timers) {
            return step;
        }
        if let Some(step) = self.fire(timers) {
            return step;
        }
        match self.next_slot() {
            Some((level, start)) if start <= last_due => {
                self.position = start;
                self.spreading = level;
                let step = if level == 0 { self.fire(timers) } else { self.spread(timers) };
                step.unwrap_or(Step::Moved)
            }
            // No slot begins up to the new position, so every timer stays in its slot.
            Some(_) | None => {
                self.position = last_due;
                Step::Idle
            }
        }
    }

    /// A moment before which [`Wheel::next_due`] finds nothing to do; `None` when nothing is armed.
    ///
    /// It may be earlier than the next deadline has passed: there may only be timers to move.
    pub(crate) fn next_wakeup(&self) -> Option<LockTime> {
        let waits = self.has_current(0) || self.has_current(self.spreading);
        let start = if waits { self.position } else { self.next_slot()?.1 };
        Some(LockTime::from_millis(start.saturating_add(1)))
    }

    /// True when no entry is armed.
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied == [0; LEVELS]
    }

    /// Bytes of heap this wheel holds.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<Timer>()
    }

    /// Panics if an invariant is broken or the wheel does not hold exactly `len` timers. For tests and
    /// simulation.
    pub(crate) fn assert_laws(&self, timers: &impl Timers, len: usize) {
        let mut seen = 0;
        for (slot, head) in self.heads.iter().enumerate() {
            let (level, index, own) = (slot / SLOTS, slot % SLOTS, HEADS_FROM | slot as u32);
            let is_occupied = self.occupied[level] & (1 << index) != 0;
            assert_eq!(head.next != own, is_occupied, "slot {slot}: a bit iff it has timers");
            let (mut prev, mut id) = (own, head.next);
            while id != own {
                let timer = timers.timer(id);
                assert_eq!(timer.prev, prev, "{id}: linked both ways");
                let is_current = level == 0 || level == self.spreading;
                let is_ahead = index > digit(self.position, level);
                assert!(is_ahead || is_current && index == digit(self.position, level), "{id}: left behind");
                let start = self.slot_start(level, index);
                assert!(
                    timers.deadline_ms(id) >= start || start == self.position,
                    "{id}: in too late a slot"
                );
                (prev, id, seen) = (id, timer.next, seen + 1);
            }
            assert_eq!(head.prev, prev, "slot {slot}: linked both ways");
        }
        assert_eq!(seen, len, "timers in the wheel");
    }

    /// Moves the first timer of the slot being spread to its slot on a lower level; `None` when no slot is being
    /// spread.
    fn spread(&mut self, timers: &mut impl Timers) -> Option<Step> {
        if self.spreading == 0 {
            return None;
        }
        let first = self.first_of_current(self.spreading);
        let Some(id) = first else {
            self.spreading = 0;
            return None;
        };
        self.cut(id, timers);
        self.arm(id, timers);
        Some(Step::Moved)
    }

    /// Checks the first timer in the slot of the position's own millisecond; `None` when that slot is empty.
    fn fire(&mut self, timers: &mut impl Timers) -> Option<Step> {
        let id = self.first_of_current(0)?;
        if timers.deadline_ms(id) <= self.position {
            return Some(Step::Due(id));
        }
        // Its deadline moved later while it was waiting here.
        self.cut(id, timers);
        self.arm(id, timers);
        Some(Step::Moved)
    }

    /// The level and the first millisecond of the first occupied slot after the position.
    ///
    /// Timers on a lower level share more digits with the position, so the lowest occupied level has the first slot.
    fn next_slot(&self) -> Option<(usize, u64)> {
        for level in 0..LEVELS {
            let current = digit(self.position, level);
            let later = self.occupied[level] & (u64::MAX << current) & !(1 << current);
            if later != 0 {
                return Some((level, self.slot_start(level, later.trailing_zeros() as usize)));
            }
        }
        None
    }

    /// The first millisecond of a slot that is not behind the position.
    fn slot_start(&self, level: usize, index: usize) -> u64 {
        let shift = level * DIGIT_BITS;
        let own_and_below =
            u64::MAX.checked_shl((shift + DIGIT_BITS) as u32).map_or(u64::MAX, |above| !above);
        self.position & !own_and_below | (index as u64) << shift
    }

    fn first_of_current(&self, level: usize) -> Option<u32> {
        self.has_current(level).then(|| self.heads[level * SLOTS + digit(self.position, level)].next)
    }

    fn has_current(&self, level: usize) -> bool {
        self.occupied[level] & (1 << digit(self.position, level)) != 0
    }

    /// The slot for a deadline, seen from the position. A deadline in the past has the slot of the position.
    fn slot_of(&self, deadline_ms: u64) -> (usize, usize) {
        let at = deadline_ms.max(self.position);
        let differs = at ^ self.position;
        let level = differs.checked_ilog2().map_or(0, |bit| bit as usize / DIGIT_BITS);
        (level, digit(at, level))
    }

    fn make_level(&mut self, level: usize) {
        // The high levels are months away: most wheels never allocate them.
        let missing = self.heads.len()..(level + 1) * SLOTS;
        self.heads.reserve_exact(missing.len());
        for slot in missing {
            let head = HEADS_FROM | slot as u32;
            self.heads.push(Timer { prev: head, next: head });
        }
    }

    fn set_next(&mut self, of: u32, next: u32, timers: &mut impl Timers) {
        if of >= HEADS_FROM {
            self.heads[(of - HEADS_FROM) as usize].next = next;
        } else {
            let timer = timers.timer(of);
            timers.set_timer(of, Timer { next, ..timer });
        }
    }

    fn set_prev(&mut self, of: u32, prev: u32, timers: &mut impl Timers) {
        if of >= HEADS_FROM {
            self.heads[(of - HEADS_FROM) as usize].prev = prev;
        } else {
            let timer = timers.timer(of);
            timers.set_timer(of, Timer { prev, ..timer });
        }
    }
}

impl Default for Wheel {
    fn default() -> Self {
        Self::new()
    }
}

/// The base-64 digit of a time that chooses the slot on a level.
fn digit(time_ms: u64, level: usize) -> usize {
    (time_ms >> (level * DIGIT_BITS)) as usize % SLOTS
}

/// The ids of entries are below this; from here on a link names the head of a slot.
pub(crate) const HEADS_FROM: u32 = 1 << 31;

const DIGIT_BITS: usize = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 11;

const _: () = assert!(LEVELS * DIGIT_BITS >= u64::BITS as usize, "every u64 has a slot");
const _: () = assert!((LEVELS - 1) * DIGIT_BITS < u64::BITS as usize, "every level has a digit to shift to");

#[cfg(test)]
mod tests;
