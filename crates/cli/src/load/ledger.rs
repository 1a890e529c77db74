//! What the clients know of each lock together: who holds it for certain, since when it is free, its last token.
//!
//! Rule    a hold is certain from the moment at which its grant has been received until its release is sent, but no longer
//!         than the lease counted from before it was granted. Two certain holds of one lock at once are two owners at
//!         once, whatever the network did.
//! Rule    grants are noted after they were received, releases before they are sent: so the order of the notes is one in
//!         which the server cannot have had fewer holders than are noted.
//! Time    the time of a grant is read while its lock is locked: notes are in the order of their times. A
//!         client that was stopped between its answer and its note is late, and does not overlap with those after it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// All locks of a load.
#[derive(Debug)]
pub(super) struct Ledger {
    locks: Vec<Mutex<Lock>>,
}

#[derive(Clone, Debug, Default)]
struct Lock {
    hold: Option<Hold>,
    /// When the last release began to be sent.
    released: Option<Instant>,
    token: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    client: usize,
    /// Until then it is certain.
    until: Instant,
}

/// A grant that a client has received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) client: usize,
    /// When the first request for it was sent.
    pub(super) asked: Instant,
    pub(super) received: Instant,
    /// A moment at which its lease had not begun.
    pub(super) lease_from: Instant,
    pub(super) lease: Duration,
    pub(super) token: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Noted {
    /// Another client holds the lock for certain.
    pub(super) overlaps_in_time: bool,
    /// The token is not above that of the grant before it.
    pub(super) token_falls: bool,
    /// From the release by the last holder, if this client was waiting then.
    pub(super) hand_over: Option<Duration>,
}

impl Ledger {
    pub(super) fn new(count: usize) -> Self {
        Self { locks: (0..count).map(|_| Mutex::default()).collect() }
    }

    /// Whether somebody holds the lock for certain.
    pub(super) fn is_held(&self, now: Instant, key: usize) -> bool {
        self.locks[key].lock().hold.is_some_and(|hold| now < hold.until)
    }

    /// A grant has been received. `clock` tells the time.
    pub(super) fn grant(&self, key: usize, grant: Grant, clock: impl FnOnce() -> Instant) -> Noted {
        let until = grant.lease_from + grant.lease.saturating_sub(margin(grant.lease));
        let mut lock = self.locks[key].lock();
        let now = clock();
        // A grant whose lease may have ended while it travelled says nothing: others may have had the lock since.
        if now >= until {
            return Noted::default();
        }
        let overlaps_in_time = lock.hold.is_some_and(|hold| hold.client != grant.client && now < hold.until);
        let token_falls = grant.token.zip(lock.token).is_some_and(|(token, last)| token <= last);
        let waited = lock.released.take().filter(|released| grant.asked <= *released);
        lock.hold = Some(Hold { client: grant.client, until });
        lock.token = grant.token.max(lock.token);
        let hand_over = waited.map(|released| grant.received.saturating_duration_since(released));
        Noted { overlaps_in_time, token_falls, hand_over }
    }

    /// A release is about to be sent, or a client gives up what it may hold.
    pub(super) fn release(&self, now: Instant, key: usize, client: usize) {
        let mut lock = self.locks[key].lock();
        if lock.hold.is_some_and(|hold| hold.client == client) {
            lock.hold = None;
            lock.released = Some(now);
        }
    }
}

/// What a lease may lack on a server that counts whole milliseconds of a wall clock, which may be adjusted by 500 ppm.
fn margin(lease: Duration) -> Duration {
    Duration::from_millis(2) + lease / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(1);

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    fn grant(client: usize, asked: Instant, token: Option<u64>) -> Grant {
        Grant { client, asked, received: asked, lease_from: asked, lease: LEASE, token }
    }

    impl Ledger {
        /// Notes a grant that has been received now.
        fn grant_at(&self, now: Instant, key: usize, grant: Grant) -> Noted {
            self.grant(key, Grant { received: now, ..grant }, || now)
        }
    }

    #[test]
    fn a_hand_over_is_from_a_release_to_the_grant_of_one_who_waited() {
        let (ledger, start) = (Ledger::new(1), Instant::now());
        assert_eq!(ledger.grant_at(at(start, 1), 0, grant(1, start, Some(1))), Noted::default());
        assert!(ledger.is_held(at(start, 2), 0));
        ledger.release(at(start, 10), 0, 1);
        assert!(!ledger.is_held(at(start, 10), 0));
        let noted = ledger.grant_at(at(start, 13), 0, grant(2, at(start, 5), Some(2)));
        assert_eq!(noted, Noted { hand_over: Some(Duration::from_millis(3)), ..Noted::default() });
        ledger.release(at(start, 20), 0, 2);
        let noted = ledger.grant_at(at(start, 30), 0, grant(1, at(start, 25), Some(3)));
        assert_eq!(noted, Noted::default(), "nobody waited");
    }

    #[test]
    fn two_certain_holders_at_once_are_found_and_a_lease_that_has_ended_is_not() {
        let (ledger, start) = (Ledger::new(2), Instant::now());
        ledger.grant_at(at(start, 1), 0, grant(1, start, None));
        assert_eq!(ledger.grant_at(at(start, 2), 1, grant(2, start, None)), Noted::default(), "another lock");
        assert!(ledger.grant_at(at(start, 2), 0, grant(2, start, None)).overlaps_in_time);
        let noted = ledger.grant_at(at(start, 1_000), 0, grant(1, at(start, 999), None));
        assert!(!noted.overlaps_in_time, "the lease of the second may have ended");
        ledger.release(at(start, 1_001), 0, 2);
        assert!(ledger.is_held(at(start, 1_002), 0), "only the holder releases");
    }

    #[test]
    fn a_token_that_does_not_rise_is_found_unless_its_grant_was_late() {
        let (ledger, start) = (Ledger::new(1), Instant::now());
        ledger.grant_at(at(start, 1), 0, grant(1, start, Some(7)));
        ledger.release(at(start, 2), 0, 1);
        assert!(ledger.grant_at(at(start, 4), 0, grant(2, at(start, 3), Some(7))).token_falls);
        ledger.release(at(start, 5), 0, 2);
        let late = ledger.grant_at(at(start, 2_000), 0, grant(3, at(start, 3), Some(6)));
        assert_eq!(late, Noted::default());
        assert!(!ledger.is_held(at(start, 2_000), 0));
    }

    #[test]
    fn a_client_that_was_stopped_before_its_note_is_late() {
        let (ledger, start) = (Ledger::new(1), Instant::now());
        // The first was granted and then stopped. Its lease ended, and the second was granted the lock.
        let first = grant(1, start, None);
        ledger.grant_at(at(start, 1_500), 0, grant(2, at(start, 1_400), None));
        let noted = ledger.grant(0, Grant { received: at(start, 1), ..first }, || {
            assert!(ledger.locks[0].is_locked(), "no note comes between the time and this one");
            at(start, 1_501)
        });
        assert_eq!(noted, Noted::default());
    }
}
