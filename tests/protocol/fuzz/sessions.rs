//! Whole sessions on the engine: several connections, any commands, time, lost connections, and garbage.
//!
//! An input is a text, one step per line; malformed lines are ignored, so any mutation of an input is an input:
//!
//! ```text
//! 2 SET k1 "a value" PX 30      connection 2 sends a request, followed by an ECHO of the number of earlier requests
//! 1 garbage "*3\r\n$-1"         connection 1 sends these bytes, and is then cut
//! cut 0                         connection 0 is cut, and replaced by a new one
//! advance 25                    milliseconds pass
//! ```
//!
//! Laws    no panic; every request has one reply, in its place; after every step the journal replays to the state;
//!         the keyspace keeps its invariants; memory returns to its floor when all keys are gone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use redlatch_core::journal::Journal;
use redlatch_proto::resp::words;

use crate::simulation::effects::{COMMANDS, FLOOR_BYTES, WAITS, fill};
use crate::simulation::parts::{Fault, Log, Replica, layout, standing};
use crate::support::bare::request;
use crate::support::engine::EngineTarget;
use crate::support::reply::Reply;
use crate::support::rng::Rng;
use crate::support::target::{Target, Wait};

/// Further requests, in the notation of [`COMMANDS`].
const OTHERS: &[&str] = &[
    "MULTI", "EXEC", "DISCARD", "WATCH k h", "UNWATCH", "SELECT db", "HELLO 3", "HELLO 2", "RESET",
    "CLIENT TRACKING ON", "CLIENT TRACKING OFF", "CLIENT ID", "CLIENT INFO", "CLIENT LIST",
    "CLIENT PAUSE ms WRITE", "CLIENT UNPAUSE", "CLIENT UNBLOCK i", "CLIENT KILL ID n", "PUBLISH m v",
    "EVAL SCRIPT 1 k v", "EVALSHA ffff 0", "SCRIPT LOAD SCRIPT", "COMMAND COUNT",
    "CONFIG SET notify-keyspace-events KEA", "CONFIG SET maxmemory n", "OBJECT ENCODING k", "TYPE x", "INFO",
    "nonsense k v", "GET", "QUIT",
];
/// The requests of the subscribed connection.
const LISTENS: &[&str] = &[
    "SUBSCRIBE m m", "PSUBSCRIBE *", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE m", "PING", "HELLO 3",
    "RESET",
];
/// Never sent: these end or stop the server, or have more or fewer replies than one.
const NOT_HERE: &[&str] = &["DEBUG", "MONITOR", "SHUTDOWN"];

const CONNECTIONS: usize = 4;
/// The subscribed connection. Its replies are not counted: it also receives messages.
const LISTENER: usize = CONNECTIONS - 1;

pub(crate) fn inputs() -> BoxedStrategy<Vec<u8>> {
    let request = (0..CONNECTIONS, 0..10_usize, any::<prop::sample::Index>(), any::<u64>());
    let request = request.prop_map(|(connection, kind, line, seed)| {
        let lines = match (connection, kind) {
            (LISTENER, _) => LISTENS,
            (_, 0..=5) => COMMANDS,
            (_, 6) => WAITS,
            _ => OTHERS,
        };
        let lines: Vec<&str> = lines[line.index(lines.len())].split(" | ").collect();
        let mut rng = Rng::new(seed);
        let text = |line: &&str| {
            let words = fill(line, &mut rng, WALL_MS);
            let words: Vec<String> = words.iter().map(|word| quoted(word.as_bytes())).collect();
            format!("{connection} {}\n", words.join(" "))
        };
        lines.iter().map(text).collect::<String>()
    });
    let garbage = (0..CONNECTIONS, vec(any::<u8>(), 1..12))
        .prop_map(|(connection, bytes)| format!("{connection} garbage {}\n", quoted(&bytes)));
    let step = prop_oneof![
        30 => request,
        3 => (0..60_u64).prop_map(|millis| format!("advance {millis}\n")),
        1 => (0..CONNECTIONS).prop_map(|connection| format!("cut {connection}\n")),
        1 => garbage,
    ];
    vec(step, 1..60).prop_map(|steps| steps.concat().into_bytes()).boxed()
}

pub(crate) fn check(input: &[u8]) {
    check_with(input, Fault::None);
}

/// Like [`run`], with a journal that may lose records.
pub(crate) fn check_with(input: &[u8], fault: Fault) {
    let mut connections = Connections::new(fault);
    for line in input.split(|byte| *byte == b'\n') {
        if connections.step(line).is_some() {
            connections.check();
        }
    }
    connections.end();
}

struct Connections {
    target: EngineTarget,
    log: Arc<Log>,
    replica: Replica,
    connections: Vec<Connection>,
}

struct Connection {
    link: usize,
    /// The numbers of the requests without a reply.
    owed: VecDeque<usize>,
    sent: usize,
    heard: Vec<u8>,
}

impl Connections {
    fn new(fault: Fault) -> Self {
        let log = Arc::new(Log::new(fault));
        let mut target =
            EngineTarget::start_with(layout(Some(Arc::clone(&log) as Arc<dyn Journal>)), WALL_MS as i64);
        let connections = (0..CONNECTIONS).map(|_| Connection::to(&mut target)).collect();
        Self { target, log, replica: Replica::new(), connections }
    }

