//! Latency statistics: spikes per event for LATENCY, a histogram per command, error counts and rates for INFO.
//!
//! Owns    the last spikes of every event, and the buckets of a histogram.
//! Source  Redis 7.0 `latency.c`: 160 samples an event, one a second; histogram bounds of its HDR histogram.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use redlatch_proto::number::total;

use super::metrics::Counter;

/// Spikes kept of an event.
const SAMPLES_MAX: usize = 160;

/// A latency spike: the longest duration within one second.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spike {
    /// When, in seconds since the Unix epoch.
    pub unix_secs: u64,
    /// How long, in milliseconds.
    pub millis: u64,
}

/// The spikes of one event.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Event {
    /// The last spikes, oldest first.
    pub spikes: VecDeque<Spike>,
    /// The longest since the start or LATENCY RESET, in milliseconds.
    pub longest_millis: u64,
}

/// The spikes of all events, by the event's name.
#[derive(Debug, Default)]
pub struct Latency(Mutex<BTreeMap<&'static str, Event>>);

impl Latency {
    /// Adds a spike of `event`. Only the longest of each second is kept.
    pub fn push(&self, event: &'static str, spike: Spike) {
        let mut events = self.0.lock();
        let event = events.entry(event).or_default();
        event.longest_millis = event.longest_millis.max(spike.millis);
        match event.spikes.back_mut() {
            Some(last) if last.unix_secs == spike.unix_secs => last.millis = last.millis.max(spike.millis),
            _ => event.spikes.push_back(spike),
        }
        if event.spikes.len() > SAMPLES_MAX {
            event.spikes.pop_front();
        }
    }

    /// The events that have spikes, by name.
    pub fn events(&self) -> Vec<(&'static str, Event)> {
        self.0.lock().iter().map(|(name, event)| (*name, event.clone())).collect()
    }

    /// The spikes of one event, if it has any. The name may be in any letter case.
    pub fn event(&self, name: &[u8]) -> Option<(&'static str, Event)> {
        self.events().into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()))
    }

    /// Removes the spikes of one event; false if it had none.
    pub fn forget(&self, name: &[u8]) -> bool {
        let mut events = self.0.lock();
        let before = events.len();
        events.retain(|known, _| !name.eq_ignore_ascii_case(known.as_bytes()));
        events.len() < before
    }

    /// Removes the spikes of all events; returns how many events that were.
    pub(crate) fn forget_all(&self) -> usize {
        std::mem::take(&mut *self.0.lock()).len()
    }
}

/// Buckets of a histogram. The last one counts every duration from about one second up.
const BUCKETS: usize = 21;

/// A histogram of durations, with buckets that double. They are allocated with the first duration: most commands of the
/// table are never called.
#[derive(Debug, Default)]
pub struct Histogram(OnceLock<Box<[Counter; BUCKETS]>>);

impl Histogram {
    /// Counts one duration in microseconds.
    pub fn add(&self, micros: u64) {
        let nanos = micros.saturating_mul(1000);
        let bucket = (0..BUCKETS).find(|bucket| nanos <= bound_nanos(*bucket)).unwrap_or(BUCKETS - 1);
        self.0.get_or_init(Box::default)[bucket].add(1);
    }

    /// For each bucket with durations: its bound in microseconds, and the number of durations up to it.
    pub(crate) fn cumulative(&self) -> Vec<(u64, u64)> {
        let mut sum = 0;
        let mut steps = Vec::new();
        for (bucket, counter) in self.counters().enumerate().filter(|(_, counter)| counter.get() > 0) {
            sum = total([sum, counter.get()]);
            steps.push((bound_nanos(bucket) / 1000, sum));
        }
        steps
    }

    /// The microseconds that `percent` of the durations did not exceed, rounded up to the bound of a bucket.
    pub fn percentile(&self, percent: f64) -> f64 {
        let all = total(self.counters().map(Counter::get));
        let wanted = (all as f64 * percent / 100.0).ceil() as u64;
        let mut sum = 0;
        for (bucket, counter) in self.counters().enumerate() {
            sum = total([sum, counter.get()]);
            if sum >= wanted && sum > 0 {
                return bound_nanos(bucket) as f64 / 1000.0;
            }
        }
        0.0
    }

    fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.0.get().into_iter().flat_map(|buckets| buckets.iter())
    }

    pub fn reset(&self) {
        self.counters().for_each(Counter::reset);
    }
}

/// The upper bound of a bucket, in nanoseconds: 1024 << bucket, and the width of an HDR sub-bucket.
const fn bound_nanos(bucket: usize) -> u64 {
    (((1024 + 8) << bucket) as u64).saturating_sub(1)
}

/// Error replies by their first word.
#[derive(Debug, Default)]
pub(crate) struct ErrorCodes(Mutex<BTreeMap<Box<str>, u64>>);

