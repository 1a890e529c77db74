//! Samples of all locks, for those who follow `/api/events`: what has changed since the sample before.
//!
//! Owns    [`Sampler`], which knows what the viewers have been told.
//! Rule    times are sent as moments, not as durations, so that a lock which only grows older has not changed.
//! Bounds  [`LOCKS_MAX`] locks, [`BYTES_MAX`] of JSON, and [`STEPS_MAX`] commands; a sample beyond these is cut.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::time::Duration;

use redlatch_proto::number::total;
use serde_json::{Map, Value, json};

use super::HttpContext;
use super::json::{self, bytes_of};
use super::questions::{ApiError, ask};

/// Locks of a sample. The page shows twice as many as it promises to be smooth with.
const LOCKS_MAX: usize = 20_000;
/// Bytes of JSON of a sample: a holder may have 4 KiB of meta, and a lock 100 holders.
pub(super) const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Keys that one command looks at, so that other clients wait for a fraction of a millisecond.
const KEYS_PER_STEP: &[u8] = b"256";
/// Commands of a sample: a million keys, most of which may be no locks.
const STEPS_MAX: usize = 4_000;

/// Lists the locks that `filter`, options of LOCK.LIST, asks for, until `each` returns false. Returns whether the list has
/// ended before its end.
///
/// # Errors
/// As those of [`ask`].
pub(super) async fn list_locks(
    context: &HttpContext,
    filter: &[&[u8]],
    mut each: impl FnMut(Value) -> bool,
) -> Result<bool, ApiError> {
    let (mut cursor, mut left) = ("0".to_owned(), LOCKS_MAX);
    for _ in 0..STEPS_MAX {
        let mut words: Vec<&[u8]> = vec![b"LOCK.LIST", b"COUNT", KEYS_PER_STEP, b"CURSOR", cursor.as_bytes()];
        words.extend_from_slice(filter);
        let (next, locks) = step_of_list(ask(context, &words).await?)?;
        let count = locks.len();
        let is_cut = !locks.into_iter().take(left).all(&mut each) || count > left;
        left = left.saturating_sub(count);
        if next == "0" || is_cut {
            return Ok(is_cut);
        }
        cursor = next;
    }
    Ok(true)
}

/// The next cursor and the locks of an answer to LOCK.LIST.
///
/// # Errors
/// It is something else.
pub(super) fn step_of_list(answer: Value) -> Result<(String, Vec<Value>), ApiError> {
    serde_json::from_value(answer).map_err(|_| ApiError::unexpected())
}

#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// The JSON of each lock, by key.
    known: BTreeMap<Vec<u8>, String>,
    totals: Value,
    is_cut: bool,
}

/// What one sample has seen.
#[derive(Debug, Default)]
struct Seen {
    /// The JSON of each lock, by key.
    locks: BTreeMap<Vec<u8>, String>,
    /// The JSON of each lock that is new or another one than before.
    changed: Vec<String>,
    bytes: usize,
    is_cut: bool,
}

impl Seen {
    /// Takes a lock. Returns false if there is no room for it.
    fn take(&mut self, lock: Value, now_ms: u64, known: &BTreeMap<Vec<u8>, String>) -> bool {
        let Some(key) = bytes_of(&lock, "key") else { return true };
        let text = lock_event(lock, now_ms).to_string();
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > BYTES_MAX {
            return false;
        }
        if known.get(&key) != Some(&text) {
            self.changed.push(text.clone());
        }
        self.locks.insert(key, text);
        true
    }
}

/// What an event says beside locks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// When it is sent, as Unix time in milliseconds.
    pub(super) now_ms: u64,
    /// How long after this one the next sample is taken.
    pub(super) interval: Duration,
}

/// What has changed between two samples.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// The JSON of each lock that is new or another one than before.
    changed: Vec<String>,
    removed: Vec<Vec<u8>>,
}

