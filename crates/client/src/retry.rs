//! A call that failed is tried again.
//!
//! Owns    which errors end by themselves, how long a call goes on, and the pauses between two tries.
//! Rule    without a time limit, a server that has never answered is given up: its URL may be wrong. One that
//!         has answered is asked until it answers again.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::error::Error;
use super::limits::{PAUSE_MAX, PAUSE_MIN, TRIES_MIN};
use super::locks::random;

/// The tries of one call.
#[derive(Debug)]
pub struct Retry {
    /// Until when there is another try; `None`: without a limit.
    until: Option<Instant>,
    /// Until when there is another try while there were less than `tries_min`.
    end: Instant,
    tries_min: u32,
    failures: u32,
    /// Whether the server has answered once.
    has_answered: bool,
    /// Whether a try was answered: the server may know a holder.
    was_told: bool,
    /// Whether the server has not answered since [`Retry::answered`].
    is_interrupted: bool,
    /// When the present try began.
    tried: Instant,
    pause: Duration,
    tell: Option<fn(&Error)>,
}

impl Retry {
    /// `limit`: for how long to try; `None`: without a limit.
    pub fn within(limit: Option<Duration>) -> Self {
        let now = Instant::now();
        Self {
            until: limit.and_then(|limit| now.checked_add(limit)),
            end: now,
            tries_min: 1,
            failures: 0,
            has_answered: false,
            was_told: false,
            is_interrupted: false,
            tried: now,
            pause: PAUSE_MIN,
            tell: None,
        }
    }

    /// The tries of a call that waits for so long, and has this budget beside: a few at least.
    pub fn of_call(budget: Duration, wait: Option<Duration>) -> Self {
        let retry = Self::within(wait);
        let begun = retry.until.unwrap_or(retry.tried);
        Self { end: begun.checked_add(budget).unwrap_or(begun), tries_min: TRIES_MIN, ..retry }
    }

    /// One try alone.
    #[must_use]
    pub fn once(self) -> Self {
        Self { tries_min: 1, ..self }
    }

    /// Has the first error of each interruption of a wait told.
    #[must_use]
    pub fn telling(self, tell: Option<fn(&Error)>) -> Self {
        Self { tell, ..self }
    }

    /// Until when the call waits; `None`: without a limit.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// What is left of the time; `None`: no limit.
    pub fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// How many tries have failed.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A try was answered, whatever the answer is.
    pub fn told(&mut self) {
        self.was_told = true;
    }

    /// Whether a try was answered.
    pub fn was_told(&self) -> bool {
        self.was_told
    }

    /// The server can be reached, and may answer.
    pub fn connected(&mut self) {
        self.has_answered = true;
    }

    /// The server has answered: the next interruption begins with a short pause.
    pub fn answered(&mut self) {
        self.has_answered = true;
        self.begin_anew();
    }

    fn begin_anew(&mut self) {
        self.is_interrupted = false;
        self.pause = PAUSE_MIN;
    }

    /// Returns when the next try is due: at the end of the wait at the latest.
    ///
    /// # Errors
    /// The error, if it does not end by itself or if there is no further try.
    pub async fn again(&mut self, error: Error) -> Result<(), Error> {
        let cause = cause(&error);
        self.has_answered |= cause == Cause::Refusal;
        self.was_told |= cause != Cause::NoConnection;
        self.failures += 1;
        let now = Instant::now();
        let waits = match self.until {
            Some(until) => now < until,
            None => self.has_answered,
        };
        let until = match waits {
            true => self.until,
            false => Some(self.end).filter(|_| self.failures < self.tries_min),
        };
        let may_try = waits || until.is_some_and(|until| now < until);
        if cause == Cause::Lasting || !may_try {
            return Err(error);
        }
        if self.tried.elapsed() >= LONG_TRY {
            self.begin_anew();
        }
        if waits && !std::mem::replace(&mut self.is_interrupted, true) {
            self.tell.iter().for_each(|tell| tell(&error));
        }
        // Half of the pause is random, so that those who wait do not ask in step.
        let half_ms = u64::try_from(self.pause.as_millis() / 2).unwrap_or(u64::MAX);
        let next = now + Duration::from_millis(half_ms + random() % half_ms.max(1));
        sleep_until(until.map_or(next, |until| until.min(next))).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.tried = Instant::now();
        Ok(())
    }
}

