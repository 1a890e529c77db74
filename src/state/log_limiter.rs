//! A rate limit for log lines that any client can cause.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::LockTime;

/// Allows one log line of its kind every ten seconds.
#[derive(Debug, Default)]
pub struct LogLimiter {
    next_ms: AtomicU64,
    suppressed: AtomicU64,
}

/// Milliseconds between two lines.
const GAP_MS: u64 = 10_000;

impl LogLimiter {
    /// The event has happened. `Some(n)`: log it now; it has happened `n` times since the last line.
    pub fn happened(&self, now: LockTime) -> Option<u64> {
        let (now_ms, next_ms) = (now.as_millis(), self.next_ms.load(Relaxed));
        let is_due = now_ms >= next_ms
            && self
                .next_ms
                .compare_exchange(next_ms, now_ms.saturating_add(GAP_MS), Relaxed, Relaxed)
                .is_ok();
        if is_due {
            return Some(self.suppressed.swap(0, Relaxed).saturating_add(1));
        }
        self.suppressed.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_is_logged_at_once_and_later_ones_in_one_line() {
        let limiter = LogLimiter::default();
        let at = |millis| limiter.happened(LockTime::from_millis(millis));
        assert_eq!([at(5), at(5), at(10_004), at(10_005), at(10_006)], [Some(1), None, None, Some(3), None]);
    }
}
