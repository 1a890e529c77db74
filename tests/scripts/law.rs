//! The law of plain scripts: run natively and run by the interpreter, they do the same.
//!
//! Owns    small random states of a few keys, and two engines that start from the same one.
//! Rule    the same reply, keys, deadlines, effects, messages and statistics; a script is made to be interpreted by a
//!         statement before it that changes nothing, but is not plain.

use std::sync::{Arc, Mutex};

use redlatch::clock::{Clock, LockTime, Now};
use redlatch::commands::Shared;
use redlatch::engine::{Engine, Flow};
use redlatch::journal::{Journal, Mutation};
use redlatch::keyspace::{Keyspace, Layout};
use redlatch::resp::Decoder;
use redlatch::scripts::Inputs;
use redlatch::scripts::plain::Program;
use redlatch::state::clients::Client;
use redlatch::state::session::Session;
use redlatch::state::settings::Settings;

use super::draw::Draw;
use super::{collected, mutate, shapes};

/// Stands still: both runs see one instant.
struct Still;

impl Clock for Still {
    fn now(&self) -> Now {
        Now { lock: LockTime::from_millis(1_000_000), wall_offset_ms: 1_700_000_000_000 }
    }

    fn micros(&self) -> u64 {
        1_000_000_000
    }

    fn wall_micros(&self) -> u64 {
        1_700_001_000_000_000
    }
}

/// Keeps every effect.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<String>>);

impl Journal for Log {
    fn append(&self, _: u64, mutations: &[Mutation]) {
        self.0
            .lock()
            .expect("no test has panicked here")
            .extend(mutations.iter().map(|mutation| format!("{mutation:?}")));
    }
}

/// An engine with two sessions: one that calls, and one that hears every message.
struct World {
    engine: Engine,
    session: Session,
    listener: Session,
    log: Arc<Log>,
}

impl World {
    fn new() -> Self {
        let log = Arc::new(Log::default());
        let journal: Arc<dyn Journal> = log.clone();
        let layout = Layout { shards: 4, databases: 4, seed: 7, journal: Some(journal) };
        let keyspace = Keyspace::new(layout, || {});
        let engine = Engine::new(Arc::new(Shared::new(keyspace, Settings::default(), Arc::new(Still), 7)));
        let client = |id| Client::new(id, format!("127.0.0.1:{id}"), String::new(), false, Still.now().lock);
        let [mut session, listener] = [1, 2].map(|id| engine.connect(client(id)));
        session.may_be_held = true;
        let mut world = Self { engine, session, listener, log };
        world.swap();
        world.send(&[b"PSUBSCRIBE", b"*"]);
        world.send(&[b"SSUBSCRIBE", b"k1", b"k2", b"k3", b"k4", b"k5", b"mine", b"other"]);
        world.swap();
        world
    }

    fn swap(&mut self) {
        std::mem::swap(&mut self.session, &mut self.listener);
    }

    fn send(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        let (mut decoder, mut out, mut batch) = (Decoder::new(), Vec::new(), self.engine.batch());
        decoder.next(&request, self.engine.trust(&self.session)).expect("a request").expect("a whole one");
        let flow = self.engine.execute(&mut self.session, decoder.request(&request), &mut batch, &mut out);
        assert_eq!(flow, Flow::Next);
        self.engine.end_batch(&self.session, batch);
        out
    }

