//! The units of time of all layers, and the traits through which time and facts about the process are injected.
//!
//! Owns    [`LockTime`], [`Deadline`], [`WallTime`], [`Clock`] and [`Probe`].
//! Rule    leases, deadlines and waits are measured in lock time alone. A step of the wall clock does not move them.
//!         The wall clock only translates: EXPIREAT and PXAT on their way in, EXPIRETIME on its way out.

use std::ops::Add;

/// A moment on the monotonic clock, in milliseconds.
///
/// It counts on from the wall time at which the server started, so that it reads like a Unix time; but it never steps.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LockTime(u64);

impl LockTime {
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `millis` milliseconds after the origin of lock time.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the origin of lock time.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Milliseconds from `earlier` to here; zero if `earlier` is later.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for LockTime {
    type Output = Self;

    /// This moment plus `millis`; stays at the end of time instead of overflowing.
    fn add(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

/// The last millisecond in which a key still exists.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Deadline(LockTime);

impl Deadline {
    /// A deadline whose last living millisecond is `time`.
    pub const fn at(time: LockTime) -> Self {
        Self(time)
    }

    /// True from the first millisecond *after* the deadline: a 100 ms lease taken at 0 holds at 100, not at 101.
    pub fn has_passed(self, now: LockTime) -> bool {
        now > self.0
    }

    /// The last living millisecond.
    pub const fn time(self) -> LockTime {
        self.0
    }

    /// The last living millisecond, in milliseconds of lock time.
    pub const fn as_millis(self) -> u64 {
        self.0.as_millis()
    }
}

/// Milliseconds since the Unix epoch, by the wall clock.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct WallTime(u64);

impl WallTime {
    /// The moment `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// One reading of the clock: the instant of a command, a script or a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// The time that leases are measured in.
    pub lock: LockTime,
    /// Wall time minus lock time, in whole milliseconds; moves only when the wall clock is stepped.
    pub wall_offset_ms: i64,
}

impl Now {
    /// The wall time of this instant.
    pub fn wall(self) -> WallTime {
        WallTime(self.lock.0.saturating_add_signed(self.wall_offset_ms))
    }

    /// This reading, but no earlier than `least`: time never runs backwards for a shard.
    #[must_use]
    pub fn no_earlier_than(self, least: LockTime) -> Self {
        Self { lock: self.lock.max(least), ..self }
    }

    /// The deadline `millis` from now; at the end of time instead of overflowing, passed already if negative.
    pub fn deadline_in(self, millis: i64) -> Deadline {
        Deadline(LockTime(self.lock.0.saturating_add_signed(millis)))
    }

    /// The deadline at the Unix time `unix_ms`.
    pub fn deadline_at_wall(self, unix_ms: i64) -> Deadline {
        let lock_ms = i128::from(unix_ms) - i128::from(self.wall_offset_ms);
        Deadline(LockTime(u64::try_from(lock_ms.max(0)).unwrap_or(u64::MAX)))
    }

    /// The Unix time of `deadline`, in milliseconds: the inverse of [`Now::deadline_at_wall`].
    pub fn wall_ms_of(self, deadline: Deadline) -> i64 {
        let unix_ms = i128::from(deadline.as_millis()) + i128::from(self.wall_offset_ms);
        i64::try_from(unix_ms).unwrap_or(i64::MAX)
    }

    /// Milliseconds that a key with this deadline still has; zero in its last millisecond.
    pub fn millis_until(self, deadline: Deadline) -> i64 {
        i64::try_from(deadline.time().millis_since(self.lock)).unwrap_or(i64::MAX)
    }
}

/// The source of time: the system, or a test.
pub trait Clock: Send + Sync {
    /// One reading, for everything that happens in one instant.
    fn now(&self) -> Now;

    /// Microseconds on the monotonic clock, for measuring how long something took.
    fn micros(&self) -> u64;

    /// Microseconds since the Unix epoch, for TIME.
    fn wall_micros(&self) -> u64;
}

/// Facts about the process from the operating system. Zero and empty if none is asked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Process {
    /// Its process id.
    pub id: u32,
    /// The operating system, as `uname -srm` prints it.
    pub system: String,
    /// The call of the system that waits for many sockets at once.
    pub poller: &'static str,
    /// The file it was started from.
    pub executable: String,
    /// The name of its allocator.
    pub allocator: &'static str,
    /// Its resident memory, in bytes.
    pub resident_bytes: u64,
    /// Its highest resident memory so far, in bytes.
    pub resident_peak_bytes: u64,
    /// RAM of the machine, in bytes.
    pub machine_bytes: u64,
    /// Time its threads ran in its own code, in microseconds.
    pub user_micros: u64,
    /// Time its threads ran in the kernel, in microseconds.
    pub kernel_micros: u64,
}

/// The source of facts about the process.
pub trait Probe: Send + Sync {
    /// The process as it is now.
    fn look(&self) -> Process;

    /// Fills `bytes` with unpredictable random bytes; false if the system has none.
    fn draw_secret(&self, bytes: &mut [u8]) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_deadline_reads_back_exactly() {
        let now = Now { lock: LockTime::from_millis(5_000), wall_offset_ms: -77 };
        for unix_ms in [0, 1, 4_923, 1_700_000_000_123, i64::MAX - 100] {
            assert_eq!(now.wall_ms_of(now.deadline_at_wall(unix_ms)), unix_ms);
        }
    }

    #[test]
    fn a_lease_holds_through_its_last_millisecond() {
        let deadline = Now { lock: LockTime::from_millis(0), wall_offset_ms: 0 }.deadline_in(100);
        assert!(!deadline.has_passed(LockTime::from_millis(100)));
        assert!(deadline.has_passed(LockTime::from_millis(101)));
    }

    #[test]
    fn arithmetic_stops_at_the_ends_of_time() {
        let now = Now { lock: LockTime::from_millis(10), wall_offset_ms: 0 };
        assert_eq!(now.deadline_in(i64::MIN).as_millis(), 0);
        assert_eq!(LockTime::from_millis(u64::MAX) + 5, LockTime::from_millis(u64::MAX));
        assert_eq!(now.deadline_at_wall(i64::MIN).as_millis(), 0);
    }
}
