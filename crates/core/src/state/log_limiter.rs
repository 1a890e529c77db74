//! Rate limits for log lines that any client can cause.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use redlatch_proto::clock::LockTime;

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

/// Allows a few log lines of its kind in a second, and counts those that are left out.
#[derive(Debug, Default)]
pub(crate) struct LineBudget(Mutex<Budget>);

#[derive(Debug, Default)]
struct Budget {
    /// When the current second began; `None`: no line was wanted yet.
    from: Option<LockTime>,
    lines: u32,
    left_out: u64,
}

/// Lines in a second. People read no faster, and a day of them is a hundred megabytes.
const LINES_PER_SECOND: u32 = 10;
/// Milliseconds that these lines share.
const BUDGET_MS: u64 = 1_000;

impl LineBudget {
    /// Whether a line may be logged now. If not, it is counted.
    pub(crate) fn allows(&self, now: LockTime) -> bool {
        let mut budget = self.0.lock();
        if budget.from.is_none_or(|from| now.millis_since(from) >= BUDGET_MS) {
            (budget.from, budget.lines) = (Some(now), 0);
        }
        let is_allowed = budget.lines < LINES_PER_SECOND;
        if is_allowed {
            budget.lines = budget.lines.saturating_add(1);
        } else {
            budget.left_out = budget.left_out.saturating_add(1);
        }
        is_allowed
    }

    /// How many lines were left out, once the second is over in which they were; they are counted from 0 again.
    pub(crate) fn take_left_out(&self, now: LockTime) -> Option<u64> {
        let mut budget = self.0.lock();
        let is_over = budget.from.is_some_and(|from| now.millis_since(from) >= BUDGET_MS);
        (is_over && budget.left_out > 0).then(|| std::mem::take(&mut budget.left_out))
    }

    /// When the lines that were left out are to be reported; `None`: there are none.
    pub(crate) fn due(&self) -> Option<LockTime> {
        let budget = self.0.lock();
        budget.from.filter(|_| budget.left_out > 0).map(|from| from + BUDGET_MS)
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

    #[test]
    fn ten_lines_in_a_second_are_logged_and_the_others_are_counted() {
        let (budget, at) = (LineBudget::default(), LockTime::from_millis);
        let allowed = (0..25).filter(|_| budget.allows(at(500))).count();
        assert_eq!((allowed, budget.due(), budget.take_left_out(at(1_499))), (10, Some(at(1_500)), None));
        assert_eq!(budget.take_left_out(at(1_500)), Some(15));
        assert_eq!((budget.due(), budget.take_left_out(at(9_000))), (None, None));
        assert!(budget.allows(at(1_500)));
    }
}
