//! The system's clock.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redlatch_proto::clock::{Clock, LockTime, Now};

/// The system's monotonic clock for leases, its wall clock for the rest.
///
/// Rule: at the start and after a step, the wall time that it shows is not behind the system's: no deadline at a wall time is
/// later than it says.
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
        let (origin, wall_micros) = (Instant::now(), wall_micros());
        Self::beginning(origin, wall_micros, LockTime::from_millis(wall_micros / 1000))
    }

    /// A clock that goes on where the lock time of an earlier process has ended.
    pub(crate) fn going_on_at(time: LockTime) -> Self {
        let origin = Instant::now();
        Self::beginning(origin, wall_micros(), time)
    }

    /// A clock that shows these two times at the origin. Milliseconds of both begin at once.
    fn beginning(origin: Instant, wall_micros: u64, time: LockTime) -> Self {
        let origin_micros = time.as_millis().saturating_mul(1000).saturating_add(wall_micros % 1000);
        let wall_offset_ms = AtomicI64::new(offset_ms(wall_micros, origin_micros));
        Self { origin, origin_micros, wall_offset_ms }
    }

    fn lock_micros(&self) -> u64 {
        self.origin_micros + self.origin.elapsed().as_micros() as u64
    }

    /// Compares the clocks. Called every half second, not by commands.
    pub(crate) fn follow_wall(&self) {
        let offset_ms = offset_ms(wall_micros(), self.lock_micros());
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

/// Wall time minus lock time, rounded up to milliseconds: what a clock shows with it is not behind the wall time.
fn offset_ms(wall_micros: u64, lock_micros: u64) -> i64 {
    -(lock_micros as i64 - wall_micros as i64).div_euclid(1000)
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
    fn both_times_are_right_at_the_start_whatever_its_microseconds() {
        for fraction in [0, 1, 499, 500, 999] {
            let wall_micros = 1_700_000_000_000_000 + fraction;
            let wall_ms = wall_micros / 1000;
            for lock_ms in [wall_ms, 1_234_567, wall_ms + 1_000] {
                let clock = SystemClock::beginning(Instant::now(), wall_micros, at(lock_ms));
                assert_eq!(clock.origin_micros / 1000, lock_ms, "{fraction}");
                let wall_offset_ms = clock.wall_offset_ms.load(Relaxed);
                assert_eq!(clock.origin_micros as i64 + wall_offset_ms * 1000, wall_micros as i64);
                // A client that has read this wall time asks for ten seconds.
                let now = Now { lock: at(lock_ms), wall_offset_ms };
                assert_eq!(now.millis_until(now.deadline_at_wall(wall_ms as i64 + 10_000)), 10_000);
            }
        }
    }

    #[test]
    fn no_deadline_at_a_wall_time_is_later_than_it_says_after_a_step_of_the_clock() {
        let lock_micros: i64 = 1_234_567_890;
        for ahead_micros in [60_000_000, 60_000_001, 60_000_999, 0, -1, -999, -60_000_001] {
            let wall_micros = lock_micros + ahead_micros;
            let shown_micros = lock_micros + offset_ms(wall_micros as u64, lock_micros as u64) * 1000;
            assert!((0..1000).contains(&(shown_micros - wall_micros)), "{ahead_micros}: {shown_micros}");
        }
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
