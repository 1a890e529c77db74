//! The counters of the server. How they are shown is in the metrics table, `commands/admin/metrics_table.rs`.
//!
//! Rule    counters are relaxed atomics. A connection adds to them once per batch, not once per command.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::latency::{ErrorCodes, Histogram, Rates};

/// Counters of one server. All count from its start, or from CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub struct Metrics {
    pub connections: Counter,
    /// Connections refused because of `maxclients`.
    pub rejected_connections: Counter,
    /// Connections closed because of `client-query-buffer-limit`.
    pub query_limit_disconnections: Counter,
    pub commands: Counter,
    /// Bytes received.
    pub input_bytes: Counter,
    /// Bytes sent.
    pub output_bytes: Counter,
    pub errors: Counter,
    /// Failed authentications, and commands refused because the client has not authenticated.
    pub denied_auth: Counter,
    /// Certificates of clients that name no user who is on.
    pub denied_certificate: Counter,
    /// Commands refused because the user may not send them.
    pub denied_command: Counter,
    /// Commands refused because the user may not use a key in them.
    pub denied_key: Counter,
    /// Commands refused because the user may not use a channel in them.
    pub denied_channel: Counter,
    /// Error replies by their code.
    pub(crate) error_codes: ErrorCodes,
    /// Rates of commands, bytes received and bytes sent.
    pub rates: Rates,
    /// Memory of all clients, in bytes, when it was last measured.
    pub client_bytes: AtomicU64,
    /// The most bytes of keys and values that an INFO has seen.
    pub peak_bytes: Counter,
}

/// A counter shared by threads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Takes back what was added for something that is done again.
    pub(crate) fn take_back(&self, n: u64) {
        // It may have been reset in the meantime.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_sub(n)));
    }

    /// Raises the counter to `value` if it is lower. Returns the higher of both.
    pub(crate) fn raise_to(&self, value: u64) -> u64 {
        self.0.fetch_max(value, Relaxed).max(value)
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// Calls by scripts that are not yet counted, for two commands: most scripts repeat one or two commands.
#[derive(Debug, Default)]
pub struct Tally([(u16, u64); 2]);

impl Tally {
    /// Adds a call of the command with that index in `stats`.
    #[inline]
    pub fn note(&mut self, index: u16, stats: &[CommandStats]) {
        let known = self.0.iter_mut().find(|(known, _)| *known == index);
        match known {
            Some((_, times)) => *times = times.saturating_add(1),
            None => self.note_another(index, stats),
        }
    }

    #[cold]
    fn note_another(&mut self, index: u16, stats: &[CommandStats]) {
        self.0.swap(0, 1);
        let (oldest, times) = std::mem::replace(&mut self.0[0], (index, 1));
        stats[usize::from(oldest)].calls.add(times);
    }

    /// Counts the calls in `stats`.
    #[inline]
    pub fn flush(&mut self, stats: &[CommandStats]) {
        for (index, times) in &mut self.0 {
            if *times > 0 {
                stats[usize::from(*index)].calls.add(std::mem::take(times));
            }
        }
    }
}

/// Calls of one command.
///
/// Two readings of the clock cost a tenth of a GET. So only commands that may be slow are timed on every call; of a
/// fast command one call in `CALLS_PER_SAMPLE` is timed, and its first call. The durations of all calls are estimated
/// from those that were timed. The estimate of the mean after 50,000 calls is within 5 % plus 0.05 microseconds: the
/// clock counts whole microseconds, and a reading of it costs about 25 nanoseconds.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Times carried out, failed calls included.
    pub calls: Counter,
    timed: Counter,
    /// Microseconds spent in the timed calls.
    timed_micros: Counter,
    /// Times refused before it ran: arity, authentication.
    pub rejected: Counter,
    /// Times it ran and answered with an error.
    pub failed: Counter,
    /// How long the timed calls took.
    pub histogram: Histogram,
    /// The highest estimate of [`CommandStats::micros`] so far.
    estimated: Counter,
}

/// How many calls of fast commands a connection sends for each one that is timed. A prime number: the requests of most
/// clients repeat with a short period, and the samples must cover every request of the period.
pub(crate) const CALLS_PER_SAMPLE: u8 = 61;

impl CommandStats {
    /// Counts a timed call of this duration.
    pub(crate) fn add_timed(&self, micros: u64) {
        self.timed.add(1);
        self.timed_micros.add(micros);
        self.histogram.add(micros);
    }

    /// True until a call has been timed.
    #[inline]
    pub(crate) fn is_untimed(&self) -> bool {
        self.timed.get() == 0
    }

    /// Microseconds per call: the mean of the timed calls.
    pub(crate) fn micros_per_call(&self) -> f64 {
        self.timed_micros.get() as f64 / self.timed.get().max(1) as f64
    }

    /// Microseconds spent in all calls, estimated from those that were timed.
    pub fn micros(&self) -> u64 {
        (self.micros_per_call() * self.calls.get() as f64).round() as u64
    }

    /// As [`CommandStats::micros`], but never less than before: a counter that falls looks like a restart.
    pub(crate) fn rising_micros(&self) -> u64 {
        self.estimated.raise_to(self.micros())
    }

    /// For each bucket of the histogram with calls: its bound in microseconds, and the number of calls up to it. The counts
    /// of the timed calls are scaled up to all calls.
    pub(crate) fn cumulative(&self) -> Vec<(u64, u64)> {
        let (timed, calls) = (self.timed.get().max(1), self.calls.get());
        let scaled = |count: u64| match u128::from(count)
            .saturating_mul(calls.into())
            .checked_div(timed.into())
            .unwrap_or(0)
        {
            count if calls >= timed => count as u64,
            _ => count,
        };
        self.histogram.cumulative().into_iter().map(|(micros, count)| (micros, scaled(count))).collect()
    }

    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        let Self { calls, timed, timed_micros, rejected, failed, histogram, estimated } = self;
        [calls, timed, timed_micros, rejected, failed, estimated].into_iter().for_each(Counter::reset);
        histogram.reset();
    }
}

impl Metrics {
    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for counter in [
            &self.connections, &self.rejected_connections, &self.query_limit_disconnections, &self.commands,
            &self.input_bytes, &self.output_bytes, &self.errors, &self.denied_auth, &self.denied_command,
            &self.denied_key, &self.denied_channel, &self.denied_certificate, &self.peak_bytes,
        ] {
            counter.reset();
        }
        self.error_codes.reset();
    }

    /// Commands, bytes received, bytes sent: the counters of [`Metrics::rates`].
    pub fn traffic(&self) -> [u64; 3] {
        [self.commands.get(), self.input_bytes.get(), self.output_bytes.get()]
    }
}
