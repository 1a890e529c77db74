//! The figures of a load: histograms and counts of one thread, which are added up at the end.
//!
//! Rule    memory is bounded whatever happens: a histogram has a fixed size, and different errors are counted up to a limit.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::plan::DURATION_MAX;

/// The figures of some clients.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// From the beginning that was meant to the grant.
    pub(super) acquire: Histogram<u64>,
    /// From the first request to the grant, of acquisitions that found the lock held.
    pub(super) wait: Histogram<u64>,
    /// From a release to the grant of the next client that waited.
    pub(super) hand_over: Histogram<u64>,
    /// From sending a release to its answer.
    pub(super) release: Histogram<u64>,
    pub(super) counts: Counts,
    /// Grants in each second since the start.
    pub(super) per_second: Vec<u64>,
    /// Grants of each client, by its number.
    pub(super) by_client: Vec<u64>,
    /// How often each error was met.
    pub(super) errors: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    pub(super) acquired: u64,
    /// Locks that were still held when they were released.
    pub(super) released: u64,
    /// Locks whose lease had ended before they were released.
    pub(super) outlived: u64,
    /// Acquisitions whose wait has ended without a grant.
    pub(super) given_up: u64,
    /// Acquisitions that waited when the load ended.
    pub(super) unfinished: u64,
    /// Answers that say that a lock is held.
    pub(super) refused: u64,
    pub(super) attempts: u64,
    pub(super) requests: u64,
    /// Two certain holders at once.
    pub(super) overlaps_in_time: u64,
    /// Tokens that did not rise.
    pub(super) falling_tokens: u64,
    /// Requests whose connection was lost before their answer.
    pub(super) lost_replies: u64,
    pub(super) connections_lost: u64,
    pub(super) reconnects: u64,
}

impl Figures {
    /// Nothing yet, for so many clients in all.
    pub(super) fn new(clients: usize) -> Self {
        Self {
            acquire: nanoseconds(),
            wait: nanoseconds(),
            hand_over: nanoseconds(),
            release: nanoseconds(),
            counts: Counts::default(),
            per_second: Vec::new(),
            by_client: vec![0; clients],
            errors: BTreeMap::new(),
        }
    }

    /// A lock was granted to a client, so long after the start.
    pub(super) fn granted(&mut self, client: usize, after: Duration) {
        self.counts.acquired += 1;
        self.by_client[client] += 1;
        let second = after.min(DURATION_MAX).as_secs() as usize;
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0);
        }
        self.per_second[second] += 1;
    }

    pub(super) fn error(&mut self, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect();
        let is_known = self.errors.len() < ERRORS_MAX || self.errors.contains_key(&text);
        *self.errors.entry(if is_known { text } else { OTHER_ERRORS.to_owned() }).or_default() += 1;
    }

    /// Adds the figures of other clients.
    pub(super) fn add(&mut self, other: &Self) {
        for (all, some) in [
            (&mut self.acquire, &other.acquire),
            (&mut self.wait, &other.wait),
            (&mut self.hand_over, &other.hand_over),
            (&mut self.release, &other.release),
        ] {
            all.add(some).expect("histograms of the same bounds");
        }
        self.counts.add(&other.counts);
        let longer = self.per_second.len().max(other.per_second.len());
        self.per_second.resize(longer, 0);
        add_each(&mut self.per_second, &other.per_second);
        add_each(&mut self.by_client, &other.by_client);
        for (text, count) in &other.errors {
            *self.errors.entry(text.clone()).or_default() += count;
        }
    }
}

impl Counts {
    /// Adds what was counted elsewhere.
    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            acquired,
            released,
            outlived,
            given_up,
            unfinished,
            refused,
            attempts,
            requests,
            overlaps_in_time,
            falling_tokens,
            lost_replies,
            connections_lost,
            reconnects,
        } = other;
        self.acquired += acquired;
        self.released += released;
        self.outlived += outlived;
        self.given_up += given_up;
        self.unfinished += unfinished;
        self.refused += refused;
        self.attempts += attempts;
        self.requests += requests;
        self.overlaps_in_time += overlaps_in_time;
        self.falling_tokens += falling_tokens;
        self.lost_replies += lost_replies;
        self.connections_lost += connections_lost;
        self.reconnects += reconnects;
    }
}

fn add_each(all: &mut [u64], some: &[u64]) {
    all.iter_mut().zip(some).for_each(|(all, some)| *all += some);
}

/// Adds a time. One beyond the bounds counts as the bound.
pub(super) fn record(times: &mut Histogram<u64>, time: Duration) {
    times.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// Jain's index of fairness: 1 if all have the same, 1/n if one of n has all. `None` if nobody has anything.
pub(super) fn fairness(shares: &[u64]) -> Option<f64> {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

fn nanoseconds() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, TIME_NS_MAX, 3).expect("bounds in order")
}

/// The longest time that a histogram tells apart: an hour. It takes some 300 kB.
const TIME_NS_MAX: u64 = 3_600_000_000_000;
/// Different errors that are told apart.
const ERRORS_MAX: usize = 20;
/// Characters of an error that are kept.
const ERROR_CHARS_MAX: usize = 160;
/// What the errors beyond the limit are counted as.
const OTHER_ERRORS: &str = "other errors";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_one_in_n_for_a_winner() {
        assert_eq!(fairness(&[5, 5, 5, 5]), Some(1.0));
        assert_eq!(fairness(&[20, 0, 0, 0]), Some(0.25));
        assert_eq!(fairness(&[3, 1]), Some(0.8));
        assert_eq!(fairness(&[0, 0]), None);
    }

    #[test]
    fn figures_of_two_threads_add_up() {
        let (mut one, mut two) = (Figures::new(3), Figures::new(3));
        one.granted(0, Duration::from_millis(100));
        two.granted(2, Duration::from_millis(2_100));
        two.granted(2, Duration::from_millis(100));
        record(&mut two.acquire, Duration::from_micros(500));
        record(&mut two.acquire, Duration::from_secs(9_999));
        two.error("ERR no");
        one.error("ERR no");
        one.add(&two);
        assert_eq!((one.counts.acquired, &one.per_second[..]), (3, &[2, 0, 1][..]));
        assert_eq!((&one.by_client[..], one.acquire.len()), (&[1, 0, 2][..], 2));
        assert_eq!(one.errors["ERR no"], 2);
    }

    #[test]
    fn different_errors_are_counted_up_to_a_limit() {
        let mut figures = Figures::new(1);
        (0..1_000).for_each(|n| figures.error(&format!("ERR {n}\x1b")));
        assert_eq!(figures.errors.len(), ERRORS_MAX + 1);
        assert_eq!(figures.errors.values().sum::<u64>(), 1_000);
        assert!(figures.errors.keys().all(|text| !text.contains('\x1b')));
    }
}