    /// Runs a script over a state: what it answered, what it left, and what it did.
    fn run(&mut self, state: &[Vec<Vec<u8>>], script: &str, keys: &[&[u8]], args: &[&[u8]]) -> Seen {
        self.send(&[b"FLUSHALL"]);
        for command in state {
            self.send(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        self.send(&[b"CONFIG", b"RESETSTAT"]);
        self.log.0.lock().expect("no test has panicked here").clear();
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
        words.extend_from_slice(keys);
        words.extend_from_slice(args);
        let reply = String::from_utf8_lossy(&self.send(&words)).into_owned();
        let effects = std::mem::take(&mut *self.log.0.lock().expect("no test has panicked here"));
        let mut messages = Vec::new();
        self.listener.client.collect(&mut messages);
        let mut left = vec![
            self.send(&[b"DBSIZE"]),
            without_times(&self.send(&[b"INFO", b"commandstats"])),
            self.send(&[b"INFO", b"errorstats"]),
        ];
        for key in keys {
            for words in LOOKS {
                let words: Vec<&[u8]> =
                    words.iter().map(|word| if *word == b"@" { *key } else { *word }).collect();
                left.push(self.send(&words));
            }
        }
        let show = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Seen {
            reply: without_sha(&reply),
            left: left.into_iter().map(show).collect(),
            messages: show(messages),
            effects,
        }
    }
}

/// What a key holds, whatever it is.
const LOOKS: &[&[&[u8]]] = &[
    &[b"TYPE", b"@"],
    &[b"PTTL", b"@"],
    &[b"GET", b"@"],
    &[b"LRANGE", b"@", b"0", b"-1"],
    &[b"HGETALL", b"@"],
    &[b"ZRANGE", b"@", b"0", b"-1", b"WITHSCORES"],
    &[b"SMEMBERS", b"@"],
];

/// What a run could be seen to do.
#[derive(Debug, PartialEq)]
struct Seen {
    reply: String,
    left: Vec<String>,
    messages: String,
    effects: Vec<String>,
}

/// An error line names the script, which has another SHA-1 where it is to be interpreted.
fn without_sha(reply: &str) -> String {
    match reply.split_once(" script: ") {
        Some((before, after)) => format!("{before} script: {}", after.get(40..).unwrap_or_default()),
        None => reply.to_owned(),
    }
}

/// How often each command was called, and failed, without how long it took.
fn without_times(info: &[u8]) -> Vec<u8> {
    let info = String::from_utf8_lossy(info);
    let lines = info.lines().map(|line| match (line.find(",usec"), line.find(",rejected")) {
        (Some(from), Some(to)) => format!("{}{}\n", &line[..from], &line[to..]),
        _ => format!("{line}\n"),
    });
    // The length of the whole differs with the digits that were cut.
    lines.skip(1).collect::<String>().into_bytes()
}

/// A statement that no plain script has, and that does nothing.
const DETOUR: &str = "local unseen = function() end ";

/// Two engines, one of which interprets what the other runs natively.
struct Pair {
    native: World,
    interpreted: World,
    draw: Draw,
    cases: usize,
    drawn: usize,
}

impl Pair {
    fn new() -> Self {
        Self { native: World::new(), interpreted: World::new(), draw: Draw::new(), cases: 0, drawn: 0 }
    }

    /// Runs a plain script in both from so many random states.
    fn compare(&mut self, script: &str, turns: usize) {
        let program = Program::read(script.as_bytes()).expect("a plain script");
        let detour = format!("{DETOUR}{script}");
        assert!(Program::read(detour.as_bytes()).is_none(), "{detour}");
        let keys: [&[u8]; 5] = [b"k1", b"k2", b"k3", b"k4", b"k5"];
        for _ in 0..turns {
            let keys = &keys[..1 + self.draw.below(keys.len())];
            let args = self.draw.args(script);
            let state = self.draw.state(keys);
            self.drawn += 1;
            if !program.fits(Inputs::new(keys, &args)) {
                continue;
            }
            self.cases += 1;
            let expected = self.interpreted.run(&state, &detour, keys, &args);
            let seen = self.native.run(&state, script, keys, &args);
            let args: Vec<_> = args.iter().map(|arg| arg.escape_ascii().to_string()).collect();
            let state: Vec<_> =
                state.iter().map(|words| words.join(&b' ').escape_ascii().to_string()).collect();
            assert_eq!(seen, expected, "{script}\n  {state:?}\n  {} keys, {args:?}", keys.len());
        }
    }

    fn assert_each_ran_in_its_own_way(&self) {
        let memory = |world: &World| world.engine.shared().interpreter.memory();
        assert_eq!(memory(&self.native), 0, "a plain script was interpreted");
        assert!(memory(&self.interpreted) > 0, "nothing was interpreted");
    }
}

/// `SEED=17 cargo test --test scripts plain_scripts_and` runs the cases of seed 17.
#[test]
fn plain_scripts_and_the_interpreter_do_the_same() {
    let mut pair = Pair::new();
    for (_, script) in shapes() {
        pair.compare(&script, 60);
    }
    for script in
        collected().unwrap_or_default().into_values().filter_map(|text| String::from_utf8(text).ok())
    {
        if Program::read(script.as_bytes()).is_some() {
            pair.compare(&script, 30);
        }
    }
    assert!(pair.cases >= 4_000 && 2 * pair.cases > pair.drawn, "{} cases of {}", pair.cases, pair.drawn);
    pair.assert_each_ran_in_its_own_way();
}

/// What a slip of the pen makes of a lock script is still done as Lua would do it, and what Lua refuses is not mended.
#[test]
fn mutations_that_are_plain_do_what_lua_does() {
    let mut pair = Pair::new();
    let every = if std::env::var_os("EVERY_MUTATION").is_some() { 1 } else { 12 };
    let (mut plain, mut at) = (0, pair.draw.below(every));
    for (_, script) in shapes() {
        for mutated in mutate::all(&script) {
            at += 1;
            if !at.is_multiple_of(every) || Program::read(mutated.as_bytes()).is_none() {
                continue;
            }
            plain += 1;
            let spread = spread(&mut pair.draw, &mutated);
            pair.compare(&spread, 2);
        }
    }
    assert!(plain >= 500, "{plain} mutations were plain");
}

/// The same script on several lines, for errors name them. Lua wants a call's parenthesis on the line of its function.
fn spread(draw: &mut Draw, script: &str) -> String {
    let mut spread = String::new();
    for token in mutate::tokens(script) {
        let is_apart = !spread.is_empty() && token != "(" && draw.below(4) == 0;
        spread.push(if is_apart { '\n' } else { ' ' });
        spread.push_str(token);
    }
    spread
}
