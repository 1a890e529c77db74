//! A client's connections, one for each node, and what a dialect sends over them.
//!
//! Owns    the connections: one that is lost is opened again after a pause that doubles up to a limit.
//! Source  the scripts of `redisson` make the requests and have the inputs, the effects and the messages of those of Redisson
//!         4.7, in a text of this project.
//! Rule    every request and every answer is counted. What the answer to a lost request would have been is unknown: the
//!         caller releases what it may have been granted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redlatch_client::Error;
use redlatch_client::wire::{Connection, GrantAnswer, RELEASE, Reply, Terms, connect};
use redlatch_core::scripts::digest;
use redlatch_proto::options::Options;
use tokio::time::timeout;

use super::figures::Counts;
use super::plan::{Dialect, Node, Plan};

/// The connections of a client.
#[derive(Debug)]
pub(super) struct Session {
    dialect: Dialect,
    lease: Duration,
    lease_ms: String,
    nodes: Vec<Place>,
    scripts: Scripts,
    /// The channel that the client has subscribed to.
    channel: Option<String>,
    /// Releases by [`Dialect::Redisson`], each of which has a key for its answer.
    unlocks: u64,
    /// What was sent and lost since the counts were last taken.
    pub(super) counts: Counts,
    /// Errors since they were last taken.
    pub(super) errors: Vec<String>,
}

/// A server, and the connection to it if there is one.
#[derive(Debug)]
struct Place {
    node: Node,
    connection: Option<Connection>,
    /// Before this no connection is tried.
    retry: Instant,
    pause: Duration,
}

/// A script, and its SHA-1 in hexadecimal.
#[derive(Clone, Debug)]
struct Script {
    text: &'static str,
    sha: String,
}

#[derive(Clone, Debug)]
struct Scripts {
    release: Script,
    try_lock: Script,
    unlock: Script,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Release {
    /// False if the owner did not hold the lock any more; `None` if the answer is lost.
    pub(super) was_held: Option<bool>,
    /// When the answer came. Requests that clean up may follow it.
    pub(super) at: Instant,
}

impl Release {
    fn at_once(was_held: Option<bool>) -> Self {
        Self { was_held, at: Instant::now() }
    }
}

/// The answer to a request for a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// It could not be asked, or refused for another reason than a holder.
    Failed,
    Granted {
        /// A moment at which the lease had not begun.
        lease_from: Instant,
        token: Option<u64>,
        /// Whether the server says that the lock was held when it was asked.
        has_waited: bool,
    },
    /// It is held; by itself it ends within this time, if the server says so.
    Held(Option<Duration>),
}

