//! One world: the same steps on two servers, their replies side by side, and in the end all that they hold.

use std::collections::{BTreeSet, VecDeque};

use redlatch::commands::row::Flags;
use redlatch::commands::table;

use super::plan::{CLIENTS, Request, Step};
use super::relaxed::Relaxed;
use crate::support::engine::EngineTarget;
use crate::support::real::RealServer;
use crate::support::reply::Reply;
use crate::support::target::{Heard, Patience, Target};
use crate::support::words::quote;

/// Databases that are compared.
const DATABASES: usize = 16;

/// How often the real server is asked whether a client waits.
const ASKED_MAX: usize = 2_000;

/// Where two servers parted.
#[derive(Clone, Debug)]
pub(crate) struct Parted {
    /// The step after which they did; that of the end is one more than there are.
    pub(crate) step: usize,
    /// The name of the command, to tell one difference from another.
    pub(crate) command: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

/// One connection to both servers.
#[derive(Default)]
struct Client {
    ours: Vec<u8>,
    theirs: Vec<u8>,
    /// The requests of an open transaction; `None` when none is open.
    queue: Option<Vec<Request>>,
    /// Requests that have no reply yet: the first waits, the others stand behind it.
    pending: VecDeque<Request>,
    /// Whether the real server has said that the first of them waits.
    is_waiting: bool,
    /// What each server calls the connection.
    ids: [i64; 2],
}

/// Two servers and their clients; the last client is the one that looks at everything in the end.
pub(crate) struct World {
    ours: EngineTarget,
    theirs: RealServer,
    clients: Vec<Client>,
}

impl World {
    pub(crate) fn new(theirs: RealServer) -> Self {
        let mut world = Self { ours: EngineTarget::start(), theirs, clients: Vec::new() };
        for _ in 0..=CLIENTS {
            world.ours.connect();
            world.theirs.connect();
            world.clients.push(Client::default());
        }
        world
    }

    /// The commands that the real server has, subcommands as `container|name`.
    pub(crate) fn commands(&mut self) -> BTreeSet<String> {
        let mut bytes = Vec::new();
        request(&["COMMAND", "LIST"], Relaxed::Own).write(&mut bytes);
        self.theirs.send(CLIENTS, &bytes);
        let list = read(&mut self.theirs, CLIENTS, &mut self.clients[CLIENTS].theirs);
        let Ok(Reply::List(_, names)) = list else {
            panic!("COMMAND LIST is answered with a list: {list:?}")
        };
        let names = names.into_iter().filter_map(|name| match name {
            Reply::Bulk(name) => Some(String::from_utf8_lossy(&name).into_owned()),
            _ => None,
        });
        names.collect()
    }

    /// Takes all the steps, and compares what is left behind.
    pub(crate) fn run(&mut self, steps: &[Step]) -> Result<(), Parted> {
        self.exchange(CLIENTS - 1, &request(&["HELLO", "3"], Relaxed::Own), 0)?;
        for client in 0..CLIENTS {
            if let [Reply::Int(ours), Reply::Int(theirs)] =
                self.exchange(client, &request(&["CLIENT", "ID"], Relaxed::Own), 0)?
            {
                self.clients[client].ids = [ours, theirs];
            }
        }
        for (at, step) in steps.iter().enumerate() {
            self.step(step, at)?;
        }
        (0..CLIENTS).try_for_each(|client| self.unblock(client, steps.len()))?;
        self.compare_contents(steps.len())
    }

    fn step(&mut self, step: &Step, at: usize) -> Result<(), Parted> {
        self.unblock(step.client, at)?;
        let mut bytes = Vec::new();
        step.requests.iter().for_each(|request| request.write(&mut bytes));
        self.ours.send(step.client, &bytes);
        self.theirs.send(step.client, &bytes);
        self.clients[step.client].pending.extend(step.requests.iter().cloned());
        self.collect(step.client, at)?;
        (0..CLIENTS).try_for_each(|client| self.collect(client, at))
    }

    /// Ends what the client waits for, until it waits no more.
    fn unblock(&mut self, client: usize, at: usize) -> Result<(), Parted> {
        while !self.clients[client].pending.is_empty() {
            let [ours, theirs] = self.clients[client]
                .ids
                .map(|id| request(&["CLIENT", "UNBLOCK", &id.to_string()], Relaxed::Exact));
            let mut bytes = [Vec::new(), Vec::new()];
            ours.write(&mut bytes[0]);
            theirs.write(&mut bytes[1]);
            self.ours.send(CLIENTS, &bytes[0]);
            self.theirs.send(CLIENTS, &bytes[1]);
            self.replies(CLIENTS, &ours, at)?;
            (0..CLIENTS).try_for_each(|client| self.collect(client, at))?;
        }
        Ok(())
    }

