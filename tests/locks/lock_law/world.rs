//! A server of a cell: an engine with TEST commands, a journal and a clock that stands still, and its connections.
//!
//! Owns    the replies and messages that each connection has received.
//! Rule    a line of a way is sent as the bytes of a client; see `table`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::commands::Shared;
use redlatch_core::journal::Journal;
use redlatch_core::keyspace::{Copied, CopyCursor, Keyspace, Replay};
use redlatch_proto::clock::LockTime;

use super::START_UNIX_MS;
use super::model::Role;
use super::table::{Kind, REDISSON_FORCE, REDISSON_LOCK, REDISSON_UNLOCK};
use super::views;
use crate::simulation::parts::{Fault, Log, layout};
use crate::support::bare::{EXTEND, RELEASE};
use crate::support::engine::EngineTarget;
use crate::support::reply::Reply;
use crate::support::target::{Heard, Link, Target, Wait};
use crate::support::words::request;

pub(crate) struct World {
    target: EngineTarget,
    log: Arc<Log>,
    links: BTreeMap<Role, Link>,
    /// The clients of all processes by number.
    clients: BTreeMap<i64, Role>,
    /// Pushes and messages of channels.
    pub(crate) heard: BTreeMap<Role, Vec<Reply>>,
    /// The reply to the last command of a way.
    pub(crate) answer: Option<Reply>,
    /// Databases that a connection has selected, if it is not 0.
    selected: BTreeMap<Role, u16>,
    unlocks: u32,
    /// The last event of TEST.HISTORY that is not looked at.
    events: String,
    /// How many records the journal had, and when.
    moments: Vec<(usize, LockTime)>,
}

impl World {
    pub(crate) fn start() -> Self {
        let log = Arc::new(Log::new(Fault::None));
        let journal = Arc::clone(&log) as Arc<dyn Journal>;
        let target = EngineTarget::start_with_tests_and(layout(Some(journal)));
        assert_eq!(u64::try_from(target.unix_ms()), Ok(START_UNIX_MS));
        let mut world = Self::over(target, log);
        world.connect();
        world
    }

    fn over(target: EngineTarget, log: Arc<Log>) -> Self {
        Self {
            target,
            log,
            links: BTreeMap::new(),
            clients: BTreeMap::new(),
            heard: BTreeMap::new(),
            answer: None,
            selected: BTreeMap::new(),
            unlocks: 0,
            events: "0".to_owned(),
            moments: Vec::new(),
        }
    }

    /// Connects every role. Releases are remembered from now on.
    fn connect(&mut self) {
        for role in Role::ALL {
            let link = self.target.connect();
            self.links.insert(role, link);
            self.ask(role, &["HELLO", "3"]);
            let Reply::Int(id) = self.ask(role, &["CLIENT", "ID"]) else { panic!("no number of a client") };
            self.clients.insert(id, role);
        }
        self.ask(Role::Watcher, &["LOCK.HISTORY"]);
        self.send(Role::Listener, &["PSUBSCRIBE", "__lock__:*"]);
        self.heard.clear();
    }

