//! What a server, or each node of a cluster, is asked for each interval, at a bounded cost.
//!
//! Rule    a step of LOCK.LIST looks at a fixed number of keys, an interval makes a fixed number of steps, and the next one
//!         goes on where it ended. Waits are asked for of the locks with the longest queues alone.
//! Rule    a node that does not answer is named, and the others are shown.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use redlatch_client::wire::{Connection, Node, Nodes, Reply, no_node};
use redlatch_client::{Error, Held, Locks, Waiting};
use tokio::time::timeout;

use crate::locks::texts::readable;

/// What one interval has shown of a server, or of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) nodes: Vec<NodeSample>,
    /// The nodes that do not answer, and the slots that no node serves.
    pub(super) missing: Vec<String>,
}

/// The figures of INFO that are shown, and what an interval's steps have found.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeSample {
    /// The address of the node.
    pub(super) node: String,
    pub(super) info: Info,
    /// Locks found in this interval.
    pub(super) locks: Vec<Held>,
    /// Whether the last lock of all was reached: whatever was not found since the last time is gone.
    pub(super) is_pass_over: bool,
    /// How long the first waiter of a key has waited, in milliseconds.
    pub(super) waits: BTreeMap<Vec<u8>, u64>,
}

/// The figures of INFO. A server that does not send one leaves it at 0.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Info {
    pub(super) version: String,
    pub(super) uptime_secs: u64,
    pub(super) clients: u64,
    pub(super) blocked: u64,
    pub(super) ops_per_sec: u64,
    pub(super) memory_bytes: u64,
    pub(super) held: u64,
    pub(super) waiters: u64,
    /// Since the start of the server, as the next two.
    pub(super) granted: u64,
    pub(super) refused: u64,
    pub(super) expired: u64,
    /// Milliseconds in which no lock is granted; 0 outside of a quarantine.
    pub(super) quarantine_left_ms: u64,
    /// The script that has run for longer than [`SCRIPT_MS`]: its client, and its age in milliseconds.
    pub(super) script: Option<(String, u64)>,
}

/// A lock that was lost, as its channel says it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Loss {
    pub(super) key: String,
    /// `token reason`.
    pub(super) what: String,
}

/// The connections to a server, or to the nodes of a cluster.
#[derive(Debug)]
pub(super) struct Source {
    nodes: Vec<NodeSource>,
    missing: Vec<String>,
}

impl Source {
    /// Connects to the nodes that serve slots, and subscribes to the losses of locks.
    ///
    /// # Errors
    /// No node can be reached, or it refuses the login, or has no LOCK commands.
    pub(super) async fn open(locks: &Locks) -> Result<Self, Error> {
        let Nodes { serving, unserved } = locks.nodes().await?;
        let open = |node: Node| (node.address.clone(), tokio::spawn(NodeSource::open(node)));
        let opening: Vec<_> = serving.into_iter().map(open).collect();
        let mut source = Self { nodes: Vec::new(), missing: unserved.iter().map(no_node).collect() };
        let mut last_error = None;
        for (address, node) in opening {
            match node.await.unwrap_or_else(|error| Err(Error::unreachable(error.to_string()))) {
                Ok(node) => source.nodes.push(node),
                Err(error) => {
                    source.missing.push(named(&address, &error));
                    last_error = Some(error);
                }
            }
        }
        match last_error {
            Some(error) if source.nodes.is_empty() => Err(error),
            _ => Ok(source),
        }
    }

    /// Whether all slots are served by nodes that answer.
    pub(super) fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// Asks all nodes for everything once, at the same time. `longest` are the keys whose waits are asked for, each with its
    /// node.
    ///
    /// # Errors
    /// No node answers within the limit, or each refuses.
    pub(super) async fn sample_within(
        &mut self,
        limit: Duration,
        longest: &[(String, Vec<u8>)],
    ) -> Result<Sample, Error> {
        let ask = |mut node: NodeSource| {
            let of_node = longest.iter().filter(|(address, _)| *address == node.address);
            let keys: Vec<Vec<u8>> = of_node.map(|(_, key)| key.clone()).collect();
            let address = node.address.clone();
            (address, tokio::spawn(async move { (node.sample_within(limit, &keys).await, node) }))
        };
        let asked: Vec<_> = self.nodes.drain(..).map(ask).collect();
        let (mut nodes, mut last_error) = (Vec::new(), None);
        for (address, answer) in asked {
            match answer.await {
                Ok((Ok(sample), node)) => {
                    nodes.push(sample);
                    self.nodes.push(node);
                }
                Ok((Err(error), _)) => {
                    self.missing.push(named(&address, &error));
                    last_error = Some(error);
                }
                Err(error) => return Err(Error::unreachable(error.to_string())),
            }
        }
        match last_error {
            Some(error) if nodes.is_empty() => Err(error),
            _ => Ok(Sample { nodes, missing: self.missing.clone() }),
        }
    }

