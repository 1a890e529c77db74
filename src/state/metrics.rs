//! What the server counts.
//!
//! Rule    counters are relaxed atomics; a connection adds its share once per batch, not once per command.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Counters of one server. All count from its start, or from CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Connections accepted.
    pub connections: Counter,
    /// Connections refused because of `maxclients`.
    pub rejected_connections: Counter,
    /// Commands carried out.
    pub commands: Counter,
    /// Bytes received.
    pub input_bytes: Counter,
    /// Bytes sent.
    pub output_bytes: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Reads that found their key.
    pub hits: Counter,
    /// Reads that did not.
    pub misses: Counter,
    /// Keys removed because their deadline had passed.
    pub expired: Counter,
    /// Commands refused for want of authentication.
    pub denied_auth: Counter,
}

/// A count that many threads add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Starts again at zero.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// Calls of one command.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Times carried out, failed calls included.
    pub calls: Counter,
    /// Microseconds spent in calls long enough to be measured: those of commands that are not flagged fast.
    pub micros: Counter,
    /// Times refused before it ran: arity, authentication.
    pub rejected: Counter,
    /// Times it ran and answered with an error.
    pub failed: Counter,
}

/// A level that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The level now.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

impl Metrics {
    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for counter in [
            &self.connections,
            &self.rejected_connections,
            &self.commands,
            &self.input_bytes,
            &self.output_bytes,
            &self.errors,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.denied_auth,
        ] {
            counter.reset();
        }
    }
}
