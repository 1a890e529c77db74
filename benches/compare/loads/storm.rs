//! Many locks whose leases end within one second: the latency of a light probe, the cost, and the memory left while the
//! probe goes on.
//!
//! The locks also give the memory per lock: 24 bytes of key, 36 of owner, and a lease.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;

use super::Race;
use crate::generator::{Generator, Step, Work, nanoseconds, record};
use crate::machine::rest;
use crate::options::{CONNECTIONS, DEPTH, Scale};
use crate::servers::{Running, Server};
use crate::wire::{Answer, KEY, OWNER, Template, key};

/// Moments over which the ends of the leases are spread.
const MOMENTS: u64 = 100;
/// From one probe to the next.
const PROBE_EVERY: Duration = Duration::from_millis(1);
/// Probes from one count of the keys to the next.
const PROBES_PER_COUNT: u64 = 5;
/// Probes from one lock of the probe's own to the next, which comes into memory that the storm leaves.
const PROBES_PER_LOCK: u64 = 100;
/// Milliseconds of the lease of such a lock.
const LEASE_MS: &str = "250";
/// As many of these locks may be there at once, with one that is about to be removed.
const LOCKS_MAX: i64 = 4;
/// How often a storm may be begun, each time with twice the time to take its locks.
const ATTEMPTS: u32 = 6;
/// A server that has not removed all locks by then has failed to.
const REMOVAL_MAX: Duration = Duration::from_secs(20);

/// Runs it on a fresh process in each round.
pub(super) fn run(race: &mut Race, name: &str) {
    race.rounds(name, race.options.scale.long_rounds, |server, options, results| {
        // A server that takes the locks more slowly gets more time: the measured part comes later.
        let found = (0..ATTEMPTS).find_map(|doublings| {
            let storm_in = options.scale.storm_in * 2_u32.pow(doublings);
            turn(server, &Scale { storm_in, ..options.scale }).transpose()
        });
        let found =
            found.ok_or_else(|| io::Error::other("the locks were not taken before leases ended"))??;
        for (what, unit, value) in found {
            results.add(name, what, unit, server.row.name, value);
        }
        Ok(())
    });
}

type Found = Vec<(&'static str, &'static str, f64)>;

/// One storm; `None` if leases ended before all locks were taken.
fn turn(server: &Server, scale: &Scale) -> io::Result<Option<Found>> {
    let running = server.start()?;
    let mut probe = Probe { running: &running, stream: running.connect()?, counter: running.connect()? };
    if !server.row.has_store {
        let calm = probe.until(Instant::now() + scale.storm_span, None)?;
        return Ok(Some(calm.latencies()));
    }
    let empty = running.resident_bytes()?;
    let first_end = Instant::now() + scale.storm_in;
    let taken = take_locks(&running, scale, first_end)?;
    let last_end = first_end + scale.storm_span * (MOMENTS as u32 - 1) / MOMENTS as u32;
    let loaded = running.resident_bytes()?;

    // The cost of the probe itself, and of the server's housekeeping with so many keys.
    let calm_from = first_end.checked_sub(scale.storm_in / 8).filter(|from| *from > Instant::now());
    let Some(calm_from) = calm_from else { return Ok(None) };
    rest(calm_from.saturating_duration_since(Instant::now()));
    let cpu_calm = running.cpu_time()?;
    probe.until(first_end, None)?;
    let cpu_before = running.cpu_time()?;
    let storm = probe.until(last_end, Some(last_end + REMOVAL_MAX))?;
    let cpu_after = running.cpu_time()?;
    let calm_share = (cpu_before - cpu_calm).as_secs_f64() / (first_end - calm_from).as_secs_f64();
    let cost = (cpu_after - cpu_before).as_secs_f64() - calm_share * first_end.elapsed().as_secs_f64();

    probe.until(Instant::now() + scale.storm_after, None)?;
    let left = running.resident_bytes()?;
    let growth = loaded.saturating_sub(empty).max(1) as f64;
    let gone =
        storm.gone.map_or(f64::INFINITY, |gone| gone.saturating_duration_since(last_end).as_secs_f64());
    let mut found = storm.latencies();
    if gone.is_finite() {
        found.push(("last lock gone after its lease", "s", gone));
    }
    found.extend([
        ("CPU of the removal", "s", cost.max(0.0)),
        ("memory per lock", "bytes", growth / taken as f64),
        ("memory with all locks", "MiB", loaded as f64 / MIB),
        ("memory after the last", "MiB", left as f64 / MIB),
        ("share of the growth that remains", "%", left.saturating_sub(empty) as f64 / growth * 100.0),
    ]);
    Ok(Some(found))
}

