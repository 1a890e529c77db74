//! Polling: a client that is refused a lock and asks for it again and again.
//!
//! Owns    one slot per client: the key of which it was refused last, since when, and how often it asks.
//! Rule    only the client's own call writes its slot. Other clients read it without a lock, so what they see may be torn
//!         between two refusals.
//! Bounds  no key is stored, but its hash; a client counts for one key at a time.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use redlatch_proto::clock::LockTime;

/// The slot of one client.
#[derive(Debug, Default)]
pub struct Polling {
    /// The hash of the key; see `View::key_hash`.
    key: AtomicU64,
    first_ms: AtomicU64,
    last_ms: AtomicU64,
    /// The mean interval, of which the latest interval is one half.
    mean_ms: AtomicU32,
    /// Refusals; zero: the client does not poll.
    refusals: AtomicU32,
    /// Whether the log says how long it has polled.
    is_reported: AtomicBool,
}

/// A client that polls a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Polls {
    /// The first refusal.
    pub since: LockTime,
    /// The mean interval between refusals, in milliseconds.
    pub mean_ms: u32,
    /// How often it was refused.
    pub refusals: u32,
}

/// The clients that poll one lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pollers {
    /// How many there are.
    pub clients: usize,
    /// The first refusal of any of them.
    pub since: LockTime,
    /// How often they were refused, together.
    pub refusals: u64,
}

impl Pollers {
    /// The pollers of a lock that polls so, and these; `None`: there were none.
    #[must_use]
    pub fn with(pollers: Option<Self>, polls: Polls) -> Self {
        let Self { clients, since, refusals } =
            pollers.unwrap_or(Self { clients: 0, since: polls.since, refusals: 0 });
        Self {
            clients: clients.saturating_add(1),
            since: since.min(polls.since),
            refusals: refusals.saturating_add(polls.refusals.into()),
        }
    }
}

impl Polling {
    /// The client was refused the lock of that hash. Refusals in one millisecond have no interval between them. Returns true
    /// once: when it has polled for `long_ms` milliseconds; 0: never.
    pub fn note(&self, key: u64, now: LockTime, long_ms: u64) -> bool {
        let mut is_long = false;
        let last = LockTime::from_millis(self.last_ms.load(Relaxed));
        let refusals = self.refusals.load(Relaxed);
        let is_first_interval = self.is_of_one_instant();
        if refusals == 0 || self.key.load(Relaxed) != key || self.has_given_up(now) {
            self.key.store(key, Relaxed);
            self.first_ms.store(now.as_millis(), Relaxed);
            self.mean_ms.store(0, Relaxed);
            self.refusals.store(1, Relaxed);
            self.is_reported.store(false, Relaxed);
        } else {
            self.refusals.store(refusals.saturating_add(1), Relaxed);
        }
        if last != now && self.refusals.load(Relaxed) > 1 {
            let interval = bounded(now.millis_since(last));
            let mean =
                if is_first_interval { interval } else { self.mean_ms.load(Relaxed).midpoint(interval) };
            self.mean_ms.store(mean, Relaxed);
            let polled_ms = now.millis_since(LockTime::from_millis(self.first_ms.load(Relaxed)));
            is_long = long_ms > 0 && polled_ms >= long_ms && !self.is_reported.swap(true, Relaxed);
        }
        self.last_ms.store(now.as_millis(), Relaxed);
        is_long
    }

    /// The report of [`Polling::note`] was left out: its end is not reported either.
    pub(crate) fn forget_report(&self) {
        self.is_reported.store(false, Relaxed);
    }

    /// The client polls no more: it has a lock. Returns true if [`Polling::note`] was: [`Polling::reported`] says what of.
    #[inline]
    pub fn end(&self) -> bool {
        self.refusals.store(0, Relaxed);
        self.is_reported.load(Relaxed) && self.is_reported.swap(false, Relaxed)
    }

    /// The hash of the lock that the client has polled last, and since when.
    pub fn reported(&self) -> (u64, LockTime) {
        (self.key.load(Relaxed), LockTime::from_millis(self.first_ms.load(Relaxed)))
    }

