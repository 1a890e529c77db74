//! The plan of a run: which client sends which requests. It is complete before the run starts, so parts can be left out.

use redlatch_core::commands::Command;
use redlatch_core::commands::row::Flags;
use redlatch_testing::commands::table;

use super::grammar::{self, Words};
use super::relaxed::{LEFT_OUT, NEITHERS_OPTIONS, NEWER_OPTIONS, OLDER_TOO, Relaxed, WITHIN_MILLIS, relaxed};
use super::runner::{Newer, is_newer};
use super::{draws, libraries, listening, scripts};
use crate::support::reply::Reply;
use crate::support::rng::Rng;

/// Clients of a run. The last one begins in RESP3, as does the last one that does not subscribe.
pub(crate) const CLIENTS: usize = 5;
/// The first of the subscribing clients; all later ones subscribe, too.
pub(crate) const LISTENER: usize = 3;
/// A client that runs no scripts, and may track all its own reads and writes: in a script Redis 7.0 tracks the declared
/// keys as read, and treats its writes as another client's.
const SCRIPTLESS: usize = 1;

/// The requests that one client sends in one write.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) client: usize,
    pub(crate) requests: Vec<Request>,
}

/// One request, and its relaxation.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) words: Words,
    pub(crate) relaxed: Relaxed,
    /// Whether its reply lists the members from which the next request draws.
    pub(crate) is_look: bool,
}

/// The material of a run: commands that both servers have, and scripts.
pub(crate) struct Stock {
    newer: Newer,
    commands: Vec<(&'static Command, Option<&'static Command>)>,
    scripts: Vec<String>,
}

impl Stock {
    /// The generated commands for which `has` is true.
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
        // A key with a lease of under one millisecond is removed on time by redlatch, and remains in Redis until a scan
        // or a read: Symfony's probe leaves one.
        let leaves_nothing_behind = |text: &String| !text.contains("'PX', 1)");
        let texts = crate::support::shapes::shapes().into_iter().map(|(_, text)| text);
        let scripts = texts.filter(leaves_nothing_behind).collect();
        Self { newer, commands, scripts }
    }

    /// The steps of a run.
    pub(crate) fn steps(&self, seed: u64, count: usize) -> Vec<Step> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| self.step(&mut rng)).collect()
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let client = rng.below(CLIENTS);
        if client >= LISTENER && self.newer == Newer::LeftOut {
            return Step { client, requests: self.listener(rng) };
        }
        let requests = match rng.below(20) {
            0 | 1 => self.transaction(client, rng),
            // A client that tracks its own writes gets redlatch's message before its PUBLISH, and Redis' after the pipeline.
            2 => {
                let requests = (0..2 + rng.below(6)).map(|_| self.request(client, rng));
                requests.filter(|request| !request.publishes()).collect()
            }
            // A SET with a past deadline invalidates its key in Redis 7.0, and not in Valkey.
            3 if self.newer == Newer::LeftOut => vec![self.watch(rng)],
            4 if rng.one_in(4) => vec![plain(&[b"HELLO", rng.pick(&[b"2", b"3", b"3", b"4"])], "HELLO")],
            // Valkey has its own error texts for MULTI and WATCH after MULTI.
            5 if self.newer == Newer::LeftOut => {
                vec![plain(&[rng.pick(&[b"MULTI" as &[u8], b"EXEC", b"DISCARD", b"UNWATCH"])], "MULTI")]
            }
            6 if rng.one_in(10) => vec![plain(&[b"FLUSHALL"], "FLUSHALL")],
            7 if rng.one_in(12) => {
                let has = |name: &str| self.commands.iter().any(|(command, _)| command.row.name == name);
                let words = grammar::filler(has, rng);
                words.map(|words| Request::new(words, Relaxed::Exact)).into_iter().collect()
            }
            8 | 9 if self.newer == Newer::LeftOut => {
                vec![listening_request(listening::by_anybody(client != SCRIPTLESS, rng))]
            }
            _ => vec![self.request(client, rng)],
        };
        Step { client, requests }
    }

    /// Any request: mostly from the command table, sometimes inside a script.
    fn request(&self, client: usize, rng: &mut Rng) -> Request {
        let first = match (self.newer, client) {
            (Newer::LeftOut, SCRIPTLESS) => 8,
            (Newer::LeftOut, _) => 0,
            (Newer::WithTheirTypes, _) => 8,
        };
        match first + rng.below(28 - first) {
            0 => Request::new(scripts::alone(rng), Relaxed::Unordered),
            1 => {
                let words = scripts::of_clients(&self.scripts, rng);
                let is_timed = words[1].windows(3).any(|part| part.eq_ignore_ascii_case(b"ttl"));
                let timed = Relaxed::Timed(WITHIN_MILLIS);
                Request::new(words, if is_timed { timed } else { Relaxed::Exact })
            }
            2 | 3 => self.inside(scripts::around, rng),
            4 => self.inside(scripts::by_sha1, rng),
            5 => self.inside(libraries::around, rng),
            6 | 7 => Request::new(libraries::request(rng), Relaxed::Unordered),
            _ => self.command(rng),
        }
    }

    /// A request that a script runs, unless its reply could not be compared.
    fn inside(&self, around: fn(&Words, &mut Rng) -> Words, rng: &mut Rng) -> Request {
        let mut inner = self.command(rng);
        // All members at once, so that later requests do not depend on which were drawn.
        if grammar::take_all(&mut inner.words) {
            inner.relaxed = Relaxed::Unordered;
        }
        match inner.relaxed {
            relaxed @ (Relaxed::Exact | Relaxed::Unordered) => {
                Request::new(around(&inner.words, rng), relaxed)
            }
            _ => inner,
        }
    }

    /// The requests that a subscribed client sends in one write.
    fn listener(&self, rng: &mut Rng) -> Vec<Request> {
        match rng.below(20) {
            0 => {
                let mut requests = vec![plain(&[b"MULTI"], "MULTI")];
                let inner = (0..1 + rng.below(3)).map(|_| listening::in_transaction(rng));
                requests.extend(inner.map(listening_request));
                requests.push(plain(&[b"EXEC"], "EXEC"));
                requests
            }
            1 => vec![plain(&[b"HELLO", rng.pick(&[b"2", b"3", b"3"])], "HELLO")],
            2..5 => (0..2 + rng.below(4)).map(|_| listening_request(listening::by_listener(rng))).collect(),
            5..9 => loop {
                // A request without changes causes no message, which could otherwise arrive in the middle of a reply.
                let request = self.command(rng);
                let name = String::from_utf8_lossy(&request.words[0]).to_uppercase();
                let flags = table().find(name.as_bytes()).map(|command| command.row.flags);
                if flags.is_some_and(|flags| flags.has(Flags::READONLY)) {
                    break vec![request];
                }
            },
            _ => vec![listening_request(listening::by_listener(rng))],
        }
    }

    fn command(&self, rng: &mut Rng) -> Request {
        // Requests that empty the database are rare.
        let (command, sub) = loop {
            let (command, sub) = rng.pick(&self.commands);
            let empties = ["FLUSHALL", "FLUSHDB", "SELECT", "SWAPDB"].contains(&command.row.name);
            if !empties || rng.one_in(15) {
                break (command, sub);
            }
        };
        let without = if self.newer == Newer::LeftOut { NEWER_OPTIONS } else { NEITHERS_OPTIONS };
        let words = grammar::request(command, sub, without, rng);
        let relaxed = relaxed(command.row.name, &words);
        Request::new(words, relaxed)
    }

    fn transaction(&self, client: usize, rng: &mut Rng) -> Vec<Request> {
        let mut requests = vec![plain(&[b"MULTI"], "MULTI")];
        requests.extend((0..1 + rng.below(5)).map(|_| self.request(client, rng)));
        let end: &[u8] = if rng.one_in(8) { b"DISCARD" } else { b"EXEC" };
        requests.push(plain(&[end], "EXEC"));
        requests
    }

    fn watch(&self, rng: &mut Rng) -> Request {
        plain(&[b"WATCH", rng.pick(&[b"k0", b"n0", b"h0", b"l0", b"t0", b"z0"])], "WATCH")
    }
}

