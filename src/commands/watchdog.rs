//! Looks after an interpreted script: notes that it takes long, and ends it when somebody asks for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::clock::{Clock, LockTime};
use crate::keyspace::Occupancy;
use crate::limits::WORK_MAX;
use crate::scripts::lua::{Verdict, Watchdog};
use crate::state::running::Running;

/// Milliseconds after which a script takes long: nobody else waits for it with a thread from then on.
const LONG_MS: u64 = 2;
/// Polls after which it does although no time has passed: a clock that is moved by hand may stand still.
const LONG_POLLS: u32 = 20_000;

/// Polls after which a script that is tried out is not short: some tenths of a millisecond.
const TRIAL_POLLS: u32 = 20;

/// What a script does between two polls, in about nanoseconds.
const POLL_WORK: u64 = 10_000;

/// Looks after the script that runs; there is one at a time.
pub(super) struct Guard {
    running: Arc<Running>,
    occupancy: Arc<Occupancy>,
    clock: Arc<dyn Clock>,
    /// When it was looked at first, in milliseconds of lock time; zero: not yet. Most are over before.
    since_ms: AtomicU64,
    /// Polls so far; [`LONG_POLLS`] once it takes long.
    polls: AtomicU32,
    /// Whether the script runs where others wait for it, and is to begin again elsewhere when it is not short.
    is_trial: AtomicBool,
    has_given_up: AtomicBool,
    /// Work of its commands so far, in about nanoseconds.
    work: AtomicU64,
}

impl Guard {
    pub(super) fn new(running: Arc<Running>, occupancy: Arc<Occupancy>, clock: Arc<dyn Clock>) -> Self {
        Self {
            running,
            occupancy,
            clock,
            since_ms: AtomicU64::new(0),
            polls: AtomicU32::new(0),
            is_trial: AtomicBool::new(false),
            has_given_up: AtomicBool::new(false),
            work: AtomicU64::new(0),
        }
    }

    /// A script begins. Called with every shard locked, so that there is only one.
    pub(super) fn begin(&self, is_trial: bool) {
        self.since_ms.store(0, Relaxed);
        self.polls.store(0, Relaxed);
        self.is_trial.store(is_trial, Relaxed);
        self.has_given_up.store(false, Relaxed);
        self.work.store(0, Relaxed);
    }

    /// The script takes long, or what it does next may: nobody is to wait for it with a thread.
    pub(super) fn takes_long(&self) {
        self.occupancy.begin();
        self.running.note_long(self.since(self.clock.now().lock));
    }

    /// When it was looked at first; `now`, if it has not been.
    fn since(&self, now: LockTime) -> LockTime {
        match self.since_ms.load(Relaxed) {
            0 => {
                self.since_ms.store(now.as_millis(), Relaxed);
                now
            }
            since_ms => LockTime::from_millis(since_ms),
        }
    }

    /// The script has turned out not to be short.
    pub(super) fn give_up(&self) {
        self.has_given_up.store(true, Relaxed);
    }

    /// Whether it has.
    pub(super) fn has_given_up(&self) -> bool {
        self.has_given_up.load(Relaxed)
    }

    /// The work of the script so far, in about nanoseconds.
    pub(super) fn work(&self) -> u64 {
        let polls = u64::from(self.polls.load(Relaxed));
        self.work.load(Relaxed).saturating_add(polls.saturating_mul(POLL_WORK))
    }

    /// Whether a script that is tried out may do so much more.
    pub(super) fn allows(&self, work: u64) -> bool {
        let work = self.work.load(Relaxed).saturating_add(work);
        self.work.store(work, Relaxed);
        work <= WORK_MAX
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("since_ms", &self.since_ms).finish_non_exhaustive()
    }
}

impl Watchdog for Guard {
    fn poll(&self) -> Verdict {
        if self.running.is_killed() {
            return Verdict::Kill;
        }
        // One thread polls: the counter is atomic because the interpreter shares it.
        let polls = self.polls.load(Relaxed);
        if polls < LONG_POLLS {
            let now = self.clock.now().lock;
            let is_long = now.millis_since(self.since(now)) >= LONG_MS;
            let polls = if is_long { LONG_POLLS } else { polls.saturating_add(1) };
            self.polls.store(polls, Relaxed);
            if polls == LONG_POLLS {
                self.takes_long();
            }
        }
        Verdict::GoOn
    }
}
