//! `redlatch ls`, `mine`, `who`, `wait` and `break`: the locks of a running server. `redlatch cluster status`
//! and `hand-over`: who leads.
//!
//! Rule    a reader of the output that has gone, as in `redlatch watch | head`, ends the command without an error.

use std::time::Duration;

use redlatch_client::wire::{Connection, Node, Nodes, Reply, Retry, Target, no_node};
use redlatch_client::{Error, Held, Locks, Trust};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::table::terminal_width;
use super::texts;
use crate::common::exit::{self, DONE, Failure, HELD, NO, NO_SERVER};
use crate::common::{Fault, ServerAddress, print, warn};

#[derive(Debug)]
pub(super) struct View {
    pub(super) server: ServerAddress,
    /// Whether the answer is JSON.
    pub(super) json: bool,
    pub(super) question: Question,
}

#[derive(Debug)]
pub(super) enum Question {
    Break {
        key: Vec<u8>,
        token: u64,
        reason: Option<String>,
    },
    Cluster,
    HandOver,
    List(Wanted),
    /// Whether a lock becomes free in time.
    Wait(Vec<u8>, Option<Duration>),
    Who(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// Those whose keys match a pattern.
    Matching(String),
    /// Those of an owner, of whom there may be none: then the answer is no.
    OfOwner(Vec<u8>),
}

/// Answers the question; returns the exit code.
pub(super) fn show(view: View) -> u8 {
    exit::run(answer(view))
}

/// Connects, and tries again for as long as `limit`; `None`: without a limit. What is left of it is for the questions.
///
/// # Errors
/// There is no server, or it refuses the login.
pub(super) async fn connected(
    server: ServerAddress,
    limit: Option<Duration>,
) -> Result<(Locks, Retry), Failure> {
    let (target, trust) = server.find().map_err(Failure::misused)?;
    let mut retry = Retry::within(limit).telling(Some(texts::tell_retry));
    let locks = reach(&target, &trust, &mut retry).await?;
    Ok((locks, retry))
}

/// Connects, within the time for tries.
///
/// # Errors
/// There is no server, or it refuses the login.
pub(crate) async fn reach(target: &Target, trust: &Trust, retry: &mut Retry) -> Result<Locks, Failure> {
    loop {
        match Locks::to(target.clone(), trust.clone()).await {
            Ok(locks) => {
                retry.connected();
                return Ok(locks);
            }
            Err(error) => retry.again(error).await?,
        }
    }
}

async fn answer(view: View) -> Result<u8, Failure> {
    let limit = match view.question {
        Question::Wait(_, limit) => limit,
        _ => Some(Duration::ZERO),
    };
    let (locks, retry) = connected(view.server, limit).await?;
    match view.question {
        Question::Break { key, token, reason } => {
            let is_broken = locks.break_lock(&key, token, reason.as_deref()).await?;
            // The first is there only if the lock was not broken.
            let is_free = match is_broken {
                true => None,
                false => Some(locks.who(&key).await?.is_none()),
            };
            let name = texts::readable(&key);
            let (text, mut value) = match is_free {
                None => (format!("{name} is broken\n"), json!({ "broken": true })),
                Some(true) => {
                    (format!("{name} is free: nobody holds it\n"), json!({ "broken": false, "free": true }))
                }
                Some(false) => (
                    format!("{name}: the token of its holder is not {token}\n"),
                    json!({ "broken": false, "free": false }),
                ),
            };
            texts::insert(&mut value, "key", &key);
            say(view.json, &value, &text)?;
            Ok(match is_free {
                None => DONE,
                Some(true) => NO,
                Some(false) => HELD,
            })
        }
        Question::Cluster => {
            let text = cluster_info(&mut locks.open().await?).await?;
            let value = cluster_value(&text);
            match value["groups"].as_u64() {
                Some(2..) => groups(&locks, view.json).await,
                _ => say(view.json, &value, &text).map(|_| Ok(0))?,
            }
        }
        Question::HandOver => hand_over(&locks, view.json).await,
        Question::List(wanted) => list(&locks, &wanted, view.json).await,
        Question::Wait(key, _) => wait(&locks, &key, retry, view.json).await,
        Question::Who(key) => {
            let held = locks.who(&key).await?;
            let text =
                held.as_ref().map_or_else(|| format!("{} is free\n", texts::readable(&key)), texts::lines);
            say(view.json, &held.as_ref().map_or(Value::Null, texts::value), &text)?;
            Ok(if held.is_some() { DONE } else { NO })
        }
    }
}

/// Writes the locks of all nodes that answer; returns the exit code.
async fn list(locks: &Locks, wanted: &Wanted, json: bool) -> Result<u8, Failure> {
    let (found, is_whole) = listed(locks, wanted).await?;
    let text = texts::table(&found, terminal_width());
    say(json, &found.iter().map(texts::value).collect(), &text)?;
    Ok(match wanted {
        _ if !is_whole => NO_SERVER,
        Wanted::OfOwner(_) if found.is_empty() => NO,
        _ => DONE,
    })
}

/// The locks of all nodes that answer, by key, and whether all have answered.
///
/// # Errors
/// There is one server, and it does not answer.
pub(crate) async fn listed(locks: &Locks, wanted: &Wanted) -> Result<(Vec<Held>, bool), Failure> {
    let nodes = locks.nodes().await?;
    let of_node = |mut node: Node| {
        let wanted = wanted.clone();
        async move {
            let mut connection = node.open().await?;
            match &wanted {
                Wanted::Matching(pattern) => node.locks.list_on(&mut connection, pattern).await,
                Wanted::OfOwner(owner) => node.locks.list_of_owner(&mut connection, owner).await,
            }
        }
    };
    let (lists, is_whole) = ask_all(nodes, of_node).await?;
    let mut found: Vec<Held> = lists.into_iter().flatten().collect();
    found.sort_by(|one, other| one.key.cmp(&other.key));
    Ok((found, is_whole))
}

/// Asks all nodes at once; returns the answers, and whether all slots have one. What is missing is told on the error stream.
///
/// # Errors
/// There is one server, and it does not answer.
async fn ask_all<A, F>(nodes: Nodes, ask: impl Fn(Node) -> F) -> Result<(Vec<A>, bool), Failure>
where
    A: Send + 'static,
    F: Future<Output = Result<A, Error>> + Send + 'static,
{
    let Nodes { serving, unserved } = nodes;
    let (mut is_whole, is_one) = (unserved.is_empty(), serving.len() == 1 && unserved.is_empty());
    unserved.iter().for_each(|slots| warn(&no_node(slots)));
    let asked: Vec<_> =
        serving.into_iter().map(|node| (node.address.clone(), tokio::spawn(ask(node)))).collect();
    let mut answers = Vec::new();
    for (address, answer) in asked {
        match answer.await.map_err(|error| error.to_string())? {
            Ok(answer) => answers.push(answer),
            Err(error) if is_one => return Err(error.into()),
            Err(error) => {
                is_whole = false;
                let Failure(_, fault) = error.into();
                warn(&format!("{address}: {fault}"));
            }
        }
    }
    Ok((answers, is_whole))
}

/// What CLUSTER INFO says, in lines that a terminal may show.
async fn cluster_info(connection: &mut Connection) -> Result<String, Failure> {
    match connection.ask(&[b"CLUSTER", b"INFO"]).await? {
        Reply::Text(text) => {
            let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
            let shown = lines.filter(|line| !line.is_empty()).map(texts::readable);
            Ok(shown.map(|line| line + "\n").collect())
        }
        Reply::Error(error) => Err(Error::Refused(error).into()),
        _ => Err(Failure::no_server("CLUSTER INFO: not a text")),
    }
}

/// Writes a line for each group of slots that has a leader; returns the exit code.
async fn groups(locks: &Locks, json: bool) -> Result<u8, Failure> {
    let nodes = locks.nodes().await?;
    let asked = |mut node: Node| async move {
        let info = node.open().await?.call(&[b"CLUSTER", b"INFO"]).await?;
        let info = info.text().map(|text| String::from_utf8_lossy(text).into_owned());
        Ok((node.slots, info.unwrap_or_default()))
    };
    let (answers, is_whole) = ask_all(nodes, asked).await?;
    let values = answers.into_iter().map(|(slots, info)| {
        let mut value = cluster_value(&info);
        value["slots"] = slots.iter().map(|slots| json!([slots.start(), slots.end()])).collect();
        value
    });
    let values: Vec<Value> = values.collect();
    let text = texts::groups(&values, terminal_width());
    say(json, &json!({ "groups": values }), &text)?;
    Ok(if is_whole { 0 } else { NO_SERVER })
}

/// Asks the leader to have another node lead.
async fn hand_over(locks: &Locks, json: bool) -> Result<u8, Failure> {
    let info = cluster_value(&cluster_info(&mut locks.open().await?).await?);
    if info["groups"].as_u64() > Some(1) {
        let fault = "the nodes distribute the groups by themselves: to empty a node, end it with SIGTERM";
        return Err(Failure::misused(fault));
    }
    let (name, leader) =
        (info["name"].as_str().unwrap_or_default(), info["leader"].as_str().unwrap_or_default());
    match locks.open().await?.call(&[b"SENTINEL", b"FAILOVER", name.as_bytes()]).await? {
        Reply::Error(error) => Err(Error::Refused(error).into()),
        _ => {
            say(json, &json!({ "hands_over": leader }), &format!("{leader} hands over\n"))?;
            Ok(0)
        }
    }
}

/// The lines of CLUSTER INFO as an object. A name that is there for each node has a list.
fn cluster_value(text: &str) -> Value {
    let (mut standbys, mut differing) = (Vec::new(), Vec::new());
    let mut value = json!({});
    for (name, found) in text.lines().filter_map(|line| line.split_once(':')) {
        match name.strip_prefix("cluster_").unwrap_or(name) {
            "standby" => standbys.push(found),
            "standby_differs" => differing.push(found),
            name => value[name] = found.parse::<u64>().map_or_else(|_| found.into(), Value::from),
        }
    }
    value["standbys"] = standbys.into();
    value["standbys_that_differ"] = differing.into();
    value
}

/// Writes how a wait has ended; returns the exit code.
async fn wait(locks: &Locks, key: &[u8], retry: Retry, json: bool) -> Result<u8, Failure> {
    let (is_free, held) = waited(locks, key, retry).await?;
    let (value, text) = waited_as(key, is_free, held.as_ref());
    say(json, &value, &text)?;
    Ok(if is_free { DONE } else { HELD })
}

/// Returns when nobody holds the key, or the time for tries is over: whether it is free, and who holds it.
///
/// # Errors
/// The server could not be asked, or refuses.
pub(crate) async fn waited(
    locks: &Locks,
    key: &[u8],
    mut retry: Retry,
) -> Result<(bool, Option<Held>), Failure> {
    let mut connection = None;
    loop {
        match is_free(locks, &mut connection, key).await {
            Ok(is_free) => {
                retry.answered();
                let left = retry.left().unwrap_or(POLL);
                if is_free || left.is_zero() {
                    // Who holds it is told where the server tells; that it is held is known.
                    let held = match &mut connection {
                        Some(connection) if !is_free => locks.who_on(connection, key).await.ok().flatten(),
                        _ => None,
                    };
                    return Ok((is_free, held));
                }
                sleep(left.min(POLL)).await;
            }
            Err(error) => {
                connection = None;
                retry.again(error).await?;
            }
        }
    }
}

async fn is_free(locks: &Locks, connection: &mut Option<Connection>, key: &[u8]) -> Result<bool, Error> {
    let open = match connection.take() {
        Some(open) => open,
        None => locks.open_for(key).await?,
    };
    let open = connection.insert(open);
    Ok(open.call(&[b"EXISTS", key]).await? == Reply::Integer(0))
}

/// How a wait has ended, as JSON and as text.
fn waited_as(key: &[u8], is_free: bool, held: Option<&Held>) -> (Value, String) {
    let unknown = held.and_then(Held::unknown_owner).map(|owner| format!(" by {owner}"));
    let state = if is_free { "free" } else { "held" };
    let text = format!("{} is {state}{}\n", texts::readable(key), unknown.unwrap_or_default());
    let value_type = held.and_then(|held| held.value_type.as_ref());
    let mut value = json!({ "free": is_free, "type": value_type });
    texts::insert(&mut value, "key", key);
    (value, text)
}

/// Writes an answer. False if nobody reads it.
pub(super) fn say(json: bool, value: &Value, text: &str) -> Result<bool, Fault> {
    match json {
        true => print(format!("{}\n", texts::json_text(value)).as_bytes()),
        false => print(text.as_bytes()),
    }
}

/// How often a wait asks.
const POLL: Duration = Duration::from_millis(100);