impl Sampler {
    /// Takes a sample, and returns what has changed.
    ///
    /// # Errors
    /// The engine does not answer now; what the viewers know stays as it was.
    pub(super) async fn sample(&mut self, context: &HttpContext) -> Result<Change, ApiError> {
        let mut seen = Seen::default();
        let take = |lock| seen.take(lock, unix_ms(context), &self.known);
        let listed = list_locks(context, &[], take).await;
        let info = ask(context, &[b"INFO", b"clients", b"stats", b"locks"]).await?;
        self.totals = totals(info.as_str().unwrap_or_default());
        match listed {
            Ok(is_cut) => {
                seen.is_cut = is_cut;
                Ok(self.adopt(seen))
            }
            // The totals say so, and the locks are those of before.
            Err(_) if !self.totals["script"].is_null() => Ok(Change::default()),
            Err(error) => Err(error),
        }
    }

    fn adopt(&mut self, seen: Seen) -> Change {
        let gone = self.known.keys().filter(|key| !seen.locks.contains_key(*key));
        let change = Change { changed: seen.changed, removed: gone.cloned().collect() };
        (self.known, self.is_cut) = (seen.locks, seen.is_cut);
        change
    }

    /// Whether a sample has succeeded.
    pub(super) fn has_sample(&self) -> bool {
        !self.totals.is_null()
    }

    /// The event with which a viewer begins: everything that is known. `about` has fields that do not change.
    pub(super) fn snapshot(&self, about: &Map<String, Value>, moment: Moment) -> String {
        self.event("snapshot", about.clone(), moment, self.known.values(), &[])
    }

    /// The event for viewers that know the sample before.
    pub(super) fn change(&self, change: &Change, moment: Moment) -> String {
        self.event("change", Map::new(), moment, change.changed.iter(), &change.removed)
    }

    /// Writes an event. The locks are JSON already.
    fn event<'t>(
        &self,
        name: &str,
        mut fields: Map<String, Value>,
        moment: Moment,
        locks: impl Iterator<Item = &'t String>,
        removed: &[Vec<u8>],
    ) -> String {
        let removed = removed.iter().map(|key| {
            let mut object = Map::new();
            json::insert(&mut object, "key", key);
            Value::Object(object)
        });
        fields.insert("now".into(), moment.now_ms.into());
        fields.insert("interval".into(), (moment.interval.as_millis() as u64).into());
        fields.insert("cut".into(), self.is_cut.into());
        fields.insert("totals".into(), self.totals.clone());
        fields.insert("removed".into(), removed.collect());
        let fields = Value::Object(fields).to_string();
        let locks: Vec<&str> = locks.map(String::as_str).collect();
        // JSON on one line, as an event wants it: serde_json escapes the ends of lines in texts.
        format!(
            "event: {name}\ndata: {},\"locks\":[{}]}}\n\n",
            fields.strip_suffix('}').unwrap_or(&fields),
            locks.join(",")
        )
    }
}

/// The server's time, as Unix time in milliseconds.
pub(super) fn unix_ms(context: &HttpContext) -> u64 {
    context.server.clock().now().wall().as_millis()
}

/// A lock as events tell it: `until` in place of `left`, `waits_since` of `waited`, and no `held`.
fn lock_event(mut lock: Value, now_ms: u64) -> Value {
    // The instant of the command, if a holder tells it: later than that of this sample's clock by some milliseconds.
    let instant =
        |holder: &Value| Some(total([holder.get("since")?.as_u64()?, holder.get("held")?.as_u64()?]));
    let now_ms = lock["holders"].as_array().and_then(|all| all.iter().find_map(instant)).unwrap_or(now_ms);
    for holder in lock["holders"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        holder.remove("held");
        let left = holder.remove("left").and_then(|left| left.as_u64());
        holder.insert("until".into(), left.map(|left| now_ms.saturating_add(left)).into());
    }
    if let Some(lock) = lock.as_object_mut() {
        let waited = lock.remove("waited").and_then(|waited| waited.as_u64());
        lock.insert("waits_since".into(), waited.map(|waited| now_ms.saturating_sub(waited)).into());
    }
    lock
}