    /// Takes the step of a line; `None` if the line is malformed.
    fn step(&mut self, line: &[u8]) -> Option<()> {
        let words = words(line).ok()?;
        let (first, rest) = words.split_first()?;
        match (first.as_slice(), rest) {
            (b"advance", [millis]) => {
                let millis: u64 = std::str::from_utf8(millis).ok()?.parse().ok()?;
                self.target.advance(Duration::from_millis(millis % 1_000_000));
            }
            (b"cut", [connection]) => self.cut(number(connection)?),
            (connection, [word, bytes]) if word == b"garbage" => {
                let connection = number(connection)?;
                self.target.send(self.connections[connection].link, bytes);
                self.cut(connection);
            }
            (connection, [_, ..]) => self.ask(number(connection)?, rest)?,
            _ => return None,
        }
        Some(())
    }

    fn ask(&mut self, at: usize, words: &[Vec<u8>]) -> Option<()> {
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        let says = |index: usize, word: &str| {
            words.get(index).is_some_and(|w| w.eq_ignore_ascii_case(word.as_bytes()))
        };
        if NOT_HERE.contains(&name.as_str()) || (says(0, "CLIENT") && says(1, "REPLY")) {
            return None;
        }
        // Their replies are messages, and not one per request.
        if at != LISTENER && name.contains("SUBSCRIBE") {
            return None;
        }
        let connection = &mut self.connections[at];
        self.target.send(connection.link, &request(words));
        let number = connection.sent;
        connection.owed.push_back(number);
        connection.sent += 1;
        self.target.send(connection.link, &request(&["ECHO", &tag(number)]));
        Some(())
    }

    fn cut(&mut self, at: usize) {
        self.target.cut(self.connections[at].link);
        self.connections[at] = Connection::to(&mut self.target);
    }

    fn check(&mut self) {
        for at in 0..CONNECTIONS {
            let is_idle = self.target.is_idle(self.connections[at].link);
            let connection = &mut self.connections[at];
            self.target.receive(connection.link, Wait::Briefly, &mut connection.heard);
            if at == LISTENER {
                connection.heard.clear();
            } else {
                connection.hear();
                assert!(!is_idle || connection.owed.is_empty(), "{:?} are not answered", connection.owed);
            }
        }
        self.target.keyspace().assert_laws();
        self.replica.follow(&self.log);
        let standing = standing(self.target.keyspace(), self.target.now());
        assert_eq!(self.replica.remains(), standing, "{LIES}");
    }

    /// Cuts all connections and flushes all data: no memory may be left in use.
    fn end(mut self) {
        for connection in &self.connections {
            self.target.cut(connection.link);
        }
        // Ends every pause.
        self.target.advance(Duration::from_secs(1));
        let last = self.target.connect();
        self.target.send(last, &request(&["FLUSHALL"]));
        let mut heard = Vec::new();
        self.target.receive(last, Wait::UntilReply, &mut heard);
        assert_eq!(heard, b"+OK\r\n", "{}", heard.escape_ascii());
        self.replica.follow(&self.log);
        let counts = self.target.keyspace().counts();
        assert!(counts.bytes <= FLOOR_BYTES, "{} bytes are left when all is flushed", counts.bytes);
        assert_eq!(self.replica.remains().len(), 0, "{LIES}");
    }
}

impl Connection {
    fn to(target: &mut EngineTarget) -> Self {
        Self { link: target.connect(), owed: VecDeque::new(), sent: 0, heard: Vec::new() }
    }

    /// Reads the received replies in pairs: a reply, and the number echoed after it.
    fn hear(&mut self) {
        let (mut frames, mut at) = (Vec::new(), 0);
        while let Some((reply, taken)) = Reply::read(&self.heard[at..]).expect("a reply") {
            at += taken;
            if !matches!(reply, Reply::List(b'>', _)) {
                frames.push((reply, at));
            }
        }
        let mut done = 0;
        for pair in frames.chunks_exact(2) {
            let (answer, (echo, end)) = (&pair[0].0, &pair[1]);
            let Some(number) = self.owed.pop_front() else { panic!("nobody asked for {answer:?}, {echo:?}") };
            let is_in_place = match echo {
                Reply::Bulk(text) => *text == tag(number).into_bytes(),
                // The ECHO is queued for EXEC like the request, or the connection was closed.
                Reply::Simple(text) => text == b"QUEUED",
                Reply::Error(_) => true,
                _ => false,
            };
            assert!(is_in_place, "behind request {number}, answered {answer:?}, came {echo:?}");
            done = *end;
        }
        self.heard.drain(..done);
    }
}

fn tag(number: usize) -> String {
    format!("request-{number}")
}

fn number(word: &[u8]) -> Option<usize> {
    std::str::from_utf8(word).ok()?.parse().ok().filter(|number| *number < CONNECTIONS)
}

/// Spells any bytes as a word that `words` reads.
fn quoted(word: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"*-+.:[(,=".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let byte = |byte: &u8| {
        if *byte == b' ' || is_plain(byte) { char::from(*byte).to_string() } else { format!("\\x{byte:02x}") }
    };
    format!("\"{}\"", word.iter().map(byte).collect::<String>())
}

pub(crate) const LIES: &str = "what the journal tells is not what there is";
/// The start time of a session's engine.
const WALL_MS: u64 = 1_700_000_001_000;
