//! A lock that many clients wait for: the time from its release to its next holder, and the server's processor time.
//!
//! Owns    the recipes: how a client waits for the lock, and how its holder gives it back.
//! Rule    each release makes exactly one waiting client the holder; any other answer ends the load for the server.
//! Rule    a holder keeps the lock for [`HOLD`], so that the server has nothing else to do when it is released.

use std::hint::spin_loop;
use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Race;
use super::connections::Connections;
use crate::generator::{nanoseconds, record};
use crate::machine::rest;
use crate::options::Scale;
use crate::results::{HAND_OFF, HERD};
use crate::servers::{Running, Server};
use crate::wire::{Answer, KEY};

/// The names of these loads.
pub(crate) const NAMES: &[&str] = &[HAND_OFF, HERD];

/// A way to wait for a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Recipe {
    /// The commands of redlatch: LOCK.ACQUIRE with WAIT, and LOCK.RELEASE.
    Acquire,
    /// The lock is an element of a list: BLPOP takes it, RPUSH gives it back.
    List,
    /// A client takes the lock by SET NX. If it is held, it subscribes to a channel and tries again after each message.
    /// The holder sends DEL and PUBLISH.
    Channel,
}

/// The recipes, by their names in results.
const RECIPES: [(&str, Recipe); 3] =
    [("LOCK.ACQUIRE WAIT", Recipe::Acquire), ("BLPOP", Recipe::List), ("pub/sub", Recipe::Channel)];

const LOCK: &str = "lock:hand-off";
const CHANNEL: &str = "channel:hand-off";
/// The owner of a client is the key of its number.
const ACQUIRE: &[&str] = &["LOCK.ACQUIRE", LOCK, KEY, "LEASE", "300000", "WAIT", "60000"];
const RELEASE: &[&str] = &["LOCK.RELEASE", LOCK, KEY];
const POP: &[&str] = &["BLPOP", LOCK, "60"];
const PUSH: &[&str] = &["RPUSH", LOCK, "1"];
const SET: &[&str] = &["SET", LOCK, KEY, "NX", "PX", "300000"];
const DELETE: &[&str] = &["DEL", LOCK];
const SUBSCRIBE: &[&str] = &["SUBSCRIBE", CHANNEL];
const UNSUBSCRIBE: &[&str] = &["UNSUBSCRIBE", CHANNEL];
const PUBLISH: &[&str] = &["PUBLISH", CHANNEL, "1"];

/// How long a client keeps the lock.
const HOLD: Duration = Duration::from_micros(100);
/// The time in which a server reads requests that have no answer yet.
const SETTLING: Duration = Duration::from_millis(20);

/// Runs the load with each recipe that the server has, on a fresh process in each round.
pub(super) fn run(race: &mut Race, name: &str) {
    race.rounds(name, race.options.scale.long_rounds, |server, options, results| {
        for (title, recipe) in RECIPES.into_iter().filter(|(_, recipe)| recipe.suits(server)) {
            for (what, micros) in turn(&server.start()?, recipe, name == HERD, &options.scale)? {
                results.add(name, &format!("{title}, {what}"), "us", server.row.name, micros);
            }
        }
        Ok(())
    });
}

