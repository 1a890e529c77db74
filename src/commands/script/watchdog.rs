//! Ends an interpreted script when SCRIPT KILL or the end of the server asks for it, and reports one that runs too long.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::clock::{Clock, LockTime};
use crate::scripts::lua::{Verdict, Watchdog};
use crate::state::running::Running;

/// Looks after one run of a script.
pub(super) struct ScriptWatch {
    pub(super) running: Arc<Running>,
    pub(super) clock: Arc<dyn Clock>,
    /// When it has run for `busy-reply-threshold`, if there is one.
    pub(super) slow_from: Option<LockTime>,
    pub(super) is_reported: AtomicBool,
}

impl Watchdog for ScriptWatch {
    fn poll(&self) -> Verdict {
        if self.running.is_killed() {
            return Verdict::Kill;
        }
        if let Some(slow_from) = self.slow_from
            && !self.is_reported.load(Relaxed)
        {
            let now = self.clock.now().lock;
            if now >= slow_from && !self.is_reported.swap(true, Relaxed) {
                self.running.note_slow(now);
            }
        }
        Verdict::GoOn
    }
}

impl fmt::Debug for ScriptWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptWatch").field("slow_from", &self.slow_from).finish_non_exhaustive()
    }
}