/// The figures at the head of the page, from INFO.
fn totals(info: &str) -> Value {
    let text = |name: &str| {
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(found, _)| *found == name).map(|(_, value)| value.trim())
    };
    let field = |name: &str| text(name)?.parse::<u64>().ok();
    json!({
        "locks": field("locks_held"),
        "waiters": field("lock_waiters"),
        "granted": field("locks_granted"),
        "refused": field("locks_refused"),
        "expired": field("locks_expired"),
        "clients": field("connected_clients"),
        "script": text("running_script").filter(|script| !script.is_empty()),
    })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "of constants")]
mod tests {
    use super::*;

    /// A lock that has been held since 1,000.
    fn lock(key: &str, token: i64, now: i64) -> Value {
        let holder = json!({ "token": token, "since": 1_000, "held": now - 1_000, "left": 31_000 - now });
        json!({ "key": key, "holders": [holder], "waited": now - 2_000 })
    }

    impl Sampler {
        fn take(&mut self, locks: &[Value], now_ms: u64) -> Change {
            let mut seen = Seen::default();
            seen.is_cut = !locks.iter().all(|lock| seen.take(lock.clone(), now_ms, &self.known));
            self.adopt(seen)
        }
    }

    #[test]
    fn a_lock_that_only_grows_older_has_not_changed() {
        let mut sampler = Sampler::default();
        assert_eq!(sampler.take(&[lock("a", 1, 3_000), lock("b", 2, 3_000)], 3_000).changed.len(), 2);
        let change = sampler.take(&[lock("a", 1, 9_000), lock("b", 2, 9_001)], 9_001);
        assert!(change.changed.is_empty() && change.removed.is_empty(), "{change:?}");
        let change = sampler.take(&[lock("b", 3, 9_500), lock("c", 4, 9_500)], 9_500);
        assert_eq!((change.changed.len(), change.removed), (2, vec![b"a".to_vec()]));
    }

    #[test]
    fn an_event_is_one_line_of_json_with_moments() {
        let mut sampler = Sampler::default();
        let change = sampler.take(&[lock("a\n\n<b>", 1, 3_000)], 3_003);
        let event = sampler.change(&change, Moment { now_ms: 3_004, interval: Duration::from_millis(500) });
        let data = event.strip_prefix("event: change\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
        let data = data.expect("one event");
        assert!(!data.contains('\n'), "{data}");
        let value: Value = serde_json::from_str(data).expect("JSON");
        let lock = json!({
            "key": "a\n\n<b>", "waits_since": 2_000, "holders": [{ "token": 1, "since": 1_000, "until": 31_000 }],
        });
        let expected = json!({
            "now": 3_004, "interval": 500, "cut": false, "totals": null, "removed": [], "locks": [lock],
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn a_sample_beyond_its_bytes_is_cut() {
        let long = "x".repeat(BYTES_MAX / 2);
        let mut sampler = Sampler::default();
        let change = sampler.take(&[lock(&long, 1, 3_000), lock("b", 2, 3_000)], 3_000);
        assert!(!sampler.is_cut && change.changed.len() == 2);
        let longer = "y".repeat(BYTES_MAX / 2);
        let change = sampler.take(&[lock(&long, 1, 3_000), lock(&longer, 2, 3_000)], 3_000);
        assert!(sampler.is_cut && change.changed.is_empty(), "the second does not fit");
    }

    #[test]
    fn totals_are_fields_of_info() {
        let info = "# Clients\r\nconnected_clients:3\r\n\r\n# Locks\r\nlocks_granted:9\r\nlocks_held:2\r\n";
        let expected = json!({
            "locks": 2, "waiters": null, "granted": 9, "refused": null, "expired": null, "clients": 3, "script": null,
        });
        assert_eq!(totals(info), expected);
    }
}
