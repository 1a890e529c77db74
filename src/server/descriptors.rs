//! Descriptors: what becomes of newcomers when none is left.
//!
//! Rule    whoever cannot be served is told so: nobody waits unseen in the backlog, and waiting for descriptors to come
//!         back costs next to nothing.
//! Source  `accept(2)`.

use std::fs::File;
use std::io;
use std::time::Duration;

/// The first pause after an accept that failed.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause, however often it fails.
const PAUSE_MAX: Duration = Duration::from_millis(320);
/// The process, or the whole system, has no descriptor left: the same numbers on every Unix.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// A descriptor kept back by a listener. Given up for a moment when all others are taken, it lets one newcomer in to be
/// turned away.
#[derive(Debug)]
pub(super) struct Spare {
    file: Option<File>,
    pause: Duration,
}

impl Spare {
    pub(super) fn new() -> Self {
        Self { file: open(), pause: PAUSE_MIN }
    }

    /// Gives the descriptor up if that is what accepting failed for; true when the caller may accept once more, to turn
    /// the newcomer away.
    pub(super) fn give_up(&mut self, error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) && self.file.take().is_some()
    }

    /// Takes the descriptor back. Where that fails, or something else is wrong, accepting at once again would only spin:
    /// waits, each time longer.
    pub(super) async fn recover(&mut self, has_turned_away: bool) {
        if self.file.is_none() {
            self.file = open();
        }
        if has_turned_away && self.file.is_some() {
            return;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (2 * self.pause).min(PAUSE_MAX);
    }

    /// Somebody was accepted: the next failure is the first one again.
    pub(super) fn all_is_well(&mut self) {
        self.pause = PAUSE_MIN;
        if self.file.is_none() {
            self.file = open();
        }
    }
}

fn open() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Whether an accept failed because of that one peer, who has gone already.
pub(super) fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | TimedOut)
}
