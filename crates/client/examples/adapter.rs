//! The client for Rust, driven by `packages/clients/conformance/run.py`: what it is asked and answers is in
//! `packages/clients/README.md`.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlatch_client::{Acquire, Error, Fence, Guard, Held, Kind, Locks, Lost, OnUnavailable, Watch};
use serde_json::{Map, Value, json};

type Words = Map<String, Value>;

/// How a request has failed.
enum Failure {
    Adapter(String),
    Client(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Adapter(text)
    }
}

/// A hold under its name. What is known of it outlives its guard.
struct Hold {
    guard: Mutex<Option<Arc<Guard>>>,
    watch: Watch,
}

#[derive(Default)]
struct Adapter {
    locks: Mutex<Option<Locks>>,
    holds: Mutex<HashMap<String, Arc<Hold>>>,
}

impl Adapter {
    async fn answer(&self, words: &Words) -> Result<Value, Failure> {
        match text(words, "do")? {
            "libraries" => Ok(json!([{
                "name": concat!("redlatch-client-", env!("CARGO_PKG_VERSION")),
                "protocols": [3],
                "connections": ["single", "unix", "cluster", "sentinel"],
                // Losses come on the connection of each lock, from the grant on: there is no subscription.
                "pushes": true,
            }])),
            "open" => {
                let opens =
                    words.get("on_unavailable").is_some_and(|on_unavailable| on_unavailable == "open");
                let on_unavailable = if opens { OnUnavailable::Open } else { OnUnavailable::default() };
                let locks = Locks::connect_lazily(&url(words)?)?.on_unavailable(on_unavailable);
                *locked(&self.locks) = Some(locks.budget(seconds(value(words, "budget")?)?));
                Ok(Value::Null)
            }
            "close" => {
                let holds = std::mem::take(&mut *locked(&self.holds));
                for hold in holds.into_values() {
                    locked(&hold.guard).take();
                }
                *locked(&self.locks) = None;
                Ok(Value::Null)
            }
            "take" => self.take(words).await,
            "locked_by" => {
                let held = self.locks()?.who(text(words, "key")?).await?;
                Ok(held.as_ref().map_or(Value::Null, fields))
            }
            verb => self.of_hold(verb, words).await,
        }
    }

    async fn take(&self, words: &Words) -> Result<Value, Failure> {
        let guard = acquire(&self.locks()?, words)?.await?;
        let owner = String::from_utf8_lossy(guard.owner());
        let key = String::from_utf8_lossy(guard.key());
        let key = (!words.contains_key("keys")).then_some(key);
        let answer = json!({ "key": key, "token": guard.token(), "owner": owner, "open": guard.is_open() });
        let watch = guard.watch();
        let hold = Hold { guard: Mutex::new(Some(Arc::new(guard))), watch };
        locked(&self.holds).insert(text(words, "hold")?.to_owned(), Arc::new(hold));
        Ok(answer)
    }

    async fn of_hold(&self, verb: &str, words: &Words) -> Result<Value, Failure> {
        let name = text(words, "hold")?;
        let hold = locked(&self.holds).get(name).cloned().ok_or_else(|| format!("no such hold: {name}"))?;
        let guard = || locked(&hold.guard).clone();
        match verb {
            "release" => {
                let Some(guard) = locked(&hold.guard).take() else { return Ok(json!(false)) };
                let guard = Arc::into_inner(guard).ok_or_else(|| "the guard is in use".to_owned())?;
                return Ok(json!(guard.release().await?));
            }
            "extend" => {
                let lease = words.get("lease").map(seconds).transpose()?;
                match guard() {
                    Some(guard) => guard.extend(lease).await?,
                    None => hold.watch.check()?,
                }
            }
            "leave" => {
                let guard = guard().ok_or_else(|| "it was released".to_owned())?;
                guard.leave(seconds(value(words, "rest")?)?).await?;
            }
            "transfer" => {
                let guard = guard().ok_or_else(|| "it was released".to_owned())?;
                let lease = words.get("lease").map(seconds).transpose()?;
                return Ok(json!(guard.transfer_to(text(words, "to")?, lease).await?));
            }
            "fenced" => {
                let guard = guard().ok_or_else(|| "it was released".to_owned())?;
                let _fenced = guard.fenced(Fence::Postgres)?;
            }
            "check" => hold.watch.check()?,
            "remaining" => {
                let left = hold.watch.remaining();
                return Ok(if left == Duration::MAX { Value::Null } else { json!(left.as_secs_f64()) });
            }
            "lost" => return Ok(json!(reason(&hold.watch.lost().await))),
            verb => return Err(format!("no such verb: {verb}").into()),
        }
        Ok(Value::Null)
    }

