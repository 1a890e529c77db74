//! One run: equal steps on two servers, their replies compared, and at the end all contents.

use std::collections::BTreeSet;
use std::time::Duration;

use redlatch_core::commands::row::Flags;
use redlatch_testing::commands::table;

use super::client::Client;
use super::plan::{CLIENTS, LISTENER, Request, Step};
use super::relaxed::{Relaxed, WITHIN_MILLIS};
use crate::support::engine::EngineTarget;
use crate::support::real::RealServer;
use crate::support::reply::Reply;
use crate::support::target::{Target, Wait};
use crate::support::words::quote;

const DATABASES: usize = 16;

/// How often the real server is asked whether a client is blocked.
const ASKED_MAX: usize = 2_000;

/// A disagreement between the servers.
#[derive(Clone, Debug)]
pub(crate) struct Parted {
    /// Its step; for a difference of the final contents, the number of steps plus one.
    pub(crate) step: usize,
    /// The name of the command, which identifies a difference.
    pub(crate) command: String,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

/// Two servers and their clients; the last client compares the final contents.
pub(crate) struct Comparison {
    ours: EngineTarget,
    theirs: RealServer,
    clients: Vec<Client>,
    /// The client ids, equal on both servers.
    ids: Vec<i64>,
}

impl Comparison {
    /// Both servers start; with `has_slots` they are in cluster mode.
    pub(crate) fn start(name: &'static str, has_slots: bool) -> Self {
        if has_slots {
            let theirs = RealServer::start_with_slots(name);
            return Self::new(EngineTarget::start_with_slots_at(theirs.unix_ms()), theirs);
        }
        let theirs = RealServer::start(name);
        Self::new(EngineTarget::start_at(theirs.unix_ms()), theirs)
    }

    fn new(ours: EngineTarget, theirs: RealServer) -> Self {
        let mut run = Self { ours, theirs, clients: Vec::new(), ids: Vec::new() };
        run.connect();
        // Requests and replies contain client ids, so both servers must assign equal ones.
        let [ours, theirs] = run.ids();
        for _ in 0..ours.abs_diff(theirs) {
            let behind: &mut dyn Target = if ours < theirs { &mut run.ours } else { &mut run.theirs };
            behind.connect();
        }
        run.clients.clear();
        (0..=CLIENTS).for_each(|_| run.connect());
        run
    }

    fn connect(&mut self) {
        let mut client = Client::default();
        client.inboxes[0].link = self.ours.connect();
        client.inboxes[1].link = self.theirs.connect();
        self.clients.push(client);
    }

    /// The id of the last client on each server.
    fn ids(&mut self) -> [i64; 2] {
        let client = self.clients.len() - 1;
        self.send(client, &request(&["CLIENT", "ID"], Relaxed::Own));
        let [ours, theirs] = &mut self.clients[client].inboxes;
        let replies =
            [ours.reply(&mut self.ours, Wait::UntilReply), theirs.reply(&mut self.theirs, Wait::UntilReply)];
        replies.map(|reply| match reply {
            Ok(Some(Reply::Int(id))) => id,
            other => panic!("CLIENT ID is answered with a number: {other:?}"),
        })
    }

    /// The commands that the real server has, subcommands as `container|name`.
    pub(crate) fn commands(&mut self) -> BTreeSet<String> {
        let list = self.ask_theirs(&["COMMAND", "LIST"]);
        let Ok(Some(Reply::List(_, names))) = list else {
            panic!("COMMAND LIST is answered with a list: {list:?}")
        };
        let names = names.into_iter().filter_map(|name| match name {
            Reply::Bulk(name) => Some(String::from_utf8_lossy(&name).into_owned()),
            _ => None,
        });
        names.collect()
    }

    /// Takes all steps, and compares the final contents.
    pub(crate) fn run(&mut self, steps: &[Step]) -> Result<(), Parted> {
        for client in 0..CLIENTS {
            let reply = self.exchange(client, &request(&["CLIENT", "ID"], Relaxed::Exact), 0)?;
            self.ids.extend(reply.iter().take(1).map(|id| if let Reply::Int(id) = id { *id } else { 0 }));
        }
        for client in [LISTENER - 1, CLIENTS - 1] {
            self.exchange(client, &request(&["HELLO", "3"], Relaxed::Own), 0)?;
        }
        let events = ["CONFIG", "SET", "notify-keyspace-events", "AKEn"];
        self.exchange(CLIENTS, &request(&events, Relaxed::Exact), 0)?;
        for (at, step) in steps.iter().enumerate() {
            self.step(step, at)?;
        }
        (0..CLIENTS).try_for_each(|client| self.unblock(client, steps.len()))?;
        // Reads up to here, after all messages.
        let ping = request(&["PING"], Relaxed::Exact);
        (0..CLIENTS).try_for_each(|client| self.exchange(client, &ping, steps.len()).map(drop))?;
        self.compare_contents(steps.len())
    }

    fn step(&mut self, step: &Step, at: usize) -> Result<(), Parted> {
        self.unblock(step.client, at)?;
        let requests: Vec<Request> = step.requests.iter().flat_map(Request::parts).collect();
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| request.write(&self.ids, &mut bytes));
        self.send_bytes(step.client, &bytes);
        self.clients[step.client].pending.extend(requests);
        self.collect(step.client, at)?;
        (0..CLIENTS).try_for_each(|client| self.collect(client, at))
    }

    /// Unblocks the client, until it waits no more.
    fn unblock(&mut self, client: usize, at: usize) -> Result<(), Parted> {
        while !self.clients[client].pending.is_empty() {
            let unblock = request(&["CLIENT", "UNBLOCK", &self.ids[client].to_string()], Relaxed::Exact);
            self.exchange(CLIENTS, &unblock, at)?;
            (0..CLIENTS).try_for_each(|client| self.collect(client, at))?;
        }
        Ok(())
    }

