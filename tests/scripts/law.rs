//! The law of recognised scripts: the native program and the interpreter do the same.
//!
//! Owns    small random states of a few keys, and two engines that start from the same one.
//! Rule    the same reply, keys, deadlines and effects; a script is made to be interpreted by a statement before it that
//!         changes nothing, so that its SHA-1 is another.

use std::sync::{Arc, Mutex};

use redlatch::clock::{Clock, LockTime, Now};
use redlatch::commands::Shared;
use redlatch::engine::{Engine, Flow};
use redlatch::journal::{Journal, Mutation};
use redlatch::keyspace::{Keyspace, Layout};
use redlatch::resp::Decoder;
use redlatch::scripts::{recognise, texts};
use redlatch::state::clients::Client;
use redlatch::state::session::Session;
use redlatch::state::settings::Settings;

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

/// An engine with one session.
struct World {
    engine: Engine,
    session: Session,
    log: Arc<Log>,
}

impl World {
    fn new() -> Self {
        let log = Arc::new(Log::default());
        let journal: Arc<dyn Journal> = log.clone();
        let layout = Layout { shards: 4, databases: 4, seed: 7, journal: Some(journal) };
        let keyspace = Keyspace::new(layout, || {});
        let engine = Engine::new(Arc::new(Shared::new(keyspace, Settings::default(), Arc::new(Still), 7)));
        let client = Client::new(1, "127.0.0.1:1".to_owned(), String::new(), false, Still.now().lock);
        let mut session = engine.connect(client);
        session.may_be_held = true;
        Self { engine, session, log }
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
        self.log.0.lock().expect("no test has panicked here").clear();
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
        words.extend_from_slice(keys);
        words.extend_from_slice(args);
        let reply = String::from_utf8_lossy(&self.send(&words)).into_owned();
        let effects = std::mem::take(&mut *self.log.0.lock().expect("no test has panicked here"));
        let mut left = vec![self.send(&[b"DBSIZE"])];
        for key in keys {
            left.push(self.send(&[b"TYPE", key]));
            left.push(self.send(&[b"PTTL", key]));
            left.push(self.send(&[b"GET", key]));
            left.push(self.send(&[b"LRANGE", key, b"0", b"-1"]));
            left.push(self.send(&[b"HGETALL", key]));
        }
        Seen { reply: without_sha(&reply), left, effects }
    }
}

/// What a run could be seen to do.
#[derive(Debug, PartialEq)]
struct Seen {
    reply: String,
    left: Vec<Vec<u8>>,
    effects: Vec<String>,
}

/// An error line names the script, which has another SHA-1 where it is to be interpreted.
fn without_sha(reply: &str) -> String {
    match reply.split_once(" script: ") {
        Some((before, after)) => format!("{before} script: {}", after.get(40..).unwrap_or_default()),
        None => reply.to_owned(),
    }
}

/// A sequence that its seed decides: splitmix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((bits ^ (bits >> 31)) % end as u64) as usize
    }

    fn of<'a>(&mut self, words: &[&'a [u8]]) -> &'a [u8] {
        words[self.below(words.len())]
    }

    /// Commands that make a small state of these keys.
    fn state(&mut self, keys: &[&[u8]]) -> Vec<Vec<Vec<u8>>> {
        let mut commands = Vec::new();
        for key in keys {
            let command: Vec<&[u8]> = match self.below(8) {
                0 | 1 => continue,
                2 => vec![b"RPUSH", key, self.of(VALUES), self.of(VALUES)],
                3 => vec![b"HSET", key, self.of(VALUES), self.of(VALUES)],
                4 => vec![b"SET", key, self.of(VALUES), b"PX", self.of(&[b"1", b"70000", b"90000"])],
                _ => vec![b"SET", key, self.of(VALUES)],
            };
            commands.push(command.into_iter().map(<[u8]>::to_vec).collect());
        }
        commands
    }
}

/// What keys hold, and tokens are.
const VALUES: &[&[u8]] =
    &[b"mine", b"mine", b"mine", b"other", b"mine-and-more", b"0", b"1", b"7", b"", b"a\0b"];
/// Leases, counts and switches, good and bad.
const NUMBERS: &[&[u8]] = &[
    b"100000",
    b"30000",
    b"1",
    b"0",
    b"-1",
    b"ten",
    b" 1e5",
    b"1.5",
    b"4",
    b"9223372036854775807",
    b"no",
    b"",
    b"0x10",
];

/// `SEED=17 cargo test --test scripts native_programs_and` runs the cases of seed 17.
#[test]
fn native_programs_and_the_interpreter_do_the_same() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut draw = Draw(seed);
    let (mut native, mut interpreted) = (World::new(), World::new());
    let keys: [&[u8]; 3] = [b"k1", b"k2", b"k3"];
    let (mut cases, mut drawn) = (0, 0);
    for (at, (text, name)) in texts().into_iter().enumerate() {
        let found = recognise(text.as_bytes()).expect("a row of the table");
        let detour = format!("local unseen = {{}} {text}");
        assert!(recognise(detour.as_bytes()).is_none(), "{detour}");
        // The combined spellings come first and differ from each other in one piece at a time.
        let turns = if at < 100 { 20 } else { 1 };
        for _ in 0..turns {
            let args: [&[u8]; 3] = [draw.of(VALUES), draw.of(NUMBERS), draw.of(NUMBERS)];
            let state = draw.state(&keys);
            drawn += 1;
            if !found.fits(&keys, &args) {
                continue;
            }
            cases += 1;
            let expected = interpreted.run(&state, &detour, &keys, &args);
            let seen = native.run(&state, &text, &keys, &args);
            let args = args.map(String::from_utf8_lossy);
            assert_eq!(seen, expected, "seed {seed}, {name}: {text}\n  {state:?}\n  {args:?}");
        }
    }
    assert!(cases >= 2_000 && 2 * cases > drawn, "{cases} cases of {drawn}");
    assert_eq!(native.engine.shared().interpreter.memory(), 0, "a recognised script was interpreted");
    assert!(interpreted.engine.shared().interpreter.memory() > 0, "nothing was interpreted");
}
