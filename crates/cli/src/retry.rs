//! A server that does not serve for a moment is asked again.
//!
//! Owns    which errors end by themselves, and the pauses between two tries.
//! Rule    without a time limit, a server that has never answered is not asked again: its URL may be wrong. One that has
//!         answered is asked until it answers again.

use std::time::Duration;

use redlatch_client::wire::{Target, random};
use redlatch_client::{Error, Locks, Trust};
use tokio::time::{Instant, sleep_until};

use super::{texts, warn};

/// The tries of one subcommand.
#[derive(Debug)]
pub(super) struct Retry {
    /// When the last try begins; `None`: never.
    until: Option<Instant>,
    /// Whether the server has answered once.
    has_answered: bool,
    /// Whether the server has not answered since [`Retry::answered`].
    is_interrupted: bool,
    /// When the present try began.
    tried: Instant,
    pause: Duration,
}

impl Retry {
    /// `limit`: for how long to try; `None`: without a limit.
    pub(super) fn within(limit: Option<Duration>) -> Self {
        let until = limit.map(|limit| Instant::now() + limit);
        let (has_answered, is_interrupted, tried) = (false, false, Instant::now());
        Self { until, has_answered, is_interrupted, tried, pause: PAUSE_MIN }
    }

    /// What is left of the time; `None`: no limit.
    pub(super) fn left(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Connects and asks, with what is left of the time, until the server serves.
    ///
    /// # Errors
    /// The last error, if it does not end by itself or if there is no further try.
    pub(super) async fn ask<A, F>(
        &mut self,
        (target, trust): &(Target, Trust),
        ask: impl Fn(Locks, Option<Duration>) -> F,
    ) -> Result<A, Error>
    where
        F: Future<Output = Result<A, Error>>,
    {
        loop {
            let error = match Locks::to(target.clone(), trust.clone()).await {
                Ok(locks) => {
                    self.connected();
                    match ask(locks, self.left()).await {
                        Ok(answer) => return Ok(answer),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            self.again(error).await?;
        }
    }

    /// Whether the server has ever answered.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// The server can be reached, and may answer.
    pub(super) fn connected(&mut self) {
        self.has_answered = true;
    }

    /// The server has answered: the next interruption begins with a short pause.
    pub(super) fn answered(&mut self) {
        self.has_answered = true;
        self.begin_anew();
    }

    fn begin_anew(&mut self) {
        self.is_interrupted = false;
        self.pause = PAUSE_MIN;
    }

    /// Returns when the next try is due. The first error of an interruption is told on the error stream.
    ///
    /// # Errors
    /// The error, if it does not end by itself or if there is no further try.
    pub(super) async fn again(&mut self, error: Error) -> Result<(), Error> {
        let cause = cause(&error);
        self.has_answered |= cause == Cause::Refusal;
        let may_try = match self.left() {
            Some(left) => !left.is_zero(),
            None => self.has_answered,
        };
        if cause == Cause::Lasting || !may_try {
            return Err(error);
        }
        if self.tried.elapsed() >= LONG_TRY {
            self.begin_anew();
        }
        if !self.is_interrupted {
            self.is_interrupted = true;
            warn(&format!("{}; trying again", texts::readable(error.to_string().as_bytes())));
        }
        // Half of the pause is random, so that those who wait do not ask in step.
        let half_ms = u64::try_from(self.pause.as_millis() / 2).unwrap_or(u64::MAX);
        let next = Instant::now() + Duration::from_millis(half_ms + random() % half_ms.max(1));
        sleep_until(self.until.map_or(next, |until| until.min(next))).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.tried = Instant::now();
        Ok(())
    }
}

/// Whether an error reply ends by itself.
pub(super) fn is_passing_refusal(error: &Error) -> bool {
    cause(error) == Cause::Refusal
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
        Error::Unreachable(_) => Cause::NoConnection,
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

/// The codes of error replies that end by themselves, of redlatch and of other servers: a script runs, memory is full, the
/// journal cannot be written, the server has just started or shuts down, a slot has another node since its nodes were asked.
const PASSING: &[&str] = &[
    "ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "OOM", "QUARANTINE",
    "SHUTDOWN", "TRYAGAIN",
];
/// What a server answers where `maxclients` connections are open.
pub(super) const FULL: &str = "ERR max number of clients reached";
/// The pause before the second try, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// After this time a try was a wait at a server that served: the interruption that ends it is a new one.
const LONG_TRY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Error {
        Error::Refused(text.to_owned())
    }

    fn unreachable() -> Error {
        Error::Unreachable("connection refused".to_owned())
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
