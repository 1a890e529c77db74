//! `/api`: what the LOCK commands tell, as JSON. docs/http.md is the reference.
//!
//! Bounds  a list has at most [`LIST_MAX`] entries; the lists of the engine have bounds of their own.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Request, Response};
use redlatch_core::engine::question::Requester;
use redlatch_core::state::settings;
use redlatch_proto::lock::REASON_BYTES_MAX;
use serde_json::{Map, Value, json};

use super::contention::{CONTENDED_MAX, contended};
use super::json::{self, bytes_of};
use super::parameters::Parameters;
use super::questions::{ApiError, ask, ask_for, recorded, reply_to, response};
use super::responses::Body;
use super::sampler::{BYTES_MAX, list_locks, step_of_list, unix_ms};
use super::{HttpContext, groups};

/// Entries of a list in one response.
const LIST_MAX: u64 = 1_000;
/// Locks in a page, unless the request says otherwise.
const COUNT: u64 = 100;
/// Ends of one lock that are told, and the bytes of its key that the engine remembers.
const ENDS: &[u8] = b"50";
const KEY_BYTES_REMEMBERED: usize = 64;
/// Ends that contention looks at: more than `lock-history-len` is by default.
const ENDS_LOOKED_AT: &[u8] = b"10000";

/// `GET /api/locks`: a page of the locks.
pub(super) async fn locks(context: Arc<HttpContext>, request: Request<Bytes>) -> Response<Body> {
    response(page_of_locks(&context, &request).await)
}

async fn page_of_locks(context: &HttpContext, request: &Request<Bytes>) -> Result<Value, ApiError> {
    const KNOWN: &[&str] = &["match", "owner", "held_longer_ms", "waited_longer_ms", "cursor", "count"];
    let parameters = Parameters::of(request, KNOWN)?;
    let count = parameters.number("count", 1..=LIST_MAX)?.unwrap_or(COUNT).to_string();
    let cursor = parameters.number("cursor", 0..=u64::MAX)?.unwrap_or(0).to_string();
    let mut words: Vec<&[u8]> = vec![b"LOCK.LIST", b"COUNT", count.as_bytes(), b"CURSOR", cursor.as_bytes()];
    let times = [("held_longer_ms", "HELD-LONGER"), ("waited_longer_ms", "WAITED-LONGER")];
    let mut numbers = Vec::new();
    for (name, word) in times {
        let number = parameters.number(name, 0..=i64::MAX as u64)?;
        numbers.extend(number.map(|number| (word, number.to_string())));
    }
    for (word, number) in &numbers {
        words.extend([word.as_bytes(), number.as_bytes()]);
    }
    for (name, word) in [("match", "MATCH"), ("owner", "OWNER")] {
        if let Some(bytes) = parameters.bytes(name) {
            words.extend([word.as_bytes(), bytes]);
        }
    }

    let (next, locks) = step_of_list(ask(context, &words).await?)?;
    Ok(json!({ "cursor": next, "locks": locks }))
}

/// The first elements of the list that a command replies, at most [`LIST_MAX`] and [`BYTES_MAX`]; and how many there are.
///
/// # Errors
/// [`ApiError::Unavailable`]
async fn first(context: &HttpContext, words: &[&[u8]]) -> Result<(Value, usize), ApiError> {
    let reply = reply_to(context, &Requester::default(), words).await?;
    let first = json::first(&reply, LIST_MAX as usize, BYTES_MAX).ok_or_else(ApiError::unexpected);
    first.map(|(items, total)| (items.into(), total))
}

/// `GET /api/lock`: all about one lock.
pub(super) async fn lock(context: Arc<HttpContext>, request: Request<Bytes>) -> Response<Body> {
    response(one_lock(&context, &request).await)
}

