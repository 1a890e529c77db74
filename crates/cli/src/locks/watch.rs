//! `redlatch watch`: what is taken and freed among the locks of a running server.
//!
//! Rule    each look asks for the locks that are held, and for the ends that the server remembers: a lock that was taken and
//!         freed between two looks is among these.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redlatch_client::wire::{Connection, Retry};
use redlatch_client::{Error, Held, Locks};
use serde_json::json;
use tokio::time::sleep;

use super::texts;
use super::views::{connected, say};
use crate::common::exit::{self, Failure};
use crate::common::{Fault, ServerAddress};

/// What makes a hold another one: key, owner and token.
type HoldId = (Vec<u8>, Vec<u8>, Option<u64>);
type Holds = BTreeMap<HoldId, Held>;

/// What a look has seen.
#[derive(Debug, Default)]
struct Look {
    held: Holds,
    /// The holds that have ended, the first end first, as far as the server remembers them.
    ended: Vec<Held>,
}

/// Watches the locks whose keys match the pattern, and looks at them in this interval; returns the exit code.
pub(super) fn run(server: ServerAddress, wanted: (&str, Duration), json: bool) -> u8 {
    exit::run(async {
        let (locks, retry) = connected(server, None).await?;
        watch(&locks, wanted, retry, json).await
    })
}

/// Writes what changes, until it is ended.
async fn watch(
    locks: &Locks,
    (pattern, interval): (&str, Duration),
    mut retry: Retry,
    json: bool,
) -> Result<u8, Failure> {
    let mut connections = Vec::new();
    let mut last: Option<Look> = None;
    let mut looked_at = texts::unix_ms_now();
    let mut is_interrupted = false;
    loop {
        let now = texts::unix_ms_now();
        match look(locks, &mut connections, pattern).await {
            Ok(look) => {
                if std::mem::take(&mut is_interrupted) && !missed(looked_at, json)? {
                    return Ok(0);
                }
                retry.answered();
                looked_at = now;
                if !changes(last.as_ref(), &look, json)? {
                    return Ok(0);
                }
                last = Some(look);
                sleep(interval).await;
            }
            Err(error) => {
                (connections, is_interrupted) = (Vec::new(), true);
                retry.again(error).await?;
            }
        }
    }
}

/// Asks all nodes, whose connections are opened first if there are none.
async fn look(locks: &Locks, connections: &mut Vec<Connection>, pattern: &str) -> Result<Look, Error> {
    if connections.is_empty() {
        *connections = locks.open_all().await?;
    }
    let mut look = Look::default();
    for connection in connections {
        look.held.extend(holds(locks.list_on(connection, pattern).await?));
        look.ended.extend(locks.ends_on(connection, pattern).await?);
    }
    Ok(look)
}

/// The holds, each with its lock.
fn holds(found: Vec<Held>) -> Holds {
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

/// Writes what differs between two looks. False if nobody reads it.
fn changes(before: Option<&Look>, now: &Look, json: bool) -> Result<bool, Fault> {
    let none = Look::default();
    let held = &before.unwrap_or(&none).held;
    let gone = held.iter().filter(|(id, _)| !now.held.contains_key(id)).map(|(_, held)| ("free", held));
    let new = now.held.iter().filter(|(id, _)| !held.contains_key(id)).map(|(_, held)| ("held", held));
    let short = before.map(|before| between(before, now)).unwrap_or_default();
    let short = short.into_iter().flat_map(|held| [("held", held), ("free", held)]);
    for (what, held) in gone.chain(short).chain(new) {
        if !event(what, held, json)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The holds that began and ended between two looks. The server may have cut their owners, so tokens tell them apart.
fn between<'l>(before: &'l Look, now: &'l Look) -> Vec<&'l Held> {
    let id = |held: &'l Held| Some((&held.key, held.holders.first()?.token?));
    let known = before.held.values().chain(now.held.values()).chain(&before.ended);
    let known: BTreeSet<_> = known.filter_map(id).collect();
    now.ended.iter().filter(|held| id(held).is_some_and(|id| !known.contains(&id))).collect()
}

/// Writes since when the server could not be asked. False if nobody reads it.
fn missed(since_unix_ms: u64, json: bool) -> Result<bool, Fault> {
    let now = texts::unix_ms_now();
    let value = json!({ "event": "missed", "since": since_unix_ms, "time": now });
    let since = texts::utc(since_unix_ms);
    let text = format!("{}  missed  all changes since {since}\n", texts::utc(now));
    say(json, &value, &text)
}

/// Writes what happened to a lock. False if nobody reads it.
fn event(what: &str, held: &Held, json: bool) -> Result<bool, Fault> {
    let mut value = texts::value(held);
    let now = texts::unix_ms_now();
    value["event"] = what.into();
    value["time"] = now.into();
    let line = if what == "free" { texts::readable(&held.key) } else { texts::line(held) };
    say(json, &value, &format!("{}  {what}  {line}\n", texts::utc(now)))
}
