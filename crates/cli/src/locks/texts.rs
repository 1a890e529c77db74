//! Locks in words and in JSON, for people and for programs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub(crate) use redlatch_client::wire::{breaking, is_gone, lease, lines, owner, place, utc};
use redlatch_client::{Error, Held, Holder};
pub(crate) use redlatch_proto::duration::duration;
use redlatch_proto::log_name::{push_json, text_or_escapes};
use serde_json::{Value, json};

use super::table::{self, Column, Fit};
use crate::common::warn;
pub(crate) use redlatch_proto::log_name::readable;

/// A lock on one line; one that has ended has no kind.
pub(crate) fn line(held: &Held) -> String {
    let holders = held.holders.iter().map(|holder| {
        let token = holder.token.map(|token| format!(" token {token}")).unwrap_or_default();
        let client =
            holder.client.as_ref().map(|client| format!(" at {}", place(client))).unwrap_or_default();
        let term = match (held.kind.is_empty(), holder.held_ms) {
            (true, Some(held)) => format!("for {}", duration(held)),
            _ => lease(holder),
        };
        format!("{}{client}{token}, {term}", owner(held, holder))
    });
    let holders: Vec<String> = holders.collect();
    if held.kind.is_empty() {
        return format!("{}  {}", readable(&held.key), holders.join("; "));
    }
    format!("{}  {}  {}  {} waiting", readable(&held.key), held.kind, holders.join("; "), held.waiters)
}

/// Locks as a table with a header, a row for each holder.
pub(crate) fn table(found: &[Held], width: Option<usize>) -> String {
    let column = |title, fit| Column { title, fit };
    let columns = [
        column("LOCK", Fit::Cut),
        column("KIND", Fit::Left),
        column("HOLDER", Fit::Cut),
        column("TOKEN", Fit::Right),
        column("HELD", Fit::Right),
        column("LEASE", Fit::Right),
        column("WAITING", Fit::Right),
        column("CLIENT", Fit::Cut),
    ];
    let none = || "-".to_owned();
    let row = |held: &Held, holder: &Holder| {
        let lease = if holder.session { "session".to_owned() } else { none() };
        [
            readable(&held.key),
            kind(held, holder),
            owner(held, holder),
            holder.token.map_or_else(none, |token| token.to_string()),
            holder.held_ms.map_or_else(none, duration),
            holder.left_ms.map_or(lease, duration),
            held.waiters.to_string(),
            match &holder.client {
                Some(client) => place(client),
                None if is_gone(holder) => "gone".to_owned(),
                None => none(),
            },
        ]
    };
    let rows: Vec<_> =
        found.iter().flat_map(|held| held.holders.iter().map(move |holder| row(held, holder))).collect();
    table::table(columns, &rows, width)
}

