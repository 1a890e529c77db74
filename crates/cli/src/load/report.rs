//! The report of a load: as text for people, as JSON for programs.
//!
//! Rule    the names in JSON are an interface: docs/load.md lists them, a test compares. A later version may add names.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::figures::{Figures, fairness};
use super::plan::Plan;

/// What a load has shown.
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) plan: Arc<Plan>,
    /// The server's kind and version, if it tells.
    server: Option<String>,
    pub(super) figures: Figures,
    /// Acquisitions of an open loop that should have begun and have not.
    unbegun: u64,
    pub(super) elapsed: Duration,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Times {
    /// From the beginning that was meant to the grant.
    Acquire,
    /// From a release to the grant of the next client that waited.
    HandOver,
    /// From sending a release to its answer.
    Release,
    /// From the first request to the grant, of acquisitions that found the lock held.
    Wait,
}

impl Times {
    /// All families, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Acquire, Self::Wait, Self::HandOver, Self::Release];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::HandOver => "hand-over",
            Self::Release => "release",
            Self::Wait => "wait",
        }
    }

    /// Its name in JSON.
    const fn field(self) -> &'static str {
        match self {
            Self::Acquire => "acquire_us",
            Self::HandOver => "hand_over_us",
            Self::Release => "release_us",
            Self::Wait => "wait_us",
        }
    }
}

impl Report {
    pub(super) fn new(
        plan: &Arc<Plan>,
        server: Option<String>,
        figures: Figures,
        unbegun: u64,
        elapsed: Duration,
    ) -> Self {
        Self { plan: plan.clone(), server, figures, unbegun, elapsed }
    }

    pub fn acquired(&self) -> u64 {
        self.figures.counts.acquired
    }

    /// How often a lock had two owners at once, by times or by tokens. Must be 0.
    pub fn overlaps(&self) -> u64 {
        self.figures.counts.overlaps_in_time + self.figures.counts.falling_tokens
    }

    /// How often each error was met.
    pub fn errors(&self) -> impl Iterator<Item = (&str, u64)> {
        self.figures.errors.iter().map(|(text, count)| (text.as_str(), *count))
    }

    /// The latencies of a family, in nanoseconds.
    pub fn times(&self, times: Times) -> &Histogram<u64> {
        match times {
            Times::Acquire => &self.figures.acquire,
            Times::HandOver => &self.figures.hand_over,
            Times::Release => &self.figures.release,
            Times::Wait => &self.figures.wait,
        }
    }

