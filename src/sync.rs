//! The locks and atomics of the keyspace: real ones, or those of a scheduler that tries interleavings.
//!
//! Rule    with `--cfg shuttle`, threads run one at a time, and at every use of these types the scheduler of
//!         `tests/concurrency` chooses the next thread. No other code depends on the scheduler.

#[cfg(not(shuttle))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(not(shuttle))]
pub(crate) use std::thread::yield_now;

#[cfg(shuttle)]
pub(crate) use scheduled::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::thread::yield_now;

#[cfg(shuttle)]
mod scheduled {
    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

    /// The scheduler's mutex, with parking_lot's way of locking it.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a panic ends the whole schedule")
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}