    /// Sends a request whose reply may come later, and collects what has arrived for every connection.
    pub(crate) fn send<W: AsRef<[u8]>>(&mut self, role: Role, words: &[W]) -> Option<Reply> {
        self.target.send(self.links[&role], &request(words));
        self.collect().remove(&role)
    }

    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, role: Role, words: &[W]) -> Reply {
        self.send(role, words).expect("a reply")
    }

    /// The last reply for each connection. Pushes are kept.
    fn collect(&mut self) -> BTreeMap<Role, Reply> {
        let mut replies = BTreeMap::new();
        for (role, link) in self.links.clone() {
            let mut bytes = Vec::new();
            while self.target.receive(link, Wait::Briefly, &mut bytes) == Heard::Bytes {}
            let mut rest = &bytes[..];
            while let Some((reply, len)) = Reply::read(rest).expect("a well-formed reply") {
                rest = &rest[len..];
                match reply {
                    Reply::List(b'>', _) => self.heard.entry(role).or_default().push(reply),
                    _ => drop(replies.insert(role, reply)),
                }
            }
        }
        replies
    }

    /// Carries out a line of a kind or a way.
    pub(crate) fn run(&mut self, kind: &Kind, line: &str) {
        if let Some(millis) = line.strip_prefix('+') {
            self.pass(millis.parse().expect("milliseconds"));
        } else if let Some(role) = line.strip_prefix("close ") {
            self.close(Role::of(role));
        } else if line == "crash" {
            self.crash();
        } else if line == "$KILL" {
            let (id, _) = self.clients.iter().find(|(_, role)| **role == Role::Holder).expect("a number");
            let id = id.to_string();
            self.answer = Some(self.ask(Role::Other, &["CLIENT", "KILL", "ID", &id]));
        } else if line == "$ATTACH" {
            let Reply::Bulk(id) = self.ask(Role::Holder, &["LOCK.SESSION", "ID"]) else {
                panic!("no session")
            };
            self.close(Role::Holder);
            self.answer = Some(self.ask(Role::Other, &[b"LOCK.SESSION".as_slice(), b"ATTACH", &id]));
        } else {
            let (role, command) = line.split_once(": ").expect("a connection and a command");
            let words = self.words(kind, command);
            self.answer = self.send(Role::of(role), &words);
        }
    }

    fn words(&mut self, kind: &Kind, command: &str) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match command {
            "$REDISSON-LOCK" => words(&["EVAL", REDISSON_LOCK, "1", "k", "60000", "a"]),
            "$RELEASE" if kind.name == "Redisson" => {
                // The latch remembers the answer to one request.
                self.unlocks += 1;
                let latch = format!("latch{}", self.unlocks);
                let keys = ["EVAL", REDISSON_UNLOCK, "3", "k", "channel", &latch];
                words(&[&keys[..], &["0", "30000", "a", "publish", "1000"]].concat())
            }
            "$TAKE" => match kind.takes[0].split_once(": ").expect("a command").1 {
                "$REDISSON-LOCK" => self.words(kind, "$REDISSON-LOCK"),
                line => words(&line.split(' ').collect::<Vec<_>>()),
            },
            "$EXTEND" => words(&["EVAL", EXTEND, "1", "k", "a", "30000"]),
            "$FORCE" => words(&["EVAL", REDISSON_FORCE, "2", "k", "channel", "0", "publish"]),
            "$RELEASE" => words(&["EVAL", RELEASE, "1", "k", "a"]),
            _ => {
                let seconds = super::SECONDS.to_string();
                let millis = format!("{seconds}000");
                let fill = |word: &str| word.replace("$SECONDS", &seconds).replace("$MILLIS", &millis);
                command.split(' ').map(fill).collect()
            }
        }
    }

    /// Events of TEST.HISTORY count from now on.
    pub(crate) fn forget_events(&mut self) {
        let reply = self.ask(Role::Watcher, &["TEST.HISTORY", "COUNT", "100000"]);
        // A process that has been restarted in a cell has no TEST commands.
        let Reply::List(_, events) = &reply else { return };
        self.events = events.last().map_or("0".to_owned(), |event| views::text(event, "id"));
    }

    /// The events about a key.
    pub(crate) fn events(&mut self, key: &str) -> Reply {
        let since = self.events.clone();
        self.ask(Role::Watcher, &["TEST.HISTORY", "KEY", key, "SINCE", &since])
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.moments.push((self.log.since(0).len(), self.target.now().lock));
        self.target.advance(Duration::from_millis(millis));
        self.collect();
    }

    fn close(&mut self, role: Role) {
        self.collect();
        self.target.cut(self.links[&role]);
        self.collect();
    }

    /// The process dies, and another one goes on from the journal at the same lock time.
    fn crash(&mut self) {
        let (keyspace, now) = (empty(), self.target.now());
        let mut replay = keyspace.replay();
        self.replay(&mut replay, 0);
        let replayed = replay.finish(now.lock, 0);
        keyspace.raise_tokens(replayed.token);
        let highest = self.clients.keys().max().copied().unwrap_or_default();
        self.target = EngineTarget::restarted(keyspace, now, u64::try_from(highest).expect("a number"));
        self.links.clear();
        self.connect();
    }

    /// A server whose state comes from the journal alone.
    pub(crate) fn replayed(&self) -> Self {
        self.restored(0)
    }

    /// A server whose state comes from a copy, which the journal would go on with.
    pub(crate) fn copied(&self) -> Self {
        let (first, mut cursor) = (self.log.since(0).len(), CopyCursor::default());
        let keyspace = self.target.keyspace();
        while keyspace.copy(&mut cursor, self.target.now().lock) == Copied::Some {}
        self.restored(first)
    }

    /// A server whose state comes from the records from this one on. It has one connection.
    fn restored(&self, first: usize) -> Self {
        let keyspace = empty();
        self.replay(&mut keyspace.replay(), first);
        keyspace.assert_laws();
        let target = EngineTarget::restarted(keyspace, self.target.now(), 1_000);
        let mut world = Self::over(target, Arc::new(Log::new(Fault::None)));
        let link = world.target.connect();
        world.links.insert(Role::Watcher, link);
        world.ask(Role::Watcher, &["HELLO", "3"]);
        world
    }

    /// Applies the journal, each record at about the time at which it was made.
    fn replay(&self, replay: &mut Replay<'_>, first: usize) {
        for (index, mutations) in self.log.since(0).iter().enumerate().skip(first) {
            let moment = self.moments.iter().find(|(records, _)| index < *records);
            replay.at(moment.map_or(self.target.now().lock, |(_, at)| *at));
            mutations.iter().for_each(|mutation| replay.apply(mutation));
        }
    }

    /// Asks for a view of a database.
    pub(crate) fn view(&mut self, database: u16, words: &[&str]) -> Reply {
        if self.selected.insert(Role::Watcher, database).unwrap_or_default() != database {
            self.ask(Role::Watcher, &["SELECT", &database.to_string()]);
        }
        self.ask(Role::Watcher, words)
    }

    /// The letter of a client by its number.
    pub(crate) fn client(&self, id: i64) -> &'static str {
        self.clients.get(&id).map_or("?", |role| role.letter())
    }

    /// The address of a client that is connected.
    pub(crate) fn address(&self, role: Role) -> String {
        format!("127.0.0.1:{}", 50_000 + self.links[&role])
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.target.shared()
    }

    pub(crate) fn assert_laws(&self) {
        self.target.keyspace().assert_laws();
    }
}

fn empty() -> Keyspace {
    let keyspace = Keyspace::new(layout(None), || {});
    keyspace.keep_history(1_000);
    keyspace
}