/// Whether the same request may be served in a moment.
pub(crate) fn passes(error: &Error) -> bool {
    cause(error) != Cause::Lasting
}

/// What an error says of the next try.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    /// The next try has the same answer.
    Lasting,
    /// There is no connection.
    NoConnection,
    /// The server answers, and does not serve now.
    Refusal,
}

fn cause(error: &Error) -> Cause {
    match error {
        Error::Unreachable { .. } => Cause::NoConnection,
        Error::Refused(text) => {
            let code = text.split(' ').next().unwrap_or_default();
            match PASSING.contains(&code) || text == FULL {
                true => Cause::Refusal,
                false => Cause::Lasting,
            }
        }
        _ => Cause::Lasting,
    }
}

/// The codes of error replies that end by themselves, of redlatch and of other servers: a script runs, memory
/// is full, the journal cannot be written, the server has just started or shuts down, another node leads, a
/// slot has another node since its nodes were asked.
const PASSING: &[&str] = &[
    "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "OOM", "QUARANTINE",
    "READONLY", "SHUTDOWN", "TRYAGAIN",
];
/// What a server answers where `maxclients` connections are open.
pub const FULL: &str = "ERR max number of clients reached";
/// After this time a try was a wait at a server that served: the interruption that ends it is a new one.
const LONG_TRY: Duration = Duration::from_secs(60);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]
mod tests {
    use super::*;

    fn refused(text: &str) -> Error {
        Error::Refused(text.to_owned())
    }

    fn unreachable() -> Error {
        Error::unreachable("connection refused")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answered_is_tried_again_only_within_a_time_limit() {
        assert!(Retry::within(None).again(unreachable()).await.is_err());
        assert!(Retry::within(Some(Duration::ZERO)).again(unreachable()).await.is_err());
        let mut retry = Retry::within(Some(Duration::from_secs(5)));
        let (began, mut tries) = (Instant::now(), 0);
        while retry.again(unreachable()).await.is_ok() {
            tries += 1;
        }
        assert_eq!(began.elapsed(), Duration::from_secs(5), "the last try begins when the time is over");
        assert!((6..20).contains(&tries), "the pauses grow: {tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_wait_is_tried_three_times_but_not_beyond_its_budget() {
        for wait in [Some(Duration::ZERO), None] {
            let mut retry = Retry::of_call(Duration::from_secs(5), wait);
            retry.again(unreachable()).await.unwrap();
            retry.again(unreachable()).await.unwrap();
            assert!(retry.again(unreachable()).await.is_err());
            let mut retry = Retry::of_call(Duration::from_secs(5), wait);
            tokio::time::advance(Duration::from_secs(5)).await;
            assert!(retry.again(unreachable()).await.is_err());
        }
        let mut retry = Retry::of_call(Duration::from_secs(5), Some(Duration::ZERO)).once();
        assert!(retry.again(unreachable()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_answered_is_tried_again_without_a_limit() {
        for refusal in ["BUSY Redis is busy running a script.", "OOM command not allowed", FULL] {
            let mut retry = Retry::within(None);
            for _ in 0..1_000 {
                retry.again(refused(refusal)).await.expect("another try");
                retry.again(unreachable()).await.expect("another try");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interruption_after_a_long_wait_begins_with_a_short_pause() {
        let mut retry = Retry::within(None);
        retry.connected();
        for _ in 0..20 {
            retry.again(unreachable()).await.expect("another try");
        }
        for (waited, is_short) in [(LONG_TRY / 2, false), (LONG_TRY, true)] {
            tokio::time::advance(waited).await;
            let began = Instant::now();
            retry.again(unreachable()).await.expect("another try");
            assert_eq!(began.elapsed() <= PAUSE_MIN, is_short, "{waited:?}: {:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_by_itself_is_not_tried_again() {
        for error in [
            refused("NOAUTH Authentication required."),
            refused("DEADLOCK a (held by X) -> a"),
            refused("WRONGTYPE Operation"),
            refused("BUSYKEY"),
            Error::Broken("no reply".to_owned()),
            Error::Held(None),
        ] {
            let mut retry = Retry::within(Some(Duration::from_secs(5)));
            retry.answered();
            assert!(retry.again(error).await.is_err());
        }
    }
}
