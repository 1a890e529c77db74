//! What is known of a load while it runs, and the way to end it.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use redlatch_client::wire::random;

/// A load that runs, as others see it.
#[derive(Debug)]
pub struct Live {
    stop: watch::Sender<bool>,
    /// What the owners of locks begin with, so that two loads do not meet.
    run_id: u64,
    begun: AtomicU64,
    acquired: AtomicU64,
    overlaps: AtomicU64,
}

impl Default for Live {
    fn default() -> Self {
        let count = AtomicU64::default;
        Self {
            stop: watch::Sender::new(false),
            run_id: random(),
            begun: count(),
            acquired: count(),
            overlaps: count(),
        }
    }
}

impl Live {
    /// Ends the load: nothing new is begun, and who holds a lock releases it.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Locks granted since the start.
    pub fn acquired(&self) -> u64 {
        self.acquired.load(Ordering::Relaxed)
    }

    /// How often a lock had two owners at once.
    pub fn overlaps(&self) -> u64 {
        self.overlaps.load(Ordering::Relaxed)
    }

    pub(super) fn run_id(&self) -> u64 {
        self.run_id
    }

    pub(super) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Whether another acquisition may begin, of so many in all.
    pub(super) fn begin_one(&self, max: Option<u64>) -> bool {
        max.is_none_or(|max| self.begun.fetch_add(1, Ordering::Relaxed) < max)
    }

    pub(super) fn granted(&self, overlaps: bool) {
        self.acquired.fetch_add(1, Ordering::Relaxed);
        self.overlaps.fetch_add(u64::from(overlaps), Ordering::Relaxed);
    }
}
