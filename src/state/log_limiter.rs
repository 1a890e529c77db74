//! What is logged at the sight of a stranger's doing: rarely, so that nobody fills the log by repeating it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock::LockTime;

/// Says when the next line of its kind may be written: every ten seconds.
#[derive(Debug, Default)]
pub struct LogLimiter {
    next_ms: AtomicU64,
    silent: AtomicU64,
}

/// How long after one line the next may follow, in milliseconds.
const GAP_MS: u64 = 10_000;

impl LogLimiter {
    /// Something happened. `Some(n)`: it is to be said, and that it happened `n` times since it was last said.
    pub fn happened(&self, now: LockTime) -> Option<u64> {
        let (now_ms, next_ms) = (now.as_millis(), self.next_ms.load(Relaxed));
        let is_due = now_ms >= next_ms
            && self
                .next_ms
                .compare_exchange(next_ms, now_ms.saturating_add(GAP_MS), Relaxed, Relaxed)
                .is_ok();
        if is_due {
            return Some(self.silent.swap(0, Relaxed).saturating_add(1));
        }
        self.silent.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_later_in_one_line() {
        let limiter = LogLimiter::default();
        let at = |millis| limiter.happened(LockTime::from_millis(millis));
        assert_eq!([at(5), at(5), at(10_004), at(10_005), at(10_006)], [Some(1), None, None, Some(3), None]);
    }
}
