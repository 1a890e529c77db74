//! The clocks that tests move.
//!
//! Owns    [`TestClock`], one for each namespace, and [`NodeClock`], by which each of its nodes reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use redlatch_proto::clock::{Clock, LockTime, Now, WallTime};

/// Microseconds since the Unix epoch, by the system's wall clock.
pub(crate) fn wall_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Where the clock of a test stops: the end of the year 9999. Deadlines behind it are never met.
pub(crate) const TIME_END: LockTime = LockTime::from_millis(253_402_300_799_999);

/// The clock of a namespace, which tests stop, move and let run. All nodes of the namespace read it through a [`NodeClock`].
#[derive(Debug)]
pub(crate) struct TestClock {
    time: Mutex<Time>,
    /// Wall time minus lock time.
    wall_offset_ms: AtomicI64,
}

#[derive(Debug)]
struct Time {
    /// Where the clock stood when it was last stopped, moved or started, in microseconds of lock time.
    at_micros: u64,
    /// Since when it has been running from there; `None`: it stands still.
    since: Option<Instant>,
}

impl Time {
    fn micros(&self) -> u64 {
        let passed = self.since.map_or(0, |since| since.elapsed().as_micros());
        self.at_micros.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

impl TestClock {
    /// A clock that runs from the system's wall time.
    pub(crate) fn running() -> Self {
        Self::new(Time { at_micros: wall_micros(), since: Some(Instant::now()) })
    }

    /// A clock that stands still at `start`.
    pub(crate) fn frozen(start: WallTime) -> Self {
        Self::new(Time { at_micros: start.as_millis().saturating_mul(1000), since: None })
    }

    fn new(time: Time) -> Self {
        Self { time: Mutex::new(time), wall_offset_ms: AtomicI64::new(0) }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.time.lock().since.is_none()
    }

    pub(crate) fn freeze(&self) {
        let mut time = self.time.lock();
        *time = Time { at_micros: time.micros(), since: None };
    }

    /// Lets the clock run from where it stands.
    pub(crate) fn run(&self) {
        let mut time = self.time.lock();
        *time = Time { at_micros: time.micros(), since: Some(Instant::now()) };
    }

    /// Moves the clock to `to`; never back.
    pub(crate) fn set(&self, to: LockTime) {
        let mut time = self.time.lock();
        let to_micros = to.as_millis().saturating_mul(1000);
        if to_micros > time.micros() {
            *time = Time { at_micros: to_micros, since: time.since.map(|_| Instant::now()) };
        }
    }

    /// Steps the wall clock alone.
    pub(crate) fn step_wall(&self, millis: i64) {
        self.wall_offset_ms.fetch_add(millis, SeqCst);
    }

    /// Its reading, before any skew.
    pub(crate) fn now(&self) -> Now {
        let lock = LockTime::from_millis(self.time.lock().micros() / 1000);
        Now { lock, wall_offset_ms: self.wall_offset_ms.load(SeqCst) }
    }
}

/// The clock of one node: that of its namespace plus its skew. It never goes back: set back, it stands still until the
/// others have caught up.
#[derive(Debug)]
pub(crate) struct NodeClock {
    base: Arc<TestClock>,
    skew_ms: AtomicI64,
    /// The latest reading, in microseconds.
    latest_micros: AtomicU64,
}

impl NodeClock {
    pub(crate) fn new(base: Arc<TestClock>) -> Self {
        Self { base, skew_ms: AtomicI64::new(0), latest_micros: AtomicU64::new(0) }
    }

    pub(crate) fn base(&self) -> &TestClock {
        &self.base
    }

    pub(crate) fn skew_ms(&self) -> i64 {
        self.skew_ms.load(SeqCst)
    }

    pub(crate) fn set_skew_ms(&self, millis: i64) {
        self.skew_ms.store(millis, SeqCst);
    }

    /// When the clock of the namespace reads what this clock reads at `time`.
    pub(crate) fn base_time(&self, time: LockTime) -> LockTime {
        LockTime::from_millis(time.as_millis().saturating_add_signed(self.skew_ms().saturating_neg()))
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Now {
        let lock = LockTime::from_millis(self.micros() / 1000);
        Now { lock, wall_offset_ms: self.base.wall_offset_ms.load(SeqCst) }
    }

    fn micros(&self) -> u64 {
        let skew_micros = self.skew_ms().saturating_mul(1000);
        let micros = self.base.time.lock().micros().saturating_add_signed(skew_micros);
        self.latest_micros.fetch_max(micros, SeqCst).max(micros)
    }

    fn wall_micros(&self) -> u64 {
        let offset_micros = self.base.wall_offset_ms.load(SeqCst).saturating_mul(1000);
        self.micros().saturating_add_signed(offset_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> LockTime {
        LockTime::from_millis(millis)
    }

    #[test]
    fn a_clock_that_is_set_back_stands_still_until_the_others_have_caught_up() {
        let base = Arc::new(TestClock::frozen(WallTime::from_millis(1_000)));
        let node = NodeClock::new(Arc::clone(&base));
        assert_eq!(node.now().lock, at(1_000));
        node.set_skew_ms(500);
        assert_eq!(node.now().lock, at(1_500));
        assert_eq!(node.base_time(at(1_700)), at(1_200));
        node.set_skew_ms(-100);
        assert_eq!(node.now().lock, at(1_500));
        base.set(at(1_600));
        assert_eq!(node.now().lock, at(1_500));
        base.set(at(1_601));
        assert_eq!(node.now().lock, at(1_501));
    }

    #[test]
    fn a_clock_goes_on_from_where_it_stood() {
        let clock = TestClock::frozen(WallTime::from_millis(1_000));
        clock.set(at(900));
        assert_eq!(clock.now().lock, at(1_000), "it never goes back");
        clock.run();
        assert!(!clock.is_frozen());
        clock.set(at(5_000_000));
        clock.freeze();
        let stood = clock.now().lock;
        assert!(stood >= at(5_000_000) && clock.is_frozen());
        assert_eq!(clock.now().lock, stood);
    }
}
