//! What a world does: who sends which requests, all of it decided before the first is sent, so that parts can be left out.

use redlatch::commands::{Command, table};

use super::campaign::{Newer, is_newer};
use super::dice::Dice;
use super::grammar::{self, Words};
use super::relaxed::{LEFT_OUT, NEITHERS_OPTIONS, NEWER_OPTIONS, OLDER_TOO, Relaxed, relaxed};
use super::scripts;

/// Clients of a world. The last one begins in RESP3.
pub(crate) const CLIENTS: usize = 3;

/// What one client writes at once.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) client: usize,
    pub(crate) requests: Vec<Request>,
}

/// One request, and how replies to it may differ.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) words: Words,
    pub(crate) relaxed: Relaxed,
}

/// What worlds are made of: commands that both servers have, and scripts.
pub(crate) struct Stock {
    newer: Newer,
    commands: Vec<(&'static Command, Option<&'static Command>)>,
    scripts: Vec<String>,
}

impl Stock {
    /// Of the commands that are not left out those for which `has` is true.
    pub(crate) fn new(newer: Newer, has: impl Fn(&str) -> bool) -> Self {
        let mut commands = Vec::new();
        for command in table().commands().iter().filter(|command| !LEFT_OUT.contains(&command.row.name)) {
            let row = command.row;
            let is_asked = match newer {
                Newer::LeftOut => !is_newer(row.since),
                Newer::WithTheirTypes => is_newer(row.since) || OLDER_TOO.contains(&row.name),
            };
            let is_ours = |name: &str| is_asked && !LEFT_OUT.contains(&name) && has(name);
            if row.subcommands.is_empty() && is_ours(row.name) {
                commands.push((command, None));
            }
            let subs = command.subcommands.iter();
            commands.extend(
                subs.filter(|sub| is_ours(&format!("{} {}", row.name, sub.row.name)))
                    .map(|sub| (command, Some(sub))),
            );
        }
        assert!(!commands.is_empty(), "the servers have commands in common");
        let scripts = crate::shapes::shapes().into_iter().map(|(_, text)| text).collect();
        Self { newer, commands, scripts }
    }

    /// The steps of a world.
    pub(crate) fn steps(&self, seed: u64, count: usize) -> Vec<Step> {
        let mut dice = Dice::new(seed);
        (0..count).map(|_| self.step(&mut dice)).collect()
    }

    fn step(&self, dice: &mut Dice) -> Step {
        let client = dice.below(CLIENTS);
        let requests = match dice.below(20) {
            0 | 1 => self.transaction(dice),
            2 => (0..2 + dice.below(6)).map(|_| self.request(dice)).collect(),
            // A SET that ends at once touches its key in Redis 7.0, and not in Valkey.
            3 if self.newer == Newer::LeftOut => vec![self.watch(dice)],
            4 if dice.one_in(4) => vec![plain(&[b"HELLO", dice.pick(&[b"2", b"3", b"3", b"4"])], "HELLO")],
            // Valkey has texts of its own for MULTI and WATCH after MULTI.
            5 if self.newer == Newer::LeftOut => {
                vec![plain(&[dice.pick(&[b"MULTI" as &[u8], b"EXEC", b"DISCARD", b"UNWATCH"])], "MULTI")]
            }
            6 if dice.one_in(10) => vec![plain(&[b"FLUSHALL"], "FLUSHALL")],
            7 if dice.one_in(12) => {
                let has = |name: &str| self.commands.iter().any(|(command, _)| command.row.name == name);
                let words = grammar::filler(has, dice);
                words.map(|words| Request { words, relaxed: Relaxed::Exact }).into_iter().collect()
            }
            _ => vec![self.request(dice)],
        };
        Step { client, requests }
    }

    /// Any request: of the table mostly, inside a script sometimes.
    fn request(&self, dice: &mut Dice) -> Request {
        let first = if self.newer == Newer::LeftOut { 0 } else { 5 };
        match first + dice.below(24 - first) {
            0 => Request { words: scripts::alone(dice), relaxed: Relaxed::Unordered },
            1 => {
                let words = scripts::of_clients(&self.scripts, dice);
                let is_timed = words[1].windows(3).any(|part| part.eq_ignore_ascii_case(b"ttl"));
                Request { words, relaxed: if is_timed { Relaxed::Timed } else { Relaxed::Exact } }
            }
            2..5 => {
                let inner = self.command(dice);
                let relaxed = inner.relaxed;
                match relaxed {
                    Relaxed::Exact | Relaxed::Unordered => {
                        Request { words: scripts::around(&inner.words, dice), relaxed }
                    }
                    _ => inner,
                }
            }
            _ => self.command(dice),
        }
    }

    fn command(&self, dice: &mut Dice) -> Request {
        // What empties everything is rare.
        let (command, sub) = loop {
            let (command, sub) = dice.pick(&self.commands);
            let empties = ["FLUSHALL", "FLUSHDB", "SELECT", "SWAPDB"].contains(&command.row.name);
            if !empties || dice.one_in(15) {
                break (command, sub);
            }
        };
        let without = if self.newer == Newer::LeftOut { NEWER_OPTIONS } else { NEITHERS_OPTIONS };
        let words = grammar::request(command, sub, without, dice);
        let relaxed = relaxed(command.row.name, &words);
        Request { words, relaxed }
    }

    fn transaction(&self, dice: &mut Dice) -> Vec<Request> {
        let mut requests = vec![plain(&[b"MULTI"], "MULTI")];
        requests.extend((0..1 + dice.below(5)).map(|_| self.request(dice)));
        let end: &[u8] = if dice.one_in(8) { b"DISCARD" } else { b"EXEC" };
        requests.push(plain(&[end], "EXEC"));
        requests
    }

    fn watch(&self, dice: &mut Dice) -> Request {
        plain(&[b"WATCH", dice.pick(&[b"k0", b"n0", b"h0", b"l0", b"t0", b"z0"])], "WATCH")
    }
}

fn plain(words: &[&[u8]], name: &str) -> Request {
    let words: Words = words.iter().map(|word| word.to_vec()).collect();
    let relaxed = relaxed(name, &words);
    Request { words, relaxed }
}

impl Request {
    /// As it goes over the wire.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(format!("*{}\r\n", self.words.len()).as_bytes());
        for word in &self.words {
            into.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            into.extend_from_slice(word);
            into.extend_from_slice(b"\r\n");
        }
    }
}
