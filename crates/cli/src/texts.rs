//! Locks in words and in JSON, for people and for programs.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redlatch_client::{Client, Held, Holder};
use redlatch_proto::log_name::{push_json, text_or_escapes};
use serde_json::{Value, json};

use super::table::{self, Column, Fit};
pub(super) use redlatch_proto::log_name::readable;

/// A lock as lines: key, holder, where, since, lease, token, queue.
pub(super) fn lines(held: &Held) -> String {
    let mut text = format!("  key:    {}\n", readable(&held.key));
    let limit = held.limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
    for holder in &held.holders {
        let permits = match held.kind.as_str() {
            "permits" => format!(", {}{limit} permits", holder.permits),
            "reentrant" => format!(", {} times", holder.permits),
            "shared" => ", shared".to_owned(),
            _ => String::new(),
        };
        let _ = writeln!(text, "  holder: {}{permits}", owner(held, holder));
        if held.value_type.as_ref().is_some_and(|value_type| value_type == "string") {
            let _ = writeln!(text, "  value:  {}", readable(&holder.owner));
        }
        for (field, value) in &holder.meta {
            let [field, value] = [field, value].map(|text| readable(text));
            let _ = writeln!(text, "  {field}: {value}");
        }
        if let Some(client) = &holder.client {
            let _ = writeln!(text, "  where:  {}", place(client));
        }
        if let Some(since) = holder.since_unix_ms {
            let age = holder.held_ms.map(|held| format!(", for {}", seconds(held))).unwrap_or_default();
            let _ = writeln!(text, "  since:  {}{age}", utc(since));
        }
        let _ = writeln!(text, "  lease:  {}{}", lease(holder), until(holder));
        if let Some(token) = holder.token {
            let _ = writeln!(text, "  token:  {token}");
        }
    }
    let _ = writeln!(text, "  queue:  {} waiting", held.waiters);
    text
}

/// A lock on one line; one that has ended has no kind.
pub(super) fn line(held: &Held) -> String {
    let holders = held.holders.iter().map(|holder| {
        let token = holder.token.map(|token| format!(" token {token}")).unwrap_or_default();
        let client =
            holder.client.as_ref().map(|client| format!(" at {}", place(client))).unwrap_or_default();
        let term = match (held.kind.is_empty(), holder.held_ms) {
            (true, Some(held)) => format!("for {}", seconds(held)),
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
pub(super) fn table(found: &[Held], width: Option<usize>) -> String {
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
            holder.held_ms.map_or_else(none, seconds),
            holder.left_ms.map_or(lease, seconds),
            held.waiters.to_string(),
            holder.client.as_ref().map_or_else(none, place),
        ]
    };
    let rows: Vec<_> =
        found.iter().flat_map(|held| held.holders.iter().map(move |holder| row(held, holder))).collect();
    table::table(columns, &rows, width)
}

/// Groups of slots as a table, from what CLUSTER INFO of their leaders says.
pub(super) fn groups(found: &[Value], width: Option<usize>) -> String {
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
            seconds(number("leads_for_ms")),
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

/// Who holds a lock, or a key that is none.
pub(super) fn owner(held: &Held, holder: &Holder) -> String {
    held.unknown_owner().unwrap_or_else(|| readable(&holder.owner))
}

/// Why a lock was not taken, and what could be done about it. `what`: what did not happen.
pub(super) fn refusal(what: &str, key: &[u8], held: Option<&Held>) -> String {
    let force = held.and_then(breaking).map(|command| format!("\nTo take it by force: {command}"));
    self::held(what, key, held) + &force.unwrap_or_default()
}

/// Why a lock was not taken. `what`: what did not happen.
pub(super) fn held(what: &str, key: &[u8], held: Option<&Held>) -> String {
    let key = held.map_or(key, |held| &held.key);
    let lines = held.map(lines).unwrap_or_default();
    format!("{what}: {} is held\n{lines}", readable(key)).trim_end().to_owned()
}

/// The command that would break the lock, if its token is known.
fn breaking(held: &Held) -> Option<String> {
    let token = held.holders.first()?.token?;
    Some(format!("redlatch break {} --token {token}", quoted(&readable(&held.key))))
}

/// What is said of a server that has no LOCK commands.
pub(super) const PLAIN: &str =
    "the server has no LOCK commands: the lock is a plain key, polled for and without a token";

/// A lock as JSON, with the names of LOCK.WHO.
pub(super) fn value(held: &Held) -> Value {
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
    if holder.meta.iter().any(|(field, value)| !is_utf_8(field) || !is_utf_8(value)) {
        let pairs =
            holder.meta.iter().map(|(field, value)| json!([STANDARD.encode(field), STANDARD.encode(value)]));
        value["meta_base64"] = pairs.collect();
    }
    value
}

fn place(client: &Client) -> String {
    let library = [&client.lib_name, &client.lib_ver].map(String::as_str).join(" ");
    let known = [client.name.as_str(), library.trim()];
    let known: Vec<&str> = known.into_iter().filter(|text| !text.is_empty()).collect();
    let place = match known.is_empty() {
        true => client.addr.clone(),
        false => format!("{} ({})", client.addr, known.join(", ")),
    };
    readable(place.as_bytes())
}

fn lease(holder: &Holder) -> String {
    let renewed = match holder.renewals {
        0 => String::new(),
        1 => ", renewed once".to_owned(),
        times => format!(", renewed {times} times"),
    };
    match (holder.left_ms, holder.session) {
        (Some(left), _) => format!("{} left{renewed}", seconds(left)),
        (None, true) => "until its connection ends".to_owned(),
        (None, false) => "no lease: it ends when it is released".to_owned(),
    }
}

/// When the lease ends, by the clock of the server.
fn until(holder: &Holder) -> String {
    let parts =
        [holder.since_unix_ms, holder.held_ms, holder.left_ms].into_iter().collect::<Option<Vec<u64>>>();
    let end = parts.map(|parts| parts.into_iter().fold(0, u64::saturating_add));
    end.map(|end| format!(", until {}", utc(end))).unwrap_or_default()
}

pub(super) fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1_000, millis % 1_000 / 100)
}

/// Now, as Unix time in milliseconds.
pub(super) fn unix_ms_now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The end of the time that is left, as Unix time in milliseconds.
pub(super) fn unix_ms_in(left: Duration) -> u64 {
    unix_ms_now().saturating_add(millis(left))
}

/// A time in milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A moment as `2023-11-14 22:13:20 UTC`.
pub(super) fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day at the end; 719_468 days before 1970 such a year was divisible by 400.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// JSON as a terminal may show it: hidden characters are escapes, which JSON has in texts alone.
pub(super) fn json_text(value: &Value) -> String {
    let mut text = String::new();
    value.to_string().chars().for_each(|character| push_json(&mut text, character));
    text
}

/// Adds a text of a client. If it is not UTF-8, its exact bytes are beside it, as the HTTP port tells them.
pub(super) fn insert(object: &mut Value, name: &str, bytes: &[u8]) {
    object[name] = text_or_escapes(bytes).into();
    if !is_utf_8(bytes) {
        object[format!("{name}_base64")] = STANDARD.encode(bytes).into();
    }
}

fn is_utf_8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_date_of_the_calendar() {
        for (unix_ms, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399_999, "2000-02-28 23:59:59 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000_000, "2023-11-14 22:13:20 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(unix_ms), expected);
        }
    }

    #[test]
    fn a_word_is_quoted_where_a_shell_would_split_it() {
        for (word, expected) in
            [("lock:a", "lock:a"), ("two words", "'two words'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(word), expected);
        }
    }

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