    fn locks(&self) -> Result<Locks, Failure> {
        locked(&self.locks).clone().ok_or_else(|| "nothing is open".to_owned().into())
    }
}

fn acquire(locks: &Locks, words: &Words) -> Result<Acquire, Failure> {
    let keys =
        |name| words.get(name).and_then(Value::as_array).map(|keys| keys.iter().filter_map(Value::as_str));
    let lock = match (keys("keys"), keys("any_of")) {
        (Some(keys), _) => locks.lock_all(keys),
        (None, Some(keys)) => locks.any_of(keys),
        // No key in place of one: Rust has no null.
        (None, None) => locks.lock(words.get("key").and_then(Value::as_str).unwrap_or_default()),
    };
    let mut acquire = lock.acquire();
    for (name, value) in words {
        acquire = match (&**name, value) {
            ("delay", _) if !words.contains_key("session") => {
                return Err(Error::Usage("a delay is that of a session").into());
            }
            ("id" | "do" | "hold" | "key" | "keys" | "any_of" | "delay", _) => acquire,
            ("lease", value) => acquire.lease(seconds(value)?),
            ("wait", value) => acquire.wait(seconds(value)?),
            ("stop_before", value) => acquire.stop_before(seconds(value)?),
            // A priority that is no number of its type is refused like one that is too high.
            ("priority", value) => {
                let priority = value.as_u64().and_then(|priority| u8::try_from(priority).ok());
                acquire.priority(priority.unwrap_or(u8::MAX))
            }
            ("renew", value) => acquire.renew(*value == true),
            ("shared" | "reentrant" | "session", Value::Bool(false)) => acquire,
            ("shared", _) => acquire.shared(),
            ("reentrant", _) => acquire.reentrant(),
            ("session", _) => acquire.session(words.get("delay").map_or(Ok(Duration::ZERO), seconds)?),
            ("permits", value) => {
                let [count, limit] = permits(value);
                acquire.permits(count, limit)
            }
            ("modes", Value::Object(modes)) => {
                modes.iter().fold(acquire, |acquire, (key, value)| acquire.mode(key.as_str(), mode(value)))
            }
            ("owner", Value::String(owner)) => acquire.owner(owner.as_str()),
            ("meta", Value::Object(fields)) => fields.iter().fold(acquire, |acquire, (field, value)| {
                acquire.meta(field.as_str(), value.as_str().unwrap_or_default())
            }),
            (name, _) => return Err(format!("unknown option: {name}").into()),
        };
    }
    Ok(acquire)
}

/// How many permits, and of how many.
fn permits(value: &Value) -> [u64; 2] {
    [0, 1].map(|at| value[at].as_u64().unwrap_or_default())
}

fn mode(value: &Value) -> Kind {
    let [count, limit] = permits(value);
    if *value == "shared" { Kind::Shared } else { Kind::Permits { count, limit } }
}

