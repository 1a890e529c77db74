//! Ends an interpreted script when SCRIPT KILL or the end of the server asks for it, and reports one that runs too long.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redlatch_proto::clock::{Clock, LockTime};

use crate::scripts::interpreter::{Verdict, Watchdog};
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::state::clients::Client;
    use crate::state::running::Script;
    use redlatch_proto::clock::Now;

    #[derive(Debug, Default)]
    struct Millis(AtomicU64);

    impl Clock for Millis {
        fn now(&self) -> Now {
            Now { lock: LockTime::from_millis(self.0.load(Relaxed)), wall_offset_ms: 0 }
        }

        fn micros(&self) -> u64 {
            self.0.load(Relaxed).saturating_mul(1000)
        }

        fn wall_micros(&self) -> u64 {
            self.micros()
        }
    }

    #[test]
    fn a_script_is_reported_once_when_it_has_run_for_too_long() {
        let (running, clock) = (Arc::new(Running::default()), Arc::new(Millis::default()));
        let client = Arc::new(Client::new(7, String::new(), String::new(), false, LockTime::from_millis(1)));
        let script = Script { name: "abc".into(), function_call: None, client };
        running.begin(script, LockTime::from_millis(10));
        let watch = ScriptWatch {
            running: Arc::clone(&running),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            slow_from: Some(LockTime::from_millis(5_010)),
            is_reported: AtomicBool::new(false),
        };
        for (now_ms, reports) in [(10, 0), (5_009, 0), (5_010, 1), (5_011, 1), (50_000, 1)] {
            clock.0.store(now_ms, Relaxed);
            assert_eq!(watch.poll(), Verdict::GoOn);
            assert_eq!(running.slow.get(), reports, "{now_ms}");
        }
        assert_eq!(running.kill(false), Ok(()));
        assert_eq!(watch.poll(), Verdict::Kill);
    }

    #[test]
    fn a_script_that_was_killed_does_not_start_again() {
        let running = Running::default();
        let client = Arc::new(Client::new(1, String::new(), String::new(), false, LockTime::from_millis(1)));
        let script = Script { name: "a".to_owned(), function_call: None, client };
        running.begin(script.clone(), LockTime::from_millis(10));
        assert!(running.give_up());
        assert!(running.kill(false).is_err(), "it does not run");
        running.begin(script, LockTime::from_millis(11));
        assert_eq!(running.kill(false), Ok(()));
        assert!(!running.give_up() && running.is_killed(), "the kill was answered with OK");
    }
}