    /// The next loss of a lock of any node.
    ///
    /// # Errors
    /// A connection is lost.
    pub(super) async fn next_loss(&mut self) -> Result<Loss, Error> {
        let mut next: Vec<_> = self.nodes.iter_mut().map(|node| Box::pin(node.next_loss())).collect();
        poll_fn(|cx| {
            let ready = next.iter_mut().map(|loss| loss.as_mut().poll(cx)).find(Poll::is_ready);
            ready.unwrap_or(Poll::Pending)
        })
        .await
    }
}

/// An error, with the address of its node unless it has that already.
fn named(address: &str, error: &Error) -> String {
    let text = error.to_string();
    if text.contains(address) { text } else { format!("{address}: {text}") }
}

/// The connection to a node.
#[derive(Debug)]
struct NodeSource {
    address: String,
    connection: Connection,
    cursor: Vec<u8>,
}

impl NodeSource {
    async fn open(mut node: Node) -> Result<Self, Error> {
        let mut connection = node.open().await?;
        let info = connection.call(&[b"INFO", b"server"]).await?;
        if !String::from_utf8_lossy(info.text().unwrap_or_default()).contains("redlatch_version") {
            return Err(Error::Unsupported("redlatch top"));
        }
        // A user that may not read the channel sees no losses.
        connection.tell(&[b"PSUBSCRIBE", LOSSES.as_bytes()]).await?;
        Ok(Self { address: node.address, connection, cursor: b"0".to_vec() })
    }

    async fn sample(&mut self, longest: &[Vec<u8>]) -> Result<NodeSample, Error> {
        let info = self.connection.call(&[b"INFO"]).await?;
        let info = Info::read(&String::from_utf8_lossy(info.text().unwrap_or_default()));
        let mut sample = NodeSample { node: self.address.clone(), info, ..NodeSample::default() };
        // The script may hold the locks. What was seen of them stays.
        let steps = if sample.info.script.is_some() { 0 } else { STEPS };
        for _ in 0..steps {
            let words = [&b"LOCK.LIST"[..], b"COUNT", STEP_KEYS, b"CURSOR", &self.cursor];
            let reply = self.connection.call(&words).await?;
            let [next, locks] = reply.items() else {
                return Err(Error::Broken("LOCK.LIST: not a list of two".to_owned()));
            };
            sample.locks.extend(locks.items().iter().filter_map(Held::read));
            self.cursor = next.text().unwrap_or(b"0").to_vec();
            if self.cursor == b"0" {
                sample.is_pass_over = true;
                break;
            }
        }
        for key in longest.iter().take(if steps == 0 { 0 } else { WAITS_MAX }) {
            let reply = self.connection.call(&[b"LOCK.WAITERS", key]).await?;
            let longest = reply.items().iter().map(|waiting| Waiting::read(waiting).waited_ms).max();
            sample.waits.extend(longest.map(|waited| (key.clone(), waited)));
        }
        Ok(sample)
    }

    async fn next_loss(&mut self) -> Result<Loss, Error> {
        loop {
            if let Some(loss) = Loss::read(&self.connection.next_push().await?) {
                return Ok(loss);
            }
        }
    }

    /// Asks for everything once. `longest` are the keys whose waits are asked for.
    ///
    /// # Errors
    /// The node does not answer within this time, or refuses.
    async fn sample_within(&mut self, limit: Duration, longest: &[Vec<u8>]) -> Result<NodeSample, Error> {
        let sample = timeout(limit, self.sample(longest)).await;
        sample.unwrap_or_else(|_| Err(Error::unreachable(format!("no answer within {limit:?}"))))
    }
}

impl Info {
    fn read(info: &str) -> Self {
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .unwrap_or_default()
                .trim()
        };
        let number = |name| field(name).parse().unwrap_or(0);
        Self {
            version: field("redlatch_version").to_owned(),
            uptime_secs: number("uptime_in_seconds"),
            clients: number("connected_clients"),
            blocked: number("blocked_clients"),
            ops_per_sec: number("instantaneous_ops_per_sec"),
            memory_bytes: number("used_memory"),
            held: number("locks_held"),
            waiters: number("lock_waiters"),
            granted: number("locks_granted"),
            refused: number("locks_refused"),
            expired: number("locks_expired"),
            quarantine_left_ms: number("quarantine_left_ms"),
            script: script(field("running_script")).filter(|(_, age_ms)| *age_ms >= SCRIPT_MS),
        }
    }
}

