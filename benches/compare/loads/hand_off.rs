//! A lock that many clients wait for: the time from its release to its next holder, and the server's processor time.
//!
//! Owns    the recipes: how a client waits for the lock, and how its holder gives it back.
//! Knows   the load of `redlatch load`, which finds two holders at once; a load with one has failed for the server.
//! Rule    a holder keeps the lock for [`HOLD`], so that the server has nothing else to do when it is released.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use redlatch::lock::Trust;
use redlatch_cli::load::{self, Dialect, Hold, Keys, Live, Node, Plan, Report, Times};

use super::Race;
use crate::machine::rest;
use crate::options::Scale;
use crate::results::{HAND_OFF, HERD};
use crate::servers::{Running, Server};

/// The names of these loads.
pub(crate) const NAMES: &[&str] = &[HAND_OFF, HERD];

/// The recipes, by their names in results.
const RECIPES: [(&str, Dialect); 3] =
    [("LOCK.ACQUIRE WAIT", Dialect::Native), ("BLPOP", Dialect::List), ("pub/sub", Dialect::Redisson)];

const LOCK: &str = "lock:hand-off";
/// How long a client keeps the lock.
const HOLD: Duration = Duration::from_micros(100);
const LEASE: Duration = Duration::from_secs(300);
/// A server that has not done all hand-offs by then has failed to.
const DURATION_MAX: Duration = Duration::from_secs(120);
/// A moment for a server to finish after its last answer.
const SETTLING: Duration = Duration::from_millis(2);

/// Runs the load with each recipe that the server has, on a fresh process in each round.
pub(super) fn run(race: &mut Race, name: &str) {
    race.rounds(name, race.options.scale.long_rounds, |server, options, results| {
        for (title, dialect) in RECIPES.into_iter().filter(|(_, dialect)| suits(server, *dialect)) {
            for (what, micros) in turn(&server.start()?, dialect, name == HERD, &options.scale)? {
                results.add(name, &format!("{title}, {what}"), "us", server.row.name, micros);
            }
        }
        Ok(())
    });
}

/// Whether the server has the commands.
fn suits(server: &Server, dialect: Dialect) -> bool {
    server.row.has_store && (dialect != Dialect::Native || server.row.is_ours())
}

/// Hands the lock over many times. In a herd each client has the lock once; else a former holder waits again.
fn turn(
    running: &Running,
    dialect: Dialect,
    is_herd: bool,
    scale: &Scale,
) -> io::Result<[(&'static str, f64); 3]> {
    let url = format!("redis://127.0.0.1:{}", running.port);
    let node = Node::new(&url, Trust::default()).map_err(io::Error::other)?;
    let (waiters, hand_offs) =
        if is_herd { (scale.herd, scale.herd) } else { (scale.waiters, scale.hand_offs) };
    // The first holder has not waited.
    let grants = hand_offs as u64 + 1;
    let plan = Plan {
        dialect,
        clients: waiters + 1,
        keys: Keys::One(LOCK.to_owned()),
        hold: Hold::Constant(HOLD),
        lease: LEASE,
        duration: DURATION_MAX,
        count: (!is_herd).then_some(grants),
        count_each: is_herd.then_some(1),
        ..Plan::new(vec![node])
    };
    let mut before = None;
    let report = load::run(plan, &Arc::new(Live::default()), || before = Some(running.cpu_time()));
    let report = report.map_err(|failure| io::Error::other(format!("{failure:?}")))?;
    check(&report, grants)?;
    rest(SETTLING);
    let before = before.unwrap_or_else(|| Err(io::Error::other("the load has not begun")))?;
    let cpu = (running.cpu_time()? - before).as_secs_f64() * 1e6 / hand_offs as f64;
    let times = report.times(Times::HandOver);
    let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    Ok([("p50", micros(0.5)), ("p99", micros(0.99)), ("CPU", cpu)])
}

/// Every hand-off was one, to one client, and nothing else went wrong.
fn check(report: &Report, grants: u64) -> io::Result<()> {
    if let Some((error, _)) = report.errors().next() {
        return Err(io::Error::other(error.to_owned()));
    }
    match (report.overlaps(), report.acquired()) {
        (0, acquired) if acquired == grants => Ok(()),
        (overlaps, acquired) => Err(io::Error::other(format!(
            "{acquired} grants in place of {grants}, {overlaps} times with two holders at once"
        ))),
    }
}
