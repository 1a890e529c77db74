//! A clock that stands still until a test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redlatch_proto::clock::{Clock, LockTime, Now};

pub(crate) struct StillClock {
    lock_ms: AtomicU64,
    wall_offset_ms: i64,
}

impl StillClock {
    pub(crate) fn new(lock_ms: u64, wall_offset_ms: i64) -> Arc<Self> {
        Arc::new(Self { lock_ms: AtomicU64::new(lock_ms), wall_offset_ms })
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.lock_ms.load(Relaxed)
    }

    pub(crate) fn set_ms(&self, lock_ms: u64) {
        self.lock_ms.store(lock_ms, Relaxed);
    }
}

impl Clock for StillClock {
    fn now(&self) -> Now {
        Now { lock: LockTime::from_millis(self.now_ms()), wall_offset_ms: self.wall_offset_ms }
    }

    fn micros(&self) -> u64 {
        self.now_ms() * 1_000
    }

    fn wall_micros(&self) -> u64 {
        self.now().wall().as_millis() * 1_000
    }
}