    /// Reads the replies that have come for what the client sent.
    fn collect(&mut self, client: usize, at: usize) -> Result<(), Parted> {
        while let Some(request) = self.clients[client].pending.front().cloned() {
            let name = String::from_utf8_lossy(&request.words[0]).into_owned();
            let may_wait =
                table().find(name.as_bytes()).is_some_and(|command| command.row.flags.has(Flags::BLOCKING));
            let inbox = &mut self.clients[client].ours;
            if may_wait
                && inbox.is_empty()
                && self.ours.receive(client, Patience::Briefly, inbox) == Heard::Silence
            {
                return self.both_wait(client, &request, at);
            }
            self.replies(client, &request, at)?;
            self.clients[client].pending.pop_front();
            self.clients[client].is_waiting = false;
        }
        Ok(())
    }

    /// The real server may not have read the request yet: it is asked until the client waits there, too, so that it
    /// does when the next request of somebody else comes.
    fn both_wait(&mut self, client: usize, waiting: &Request, at: usize) -> Result<(), Parted> {
        if self.clients[client].is_waiting {
            return Ok(());
        }
        let id = self.clients[client].ids[1].to_string();
        let mut bytes = Vec::new();
        request(&["CLIENT", "LIST", "ID", &id], Relaxed::Own).write(&mut bytes);
        for _ in 0..ASKED_MAX {
            self.theirs.send(CLIENTS, &bytes);
            let list = read(&mut self.theirs, CLIENTS, &mut self.clients[CLIENTS].theirs);
            let Ok(Reply::Bulk(list)) = list else { break };
            let list = String::from_utf8_lossy(&list).into_owned();
            let mut flags = list.split(' ').filter_map(|field| field.strip_prefix("flags="));
            if flags.any(|flags| flags.contains('b')) {
                self.clients[client].is_waiting = true;
                return Ok(());
            }
        }
        let theirs = spell(read(&mut self.theirs, client, &mut self.clients[client].theirs));
        Err(Parted { step: at, command: what(&waiting.words), ours: "<it waits>".to_owned(), theirs })
    }

    fn exchange(&mut self, client: usize, request: &Request, at: usize) -> Result<[Reply; 2], Parted> {
        let mut bytes = Vec::new();
        request.write(&mut bytes);
        self.ours.send(client, &bytes);
        self.theirs.send(client, &bytes);
        self.replies(client, request, at)
    }

    /// The replies to one request, which agree.
    fn replies(&mut self, client: usize, request: &Request, at: usize) -> Result<[Reply; 2], Parted> {
        let name = String::from_utf8_lossy(&request.words[0]).to_uppercase();
        let state = &mut self.clients[client];
        let parted = |ours, theirs| Parted { step: at, command: what(&request.words), ours, theirs };
        let ours = read(&mut self.ours, client, &mut state.ours);
        let theirs = read(&mut self.theirs, client, &mut state.theirs);
        let (ours, theirs) = match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => (ours, theirs),
            (ours, theirs) => return Err(parted(spell(ours), spell(theirs))),
        };
        let parts = match (&*name, &ours, &theirs, &state.queue) {
            ("EXEC", Reply::List(_, ours), Reply::List(_, theirs), Some(queue))
                if ours.len() == theirs.len() && ours.len() == queue.len() =>
            {
                queue.iter().zip(ours).zip(theirs).map(|((one, ours), theirs)| (one, ours, theirs)).collect()
            }
            _ => vec![(request, &ours, &theirs)],
        };
        if let Some((part, ours, theirs)) =
            parts.into_iter().find(|(part, ours, theirs)| !part.relaxed.agree(ours, theirs))
        {
            let command = what(&part.words);
            return Err(Parted { step: at, command, ours: ours.spell(), theirs: theirs.spell() });
        }
        let was_queued = matches!(&ours, Reply::Simple(text) if text == b"QUEUED");
        match (&*name, &mut state.queue) {
            (_, Some(queue)) if was_queued => queue.push(request.clone()),
            ("MULTI", queue) if queue.is_none() && !matches!(ours, Reply::Error(_)) => {
                *queue = Some(Vec::new())
            }
            ("EXEC" | "DISCARD", queue) if request.words.len() == 1 => *queue = None,
            _ => {}
        }
        Ok([ours, theirs])
    }

