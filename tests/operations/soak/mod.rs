//! A server under full load for a long time: memory stays flat, no client is refused or stuck.
//!
//! Belongs here  defects that appear only over time: keys, connections, scripts, subscribers and waits come and go, and
//!               afterwards the server is as empty as before.
//! Time          real. A few seconds, unless SOAK_SECONDS says otherwise:
//!
//! ```text
//! SOAK_SECONDS=600 cargo test --release --test suite soak -- --nocapture
//! ```
//!
//! It prints its progress and a verdict; the exit status is the verdict. Machine-dependent numbers are only printed.
//! Memory growth is checked in runs of a minute or more.

mod load;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use crate::support::rng::{Rng, number, tally};
use crate::support::server::Server;
use crate::support::waits::{PATIENCE, wait_until};
use crate::support::wire::Link;
use crate::support::words::{info_field, resident_kib};
use load::{Done, ROLES};

#[test]
fn a_server_under_load_stays_as_it_is() {
    let server =
        Server::start_redlatch(Path::new(env!("CARGO_TARGET_TMPDIR")), &[]).expect("a server that starts");
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, server.port()).into();
    let mut observer =
        Observer { link: Link::to(address).expect("the server accepts"), server: server.pid() };
    let lasts = lasts();
    let figures = soak(address, &mut observer, lasts);
    let left = observer.until_nothing_is_left();
    println!(
        "{} requests, {:.0} a second",
        figures.requests(),
        figures.requests() as f64 / lasts.as_secs_f64()
    );
    for (role, done) in &figures.roles {
        println!("{role}: {} requests, none took longer than {:.1?}", done.requests, done.longest);
    }
    println!(
        "resident MiB, from start to end: {:?}",
        figures.memory.iter().map(|kib| kib / 1024).collect::<Vec<_>>()
    );
    println!("left behind after {left:.1?}: nothing");
    tally(&[("operations", figures.requests()), ("violations", figures.errors.len() as u64)]);
    println!("tally: {{\"memory_growth_percent\": {:.2}}}", figures.growth());
    assert!(figures.errors.is_empty(), "{:#?}", figures.errors);
    for (role, done) in &figures.roles {
        assert!(done.requests > 0, "{role}: nothing was done");
    }
    let growth = figures.growth();
    println!(
        "verdict: no error, nobody stuck, memory in the last third {growth:+.1}% of that in the one before"
    );
    assert!(lasts < WORTH_JUDGING || growth < GROWTH_PERCENT_MAX, "memory grows: {:?}", figures.memory);
}

/// The results of a soak.
#[derive(Default)]
struct Figures {
    roles: Vec<(&'static str, Done)>,
    errors: Vec<String>,
    /// Resident KiB, at even intervals.
    memory: Vec<u64>,
}

impl Figures {
    fn requests(&self) -> u64 {
        self.roles.iter().map(|(_, done)| done.requests).sum()
    }

    /// Growth in percent from the middle third of the memory samples to the last third, by medians.
    fn growth(&self) -> f64 {
        let third = self.memory.len() / 3;
        let median = |samples: &[u64]| {
            let mut samples = samples.to_vec();
            samples.sort_unstable();
            samples.get(samples.len() / 2).map_or(1.0, |kib| *kib as f64)
        };
        let (before, last) = (&self.memory[third..third * 2], &self.memory[third * 2..]);
        (median(last) / median(before) - 1.0) * 100.0
    }
}

fn soak(address: SocketAddr, observer: &mut Observer, lasts: Duration) -> Figures {
    let end = Instant::now() + lasts;
    let (sender, results) = channel();
    let mut waiting = 0;
    for (seed, (role, count, run)) in ROLES.iter().enumerate() {
        for number in 0..*count {
            let sender = sender.clone();
            let mut rng = Rng::new((seed * 100 + number) as u64);
            // A client that ends after the run was abandoned has no receiver.
            thread::spawn(move || drop(sender.send((*role, run(address, &mut rng, end)))));
            waiting += 1;
        }
    }
    let mut figures = Figures::default();
    let interval = lasts / SAMPLES;
    while waiting > 0 {
        match results.recv_timeout(interval) {
            Ok((role, Ok(done))) => {
                waiting -= 1;
                figures.roles.push((role, done));
            }
            Ok((role, Err(error))) => {
                waiting -= 1;
                figures.errors.push(format!("{role}: {error}"));
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() > end + PATIENCE => {
                figures.errors.push(format!("{waiting} clients are stuck"));
                break;
            }
            Err(_) if Instant::now() < end => figures.memory.push(resident_kib(observer.server)),
            Err(_) => {}
        }
    }
    figures
}

/// Observes the server from outside.
struct Observer {
    link: Link,
    server: u32,
}

impl Observer {
    /// Waits until no key, client, wait, channel or pattern is left; returns how long that took.
    fn until_nothing_is_left(&mut self) -> Duration {
        wait_until("nothing is left behind", || {
            let keys = self.link.ask(&["DBSIZE"]).expect("an answer");
            let (clients, blocked) = (self.info("connected_clients"), self.info("blocked_clients"));
            let channels = self.link.ask(&["PUBSUB", "CHANNELS"]).expect("an answer");
            keys == OwnedFrame::Integer(0)
                && (clients, blocked) == (1, 0)
                && channels == OwnedFrame::Array(Vec::new())
        })
    }

    fn info(&mut self, field: &str) -> u64 {
        let answer = self.link.ask(&["INFO", "clients"]).expect("an answer");
        let text = answer.as_str().expect("INFO is text");
        info_field(text, field)
    }
}

fn lasts() -> Duration {
    Duration::from_secs(number("SOAK_SECONDS").unwrap_or(3))
}

/// Memory samples per soak.
const SAMPLES: u32 = 30;
/// Memory growth is not checked in shorter soaks.
const WORTH_JUDGING: Duration = Duration::from_secs(60);
const GROWTH_PERCENT_MAX: f64 = 10.0;
