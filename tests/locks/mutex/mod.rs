//! Mutual exclusion on real servers: real processes, real sockets, real clocks, and a checker.
//!
//! The server itself is killed every second as well (`killed`): it must still owe each lock to one client at a time.
//! Native clients (`LOCK.*`, with a lease, with a wait, with a session) and unchanged ones (SET NX and scripts, redis-py's
//! Lock) use the same locks. In runs of their own, `takers` take any one of ten keys. Beside attackers (`under_attack`) the
//! clients must also get further locks.
//!
//! Belongs here  properties visible only from outside the process. `simulation.rs` proves mutual exclusion of the engine
//!               under simulated time; this suite covers the layers between the engine and a client.
//! Time          real. Laws about order are always asserted; the law that no key outlives its lease by more than 50 ms
//!               only where MUTEX_SECONDS says that this run has the machine to itself:
//!
//! ```text
//! MUTEX_SECONDS=60 cargo test --test suite mutex::live -- --nocapture
//! ```
//!
//! | variable | effect |
//! |---|---|
//! | `MUTEX_SECONDS=60` | runs each for so long, and asserts promptness where the server is neither killed nor attacked |
//! | `MUTEX_SEED=7` | another seed for the clients; the scheduler stays random |
//! | `REDLATCH_REDIS_SERVER=PATH`, `REDLATCH_VALKEY_SERVER=PATH` | the runs on these servers, for comparison |

mod attacks;
pub(crate) mod broken;
#[cfg(test)]
mod cases;
pub(crate) mod checker;
pub(crate) mod client;
pub(crate) mod harness;
pub(crate) mod history;
pub(crate) mod takers;
mod under_attack;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
#[cfg(feature = "etcd")]
use std::process::Command;
use std::time::Duration;

use crate::support::binary::Directory;
use crate::support::ports::free_port;
use crate::support::real::program;
use crate::support::rng::{number, tally};
use crate::support::server::Server;
use broken::{Broken, FAULTS};
use checker::{LATE_MS_MAX, Law, Verdict, check};
use client::{Orders, Role};
use harness::Told;

/// Not a test: the entry point of the client processes that a run starts.
#[test]
#[ignore = "started by the others, as a process of its own"]
fn process_of_clients() {
    if let Some(orders) = Orders::received() {
        orders.carry_out().expect("a server that answers");
    }
}

mod live {
    use super::*;

    // Shows P-one-holder.
    #[test]
    fn redlatch_owes_a_lock_to_one_client_at_a_time() {
        let server = RunningServer::set(None);
        let verdict = server.try_for(lasts());
        report("redlatch", &verdict);
        let found = verdict.unsafe_findings();
        assert!(found.is_empty(), "{found:#?}");
        assert!(verdict.grants > 0 && verdict.refusals > 0 && verdict.releases > 0, "{verdict:?}");
        assert!(verdict.queued > 0 && verdict.sessions > 0 && verdict.tokens > 0, "{verdict:?}");
        if has_machine_to_itself() {
            assert!(verdict.broken.is_empty(), "late by more than {LATE_MS_MAX} ms: {:?}", verdict.broken);
        }
    }

    // Breaks P-one-holder.
    #[test]
    fn every_broken_server_is_caught() {
        let server = RunningServer::set(None);
        for (fault, law) in FAULTS {
            let broken = Broken::before(server.address, *fault).expect("a port for the broken server");
            let run = |round| {
                let clients = (Role::Clients, harness::python());
                let calls = harness::run(&[broken.address], clients, seed() + round, ROUND, None);
                check(&calls.expect("a whole run"))
            };
            let caught = (0..ROUNDS_MAX).find_map(|round| {
                let verdict = run(round);
                let finding = verdict.broken.iter().find(|broken| broken.law == *law)?;
                Some((round, verdict.calls, finding.what.clone()))
            });
            let Some((round, calls, finding)) = caught else {
                panic!("{fault:?} went unnoticed for {ROUNDS_MAX} rounds");
            };
            println!("{fault:?}: {law:?} in round {round}, of {calls} calls: {finding}");
        }
    }
}

