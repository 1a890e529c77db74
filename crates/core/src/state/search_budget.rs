//! How much the server looks for one client in a second, where the client decides how often it looks.
//!
//! Owns    the count of one client.
//! Rule    a second begins with the first look after the one before it. Only the client's own call writes the count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redlatch_proto::clock::LockTime;

/// The looks of one client in its present second.
#[derive(Debug, Default)]
pub struct SearchBudget {
    since_ms: AtomicU64,
    looks: AtomicU64,
}

/// Milliseconds after which the count begins anew.
const PERIOD_MS: u64 = 1_000;

impl SearchBudget {
    /// How many of `most` looks are left now.
    pub fn left(&self, most: usize, now: LockTime) -> usize {
        if now.millis_since(LockTime::from_millis(self.since_ms.load(Relaxed))) >= PERIOD_MS {
            self.since_ms.store(now.as_millis(), Relaxed);
            self.looks.store(0, Relaxed);
        }
        let looks = usize::try_from(self.looks.load(Relaxed)).unwrap_or(usize::MAX);
        most.saturating_sub(looks)
    }

    /// Counts looks.
    pub(crate) fn spend(&self, looks: usize) {
        self.looks.store(self.looks.load(Relaxed).saturating_add(looks as u64), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_back_a_second_later() {
        let (budget, at) = (SearchBudget::default(), LockTime::from_millis);
        assert_eq!(budget.left(10, at(5_000)), 10);
        budget.spend(7);
        assert_eq!(budget.left(10, at(5_999)), 3);
        budget.spend(usize::MAX);
        assert_eq!(budget.left(10, at(5_999)), 0);
        assert_eq!(budget.left(10, at(6_000)), 10);
    }
}