/// Groups of slots as a table, from what CLUSTER INFO of their leaders says.
pub(crate) fn groups(found: &[Value], width: Option<usize>) -> String {
    let column = |title, fit| Column { title, fit };
    let columns = [
        column("GROUP", Fit::Right),
        column("SLOTS", Fit::Left),
        column("STATE", Fit::Left),
        column("LEADER", Fit::Left),
        column("EPOCH", Fit::Right),
        column("LEADS", Fit::Right),
        column("COMMIT", Fit::Right),
        column("STANDBYS", Fit::Cut),
    ];
    let row = |group: &Value| {
        let number = |name: &str| group[name].as_u64().unwrap_or_default();
        let text = |name: &str| readable(group[name].as_str().unwrap_or("-").as_bytes());
        let slots = group["slots"].as_array().into_iter().flatten();
        let slots: Vec<String> = slots.map(|range| format!("{}-{}", range[0], range[1])).collect();
        let differing = group["standbys_that_differ"].as_array();
        let standbys = group["standbys"].as_array().into_iter().flatten().map(|standby| {
            let differs = differing.is_some_and(|differing| differing.contains(standby));
            let name = readable(standby.as_str().unwrap_or_default().as_bytes());
            if differs { format!("{name} (differs)") } else { name }
        });
        let standbys: Vec<String> = standbys.collect();
        let commit = number("commit_micros").checked_div(number("commits"));
        [
            number("group").to_string(),
            slots.join(" "),
            text("state"),
            text("leader"),
            number("current_epoch").to_string(),
            duration(number("leads_for_ms")),
            commit.map_or_else(|| "-".to_owned(), |micros| format!("{:.1} ms", micros as f64 / 1_000.0)),
            standbys.join(" "),
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    table::table(columns, &rows, width)
}

/// The kind of a lock, and how many permits this holder has or how often it holds the lock.
fn kind(held: &Held, holder: &Holder) -> String {
    let kind = readable(held.kind.as_bytes());
    match (&*held.kind, held.limit) {
        ("permits", Some(limit)) => format!("{kind} {}/{limit}", holder.permits),
        ("permits" | "reentrant", _) => format!("{kind} {}", holder.permits),
        _ => kind,
    }
}

/// How a lock that is held can be taken by force.
pub(crate) fn force(held: Option<&Held>) -> String {
    let force = held.and_then(breaking).map(|command| format!("\nTo take it by force: {command}"));
    force.unwrap_or_default()
}

/// Why a lock was not taken. `what`: what did not happen.
pub(crate) fn held(what: &str, key: &[u8], held: Option<&Held>) -> String {
    let key = held.map_or(key, |held| &held.key);
    let lines = held.map(lines).unwrap_or_default();
    format!("{what}: {} is held\n{lines}", readable(key)).trim_end().to_owned()
}

/// Tells on the error stream that a call is tried again, and why.
pub(crate) fn tell_retry(error: &Error) {
    warn(&format!("{}; trying again", readable(error.to_string().as_bytes())));
}

/// The warning for a server without LOCK commands.
pub(crate) const PLAIN: &str =
    "the server has no LOCK commands: the lock is a plain key without a token, and a wait polls";

/// A lock as JSON, with the names of LOCK.WHO.
pub(crate) fn value(held: &Held) -> Value {
    let mut value = json!({
        "key": null,
        "kind": Some(&held.kind).filter(|kind| !kind.is_empty()),
        "type": held.value_type,
        "limit": held.limit,
        "holders": held.holders.iter().map(holder).collect::<Vec<_>>(),
        "waiters": held.waiters,
        "waited": held.waited_ms,
        "polls": held.polls,
    });
    insert(&mut value, "key", &held.key);
    value
}

fn holder(holder: &Holder) -> Value {
    let client = holder.client.as_ref().map(|client| {
        json!({
            "id": client.id,
            "addr": client.addr,
            "name": client.name,
            "lib-name": client.lib_name,
            "lib-ver": client.lib_ver,
        })
    });
    let mut value = json!({
        "owner": null,
        "token": holder.token,
        "permits": holder.permits,
        "client": client,
        "since": holder.since_unix_ms,
        "held": holder.held_ms,
        "lease": holder.lease_ms,
        "left": holder.left_ms,
        "renewals": holder.renewals,
        "session": holder.session,
        "meta": holder.meta.iter().map(|(field, value)| (text_or_escapes(field), text_or_escapes(value))).collect::<Value>(),
    });
    insert(&mut value, "owner", &holder.owner);
    if holder.is_inferred {
        value["known"] = "inferred".into();
    }
    if holder.meta.iter().any(|(field, value)| !is_utf_8(field) || !is_utf_8(value)) {
        let pairs =
            holder.meta.iter().map(|(field, value)| json!([STANDARD.encode(field), STANDARD.encode(value)]));
        value["meta_base64"] = pairs.collect();
    }
    value
}

/// Now, as Unix time in milliseconds.
pub(crate) fn unix_ms_now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The end of the time that is left, as Unix time in milliseconds.
pub(crate) fn unix_ms_in(left: Duration) -> u64 {
    unix_ms_now().saturating_add(millis(left))
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// JSON as a terminal may show it: hidden characters are escapes, which JSON has in texts alone.
pub(crate) fn json_text(value: &Value) -> String {
    let mut text = String::new();
    value.to_string().chars().for_each(|character| push_json(&mut text, character));
    text
}

/// Adds a text of a client. If it is not UTF-8, its exact bytes are beside it, as the HTTP port tells them.
pub(crate) fn insert(object: &mut Value, name: &str, bytes: &[u8]) {
    object[name] = text_or_escapes(bytes).into();
    if !is_utf_8(bytes) {
        object[format!("{name}_base64")] = STANDARD.encode(bytes).into();
    }
}

fn is_utf_8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_of_json_are_escapes_that_read_back() {
        let value = json!({ "a": "\u{1b}[2J\u{202e}\u{9b}\u{e0041}\n" });
        let text = json_text(&value);
        assert!(!text.chars().any(redlatch_proto::log_name::is_hidden), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }

    #[test]
    fn bytes_that_are_no_text_can_be_read_from_json() {
        let mut value = json!({});
        insert(&mut value, "key", b"a\xff");
        insert(&mut value, "owner", b"o");
        assert_eq!(value, json!({ "key": r"a\xff", "key_base64": "Yf8=", "owner": "o" }));
    }
}