mod killed {
    use super::*;

    // Shows P-everysec-one-holder.
    #[test]
    fn a_kill_takes_no_lock_from_its_holder_and_gives_none_twice() {
        let redlatch = Path::new(env!("CARGO_BIN_EXE_redlatch"));
        let verdict = try_with_kills("redlatch", redlatch, &[], Role::Clients);
        let found = verdict.unsafe_findings();
        assert!(found.is_empty(), "{} violations, the first is {:?}", found.len(), found[0]);
        assert!(verdict.grants > 0 && verdict.extensions > 0 && verdict.tokens > 0, "{verdict:?}");
    }

    /// Fifty processes take any one of ten keys. A run ends with an error if a take is not answered.
    // Shows P-everysec-one-holder, P-tokens-rise.
    #[test]
    fn takers_of_any_key_have_it_alone_and_no_key_is_lost() {
        let redlatch = Path::new(env!("CARGO_BIN_EXE_redlatch"));
        let verdict = try_with_kills("redlatch, any of ten keys", redlatch, &[], Role::Takers);
        let found = verdict.unsafe_findings();
        assert!(found.is_empty(), "{} violations, the first is {:?}", found.len(), found[0]);
        assert!(verdict.grants > 0 && verdict.queued > 0 && verdict.releases > 0, "{verdict:?}");
        assert!(verdict.unanswered > 0, "{verdict:?}");
    }

    /// The control: what programs do that have no ANY, on the same server, under the same faults.
    #[test]
    fn takers_that_try_one_key_after_the_other_and_delete_it_are_caught() {
        let redlatch = Path::new(env!("CARGO_BIN_EXE_redlatch"));
        let is_caught = |_| {
            let verdict = try_with_kills("SET NX and DEL", redlatch, &[], Role::NaiveTakers);
            verdict.unsafe_findings().first().inspect(|finding| println!("{finding:?}")).is_some()
        };
        assert!((0..ROUNDS_MAX).any(is_caught));
    }

    /// For comparison: what these servers do is reported and not asserted.
    fn show(name: &str) {
        let append = |policy: &str| ["--appendonly", "yes", "--appendfsync", policy].map(str::to_owned);
        let verdict = try_with_kills(name, &program(name), &[], Role::Clients);
        assert!(verdict.grants > 0, "{verdict:?}");
        let (name_with_aof, more) = (format!("{name} with AOF"), append("everysec"));
        let verdict = try_with_kills(&name_with_aof, &program(name), &more, Role::Clients);
        assert!(verdict.grants > 0, "{verdict:?}");
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn redis_is_killed_the_same_way() {
        show("redis");
    }

    #[test]
    #[ignore = "needs REDLATCH_VALKEY_SERVER"]
    fn valkey_is_killed_the_same_way() {
        show("valkey");
    }

    /// Runs clients on a server that is killed every second or so, and started again on its files and its port.
    fn try_with_kills(name: &str, program: &Path, more: &[String], role: Role) -> Verdict {
        let (directory, port) = (Directory::new(), free_port());
        let start = || Server::start_on(port, program, directory.root(), more);
        let mut server = Some(start().expect("a server that starts"));
        let mut kills = 0;
        let mut restart = || {
            // To drop it is to kill it: SIGKILL.
            drop(server.take());
            kills += 1;
            server = Some(start()?);
            Ok(())
        };
        let lasts = lasts().max(KILLED_FOR);
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let clients = (role, if role == Role::Clients { harness::python() } else { Vec::new() });
        let calls = harness::run(&[address], clients, seed(), lasts, Some((Told::First, &mut restart)));
        let verdict = check(&calls.expect("a whole run"));
        report(&format!("{name}, killed {kills} times"), &verdict);
        assert!(kills > 0, "{name} was not killed");
        tally(&[("faults", kills)]);
        if role == Role::Takers {
            takers::take_each_key_again(address);
        }
        verdict
    }
}

mod against_real_servers {
    use super::*;

