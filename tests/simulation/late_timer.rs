//! Two servers with the same requests at the same times: one removes expired keys at once, and on the other one the timer of
//! expiry never fires.
//!
//! Law      the replies and the living keys are equal: what a request sees depends on its instant, not on the timer.
//! Apart    DBSIZE and INFO count keys that are not removed yet, as in Redis. A history has the ends of locks in the order in
//!          which they are found, and forgets the oldest.
//! Canary   a server whose requests see another instant than its timer.

use redlatch_core::commands::Command;
use redlatch_core::commands::row::Flags;
use redlatch_core::keyspace::Due;
use redlatch_core::state::session::Session;
use redlatch_testing::commands::table;

use super::effects::{COMMANDS, WAITS, fill};
use super::parts::{Fault, Machine, state_of};
use crate::protocol::differential::{LEFT_OUT, request};
use crate::support::rng::Rng;

const STEPS: u32 = 1_500;
/// A step that lets up to so many milliseconds pass inside of a transaction.
const LATER_MS_MAX: u64 = 40;

/// Lines in the notation of [`COMMANDS`]; at `later`, time passes.
const TRANSACTIONS: &[&str] = &[
    "WATCH k | later | MULTI | SET k v | EXEC",
    "WATCH k k | GET k | later | MULTI | INCR k | later | EXEC",
    "WATCH h l t x z | later | MULTI | DEL k | EXEC",
    "SELECT db | WATCH k | SELECT db | later | MULTI | SET k v PX ms | EXEC",
    "WATCH k | later | KEYS * | MULTI | GET k | EXEC",
    "WATCH k | later | WATCH k | MULTI | SET k v | EXEC",
    "WATCH k | later | UNWATCH | MULTI | SET k v | EXEC",
    "MULTI | SET k v PX ms | later | SET k v NX | EXEC",
];

/// Reads of all databases or of locks, beside those that the table of commands generates.
const READS: &[&str] = &[
    "KEYS *", "SCAN 0 COUNT 1000", "RANDOMKEY", "LOCK.LIST COUNT 1000", "LOCK.TOKEN k", "LOCK.WHO k",
    "LOCK.WAITERS k", "LOCK.MINE", "LOCK.GRAPH",
];

/// Replies that list keys in the order of a table, which differs where a key is not removed yet.
const UNORDERED: &[&str] = &["KEYS", "LOCK.LIST", "SCAN"];

/// Commands whose replies may differ: see above. Those that list a part of all keys stand in [`READS`] with a count.
const APART: &[&str] = &["DBSIZE", "LOCK.EXPLAIN", "LOCK.HISTORY", "LOCK.LINT", "LOCK.LIST", "SCAN"];

/// Both servers, and the sessions of one client and of one that waits.
struct Pair {
    machines: [Machine; 2],
    clients: [Session; 2],
    waiters: [Session; 2],
}

/// Runs one simulation, the first server with this fault; `Err` names the first difference.
pub(crate) fn run(seed: u64, fault: Fault) -> Result<(), String> {
    let machines = [Machine::new(seed, fault), Machine::new(seed, Fault::NeverTicks)];
    let clients = [machines[0].connect(), machines[1].connect()];
    let waiters = [machines[0].connect(), machines[1].connect()];
    let (mut pair, mut rng) = (Pair { machines, clients, waiters }, Rng::new(seed));
    let reads = reads();
    for step in 0..STEPS {
        let done = match rng.below_u64(8) {
            0 => pair.pass(rng.below_u64(LATER_MS_MAX)).map(|()| "time passes".to_owned()),
            1 => pair.wait(rng.pick(WAITS), &mut rng),
            2 | 3 => pair.carry_out(rng.pick(TRANSACTIONS), &mut rng),
            4 => pair.carry_out(rng.pick(READS), &mut rng),
            5 => {
                let (command, sub) = rng.pick(&reads);
                let words = request(command, sub, &[], &mut rng);
                pair.ask(
                    &words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>(),
                )
            }
            _ => pair.carry_out(rng.pick(COMMANDS), &mut rng),
        };
        let what = done.map_err(|difference| format!("step {step}: {difference}"))?;
        let [on_time, late] =
            pair.machines.each_ref().map(|each| state_of(each.keyspace(), each.clock.truth()));
        if on_time != late {
            return Err(format!("step {step}: after {what}: {on_time:?}, and with a late timer {late:?}"));
        }
    }
    for (machine, waiter) in pair.machines.iter().zip(&mut pair.waiters) {
        machine.engine.disconnect(waiter);
    }
    Ok(())
}