/// Takes the locks of the storm; returns how many.
fn take_locks(running: &Running, scale: &Scale, first_end: Instant) -> io::Result<u64> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    let first_end = since_1970 + first_end.saturating_duration_since(Instant::now());
    let mut generator = Generator::new(running, CONNECTIONS, false)?;
    let (mut taken, keys) = (0, scale.locks / MOMENTS);
    for moment in 0..MOMENTS {
        let end = first_end + scale.storm_span * moment as u32 / MOMENTS as u32;
        let words = ["SET", KEY, OWNER, "NX", "PXAT", &end.as_millis().to_string()];
        let step = Step { request: Template::new(&words), answers: vec![Answer::Simple] };
        let work = Work { steps: &[step], first: taken, keys, depth: DEPTH };
        taken += generator.run(running, &work)?.requests;
    }
    Ok(taken)
}

/// A client that asks for little, and regularly.
struct Probe<'a> {
    running: &'a Running,
    stream: TcpStream,
    /// Where keys are counted and the probe's own locks are taken, which is not timed.
    counter: TcpStream,
}

/// The measurements of a probe.
struct Felt {
    nanos: Histogram<u64>,
    /// When no key of the storm was left.
    gone: Option<Instant>,
}

impl Probe<'_> {
    /// Probes until then; with a limit, after that until no key of the storm is left, but no longer than the limit.
    fn until(&mut self, end: Instant, limit: Option<Instant>) -> io::Result<Felt> {
        let mut felt = Felt { nanos: nanoseconds()?, gone: None };
        let (mut due, mut probes, absent) = (Instant::now(), 0_u64, key(u64::MAX));
        while Instant::now() < end || limit.is_some_and(|limit| felt.gone.is_none() && Instant::now() < limit)
        {
            rest(due.saturating_duration_since(Instant::now()));
            // A probe delayed by its predecessor counts from its due time: the delay is part of the latency.
            // That this thread woke late is not.
            let late = Instant::now().saturating_duration_since(due) > PROBE_EVERY;
            let begun = if late { due } else { Instant::now() };
            self.running.ask(&mut self.stream, &["GET", &absent])?;
            record(&mut felt.nanos, begun);
            probes += 1;
            due += PROBE_EVERY;
            if probes.is_multiple_of(PROBES_PER_LOCK) {
                let (own, owner) = (key(u64::MAX - probes), "p".repeat(36));
                self.running.ask(&mut self.counter, &["SET", &own, &owner, "NX", "PX", LEASE_MS])?;
            }
            if limit.is_some() && felt.gone.is_none() && probes.is_multiple_of(PROBES_PER_COUNT) {
                let (_, keys) = self.running.ask(&mut self.counter, &["DBSIZE"])?;
                let is_gone = matches!(keys, Answer::Integer(left) if left <= LOCKS_MAX);
                felt.gone = is_gone.then(Instant::now);
            }
        }
        Ok(felt)
    }
}

impl Felt {
    fn latencies(&self) -> Found {
        let millis = |quantile| self.nanos.value_at_quantile(quantile) as f64 / 1e6;
        vec![("probe, p99", "ms", millis(0.99)), ("probe, worst", "ms", millis(1.0))]
    }
}

const MIB: f64 = 1024.0 * 1024.0;
