//! The two clocks: the system's, and one that a test moves.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::clock::{Clock, LockTime, Now, WallTime};

/// The system's monotonic clock for leases, its wall clock for the rest.
#[derive(Debug)]
pub(crate) struct SystemClock {
    origin: Instant,
    /// The wall time at the origin, in microseconds: lock time starts there.
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
        Self { origin: Instant::now(), origin_micros: wall_micros(), wall_offset_ms: AtomicI64::new(0) }
    }

    fn lock_micros(&self) -> u64 {
        self.origin_micros + self.origin.elapsed().as_micros() as u64
    }

    /// Compares the clocks. Called every half second, not by commands.
    pub(crate) fn follow_wall(&self) {
        let offset_ms = (wall_micros() as i64 - self.lock_micros() as i64) / 1000;
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

    fn wall_micros(&self) -> u64 {
        wall_micros()
    }
}

/// Microseconds since the Unix epoch, by the system's wall clock.
pub(super) fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// A clock that moves only through [`super::Clock::advance`].
#[derive(Debug)]
pub(crate) struct ManualClock {
    lock_ms: AtomicU64,
    wall_offset_ms: AtomicI64,
}

impl ManualClock {
    pub(crate) fn new(start: WallTime) -> Self {
        Self { lock_ms: AtomicU64::new(start.as_millis()), wall_offset_ms: AtomicI64::new(0) }
    }

    pub(crate) fn set(&self, now: LockTime) {
        self.lock_ms.fetch_max(now.as_millis(), SeqCst);
    }

    pub(crate) fn step_wall(&self, millis: i64) {
        self.wall_offset_ms.fetch_add(millis, SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        let lock = LockTime::from_millis(self.lock_ms.load(SeqCst));
        Now { lock, wall_offset_ms: self.wall_offset_ms.load(SeqCst) }
    }

    fn micros(&self) -> u64 {
        self.lock_ms.load(SeqCst).saturating_mul(1000)
    }

    fn wall_micros(&self) -> u64 {
        self.now().wall().as_millis().saturating_mul(1000)
    }
}