    fn assert_tried(name: &str) {
        let verdict = RunningServer::set(Some(&program(name))).try_for(lasts());
        report(name, &verdict);
        assert!(verdict.grants > 0 && verdict.refusals > 0 && verdict.releases > 0, "{verdict:?}");
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn redis_is_tried_the_same_way() {
        assert_tried("redis");
    }

    #[test]
    #[ignore = "needs REDLATCH_VALKEY_SERVER"]
    fn valkey_is_tried_the_same_way() {
        assert_tried("valkey");
    }
}

/// A server process and its files.
struct RunningServer {
    address: SocketAddr,
    _server: Server,
    _directory: Directory,
}

impl RunningServer {
    fn set(program: Option<&Path>) -> Self {
        let directory = Directory::new();
        let server = match program {
            None => Server::start_redlatch(directory.root(), &[]),
            Some(program) => Server::start_program(program, directory.root(), &[]),
        };
        let server = server.expect("a server that starts");
        let address = (Ipv4Addr::LOCALHOST, server.port()).into();
        Self { address, _server: server, _directory: directory }
    }

    fn try_for(&self, lasts: Duration) -> Verdict {
        let clients = (Role::Clients, harness::python());
        check(&harness::run(&[self.address], clients, seed(), lasts, None).expect("a whole run"))
    }
}

/// Runs clients, and other programs, on servers that `restart` harms every second or so; prints the verdict, and returns it
/// with the calls.
#[cfg(feature = "etcd")]
pub(crate) fn check_run(
    name: &str,
    servers: &[SocketAddr],
    lasts: Duration,
    clients: (Role, Vec<Command>),
    restart: (Told, harness::Restart<'_>),
) -> (Verdict, Vec<history::Call>) {
    let calls = harness::run(servers, clients, seed(), lasts, Some(restart)).expect("a whole run");
    let verdict = check(&calls);
    report(name, &verdict);
    (verdict, calls)
}

fn report(name: &str, verdict: &Verdict) {
    let Verdict { calls, grants, queued, sessions, tokens, refusals, extensions, .. } = verdict;
    let Verdict { releases, looks, unanswered, .. } = verdict;
    println!(
        "{name}: {calls} calls: {grants} grants ({queued} from the queue, {sessions} to sessions), {refusals} refusals, \
         {extensions} extensions, {releases} releases, {tokens} tokens read, {looks} looks, {unanswered} without an \
         answer; a key was there for {:.1} ms after its end at most; \
         {} violations of safety, {} of them double grants, {} of promptness; redis-py {}",
        verdict.latest_ns as f64 / 1e6,
        verdict.unsafe_findings().len(),
        verdict.broken.iter().filter(|broken| broken.law == Law::Exclusion).count(),
        verdict.broken.len() - verdict.unsafe_findings().len(),
        if harness::python().is_empty() { "is not installed" } else { "took part" },
    );
    tally(&[("operations", *calls as u64), ("violations", verdict.unsafe_findings().len() as u64)]);
}

fn has_machine_to_itself() -> bool {
    std::env::var_os("MUTEX_SECONDS").is_some()
}

pub(crate) fn lasts() -> Duration {
    Duration::from_secs(number("MUTEX_SECONDS").unwrap_or(2))
}

fn seed() -> u64 {
    number("MUTEX_SEED").unwrap_or(0)
}

/// How long a server that is killed is watched at least.
const KILLED_FOR: Duration = Duration::from_secs(6);

/// How long a broken server is watched per attempt, and how many attempts: some faults need two clients that meet.
const ROUND: Duration = Duration::from_millis(500);
const ROUNDS_MAX: u64 = 100;
