//! When acquisitions are meant to begin.
//!
//! Rule    in an open loop the beginnings are fixed beforehand, whether or not a client is free. Latency counts from the
//!         beginning that was meant, so that a server that stops for a second shows in all acquisitions that should have
//!         begun in that second, not in one (coordinated omission).

use std::time::{Duration, Instant};

/// The beginnings of the acquisitions of one thread.
#[derive(Clone, Debug)]
pub(super) enum Schedule {
    /// Each client begins when it is free.
    Closed,
    /// In equal intervals.
    Open { start: Instant, interval: Duration, begun: u32 },
}

impl Schedule {
    /// Of `rate` acquisitions in a second; without one a closed loop.
    pub(super) fn new(start: Instant, rate: Option<f64>) -> Self {
        match rate {
            None => Self::Closed,
            Some(rate) => Self::Open { start, interval: Duration::from_secs_f64(1.0 / rate), begun: 0 },
        }
    }

    /// How many acquisitions should have begun before `end` and have not.
    pub(super) fn due(&self, end: Instant) -> u64 {
        match self {
            Self::Closed => 0,
            Self::Open { start, interval, begun } => {
                let next = *start + *interval * *begun;
                let late = end.saturating_duration_since(next).as_nanos();
                u64::try_from(late.div_ceil(interval.as_nanos().max(1))).unwrap_or(u64::MAX)
            }
        }
    }

    /// The beginning of the next acquisition, for a client that is free now. It may be over, or yet to come.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        match self {
            Self::Closed => now,
            Self::Open { start, interval, begun } => {
                if *begun == u32::MAX {
                    *start += *interval * *begun;
                    *begun = 0;
                }
                let next = *start + *interval * *begun;
                *begun += 1;
                next
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 99th percentile of the latency that one client measures on a server that takes 1 ms, but stops once for a second.
    fn p99_ms(rate: Option<f64>) -> u128 {
        let start = Instant::now();
        let (mut schedule, mut now, mut latencies) = (Schedule::new(start, rate), start, Vec::new());
        while now < start + Duration::from_secs(10) {
            let begin = schedule.next(now);
            let sent = now.max(begin);
            let is_in_the_stop =
                sent >= start + Duration::from_secs(5) && now < start + Duration::from_secs(5) + STEP;
            now = sent + if is_in_the_stop { Duration::from_secs(1) } else { STEP };
            latencies.push((now - begin).as_millis());
        }
        latencies.sort_unstable();
        latencies[latencies.len() * 99 / 100]
    }

    const STEP: Duration = Duration::from_millis(1);

    #[test]
    fn an_open_loop_counts_from_the_beginning_that_was_meant() {
        assert_eq!(p99_ms(None), 1, "a closed loop has sent one request into the stop");
        let corrected = p99_ms(Some(500.0));
        // At 500 in a second, half of the capacity, the backlog of one second is worked off in another one: of 5,000
        // acquisitions 1,000 were late, evenly by up to a second. The 99th percentile of all is the 95th of these.
        assert!((930..=970).contains(&corrected), "{corrected} ms");
    }

    #[test]
    fn what_should_have_begun_is_counted() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, Some(1_000.0));
        schedule.next(start);
        assert_eq!(schedule.due(start), 0);
        assert_eq!(schedule.due(start + Duration::from_micros(5_500)), 5);
        assert_eq!(Schedule::new(start, None).due(start + STEP), 0);
    }

    #[test]
    fn beginnings_keep_their_distance_however_many_there_were() {
        let start = Instant::now();
        let interval = Duration::from_millis(1);
        let mut schedule = Schedule::Open { start, interval, begun: u32::MAX - 1 };
        let [first, second, third] = [(); 3].map(|()| schedule.next(start));
        assert_eq!((second - first, third - second), (interval, interval));
    }
}