impl Session {
    /// Opens all connections.
    ///
    /// # Errors
    /// A server cannot be reached, refuses the login, or lacks what the dialect takes. With [`Dialect::Redlock`] more than
    /// half of the servers must be there.
    pub(super) async fn open(plan: &Plan) -> Result<Self, Error> {
        let mut session = Self {
            dialect: plan.dialect,
            lease: plan.lease,
            lease_ms: plan.lease.as_millis().to_string(),
            nodes: plan.nodes.iter().map(Place::new).collect(),
            scripts: Scripts { release: script(RELEASE), try_lock: script(TRY_LOCK), unlock: script(UNLOCK) },
            channel: None,
            unlocks: 0,
            counts: Counts::default(),
            errors: Vec::new(),
        };
        let (mut open, mut failure) = (0, None);
        for place in &mut session.nodes {
            match connect(&place.node.target, &place.node.trust).await {
                Ok(connection) if plan.dialect == Dialect::Redisson && !connection.has_pushes() => {
                    return Err(Error::Unsupported("a subscription beside other requests (RESP3)"));
                }
                Ok(connection) => {
                    place.connection = Some(connection);
                    open += 1;
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if open < session.quorum() => Err(error),
            _ => Ok(session),
        }
    }

    /// The name and the version of the first server that answers, as INFO says them.
    pub(super) async fn server(&mut self) -> Option<String> {
        for node in 0..self.nodes.len() {
            let reply = self.ask_node(node, &["INFO", "server"], None).await;
            if let Some(info) = reply.as_ref().and_then(Reply::text) {
                return server_of(&String::from_utf8_lossy(info));
            }
        }
        None
    }

    /// More than half of the nodes.
    fn quorum(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    /// Whether enough connections are open to ask for a lock.
    pub(super) fn is_ready(&self) -> bool {
        self.nodes.iter().filter(|place| place.connection.is_some()).count() >= self.quorum()
    }

    /// Tries each lost connection whose pause is over. Returns when the next one may be tried, if any is lost still.
    /// `around` spreads a pause.
    pub(super) async fn reconnect(
        &mut self,
        mut around: impl FnMut(Duration) -> Duration,
    ) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for place in &mut self.nodes {
            if place.connection.is_some() {
                continue;
            }
            if place.retry <= Instant::now() {
                match connect(&place.node.target, &place.node.trust).await {
                    Ok(connection) => {
                        place.connection = Some(connection);
                        place.pause = PAUSE_MIN;
                        self.counts.reconnects += 1;
                        continue;
                    }
                    Err(error) => {
                        self.errors.push(error.to_string());
                        place.retry = Instant::now() + around(place.pause);
                        place.pause = (place.pause * 2).min(PAUSE_MAX);
                    }
                }
            }
            next = Some(next.map_or(place.retry, |next| next.min(place.retry)));
        }
        next
    }

    /// Gives a connection up, with all that was asked on it.
    pub(super) fn abandon(&mut self) {
        self.nodes.iter_mut().for_each(|place| place.connection = None);
        self.channel = None;
    }

    /// Asks once for a lock. Only [`Dialect::Native`] and [`Dialect::List`] wait, at most so long.
    pub(super) async fn acquire(&mut self, key: &str, owner: &str, wait: Duration) -> Answer {
        let sent = Instant::now();
        self.counts.attempts += 1;
        let lease = self.lease_ms.clone();
        let granted = Answer::Granted { lease_from: sent, token: None, has_waited: false };
        let answer = match self.dialect {
            Dialect::List => {
                // Zero would wait without a limit.
                let wait = format!("{:.3}", wait.as_secs_f64().max(0.001));
                match self.ask_waiting(&["BLPOP", key, &wait], wait_limit(&wait)).await {
                    Some(Reply::List(_)) => granted,
                    Some(Reply::Null) => Answer::Held(None),
                    other => self.unexpected(other),
                }
            }
            Dialect::Native => self.acquire_natively(key, owner, wait).await,
            Dialect::Redisson => {
                match self.run(self.scripts.try_lock.clone(), &[key], &[&lease, owner]).await {
                    Some(Reply::Null) => granted,
                    Some(Reply::Integer(left)) => {
                        Answer::Held(u64::try_from(left).ok().map(Duration::from_millis))
                    }
                    other => self.unexpected(other),
                }
            }
            Dialect::Redlock => self.acquire_majority(key, owner).await,
            Dialect::String => match self.ask(&["SET", key, owner, "NX", "PX", &lease]).await {
                Some(Reply::Text(_)) => granted,
                Some(Reply::Null) => Answer::Held(None),
                other => self.unexpected(other),
            },
        };
        self.counts.refused += u64::from(matches!(answer, Answer::Held(_)));
        answer
    }

    async fn acquire_natively(&mut self, key: &str, owner: &str, wait: Duration) -> Answer {
        let (keys, owner, lease) = (vec![key.into()], owner.into(), self.lease);
        let terms = Terms {
            keys,
            any: false,
            modes: BTreeMap::new(),
            owner,
            lease,
            session: None,
            wait: Some(wait),
            options: Options::default(),
            stop_before: None,
            may_drop_meta: false,
        };
        let (sent, request) = (Instant::now(), terms.acquire_request(wait, false));
        let reply = self.ask_waiting(&request, wait + ANSWER_MAX).await;
        match reply.as_ref().and_then(GrantAnswer::read) {
            Some(answer) => {
                let lease_from = answer.lease_from(sent.into()).into_std();
                Answer::Granted { lease_from, token: answer.token, has_waited: answer.waited_ms > 0 }
            }
            None if reply == Some(Reply::Null) => Answer::Held(None),
            None => self.unexpected(reply),
        }
    }

    /// Asks all nodes at once. The lock is granted if more than half grant it, and what is left of the lease then, less what
    /// clocks may drift apart, is not over.
    async fn acquire_majority(&mut self, key: &str, owner: &str) -> Answer {
        let (sent, lease) = (Instant::now(), self.lease_ms.clone());
        let answers = self.ask_all(&["SET", key, owner, "NX", "PX", &lease]).await;
        let grants = answers.iter().filter(|answer| matches!(answer, Some(Reply::Text(_)))).count();
        let refusals = answers.iter().filter(|answer| matches!(answer, Some(Reply::Null))).count();
        let drift = self.lease / 100 + Duration::from_millis(2);
        if grants >= self.quorum() && sent.elapsed() + drift < self.lease {
            return Answer::Granted { lease_from: sent, token: None, has_waited: false };
        }
        // A node may have granted it although its answer is lost.
        self.release_majority(key, owner).await;
        if refusals > 0 || grants > 0 { Answer::Held(None) } else { Answer::Failed }
    }

    /// Returns when a client of [`Dialect::Redisson`] should ask again for a lock that is held: at a message, or when the
    /// lease ends. True if it has to be asked at once, because it was not listening before.
    pub(super) async fn listen(&mut self, key: &str, left: Option<Duration>) -> bool {
        let channel = channel_of(key);
        let is_new = self.channel.as_deref() != Some(&channel);
        let Some(connection) = &mut self.nodes[0].connection else { return true };
        if is_new {
            self.counts.requests += 1;
            let subscribed = async {
                connection.tell(&[b"SUBSCRIBE", channel.as_bytes()]).await?;
                while !is_about(&connection.next_push().await?, "subscribe", &channel) {}
                Ok::<_, Error>(())
            };
            match timeout(ANSWER_MAX, subscribed).await {
                Ok(Ok(())) => self.channel = Some(channel),
                Ok(Err(error)) => self.lose(0, &error, true),
                Err(_) => self.lose(0, &Error::unreachable("no answer to SUBSCRIBE"), true),
            }
            return true;
        }
        let message = async {
            while !is_about(&connection.next_push().await?, "message", &channel) {}
            Ok::<_, Error>(())
        };
        if let Ok(Err(error)) = timeout(left.unwrap_or(LISTEN_MAX).min(LISTEN_MAX), message).await {
            self.lose(0, &error, false);
        }
        false
    }

    /// Ends what [`Self::listen`] began.
    pub(super) async fn stop_listening(&mut self) {
        let Some(channel) = self.channel.take() else { return };
        let Some(connection) = &mut self.nodes[0].connection else { return };
        self.counts.requests += 1;
        if let Err(error) = connection.tell(&[b"UNSUBSCRIBE", channel.as_bytes()]).await {
            self.lose(0, &error, false);
        }
    }

    pub(super) async fn release(&mut self, key: &str, owner: &str) -> Release {
        let reply = match self.dialect {
            Dialect::List => self.ask(&["RPUSH", key, "1"]).await,
            Dialect::Native => self.ask(&["LOCK.RELEASE", key, owner]).await,
            Dialect::Redisson => return self.unlock(key, owner).await,
            Dialect::Redlock => return Release::at_once(self.release_majority(key, owner).await),
            Dialect::String => self.run(self.scripts.release.clone(), &[key], &[owner]).await,
        };
        Release::at_once(self.was_held(reply))
    }

    /// Releases a lock as Redisson does. The script keeps its answer under a key of its own, for a client that asks again
    /// because the answer is lost; the client deletes the key when it has the answer.
    async fn unlock(&mut self, key: &str, owner: &str) -> Release {
        self.unlocks += 1;
        let answer = format!("redisson_unlock_latch:{{{key}}}:{owner}:{}", self.unlocks);
        let (lease, channel) = (self.lease_ms.clone(), channel_of(key));
        let args = ["0", &lease, owner, "PUBLISH", LATCH_MS];
        let reply = self.run(self.scripts.unlock.clone(), &[key, &channel, &answer], &args).await;
        let release = Release::at_once(self.was_held(reply));
        self.ask(&["DEL", &answer]).await;
        release
    }

    fn was_held(&mut self, reply: Option<Reply>) -> Option<bool> {
        match reply? {
            Reply::Integer(held) => Some(held == 1),
            Reply::Null => Some(false),
            other => {
                self.unexpected(Some(other));
                None
            }
        }
    }

    async fn release_majority(&mut self, key: &str, owner: &str) -> Option<bool> {
        let sha = self.scripts.release.sha.clone();
        let mut answers = self.ask_all(&["EVALSHA", &sha, "1", key, owner]).await;
        for (node, answer) in answers.iter_mut().enumerate() {
            if matches!(answer, Some(Reply::Error(error)) if error.starts_with("NOSCRIPT")) {
                *answer = self.ask_node(node, &["EVAL", RELEASE, "1", key, owner], None).await;
            }
        }
        let held = answers.iter().filter(|answer| **answer == Some(Reply::Integer(1))).count();
        answers.iter().any(Option::is_some).then_some(held >= self.quorum())
    }

    /// Makes the element of each list of [`Dialect::List`]; others need no preparation.
    pub(super) async fn prepare(&mut self, key: &str) {
        if self.dialect == Dialect::List {
            self.ask(&["DEL", key]).await;
            self.ask(&["RPUSH", key, "1"]).await;
        }
    }

    /// Removes what [`Self::prepare`] made.
    pub(super) async fn clean(&mut self, key: &str) {
        if self.dialect == Dialect::List {
            self.ask(&["DEL", key]).await;
        }
    }

    /// Runs a script by its SHA-1, and by its text if the server does not know it.
    async fn run(&mut self, script: Script, keys: &[&str], args: &[&str]) -> Option<Reply> {
        let (inputs, count) = ([keys, args].concat(), keys.len().to_string());
        let by_sha = [&["EVALSHA", &script.sha, &count][..], &inputs].concat();
        match self.ask(&by_sha).await? {
            Reply::Error(error) if error.starts_with("NOSCRIPT") => {
                self.ask(&[&["EVAL", script.text, &count][..], &inputs].concat()).await
            }
            reply => Some(reply),
        }
    }

    /// The answer of the only server, or `None` if it is lost.
    pub(super) async fn ask(&mut self, words: &[&str]) -> Option<Reply> {
        self.ask_node(0, words, None).await
    }

    async fn ask_waiting(&mut self, words: &[impl AsRef<[u8]>], limit: Duration) -> Option<Reply> {
        self.ask_node(0, words, Some(limit)).await
    }

    async fn ask_node(
        &mut self,
        node: usize,
        words: &[impl AsRef<[u8]>],
        limit: Option<Duration>,
    ) -> Option<Reply> {
        let connection = self.nodes[node].connection.as_mut()?;
        self.counts.requests += 1;
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let reply = match limit {
            None => connection.ask(&words).await,
            Some(limit) => {
                let reply = timeout(limit, connection.ask_and_wait(&words)).await;
                reply.unwrap_or_else(|_| Err(Error::unreachable("no answer in time")))
            }
        };
        reply.inspect_err(|error| self.lose(node, error, true)).ok()
    }

    /// The answers of all nodes to one request, which is sent to all before the first answer is read.
    async fn ask_all(&mut self, words: &[&str]) -> Vec<Option<Reply>> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        for node in 0..self.nodes.len() {
            let Some(connection) = &mut self.nodes[node].connection else { continue };
            self.counts.requests += 1;
            if let Err(error) = connection.send(&words).await {
                self.lose(node, &error, true);
            }
        }
        let mut answers = Vec::with_capacity(self.nodes.len());
        for node in 0..self.nodes.len() {
            let Some(connection) = &mut self.nodes[node].connection else {
                answers.push(None);
                continue;
            };
            let reply = timeout(ANSWER_MAX, connection.answer()).await;
            let reply = reply.unwrap_or_else(|_| Err(Error::unreachable("no answer in time")));
            answers.push(reply.inspect_err(|error| self.lose(node, error, true)).ok());
        }
        answers
    }

    /// Counts an answer that is neither a grant nor a refusal.
    fn unexpected(&mut self, reply: Option<Reply>) -> Answer {
        match reply {
            None => {}
            Some(Reply::Error(text)) => self.errors.push(text),
            Some(other) => self.errors.push(format!("an answer that no lock has: {other:?}")),
        }
        Answer::Failed
    }

    fn lose(&mut self, node: usize, error: &Error, is_asked: bool) {
        self.errors.push(error.to_string());
        self.counts.lost_replies += u64::from(is_asked);
        self.counts.connections_lost += 1;
        let place = &mut self.nodes[node];
        place.connection = None;
        place.retry = Instant::now();
        self.channel = None;
    }
}

/// What the section `server` of INFO says of the server's kind and version.
fn server_of(info: &str) -> Option<String> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kinds = [("redlatch_version", "redlatch"), ("valkey_version", "valkey"), ("redis_version", "redis")];
    kinds.into_iter().find_map(|(name, kind)| field(name).map(|version| format!("{kind} {}", version.trim())))
}

