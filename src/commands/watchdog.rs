//! Looks after an interpreted script: notes that it takes long, and ends it when somebody asks for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::Shared;
use crate::clock::{Clock, LockTime};
use crate::keyspace::Occupancy;
use crate::scripts::lua::{Verdict, Watchdog};
use crate::state::running::Running;

/// Milliseconds after which a script takes long: nobody else waits for it with a thread from then on.
const LONG_MS: u64 = 2;
/// Polls after which it does although no time has passed: a clock that is moved by hand may stand still.
const LONG_POLLS: u32 = 20_000;

/// Looks after one run of a script.
pub(super) struct Guard {
    running: Arc<Running>,
    occupancy: Arc<Occupancy>,
    clock: Arc<dyn Clock>,
    since: LockTime,
    /// Polls so far; [`LONG_POLLS`] once it takes long.
    polls: AtomicU32,
}

impl Guard {
    /// A guard over a script that begins now.
    pub(super) fn new(shared: &Shared, since: LockTime) -> Self {
        Self {
            running: Arc::clone(&shared.running),
            occupancy: Arc::clone(&shared.keyspace.occupancy),
            clock: Arc::clone(&shared.clock),
            since,
            polls: AtomicU32::new(0),
        }
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
            let is_long = self.clock.now().lock.millis_since(self.since) >= LONG_MS;
            let polls = if is_long { LONG_POLLS } else { polls.saturating_add(1) };
            self.polls.store(polls, Relaxed);
            if polls == LONG_POLLS {
                self.occupancy.begin();
                self.running.note_long();
            }
        }
        Verdict::GoOn
    }
}