async fn one_lock(context: &HttpContext, request: &Request<Bytes>) -> Result<Value, ApiError> {
    let key = Parameters::of(request, &["key", "key_base64"])?.key()?;

    let who = ask(context, &[b"LOCK.WHO", &key]).await?;
    let (waiters, waiting) = first(context, &[b"LOCK.WAITERS", &key]).await?;
    let explain = ask(context, &[b"LOCK.EXPLAIN", &key]).await?;
    let history = if key.len() <= KEY_BYTES_REMEMBERED {
        ask(context, &[b"LOCK.HISTORY", b"MATCH", &exactly(&key), b"COUNT", ENDS]).await?
    } else {
        json!([])
    };

    let mut object = Map::from_iter([("now".to_owned(), unix_ms(context).into())]);
    json::insert(&mut object, "key", &key);
    let parts = [
        ("who", who),
        ("waiters", waiters),
        ("waiting", waiting.into()),
        ("explain", explain),
        ("history", history),
    ];
    object.extend(parts.map(|(name, part)| (name.to_owned(), part)));
    Ok(Value::Object(object))
}

/// The pattern that fits these bytes alone.
fn exactly(key: &[u8]) -> Vec<u8> {
    key.iter().flat_map(|byte| [b'\\', *byte]).collect()
}

/// `GET /api/contention`: the locks that clients wait for the longest.
pub(super) async fn contention(context: Arc<HttpContext>, request: Request<Bytes>) -> Response<Body> {
    response(contended_locks(&context, &request).await)
}

async fn contended_locks(context: &HttpContext, request: &Request<Bytes>) -> Result<Value, ApiError> {
    Parameters::of(request, &[])?;

    let ends = ask(context, &[b"LOCK.HISTORY", b"COUNT", ENDS_LOOKED_AT]).await?;
    let (mut locks, mut bytes) = (Vec::new(), 0);
    let keep = |mut lock: Value| {
        bytes = usize::saturating_add(bytes, lock["key"].as_str().map_or(0, str::len));
        // Its holders may be long, and are of no use here.
        lock["holders"].take();
        locks.push(lock);
        bytes <= BYTES_MAX
    };
    let is_cut = list_locks(context, &[b"WAITED-LONGER", b"0"], keep).await?;

    let mut keys = contended(&locks, ends.as_array().ok_or_else(ApiError::unexpected)?);
    let total = keys.len();
    keys.truncate(CONTENDED_MAX);
    Ok(json!({ "keys": keys, "total": total, "cut": is_cut }))
}

/// `GET /api/graph`: who waits for whom.
pub(super) async fn graph(context: Arc<HttpContext>, request: Request<Bytes>) -> Response<Body> {
    response(waits(&context, &request).await)
}

async fn waits(context: &HttpContext, request: &Request<Bytes>) -> Result<Value, ApiError> {
    Parameters::of(request, &[])?;
    let (waits, total) = first(context, &[b"LOCK.GRAPH"]).await?;
    Ok(json!({ "waits": waits, "total": total }))
}

/// `GET /api/groups`: the groups of slots, and where the others are.
pub(super) fn groups(context: &HttpContext, request: &Request<Bytes>) -> Response<Body> {
    let groups = || groups::groups(context.server.engine.shared().cluster.as_deref());
    response(Parameters::of(request, &[]).map(|_| groups()))
}

/// `GET /api/lint`: what clients do wrong.
pub(super) async fn lint(context: Arc<HttpContext>, request: Request<Bytes>) -> Response<Body> {
    response(findings(&context, &request).await)
}

async fn findings(context: &HttpContext, request: &Request<Bytes>) -> Result<Value, ApiError> {
    Parameters::of(request, &[])?;
    let reply = ask(context, &[b"LOCK.LINT"]).await?;
    let enabled = context.server.engine.shared().settings.get(settings::LOCK_LINT);
    Ok(json!({ "enabled": enabled, "findings": reply }))
}

/// `GET /api/clients`: the connections of clients.
pub(super) async fn clients(context: Arc<HttpContext>, request: Request<Bytes>) -> Response<Body> {
    response(connections(&context, &request).await)
}