    /// Every key of every database: type, encoding, contents, and whether it ends.
    fn compare_contents(&mut self, at: usize) -> Result<(), Parted> {
        for database in 0..DATABASES {
            self.ask(&["SELECT".into(), database.to_string().into()], Relaxed::Exact, at)?;
            let [keys, _] = self.ask(&["KEYS".into(), "*".into()], Relaxed::Unordered, at)?;
            let Reply::List(_, keys) = keys else { continue };
            for key in keys {
                if let Reply::Bulk(key) = key {
                    self.compare_key(&key, at)?;
                }
            }
        }
        Ok(())
    }

    fn compare_key(&mut self, key: &[u8], at: usize) -> Result<(), Parted> {
        let words = |words: &[&str]| -> Vec<Vec<u8>> {
            words
                .iter()
                .map(|word| if *word == "key" { key.to_vec() } else { word.as_bytes().to_vec() })
                .collect()
        };
        let [kind, _] = self.ask(&words(&["TYPE", "key"]), Relaxed::Exact, at)?;
        // Valkey keeps other strings in one piece with their headers than Redis 7.0.
        let is_own = kind == Reply::Simple(b"string".to_vec()) && self.theirs.name() == "valkey";
        let exact = if is_own { Relaxed::Own } else { Relaxed::Exact };
        let [encoding, _] = self.ask(&words(&["OBJECT", "ENCODING", "key"]), exact, at)?;
        self.ask(&words(&["PTTL", "key"]), Relaxed::Timed, at)?;
        let is_table = matches!(&encoding, Reply::Bulk(name) if name == b"hashtable");
        let order = if is_table { Relaxed::Unordered } else { Relaxed::Exact };
        let Reply::Simple(kind) = kind else { return Ok(()) };
        let look: &[&str] = match &*kind {
            b"string" => &["GET", "key"],
            b"hash" => &["HGETALL", "key"],
            b"list" => &["LRANGE", "key", "0", "-1"],
            b"set" => &["SMEMBERS", "key"],
            b"zset" => &["ZRANGE", "key", "0", "-1", "WITHSCORES"],
            b"stream" => &["XRANGE", "key", "-", "+"],
            _ => return Ok(()),
        };
        self.ask(&words(look), order, at).map(drop)
    }

    fn ask(&mut self, words: &[Vec<u8>], relaxed: Relaxed, at: usize) -> Result<[Reply; 2], Parted> {
        let request = Request { words: words.to_vec(), relaxed };
        self.exchange(CLIENTS, &request, at)
            .map_err(|parted| Parted { command: format!("in the end {}", spell_words(words)), ..parted })
    }
}

fn request(words: &[&str], relaxed: Relaxed) -> Request {
    Request { words: words.iter().map(|word| word.as_bytes().to_vec()).collect(), relaxed }
}

/// The next reply of a client, or why there is none.
fn read(target: &mut dyn Target, link: usize, inbox: &mut Vec<u8>) -> Result<Reply, String> {
    loop {
        if let Some((reply, taken)) = Reply::read(inbox)? {
            inbox.drain(..taken);
            return Ok(reply);
        }
        match target.receive(link, Patience::UntilReply, inbox) {
            Heard::Bytes => {}
            Heard::Closed => return Err("closed".to_owned()),
            Heard::Silence => return Err("silence".to_owned()),
        }
    }
}

fn spell(reply: Result<Reply, String>) -> String {
    reply.map_or_else(|why| format!("<{why}>"), |reply| reply.spell())
}

/// What tells one disagreement from another: the command, or the script.
fn what(words: &[Vec<u8>]) -> String {
    let name = String::from_utf8_lossy(&words[0]).to_uppercase();
    match words.get(1) {
        Some(text) if name.starts_with("EVAL") => {
            let text: String = String::from_utf8_lossy(text).chars().take(50).collect();
            let inner =
                words.get(3).map_or_else(String::new, |word| String::from_utf8_lossy(word).to_uppercase());
            format!("{name} {text} {inner}")
        }
        _ => name,
    }
}

/// The words as a transcript spells them.
pub(crate) fn spell_words(words: &[Vec<u8>]) -> String {
    let is_plain = |word: &[u8]| {
        !word.is_empty() && word.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-+.:*(_".contains(byte))
    };
    let spelled: Vec<String> = words
        .iter()
        .map(|word| {
            match word.first() {
                Some(first) if word.len() > 20 && word.iter().all(|byte| byte == first) => {
                    return format!("{}*{}", quote(&word[..1]), word.len());
                }
                _ => {}
            }
            if is_plain(word) { String::from_utf8_lossy(word).into_owned() } else { quote(word) }
        })
        .collect();
    spelled.join(" ")
}