    /// Reads the available replies of a client.
    fn collect(&mut self, client: usize, at: usize) -> Result<(), Parted> {
        while let Some(request) = self.clients[client].pending.front().cloned() {
            let name = String::from_utf8_lossy(&request.words[0]).into_owned();
            let may_wait =
                table().find(name.as_bytes()).is_some_and(|command| command.row.flags.has(Flags::BLOCKING));
            let mut first = None;
            if may_wait {
                let inbox = &mut self.clients[client].inboxes[0];
                first = inbox.reply(&mut self.ours, Wait::Briefly).unwrap_or(None);
                if first.is_none() {
                    return self.both_wait(client, &request, at);
                }
            }
            self.replies(client, &request, first, at)?;
            self.clients[client].pending.pop_front();
            self.clients[client].is_waiting = false;
        }
        self.clients[client].has_waited = false;
        Ok(())
    }

    /// The real server may not have read the request yet. It is asked until the client is blocked there as well, before any
    /// other client sends its next request.
    fn both_wait(&mut self, client: usize, waiting: &Request, at: usize) -> Result<(), Parted> {
        if self.clients[client].is_waiting {
            return Ok(());
        }
        let id = self.ids[client].to_string();
        for _ in 0..ASKED_MAX {
            let Ok(Some(Reply::Bulk(list))) = self.ask_theirs(&["CLIENT", "LIST", "ID", &id]) else { break };
            let list = String::from_utf8_lossy(&list).into_owned();
            let mut flags = list.split(' ').filter_map(|field| field.strip_prefix("flags="));
            if flags.any(|flags| flags.contains('b')) {
                self.clients[client].is_waiting = true;
                self.clients[client].has_waited = true;
                return Ok(());
            }
        }
        let theirs = self.clients[client].inboxes[1].reply(&mut self.theirs, Wait::UntilReply);
        let theirs = theirs.ok().flatten().map_or_else(|| "<nothing>".to_owned(), |reply| reply.spell());
        Err(Parted { step: at, command: what(&waiting.words), ours: "<it waits>".to_owned(), theirs })
    }

    /// Asks the real server alone.
    fn ask_theirs(&mut self, words: &[&str]) -> Result<Option<Reply>, String> {
        let mut bytes = Vec::new();
        request(words, Relaxed::Own).write(&[], &mut bytes);
        let inbox = &mut self.clients[CLIENTS].inboxes[1];
        self.theirs.send(inbox.link, &bytes);
        inbox.reply(&mut self.theirs, Wait::UntilReply)
    }

    fn exchange(&mut self, client: usize, request: &Request, at: usize) -> Result<[Reply; 2], Parted> {
        self.send(client, request);
        self.replies(client, request, None, at)
    }

    fn send(&mut self, client: usize, request: &Request) {
        let mut bytes = Vec::new();
        request.write(&self.ids, &mut bytes);
        self.send_bytes(client, &bytes);
    }

    fn send_bytes(&mut self, client: usize, bytes: &[u8]) {
        let passed = self.theirs.unix_ms() - self.ours.unix_ms();
        self.ours.advance(Duration::from_millis(u64::try_from(passed).unwrap_or(0)));
        let [ours, theirs] = &self.clients[client].inboxes;
        self.ours.send(ours.link, bytes);
        self.theirs.send(theirs.link, bytes);
    }

    fn replies(
        &mut self,
        client: usize,
        request: &Request,
        first: Option<Reply>,
        at: usize,
    ) -> Result<[Reply; 2], Parted> {
        let replies = self.clients[client].replies(request, first, &mut self.ours, &mut self.theirs);
        replies.map_err(|difference| Parted {
            step: at,
            command: what(&difference.request.words),
            ours: difference.ours,
            theirs: difference.theirs,
        })
    }

    /// Every key of every database: type, encoding, contents, and whether it has a deadline.
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
        // Valkey and Redis 7.0 embed strings of different lengths.
        let is_own = kind == Reply::Simple(b"string".to_vec()) && self.theirs.name() == "valkey";
        let exact = if is_own { Relaxed::Own } else { Relaxed::Exact };
        let [encoding, _] = self.ask(&words(&["OBJECT", "ENCODING", "key"]), exact, at)?;
        self.ask(&words(&["PTTL", "key"]), Relaxed::Timed(WITHIN_MILLIS), at)?;
        let is_table = matches!(&encoding, Reply::Bulk(name) if name == b"hashtable");
        let order = if is_table { Relaxed::Unordered } else { Relaxed::Exact };
        let Reply::Simple(kind) = kind else { return Ok(()) };
        let look: &[&str] = match &*kind {
            b"string" => &["GET", "key"],
            b"hash" => &["HGETALL", "key"],
            b"list" => &["LRANGE", "key", "0", "-1"],
            b"set" => &["SMEMBERS", "key"],
            b"zset" => &["ZRANGE", "key", "0", "-1", "WITHSCORES"],
            _ => return Ok(()),
        };
        self.ask(&words(look), order, at).map(drop)
    }

    fn ask(&mut self, words: &[Vec<u8>], relaxed: Relaxed, at: usize) -> Result<[Reply; 2], Parted> {
        let request = Request::new(words.to_vec(), relaxed);
        self.exchange(CLIENTS, &request, at)
            .map_err(|parted| Parted { command: format!("in the end {}", spell_words(words)), ..parted })
    }
}

fn request(words: &[&str], relaxed: Relaxed) -> Request {
    Request::new(words.iter().map(|word| word.as_bytes().to_vec()).collect(), relaxed)
}

/// The identity of a disagreement: the command, or the script.
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