    /// Whether the client was refused a lock since it was granted one.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.refusals.load(Relaxed) > 0
    }

    /// Whether the client was refused the lock of that hash, and is likely to have asked for it since.
    pub fn is_of(&self, key: u64, now: LockTime) -> bool {
        self.is_on() && self.key.load(Relaxed) == key && !self.has_given_up(now)
    }

    /// How the client polls the lock of that hash, if it still does.
    pub fn polls(&self, key: u64, now: LockTime) -> Option<Polls> {
        self.current(now).filter(|(polled, _)| *polled == key).map(|(_, polls)| polls)
    }

    /// The hash of the lock that the client polls, and how, if it polls one: it was refused in two milliseconds, and not long
    /// ago.
    pub fn current(&self, now: LockTime) -> Option<(u64, Polls)> {
        let refusals = self.refusals.load(Relaxed);
        if refusals < 2 || self.is_of_one_instant() || self.has_given_up(now) {
            return None;
        }
        let since = LockTime::from_millis(self.first_ms.load(Relaxed));
        Some((self.key.load(Relaxed), Polls { since, mean_ms: self.mean_ms.load(Relaxed), refusals }))
    }

    /// Whether all refusals came in one millisecond.
    fn is_of_one_instant(&self) -> bool {
        self.first_ms.load(Relaxed) == self.last_ms.load(Relaxed)
    }

    /// Whether it has not asked for several of its own intervals. The second refusal may come later.
    fn has_given_up(&self, now: LockTime) -> bool {
        let quiet = now.millis_since(LockTime::from_millis(self.last_ms.load(Relaxed)));
        let allowed = match self.is_of_one_instant() {
            true => INTERVAL_MS_MAX,
            false => {
                INTERVALS_MISSED.saturating_mul(self.mean_ms.load(Relaxed).into()).saturating_add(SLACK_MS)
            }
        };
        quiet > allowed
    }
}

fn bounded(millis: u64) -> u32 {
    u32::try_from(millis).unwrap_or(u32::MAX)
}

/// A client whose retries are further apart does not poll. Lock clients retry within seconds.
const INTERVAL_MS_MAX: u64 = 60_000;
/// After that many of its intervals without a request, a client polls no more. Clients that double their interval stay
/// below: the next interval is three times this mean.
const INTERVALS_MISSED: u64 = 4;
/// Added to these, because a client that retries every millisecond may be held up for a few.
const SLACK_MS: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> LockTime {
        LockTime::from_millis(millis)
    }

    /// A client that was refused at these times.
    fn refused(times: &[u64]) -> Polling {
        let polling = Polling::default();
        for time in times {
            assert!(!polling.note(7, at(*time), 0), "nothing is long");
        }
        polling
    }

    #[test]
    fn a_client_that_is_refused_twice_polls_until_it_misses_a_few_of_its_intervals() {
        assert_eq!(refused(&[]).polls(7, at(1)), None);
        assert_eq!(refused(&[100]).polls(7, at(100)), None, "refused once");
        let polling = refused(&[100, 200, 300]);
        let polls = Polls { since: at(100), mean_ms: 100, refusals: 3 };
        assert_eq!(polling.polls(7, at(300)), Some(polls));
        assert_eq!(polling.polls(7, at(720)), Some(polls));
        assert_eq!(polling.polls(7, at(721)), None, "four intervals without a request");
        assert_eq!(polling.polls(8, at(300)), None, "another key");
        polling.end();
        assert_eq!(polling.polls(7, at(300)), None, "it has the lock");
    }

    #[test]
    fn a_client_that_doubles_its_interval_polls_on() {
        let times: Vec<u64> = (0..12).map(|n| 10 << n).collect();
        let polls = refused(&times).polls(7, at(10 << 11)).expect("it polls");
        assert_eq!((polls.since, polls.refusals), (at(10), 12));
    }

    #[test]
    fn another_key_or_a_long_pause_begins_anew() {
        let polling = refused(&[100, 200, 300]);
        polling.note(8, at(310), 0);
        assert_eq!((polling.polls(7, at(310)), polling.polls(8, at(310))), (None, None));
        polling.note(8, at(320), 0);
        assert_eq!(polling.polls(8, at(320)).map(|polls| polls.since), Some(at(310)));
        for later in [5_000, 5_100] {
            polling.note(8, at(later), 0);
        }
        assert_eq!(polling.polls(8, at(5_100)).map(|polls| polls.since), Some(at(5_000)));
        assert_eq!(refused(&[0, 60_001]).polls(7, at(60_001)), None, "too rarely");
    }

    #[test]
    fn each_refusal_of_one_millisecond_counts_and_makes_no_interval() {
        assert_eq!(refused(&[100, 100, 100]).polls(7, at(100)), None, "asked at once, and not again");
        let polls = refused(&[100, 100, 150, 150, 150])
            .polls(7, at(150))
            .map(|polls| (polls.refusals, polls.mean_ms));
        assert_eq!(polls, Some((5, 50)));
        let fast: Vec<u64> = (0..1_000).map(|n| 100 + n / 50).collect();
        assert_eq!(
            refused(&fast).polls(7, at(119)).map(|polls| (polls.refusals, polls.mean_ms)),
            Some((1_000, 1))
        );
    }

    #[test]
    fn a_client_that_polls_for_long_is_reported_once_until_it_has_the_lock() {
        let polling = Polling::default();
        let long: Vec<bool> = (0..6).map(|n| polling.note(7, at(100 + 400 * n), 1_000)).collect();
        assert_eq!(long, [false, false, false, true, false, false]);
        assert_eq!(polling.reported(), (7, at(100)));
        assert_eq!((polling.end(), polling.end()), (true, false));
        assert!(!polling.note(7, at(2_200), 1_000), "it begins anew");
        assert!(!polling.end());
    }
}