/// Commands that only read keys, each with its subcommand.
fn reads() -> Vec<(&'static Command, Option<&'static Command>)> {
    let is_asked = |command: &Command| {
        let name = command.row.name;
        command.row.flags.has(Flags::READONLY) && !LEFT_OUT.contains(&name) && !APART.contains(&name)
    };
    let rows = table().commands().iter().filter(|command| !LEFT_OUT.contains(&command.row.name));
    rows.flat_map(|command| {
        let subs = command.subcommands.iter().filter(|sub| sub.row.flags.has(Flags::READONLY));
        let alone = command.row.subcommands.is_empty() && is_asked(command);
        alone.then_some((command, None)).into_iter().chain(subs.map(move |sub| (command, Some(sub))))
    })
    .collect()
}

impl Pair {
    /// Lets time pass on both, on the first step by step from one deadline to the next.
    fn pass(&mut self, millis: u64) -> Result<(), String> {
        for _ in 0..millis {
            self.machines.iter().for_each(|machine| machine.clock.advance(1));
            while self.machines[0].tick() == Due::More {}
            while self.machines[1].tick() == Due::More {}
        }
        let [on_time, late] = [0, 1].map(|at| self.machines[at].resume(&mut self.waiters[at]));
        if on_time == late { Ok(()) } else { Err(format!("the waiter gets {on_time:?} and {late:?}")) }
    }

    /// The second client waits, unless it waits already.
    fn wait(&mut self, line: &str, rng: &mut Rng) -> Result<String, String> {
        if self.waiters[0].parked.is_some() {
            return self.pass(0).map(|()| "no time passes".to_owned());
        }
        let words = fill(line, rng, self.machines[0].wall_ms());
        Self::send((&self.machines, &mut self.waiters), &words)
    }

    fn carry_out(&mut self, line: &str, rng: &mut Rng) -> Result<String, String> {
        let mut done = Vec::new();
        for part in line.split(" | ") {
            if part == "later" {
                let millis = rng.below_u64(LATER_MS_MAX);
                self.pass(millis)?;
                done.push(format!("{millis} ms pass"));
                continue;
            }
            let words = fill(part, rng, self.machines[0].wall_ms());
            done.push(self.ask(&words).map_err(|difference| format!("{}; {difference}", done.join("; ")))?);
        }
        Ok(done.join("; "))
    }

    /// A request of the first client to both servers.
    fn ask(&mut self, words: &[String]) -> Result<String, String> {
        let done = Self::send((&self.machines, &mut self.clients), words)?;
        assert!(self.clients[0].parked.is_none(), "{words:?}: this command must not block");
        Ok(done)
    }

    /// One request to both servers. The reply of one that waits is empty.
    fn send(
        (machines, sessions): (&[Machine; 2], &mut [Session; 2]),
        words: &[String],
    ) -> Result<String, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let replies = [0, 1].map(|at| {
            let mut batch = machines[at].engine.batch();
            let reply = machines[at].offer(&mut sessions[at], &mut batch, &words);
            machines[at].engine.end_batch(&mut sessions[at], batch);
            reply
        });
        agreed(&words, &replies)
    }
}

/// The request and its reply, if both servers have answered it alike.
fn agreed(words: &[&str], replies: &[String; 2]) -> Result<String, String> {
    let name = words.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    let [on_time, late] = replies.each_ref().map(|reply| match &*name {
        name if UNORDERED.contains(&name) => {
            let mut lines: Vec<&str> = reply.lines().collect();
            lines.sort_unstable();
            lines.join(" ")
        }
        // Any key, or none.
        "RANDOMKEY" => reply.starts_with("$-1").to_string(),
        _ => reply.clone(),
    });
    if on_time == late {
        return Ok(format!("{words:?} -> {on_time:?}"));
    }
    Err(format!("{words:?} -> {on_time:?}, and with a late timer {late:?}"))
}