/// Codes counted separately. A bound, because scripts can return any code.
const CODES_MAX: usize = 128;
/// Bytes of a code. A longer one is not counted.
const CODE_BYTES_MAX: usize = 64;

impl ErrorCodes {
    /// Counts an error reply of that text.
    pub(crate) fn add(&self, text: &str) {
        let code = text.split(' ').next().unwrap_or_default();
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(code) {
            *count = count.saturating_add(1);
        } else if counts.len() < CODES_MAX && code.len() <= CODE_BYTES_MAX {
            counts.insert(code.into(), 1);
        }
    }

    /// Codes and how often each was sent, by code.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        self.0.lock().iter().map(|(code, count)| (code.to_string(), *count)).collect()
    }

    /// Starts again with none.
    pub(crate) fn reset(&self) {
        self.0.lock().clear();
    }
}

/// Samples of three counters over time, for rates per second.
#[derive(Debug, Default)]
pub struct Rates {
    samples: Mutex<VecDeque<(u64, [u64; 3])>>,
    last_ms: std::sync::atomic::AtomicU64,
}

/// Milliseconds between two samples, at least.
const SAMPLE_MS: u64 = 100;
/// Samples kept: a rate is that of the last second and a half, where samples are taken as often as they may.
const SAMPLES_KEPT: usize = 16;

impl Rates {
    /// Takes a sample, unless the last one is younger than `SAMPLE_MS`.
    #[inline]
    pub fn sample(&self, now_ms: u64, counts: impl FnOnce() -> [u64; 3]) {
        if now_ms.saturating_sub(self.last_ms.load(Relaxed)) < SAMPLE_MS {
            return;
        }
        self.last_ms.store(now_ms, Relaxed);
        let mut samples = self.samples.lock();
        samples.push_back((now_ms, counts()));
        if samples.len() > SAMPLES_KEPT {
            samples.pop_front();
        }
    }

    /// Growth per second since the oldest sample; zero without a sample, or if the counter was reset.
    pub(crate) fn per_sec(&self, now_ms: u64, counts: [u64; 3]) -> [f64; 3] {
        let Some((then_ms, then)) = self.samples.lock().front().copied() else { return [0.0; 3] };
        let secs = now_ms.saturating_sub(then_ms) as f64 / 1000.0;
        let rate = |at: usize| counts[at].saturating_sub(then[at]) as f64 / secs;
        if secs > 0.0 { [rate(0), rate(1), rate(2)] } else { [0.0; 3] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_the_longest_of_each_second_and_of_all() {
        let latency = Latency::default();
        for (unix_secs, millis) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            latency.push("command", Spike { unix_secs, millis });
        }
        let (_, event) = latency.event(b"COMMAND").unwrap();
        let seen: Vec<_> = event.spikes.iter().map(|spike| (spike.unix_secs, spike.millis)).collect();
        assert_eq!((seen.as_slice(), event.longest_millis), (&[(1, 9), (2, 3)][..], 9));
        assert!(latency.forget(b"command"));
        assert!(!latency.forget(b"command"));
    }

    #[test]
    fn an_event_forgets_what_is_oldest() {
        let latency = Latency::default();
        for unix_secs in 0..200 {
            latency.push("command", Spike { unix_secs, millis: 1 });
        }
        let (_, event) = latency.event(b"command").unwrap();
        assert_eq!((event.spikes.len(), event.spikes[0].unix_secs), (160, 40));
        assert_eq!(latency.forget_all(), 1);
    }

    #[test]
    fn a_histogram_has_the_bounds_of_redis() {
        let histogram = Histogram::default();
        for micros in [0, 1, 2, 30, 33, 34, 20_089, u64::MAX] {
            histogram.add(micros);
        }
        let bounds = [(1, 2), (2, 3), (33, 5), (66, 6), (33_816, 7), (1_082_130, 8)];
        assert_eq!(histogram.cumulative(), bounds);
        assert_eq!(histogram.percentile(50.0), 33.023);
    }

    #[test]
    fn error_codes_stay_bounded() {
        let codes = ErrorCodes::default();
        codes.add("ERR one");
        codes.add("ERR two");
        (0..1000).for_each(|code| codes.add(&format!("X{code} made up")));
        assert_eq!(codes.all().len(), CODES_MAX);
        assert!(codes.all().contains(&("ERR".to_owned(), 2)));
    }

    #[test]
    fn a_rate_is_growth_over_time() {
        let rates = Rates::default();
        rates.sample(1_000, || [10, 0, 0]);
        rates.sample(1_050, || unreachable!("the last sample is fresh"));
        assert_eq!(rates.per_sec(3_000, [30, 4, 0]), [10.0, 2.0, 0.0]);
        assert_eq!(rates.per_sec(1_000, [30, 4, 0]), [0.0; 3]);
    }
}