    /// Requests for a lock, for each grant.
    fn polls_per_acquire(&self) -> Option<f64> {
        let counts = &self.figures.counts;
        (counts.acquired > 0).then(|| counts.attempts as f64 / counts.acquired as f64)
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub fn text(&self) -> String {
        let (plan, counts) = (&self.plan, &self.figures.counts);
        let mut text = format!("{}\n\n", self.title());
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<18}{value}");
        };
        let seconds = self.elapsed.as_secs_f64();
        let rate = grouped(self.per_second(counts.acquired).round() as u64);
        row("acquired", format!("{} in {seconds:.1} s, {rate} per second", grouped(counts.acquired)));
        row("refused", format!("{} answers, {} given up", grouped(counts.refused), grouped(counts.given_up)));
        let polls = self.polls_per_acquire().map_or("-".to_owned(), |polls| format!("{polls:.2}"));
        row("polls per acquire", polls);
        let fairness =
            fairness(&self.figures.by_client).map_or("-".to_owned(), |index| format!("{index:.3}"));
        row("fairness", format!("{fairness} (Jain's index, 1 is equal)"));
        row(
            "overlaps",
            format!(
                "{} by times, {} by tokens",
                grouped(counts.overlaps_in_time),
                grouped(counts.falling_tokens)
            ),
        );
        row("lease outlived", grouped(counts.outlived));
        row(
            "lost",
            format!(
                "{} replies, {} connections; {} reconnected",
                grouped(counts.lost_replies),
                grouped(counts.connections_lost),
                grouped(counts.reconnects)
            ),
        );
        row(
            "at the end",
            format!("{} still waited, {} not begun", grouped(counts.unfinished), grouped(self.unbegun)),
        );
        text += &self.latencies();
        if plan.rate.is_some() {
            text += "\nacquire counts from the moment at which an acquisition should have begun.\n";
        }
        for (error, count) in self.errors() {
            let _ = write!(text, "\nerror, {} times: {error}", grouped(count));
        }
        if self.overlaps() > 0 {
            text += "\nA LOCK HAD TWO OWNERS AT ONCE.";
        }
        text.trim_end().to_owned() + "\n"
    }

    /// A table of the latencies as text.
    fn latencies(&self) -> String {
        let mut text = format!("\n{:<14}{:>10}", "", "count");
        QUANTILES.iter().for_each(|(name, _)| text += &format!("{:>11}", name.replace('_', ".")));
        text += "        max\n";
        for times in Times::ALL {
            let found = self.times(times);
            let _ = write!(text, "{:<14}{:>10}", times.name(), grouped(found.len()));
            let values = QUANTILES.iter().map(|(_, quantile)| found.value_at_quantile(*quantile));
            for value in values.chain([found.max()]) {
                let shown = if found.is_empty() { "-".to_owned() } else { shown(value) };
                let _ = write!(text, "{shown:>11}");
            }
            text.push('\n');
        }
        text
    }

    /// What ran against what, on one line.
    pub(super) fn title(&self) -> String {
        let plan = &self.plan;
        let server = self.server.as_deref().unwrap_or("unknown server");
        let nodes =
            if plan.nodes.len() > 1 { format!(", {} nodes", plan.nodes.len()) } else { String::new() };
        let rate = plan.rate.map_or("closed loop".to_owned(), |rate| format!("open loop at {rate}/s"));
        format!(
            "{server}{nodes}: {}, {} clients, keys {}, hold {}, {rate}",
            plan.dialect.name(),
            plan.clients,
            plan.keys.text(),
            plan.hold.text(),
        )
    }

    /// As JSON. docs/load.md lists the names.
    pub fn json(&self) -> Value {
        let (plan, counts) = (&self.plan, &self.figures.counts);
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let mut report = json!({
            "version": 1,
            "server": self.server,
            "plan": {
                "nodes": plan.nodes.iter().map(|node| &node.target.address).collect::<Vec<_>>(),
                "dialect": plan.dialect.name(),
                "clients": plan.clients,
                "threads": plan.threads,
                "keys": plan.keys.text(),
                "hold": plan.hold.text(),
                "lease_ms": millis(plan.lease),
                "wait_ms": plan.wait.map(millis),
                "poll_ms": millis(plan.poll),
                "rate": plan.rate,
                "duration_ms": millis(plan.duration),
                "count": plan.count,
                "seed": plan.seed,
            },
            "elapsed_ms": millis(self.elapsed),
            "acquired": counts.acquired,
            "acquired_per_second": self.per_second(counts.acquired),
            "released": counts.released,
            "lease_outlived": counts.outlived,
            "refused": counts.refused,
            "given_up": counts.given_up,
            "unfinished": counts.unfinished,
            "unbegun": self.unbegun,
            "requests": counts.requests,
            "attempts": counts.attempts,
            "polls_per_acquire": self.polls_per_acquire(),
            "fairness": fairness(&self.figures.by_client),
            "overlaps": self.overlaps(),
            "overlaps_by_time": counts.overlaps_in_time,
            "overlaps_by_token": counts.falling_tokens,
            "lost_replies": counts.lost_replies,
            "connections_lost": counts.connections_lost,
            "reconnects": counts.reconnects,
            "errors": self.figures.errors,
            "acquired_in_second": self.figures.per_second,
        });
        for times in Times::ALL {
            report[times.field()] = summary(self.times(times));
        }
        report
    }
}

/// Microseconds; null if nothing was measured.
fn summary(times: &Histogram<u64>) -> Value {
    let micros = |value: f64| (!times.is_empty()).then_some(value / 1e3);
    let mut summary = json!({
        "count": times.len(),
        "mean": micros(times.mean()),
        "min": micros(times.min() as f64),
        "max": micros(times.max() as f64),
    });
    for (name, quantile) in QUANTILES {
        summary[*name] = json!(micros(times.value_at_quantile(*quantile) as f64));
    }
    summary
}

/// Nanoseconds as people read them: three digits and a unit.
pub(super) fn shown(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000_000 => (nanos as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}")
}

/// A count with a comma for each thousand.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The percentiles of a report, by their names in JSON.
const QUANTILES: &[(&str, f64)] = &[("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_are_written_for_people() {
        for (nanos, expected) in [
            (0, "0.00 us"),
            (25_700, "25.7 us"),
            (999_000, "999 us"),
            (1_234_000, "1.23 ms"),
            (123_456_789, "123 ms"),
            (61_000_000_000, "61.0 s"),
        ] {
            assert_eq!(shown(nanos), expected);
        }
        for (count, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(count), expected);
        }
    }
}