/// The URL of the server that is to be opened.
fn url(words: &Words) -> Result<String, Failure> {
    if let Some(path) = words.get("path").and_then(Value::as_str) {
        return Ok(format!("unix://{path}"));
    }
    let host = text(words, "host")?;
    let encode = |byte: u8| format!("%{byte:02x}");
    let password = words.get("password").and_then(Value::as_str).unwrap_or_default();
    let login = match password {
        "" => String::new(),
        password => format!(":{}@", password.bytes().map(encode).collect::<String>()),
    };
    match words.get("master").and_then(Value::as_str) {
        Some(master) => {
            let ports = words.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
            let sentinels: Vec<String> = ports.iter().map(|port| format!("{host}:{port}")).collect();
            Ok(format!("redis+sentinel://{login}{}/{master}", sentinels.join(",")))
        }
        None => Ok(format!("redis://{login}{host}:{}", value(words, "port")?)),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn value<'w>(words: &'w Words, name: &str) -> Result<&'w Value, Failure> {
    words.get(name).ok_or_else(|| format!("no {name}").into())
}

fn text<'w>(words: &'w Words, name: &str) -> Result<&'w str, Failure> {
    value(words, name)?.as_str().ok_or_else(|| format!("{name}: no text").into())
}

/// Times that no `Duration` has are those that no server grants.
fn seconds(value: &Value) -> Result<Duration, Failure> {
    let seconds = value.as_f64().ok_or_else(|| format!("{value}: no time"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| Error::Usage("a time is not negative").into())
}

/// What is told of who holds a lock.
fn fields(held: &Held) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let first = held.holders.first();
    let meta = first.map(|first| {
        first.meta.iter().map(|(field, value)| (text(field), text(value).into())).collect::<Words>()
    });
    json!({
        "key": text(&held.key),
        "owner": first.filter(|_| held.value_type.is_none()).map(|first| text(&first.owner)),
        "token": first.and_then(|first| first.token),
        "kind": held.kind,
        "holders": held.holders.len(),
        "permits": first.map(|first| first.permits),
        "waiters": held.waiters,
        "meta": meta,
    })
}

fn reason(lost: &Lost) -> &'static str {
    match lost {
        Lost::Broken(_) => "broken",
        Lost::Deleted => "deleted",
        Lost::Expired => "expired",
        Lost::Flushed => "flushed",
        Lost::NotHeld => "not-held",
        Lost::OtherProcess => "forked",
        Lost::Released => "released",
        Lost::Session => "session",
        Lost::Transferred => "transferred",
        Lost::Unrenewed => "unrenewed",
        _ => "unknown",
    }
}

fn failure(failure: Failure) -> Value {
    let error = match failure {
        Failure::Adapter(says) => return json!({ "kind": "adapter", "says": says }),
        Failure::Client(error) => error,
    };
    let kind = match &error {
        Error::Deadlock(_) => "deadlock",
        Error::Held(_) => "held",
        Error::Lost { .. } => "lost",
        Error::Refused(_) => "refused",
        Error::Unreachable { .. } => "unreachable",
        Error::Unsupported(_) => "not-supported",
        Error::Usage(_) => "invalid",
        _ => "adapter",
    };
    let holder = match &error {
        Error::Held(Some(held)) => fields(held),
        _ => Value::Null,
    };
    json!({ "kind": kind, "says": error.to_string(), "holder": holder })
}

fn say(id: &Value, answer: Result<Value, Failure>) {
    let answer = match answer {
        Ok(is) => json!({ "id": id, "is": is }),
        Err(failed) => json!({ "id": id, "fails": failure(failed) }),
    };
    let mut output = std::io::stdout().lock();
    // Nobody may read it any more.
    let _ = writeln!(output, "{answer}").and_then(|()| output.flush());
}

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let adapter = Arc::new(Adapter::default());
    for line in std::io::stdin().lock().lines() {
        let words: Words = serde_json::from_str(&line?)?;
        let adapter = Arc::clone(&adapter);
        runtime.spawn(async move {
            let answer = adapter.answer(&words).await;
            say(words.get("id").unwrap_or(&Value::Null), answer);
        });
    }
    runtime.shutdown_background();
    Ok(())
}