async fn connections(context: &HttpContext, request: &Request<Bytes>) -> Result<Value, ApiError> {
    Parameters::of(request, &[])?;
    let reply = ask(context, &[b"CLIENT", b"LIST"]).await?;
    let text = reply.as_str().ok_or_else(ApiError::unexpected)?;
    let (mut shown, mut total) = (Vec::new(), 0);
    for client in text.lines().filter_map(connection) {
        total = u64::saturating_add(total, 1);
        if shown.len() < LIST_MAX as usize {
            shown.push(client);
        }
    }
    Ok(json!({ "clients": shown, "total": total }))
}

/// A line of CLIENT LIST as an object; `None` if a number in it is none.
fn connection(line: &str) -> Option<Value> {
    const NUMBERS: [&str; 6] = ["id", "age", "idle", "db", "tot-mem", "script-age"];
    const TEXTS: [&str; 9] =
        ["addr", "name", "user", "flags", "cmd", "lib-name", "lib-ver", "waits-for", "script"];
    let fields = line.split(' ').filter_map(|field| field.split_once('='));
    let mut object = Map::from_iter(TEXTS.map(|name| (name.to_owned(), Value::from(""))));
    for (name, value) in fields {
        if TEXTS.contains(&name) {
            object.insert(name.to_owned(), value.into());
        } else if NUMBERS.contains(&name) {
            object.insert(name.to_owned(), value.parse::<i64>().ok()?.into());
        }
    }
    Some(Value::Object(object))
}

/// `POST /api/break`: takes a lock from its holder, if it still has this token.
pub(super) async fn break_lock(context: Arc<HttpContext>, request: Request<Bytes>) -> Response<Body> {
    response(broken(&context, &request).await)
}

async fn broken(context: &HttpContext, request: &Request<Bytes>) -> Result<Value, ApiError> {
    Parameters::of(request, &[])?;
    const FORM: &str =
        "the body must be JSON with key (or key_base64), token, and perhaps a reason of 256 bytes";
    let wrong = || ApiError::Request(FORM.into());
    let read = json::read(request.body());
    let body = read.map_err(|error| ApiError::Request(format!("{FORM}: {error}")))?;
    json::check_once(&body, "key").map_err(ApiError::Request)?;
    let key = bytes_of(&body, "key").ok_or_else(wrong)?;
    let token = body.get("token").and_then(Value::as_u64).filter(|token| *token > 0).ok_or_else(wrong)?;
    let token = i64::try_from(token).map_err(|_| wrong())?.to_string();

    let reason = match body.get("reason") {
        None | Some(Value::Null) => "",
        Some(reason) => reason.as_str().filter(|text| text.len() <= REASON_BYTES_MAX).ok_or_else(wrong)?,
    };

    let words: [&[u8]; 6] = [b"LOCK.BREAK", &key, b"TOKEN", token.as_bytes(), b"REASON", reason.as_bytes()];
    let requester = request.extensions().get::<Requester>().cloned().unwrap_or_default();
    if ask_for(context, &requester, &words).await? == 1 {
        recorded(context).await?;
        return Ok(json!({ "broken": true }));
    }
    let is_free = ask(context, &[b"LOCK.WHO", &key]).await?.is_null();
    Ok(json!({ "broken": false, "free": is_free }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_client_list_is_an_object() {
        let line = "id=7 addr=127.0.0.1:50 laddr=x name=worker age=3 idle=1 flags=N db=0 tot-mem=9 cmd=get user=default";
        let client = connection(line).expect("a client");
        let expected = json!({
            "id": 7, "addr": "127.0.0.1:50", "name": "worker", "age": 3, "idle": 1, "flags": "N", "db": 0, "tot-mem": 9,
            "cmd": "get", "user": "default", "lib-name": "", "lib-ver": "", "waits-for": "", "script": "",
        });
        assert_eq!(client, expected);
    }
}
