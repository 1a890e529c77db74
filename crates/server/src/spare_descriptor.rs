//! A spare file descriptor, so that a server without free descriptors can still reject connections.
//!
//! Rule    a peer that cannot be served gets an error, instead of waiting in the backlog. While no descriptor is
//!         free, the listener pauses between attempts.
//! Source  `accept(2)`.

use std::fs::File;
use std::io;
use std::time::Duration;

use redlatch_platform::ports;

/// The pause after the first accept that failed.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The longest pause, however often accepting fails.
const PAUSE_MAX: Duration = Duration::from_millis(320);

/// A descriptor held in reserve by a listener. Released for a moment when all others are in use, it lets one
/// connection be accepted and rejected.
#[derive(Debug)]
pub(super) struct SpareDescriptor {
    file: Option<File>,
    pause: Duration,
}

impl SpareDescriptor {
    pub(super) fn new() -> Self {
        Self { file: open(), pause: PAUSE_MIN }
    }

    /// Releases the descriptor if accepting failed for lack of one. Returns true if the caller may accept one
    /// connection and reject it.
    pub(super) fn release(&mut self, error: &io::Error) -> bool {
        ports::is_out_of_descriptors(error) && self.file.take().is_some()
    }

    /// Takes the descriptor back. If that fails, or accepting failed for another reason, waits, each time longer,
    /// because accepting again at once would spin.
    pub(super) async fn recover(&mut self, has_rejected: bool) {
        if self.file.is_none() {
            self.file = open();
        }
        if has_rejected && self.file.is_some() {
            return;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (2 * self.pause).min(PAUSE_MAX);
    }

    /// Resets the pause after a connection was accepted.
    pub(super) fn accept_succeeded(&mut self) {
        self.pause = PAUSE_MIN;
        if self.file.is_none() {
            self.file = open();
        }
    }
}

fn open() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Whether an accept failed only because the peer is gone.
pub(super) fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | TimedOut)
}
