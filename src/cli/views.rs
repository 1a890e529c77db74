//! `redlatch ls`, `who`, `wait`, `break` and `watch`: the locks of a running server. `redlatch cluster status`: who leads.
//!
//! Rule    a reader of the output that has gone, as in `redlatch watch | head`, ends the command without an error.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::exit::{FAILED, Failure, NOT_ACQUIRED};
use super::place::Place;
use super::{Fault, exit, print, texts};
use crate::client::{Error, Held, Locks, Reply};

#[derive(Debug)]
pub(super) struct View {
    pub(super) place: Place,
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
    /// The locks whose keys match a pattern.
    List(String),
    /// Whether a lock becomes free in time.
    Wait(Vec<u8>, Option<Duration>),
    /// What changes among the locks whose keys match a pattern, asked for in this interval.
    Watch(String, Duration),
    Who(Vec<u8>),
}

/// Why a question has no answer. A server that refuses to answer has the code of the answer no.
fn unanswered(error: Error) -> Failure {
    match error {
        Error::Broken(_) | Error::Unreachable(_) => Failure::no_server(error),
        Error::Url(_) | Error::Usage(_) => Failure::misused(error),
        _ => Failure(FAILED, texts::readable(error.to_string().as_bytes())),
    }
}

/// Answers the question; returns the exit code.
pub(super) fn show(view: View) -> u8 {
    exit::run(answer(view))
}

async fn answer(view: View) -> Result<u8, Failure> {
    let (target, trust) = view.place.find().map_err(Failure::misused)?;
    let locks = Locks::to(target, trust).await.map_err(|error| match error {
        // A server that refuses the login serves nobody here.
        Error::Refused(_) => Failure::no_server(error),
        error => unanswered(error),
    })?;
    match view.question {
        Question::Break { key, token, reason } => {
            let is_broken = locks.break_lock(&key, token, reason.as_deref()).await.map_err(unanswered)?;
            // The first is there only if the lock was not broken.
            let is_free = match is_broken {
                true => None,
                false => Some(locks.who(&key).await.map_err(unanswered)?.is_none()),
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
            Ok(if is_broken { 0 } else { FAILED })
        }
        Question::Cluster => {
            let reply = locks.open().await?.call(&[b"CLUSTER", b"INFO"]).await?;
            let text = match reply {
                Reply::Text(text) => {
                    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
                    let shown = lines.filter(|line| !line.is_empty()).map(texts::readable);
                    shown.map(|line| line + "\n").collect::<String>()
                }
                Reply::Error(error) => return Err(Failure(FAILED, texts::readable(error.as_bytes()))),
                _ => return Err(Failure(FAILED, "the server says nothing of a cluster".to_owned())),
            };
            say(view.json, &cluster_value(&text), &text)?;
            Ok(0)
        }
        Question::List(pattern) => {
            let found = locks.list(&pattern).await.map_err(unanswered)?;
            let text: String = found.iter().map(|held| texts::line(held) + "\n").collect();
            say(view.json, &found.iter().map(texts::value).collect(), &text)?;
            Ok(0)
        }
        Question::Wait(key, limit) => wait(&locks, &key, limit, view.json).await,
        Question::Watch(pattern, interval) => watch(&locks, &pattern, interval, view.json).await,
        Question::Who(key) => {
            let held = locks.who(&key).await.map_err(unanswered)?;
            let text =
                held.as_ref().map_or_else(|| format!("{} is free\n", texts::readable(&key)), texts::lines);
            say(view.json, &held.as_ref().map_or(Value::Null, texts::value), &text)?;
            Ok(if held.is_some() { 0 } else { FAILED })
        }
    }
}

/// The lines of CLUSTER INFO as an object. A name that is there for each node has a list.
fn cluster_value(text: &str) -> Value {
    let mut standbys = Vec::new();
    let mut value = json!({});
    for (name, found) in text.lines().filter_map(|line| line.split_once(':')) {
        match name.strip_prefix("cluster_").unwrap_or(name) {
            "standby" => standbys.push(found),
            name => value[name] = found.parse::<u64>().map_or_else(|_| found.into(), Value::from),
        }
    }
    value["standbys"] = standbys.into();
    value
}

/// Returns when nobody holds the key.
async fn wait(locks: &Locks, key: &[u8], limit: Option<Duration>, json: bool) -> Result<u8, Failure> {
    let until = limit.map(|limit| Instant::now() + limit);
    let mut connection = locks.open().await.map_err(unanswered)?;
    loop {
        let is_free = connection.call(&[b"EXISTS", key]).await.map_err(unanswered)? == Reply::Integer(0);
        let is_late = until.is_some_and(|until| Instant::now() >= until);
        if is_free || is_late {
            // Who holds it is told where the server tells; that it is held is known.
            let held = if is_free { None } else { locks.who_on(&mut connection, key).await.ok().flatten() };
            let unknown = held.as_ref().and_then(Held::unknown_owner).map(|owner| format!(" by {owner}"));
            let state = if is_free { "free" } else { "held" };
            let text = format!("{} is {state}{}\n", texts::readable(key), unknown.unwrap_or_default());
            let value_type = held.as_ref().and_then(|held| held.value_type.as_ref());
            let mut value = json!({ "free": is_free, "type": value_type });
            texts::insert(&mut value, "key", key);
            say(json, &value, &text)?;
            return Ok(if is_free { 0 } else { NOT_ACQUIRED });
        }
        let left = until.map_or(POLL, |until| until.saturating_duration_since(Instant::now()));
        sleep(left.min(POLL)).await;
    }
}

/// Writes what changes, until it is ended.
async fn watch(locks: &Locks, pattern: &str, interval: Duration, json: bool) -> Result<u8, Failure> {
    let mut connection = locks.open().await.map_err(unanswered)?;
    let mut known = BTreeMap::<HoldId, Held>::new();
    loop {
        let now = holds(locks.list_on(&mut connection, pattern).await.map_err(unanswered)?);
        let gone = known.iter().filter(|(id, _)| !now.contains_key(id)).map(|(_, held)| ("free", held));
        let new = now.iter().filter(|(id, _)| !known.contains_key(id)).map(|(_, held)| ("held", held));
        for (what, held) in gone.chain(new) {
            if !event(what, held, json)? {
                return Ok(0);
            }
        }
        known = now;
        sleep(interval).await;
    }
}

/// What makes a hold another one: key, owner and token.
type HoldId = (Vec<u8>, Vec<u8>, Option<u64>);

/// The holds, each with its lock.
fn holds(found: Vec<Held>) -> BTreeMap<HoldId, Held> {
    let mut holds = BTreeMap::new();
    for held in found {
        for holder in &held.holders {
            let mut one = held.clone();
            one.holders = vec![holder.clone()];
            holds.insert((held.key.clone(), holder.owner.clone(), holder.token), one);
        }
    }
    holds
}

/// Writes what happened to a lock. False if nobody reads it.
fn event(what: &str, held: &Held, json: bool) -> Result<bool, Fault> {
    let mut value = texts::value(held);
    let now = texts::unix_ms_now();
    value["event"] = what.into();
    value["time"] = now.into();
    let line = match what {
        "free" => texts::readable(&held.key),
        _ => texts::line(held),
    };
    say(json, &value, &format!("{}  {what}  {line}\n", texts::utc(now)))
}

fn say(json: bool, value: &Value, text: &str) -> Result<bool, Fault> {
    match json {
        true => print(format!("{}\n", texts::json_text(value)).as_bytes()),
        false => print(text.as_bytes()),
    }
}

/// How often a wait asks.
const POLL: Duration = Duration::from_millis(100);