impl std::iter::Sum for Info {
    /// The figures of a cluster: of what does not add up, the worst.
    fn sum<I: Iterator<Item = Self>>(infos: I) -> Self {
        let add = |one: Self, other: Self| Self {
            version: one.version,
            uptime_secs: one.uptime_secs.min(other.uptime_secs),
            clients: one.clients + other.clients,
            blocked: one.blocked + other.blocked,
            ops_per_sec: one.ops_per_sec + other.ops_per_sec,
            memory_bytes: one.memory_bytes + other.memory_bytes,
            held: one.held + other.held,
            waiters: one.waiters + other.waiters,
            granted: one.granted + other.granted,
            refused: one.refused + other.refused,
            expired: one.expired + other.expired,
            quarantine_left_ms: one.quarantine_left_ms.max(other.quarantine_left_ms),
            script: one.script.or(other.script),
        };
        infos.reduce(add).unwrap_or_default()
    }
}

/// The client and the age of the script that runs, from INFO's field about it.
fn script(field: &str) -> Option<(String, u64)> {
    let part = |name: &str| field.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let name = field.split_once(",name=").map_or("", |(_, name)| name);
    let client = if name.is_empty() { part("addr")? } else { name };
    Some((format!("{} {}", part("client")?, readable(client.as_bytes())), part("age_ms")?.parse().ok()?))
}

impl Loss {
    /// `pmessage`, the pattern, the channel, `lost <token> <reason>`.
    fn read(push: &[Reply]) -> Option<Self> {
        let [kind, _, channel, message] = push else { return None };
        let key = channel.text()?.strip_prefix(CHANNEL_HEAD)?;
        let what = message.text()?.strip_prefix(b"lost ")?;
        kind.is("pmessage").then(|| Self { key: readable(key), what: readable(what) })
    }
}

/// The channels on which losses are published.
const LOSSES: &str = "__lock__:*";
const CHANNEL_HEAD: &[u8] = b"__lock__:";
/// Keys that the server looks at in a step, and steps of an interval: 10,000 keys take it a few milliseconds.
const STEP_KEYS: &[u8] = b"1000";
const STEPS: usize = 10;
/// A script that has run for that long is shown, in milliseconds.
const SCRIPT_MS: u64 = 1_000;
/// Locks whose waits are asked for in an interval.
const WAITS_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_from_their_channel_and_other_messages_are_not() {
        let text = |text: &str| Reply::Text(text.into());
        let push = |kind, channel, message| [text(kind), text(LOSSES), text(channel), text(message)];
        let loss = Loss::read(&push("pmessage", "__lock__:a:\x1b", "lost 41 expired")).unwrap();
        assert_eq!((&*loss.key, &*loss.what), ("a:\\x1b", "41 expired"));
        assert_eq!(Loss::read(&push("pmessage", "news", "lost 41 expired")), None);
        assert_eq!(Loss::read(&push("pmessage", "__lock__:a", "found")), None);
        assert_eq!(Loss::read(&[text("psubscribe"), text(LOSSES), Reply::Integer(1)]), None);
    }

    #[test]
    fn figures_that_a_server_lacks_are_zero() {
        let info = Info::read("redlatch_version:0.1.0\r\nlocks_held:7\r\nlocks_granted:x\r\n");
        assert_eq!((&*info.version, info.held, info.granted, info.waiters), ("0.1.0", 7, 0, 0));
        assert_eq!(info.script, None);
    }

    #[test]
    fn a_script_that_has_run_for_a_second_is_read() {
        let script = |age_ms: u64, name: &str| {
            let field = format!("sha1=abc,age_ms={age_ms},client=7,addr=10.0.0.5:512,name={name}");
            Info::read(&format!("running_script:{field}\r\n")).script
        };
        assert_eq!(script(999, "worker"), None);
        assert_eq!(script(1_000, "a,client=8\x1b"), Some(("7 a,client=8\\x1b".to_owned(), 1_000)));
        assert_eq!(script(61_000, ""), Some(("7 10.0.0.5:512".to_owned(), 61_000)));
        assert_eq!(Info::read("running_script:\r\n").script, None);
    }
}