/// Hands the lock over many times. In a herd a client that has had the lock leaves; else it waits again.
fn turn(
    running: &Running,
    recipe: Recipe,
    is_herd: bool,
    scale: &Scale,
) -> io::Result<[(&'static str, f64); 3]> {
    let (waiters, hand_offs) =
        if is_herd { (scale.herd, scale.herd) } else { (scale.waiters, scale.hand_offs) };
    let mut clients = Clients::new(running, recipe, waiters + 1)?;
    let (mut times, cpu_empty) = (nanoseconds()?, running.cpu_time()?);
    (1..=waiters).try_for_each(|waiter| clients.wait(waiter))?;
    rest(SETTLING);
    // To each hand-off belongs one request that waits: in a herd one of these, else one of a former holder.
    let cpu_before = if is_herd { cpu_empty } else { running.cpu_time()? };
    for _ in 0..hand_offs {
        let former = clients.hand_over(&mut times)?;
        if !is_herd {
            clients.wait(former)?;
        }
        let end = Instant::now() + HOLD;
        while Instant::now() < end {
            spin_loop();
        }
    }
    rest(SETTLING);
    let cpu = (running.cpu_time()? - cpu_before).as_secs_f64() * 1e6 / hand_offs as f64;
    clients.check_end(waiters, is_herd)?;
    let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    Ok([("p50", micros(0.5)), ("p99", micros(0.99)), ("CPU", cpu)])
}

impl Recipe {
    /// Whether the server has the commands.
    fn suits(self, server: &Server) -> bool {
        server.row.has_store && (self != Self::Acquire || server.row.is_ours())
    }
}

/// The clients of one turn. Number 0 is the first holder.
struct Clients {
    recipe: Recipe,
    /// A connection of each client for commands, and then, with a channel, one of each for messages.
    connections: Connections,
    /// Whether a client waits, by its number.
    waits: Vec<bool>,
    holder: usize,
}

impl Clients {
    fn new(running: &Running, recipe: Recipe, count: usize) -> io::Result<Self> {
        let per_client = if recipe == Recipe::Channel { 2 } else { 1 };
        let mut connections = Connections::new(running, per_client * count)?;
        // The last connection is served: so are those before it.
        connections.expect(per_client * count - 1, &["PING"], Answer::Simple)?;
        match recipe {
            Recipe::Acquire => connections.expect(0, ACQUIRE, Answer::Array)?,
            Recipe::List => {
                connections.expect(0, PUSH, Answer::Integer(1))?;
                connections.expect(0, POP, Answer::Array)?;
            }
            Recipe::Channel => connections.expect(0, SET, Answer::Simple)?,
        }
        Ok(Self { recipe, connections, waits: vec![false; count], holder: 0 })
    }

    /// The connection on which a client hears messages.
    fn ear(&self, client: usize) -> usize {
        self.waits.len() + client
    }

    /// The client begins to wait for the lock, which is held.
    fn wait(&mut self, client: usize) -> io::Result<()> {
        self.waits[client] = true;
        match self.recipe {
            Recipe::Acquire => self.connections.send(client, &[ACQUIRE]),
            Recipe::List => self.connections.send(client, &[POP]),
            Recipe::Channel => {
                self.connections.expect(self.ear(client), SUBSCRIBE, Answer::Array)?;
                self.connections.expect(client, SET, Answer::Nil)
            }
        }
    }

    /// The holder releases the lock, and a waiting client becomes the holder. Returns the former holder.
    fn hand_over(&mut self, times: &mut Histogram<u64>) -> io::Result<usize> {
        let (former, waiting) = (self.holder, self.waits.iter().filter(|waits| **waits).count());
        // The answers to the release; then a grant, or a message and an attempt for each that waits.
        let (requests, released, others): (&[&[&str]], &[i64], _) = match self.recipe {
            Recipe::Acquire => (&[RELEASE], &[1], 1),
            Recipe::List => (&[PUSH], &[1], 1),
            Recipe::Channel => (&[DELETE, PUBLISH], &[1, waiting as i64], 2 * waiting),
        };
        let (mut answered, mut next) = (0, None);
        let begun = Instant::now();
        self.connections.send(former, requests)?;
        for _ in 0..released.len() + others {
            match self.connections.receive()? {
                (by, Answer::Integer(number)) if by == former && released.get(answered) == Some(&number) => {
                    answered += 1;
                }
                (ear, Answer::Array) if ear >= self.waits.len() => {
                    self.connections.send(ear - self.waits.len(), &[SET])?;
                }
                (by, Answer::Array | Answer::Simple) if next.is_none() && self.waits[by] => {
                    record(times, begun);
                    next = Some(by);
                }
                (by, Answer::Nil) if self.recipe == Recipe::Channel && self.waits[by] => {}
                (by, other) => return Err(io::Error::other(format!("client {by} was answered {other:?}"))),
            }
        }
        self.holder = next.ok_or_else(|| io::Error::other("no client got the lock"))?;
        self.waits[self.holder] = false;
        if self.recipe == Recipe::Channel {
            self.connections.expect(self.ear(self.holder), UNSUBSCRIBE, Answer::Array)?;
        }
        Ok(former)
    }

    /// After the last hand-off nothing else has arrived, and nobody waits or, without a herd, all but the holder.
    fn check_end(&mut self, waiters: usize, is_herd: bool) -> io::Result<()> {
        let waiting = self.waits.iter().filter(|waits| **waits).count();
        if waiting != if is_herd { 0 } else { waiters } {
            return Err(io::Error::other(format!("{waiting} clients still wait")));
        }
        match self.connections.pending()? {
            Some((by, answer)) => {
                Err(io::Error::other(format!("client {by} was answered {answer:?} as well")))
            }
            None => Ok(()),
        }
    }
}
