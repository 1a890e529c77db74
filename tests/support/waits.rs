//! How tests wait in real time: until something has happened, and never for a time in which it may have happened.
//!
//! Belongs here  every loop that asks again, and the time after which a wait has failed: one for all, since a test says what
//!               happens and not how soon.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that a test waits for, on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const POLL: Duration = Duration::from_millis(2);

/// Waits until `happens`; returns how long that took.
///
/// # Panics
/// If it has not happened in [`PATIENCE`].
#[track_caller]
pub(crate) fn wait_until(what: &str, mut happens: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !happens() {
        assert!(begun.elapsed() < PATIENCE, "{what}: has not happened");
        thread::sleep(POLL);
    }
    begun.elapsed()
}

/// Like [`wait_until`], in a task: the others of its runtime go on meanwhile, and no clock of the runtime is used.
#[cfg(feature = "server")]
pub(crate) async fn wait_until_async(what: &str, mut happens: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !happens().await {
        assert!(begun.elapsed() < PATIENCE, "{what}: has not happened");
        tokio::task::yield_now().await;
    }
}