impl Place {
    fn new(node: &Node) -> Self {
        Self { node: node.clone(), connection: None, retry: Instant::now(), pause: PAUSE_MIN }
    }
}

fn is_about(push: &[Reply], kind: &str, channel: &str) -> bool {
    push.first().is_some_and(|first| first.is(kind)) && push.get(1).is_some_and(|name| name.is(channel))
}

/// The channel of a lock, as Redisson names it.
fn channel_of(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

fn script(text: &'static str) -> Script {
    Script { text, sha: String::from_utf8_lossy(&digest(text.as_bytes())).into_owned() }
}

fn wait_limit(seconds: &str) -> Duration {
    seconds.parse().map_or(ANSWER_MAX, |seconds| Duration::from_secs_f64(seconds) + ANSWER_MAX)
}

/// Takes a reentrant lock: nil, or the milliseconds that its holder has left. KEYS: the lock. ARGV: the lease, the owner.
const TRY_LOCK: &str = include_str!("try_lock.lua");
/// Releases it: nil if the owner does not hold it, 0 if it holds it still, 1 if it is free. KEYS: the lock, its channel, the
/// key of the answer. ARGV: the message, the lease, the owner, the command that publishes, the TTL of the answer.
const UNLOCK: &str = include_str!("unlock.lua");
/// How long the answer to a release is kept, in milliseconds: as long as Redisson asks again by default.
const LATCH_MS: &str = "13500";
/// How long an answer may take after its wait has ended.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a client listens for a message at most before it asks again.
const LISTEN_MAX: Duration = Duration::from_secs(60);
/// The pause before a lost connection is tried again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use redlatch_core::scripts::Known;

    #[test]
    fn the_release_script_is_that_of_clients() {
        let sent_by = |text: &str| Known::find(&digest(text.as_bytes())).map(|known| known.client);
        assert_eq!(sent_by(RELEASE), Some("redlatch::lock: release"));
    }

    #[test]
    fn a_server_is_named_by_its_own_version_and_not_by_the_redis_that_it_resembles() {
        for (info, expected) in [
            ("redis_version:7.0.15\r\nredlatch_version:0.1.0\r\n", Some("redlatch 0.1.0")),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", Some("valkey 9.1.2")),
            ("# Server\r\nredis_version:7.0.15\r\n", Some("redis 7.0.15")),
            ("", None),
        ] {
            assert_eq!(server_of(info).as_deref(), expected);
        }
    }
}
