//! The words for time that every floor may say.
//!
//! Time    `LockTime` counts milliseconds on a monotonic clock; where it starts is the clock's business.

/// A moment on the lock clock, in milliseconds since that clock's own beginning.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LockTime(u64);

impl LockTime {
    /// The moment `millis` milliseconds after the clock's beginning.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the clock's beginning.
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// The last millisecond in which a key still exists.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Deadline(LockTime);

impl Deadline {
    /// A deadline whose last living millisecond is `last`.
    pub const fn at(last: LockTime) -> Self {
        Self(last)
    }

    /// True from the first millisecond *after* the deadline: a 100 ms lease taken at 0 holds at 100, not at 101.
    pub fn has_passed(self, now: LockTime) -> bool {
        now > self.0
    }

    /// The last living millisecond, on the lock clock.
    pub const fn as_millis(self) -> u64 {
        self.0.as_millis()
    }
}