fn plain(words: &[&[u8]], name: &str) -> Request {
    let words: Words = words.iter().map(|word| word.to_vec()).collect();
    let relaxed = relaxed(name, &words);
    Request::new(words, relaxed)
}

fn listening_request(words: Words) -> Request {
    let is_listed = words.get(1).is_some_and(|sub| sub.ends_with(b"CHANNELS"));
    Request::new(words, if is_listed { Relaxed::Unordered } else { Relaxed::Exact })
}

impl Request {
    pub(crate) fn new(words: Words, relaxed: Relaxed) -> Self {
        Self { words, relaxed, is_look: false }
    }

    fn publishes(&self) -> bool {
        [b"PUBLISH" as &[u8], b"SPUBLISH"].iter().any(|name| self.words[0].eq_ignore_ascii_case(name))
    }

    /// The requests sent for this one: for a draw, also those that make it comparable.
    pub(crate) fn parts(&self) -> Vec<Self> {
        let is_drawn = self.relaxed == Relaxed::Drawn;
        let look = draws::look(&self.words).filter(|_| is_drawn);
        let look = look.map(|words| Self { words, relaxed: Relaxed::Unordered, is_look: true });
        let sweep = draws::sweep(&self.words).filter(|_| is_drawn);
        let sweep = sweep.map(|words| Self::new(words, Relaxed::Exact));
        look.into_iter().chain([self.clone()]).chain(sweep).collect()
    }

    /// Whether a reply may have been drawn from the members read before.
    pub(crate) fn is_drawn_from(&self, looked: &Reply, reply: &Reply) -> bool {
        matches!(reply, Reply::Error(_)) || draws::is_lawful(&self.words, looked, reply)
    }

    /// The bytes of the request. `ids` are the client ids, for `<id 3>`.
    pub(crate) fn write(&self, ids: &[i64], into: &mut Vec<u8>) {
        into.extend_from_slice(format!("*{}\r\n", self.words.len()).as_bytes());
        for word in &self.words {
            let named =
                str::from_utf8(word).ok().and_then(|word| word.strip_prefix("<id ")?.strip_suffix('>'));
            let id = named.and_then(|client| ids.get(client.parse::<usize>().ok()?));
            let word = id.map_or_else(|| word.clone(), |id| id.to_string().into_bytes());
            into.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            into.extend_from_slice(&word);
            into.extend_from_slice(b"\r\n");
        }
    }
}
