//! The system's clock.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redlatch_proto::clock::{Clock, LockTime, Now};

/// The system's monotonic clock for leases, its wall clock for the rest.
#[derive(Debug)]
pub(crate) struct SystemClock {
    origin: Instant,
    /// Lock time at the origin, in microseconds.
    origin_micros: u64,
    /// Wall time minus lock time.
    wall_offset_ms: AtomicI64,
}

/// Milliseconds that the two clocks may differ before the wall clock counts as stepped. Less is reading jitter and
/// the slow correction of a clock, and following it would make PXAT read back differently from one second to the
/// next.
const STEP_MS: i64 = 50;

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self::going_on_at(LockTime::from_millis(wall_micros() / 1000))
    }

    /// A clock that goes on where the lock time of an earlier process has ended.
    pub(crate) fn going_on_at(time: LockTime) -> Self {
        let clock = Self {
            origin: Instant::now(),
            origin_micros: time.as_millis().saturating_mul(1000),
            wall_offset_ms: AtomicI64::new(0),
        };
        clock.wall_offset_ms.store(clock.offset_ms(), Relaxed);
        clock
    }

    fn lock_micros(&self) -> u64 {
        self.origin_micros + self.origin.elapsed().as_micros() as u64
    }

    fn offset_ms(&self) -> i64 {
        (wall_micros() as i64 - self.lock_micros() as i64) / 1000
    }

    /// Compares the clocks. Called every half second, not by commands.
    pub(crate) fn follow_wall(&self) {
        let offset_ms = self.offset_ms();
        if offset_ms.abs_diff(self.wall_offset_ms.load(Relaxed)) as i64 > STEP_MS {
            tracing::warn!(offset_ms, "the wall clock was stepped; leases are not affected");
            self.wall_offset_ms.store(offset_ms, Relaxed);
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let lock = LockTime::from_millis(self.lock_micros() / 1000);
        Now { lock, wall_offset_ms: self.wall_offset_ms.load(Relaxed) }
    }

    fn micros(&self) -> u64 {
        self.lock_micros()
    }

    /// Lock time plus the offset, so that TIME and the deadlines of PXAT and PEXPIREAT are of one clock: a script that sets
    /// `TIME + 60000` sees at most 60,000 ms left.
    fn wall_micros(&self) -> u64 {
        self.lock_micros().saturating_add_signed(self.wall_offset_ms.load(Relaxed).saturating_mul(1000))
    }
}

/// Microseconds since the Unix epoch, by the system's wall clock.
pub(super) fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> LockTime {
        LockTime::from_millis(millis)
    }

    #[test]
    fn the_time_is_that_of_the_deadlines() {
        let clock = SystemClock::going_on_at(at(1_234_567));
        for _ in 0..1_000 {
            let (before, time, after) = (clock.now().wall(), clock.wall_micros() / 1000, clock.now().wall());
            assert!((before.as_millis()..=after.as_millis()).contains(&time));
        }
        assert!(clock.wall_micros().abs_diff(wall_micros()) < 1_000_000, "and that of the system");
    }
}
