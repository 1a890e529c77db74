//! What a request of `POST /api/locks/KEY` asks for: the key is in its path, the rest in its body.
//!
//! Rule    an error names the field, and comes before anything happens. A field that the action does not have is an error.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use bytes::Bytes;
use hyper::Request;
use redlatch_proto::limits::HTTP_WAIT_MS_MAX;
use redlatch_proto::lock::{KEYS_MAX, MILLIS_MAX, OWNER_BYTES_MAX};
use redlatch_proto::log_name::readable;
use redlatch_proto::options::{Given, Kind, Options, ROWS, Row, Takes};
use serde_json::{Map, Value};

use super::json::{self, bytes_of};
use super::parameters::{Parameters, decoded};
use super::questions::ApiError;

/// What comes before the key.
pub(super) const PATH: &str = "/api/locks/";

/// The lock, by the owner's name, and what is to happen to it.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct HoldRequest {
    pub(super) key: Vec<u8>,
    pub(super) owner: Vec<u8>,
    pub(super) action: Action,
}

#[derive(Debug, Eq, PartialEq)]
pub(super) enum Action {
    /// Of the hold with this token, if there is one.
    Release {
        token: Option<u64>,
    },
    /// Without a lease: that which the lock had.
    Renew {
        token: Option<u64>,
        lease_ms: Option<u64>,
    },
    Take(Terms),
}

/// How a lock is taken.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Terms {
    /// `None`: the setting `lock-lease`.
    pub(super) lease_ms: Option<u64>,
    pub(super) wait_ms: u64,
    /// The keys of which one is to be taken, each once, that in the path first; empty: that in the path.
    pub(super) keys: Vec<Vec<u8>>,
    options: Options,
}

impl HoldRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`ApiError::Request`] for what is wrong.
    pub(super) fn read(request: &Request<Bytes>) -> Result<Self, ApiError> {
        Parameters::of(request, &[])?;
        let path = request.uri().path();
        let key = decoded(path.strip_prefix(PATH).unwrap_or_default())?;
        if key.is_empty() {
            return Err(wrong(format!("the path must name a key: {PATH}KEY")));
        }
        let fields = Fields::read(request.body())?;
        let action = match fields.text("action").map_err(wrong)? {
            Some("release") => {
                fields.check("release", RELEASE)?;
                Action::Release { token: fields.token()? }
            }
            Some("renew") => {
                fields.check("renew", RENEW)?;
                Action::Renew { token: fields.token()?, lease_ms: fields.lease_ms()? }
            }
            Some("take") => {
                fields.check("take", &[TAKE, &ROWS.map(|row| row.name)].concat())?;
                Action::Take(fields.terms(&key)?)
            }
            _ => return Err(wrong("action: must be take, renew or release")),
        };
        Ok(Self { key, owner: fields.owner()?, action })
    }
}

impl Terms {
    /// The words of LOCK.ACQUIRE, or of LOCK.MACQUIRE for one of several keys.
    pub(super) fn words(&self, key: &[u8], owner: &[u8]) -> Vec<Vec<u8>> {
        let mut words = match &self.keys[..] {
            [] => vec![b"LOCK.ACQUIRE".to_vec(), key.to_vec()],
            keys => vec![b"LOCK.MACQUIRE".to_vec(), number(keys.len() as u64)],
        };
        words.extend(self.keys.iter().cloned());
        words.extend([owner.to_vec(), b"WAIT".to_vec(), number(self.wait_ms)]);
        if let Some(lease_ms) = self.lease_ms {
            words.extend([b"LEASE".to_vec(), number(lease_ms)]);
        }
        if self.keys.is_empty() {
            words.extend(self.options.words());
            return words;
        }
        words.extend([b"ANY".to_vec(), number(1)]);
        // Each of the keys is of this kind.
        let kind = self.options.kind;
        for at in (1..=self.keys.len() as u64).filter(|_| kind != Kind::Exclusive) {
            words.extend([b"MODE".to_vec(), number(at)].into_iter().chain(kind.words()));
        }
        words.extend(Options { kind: Kind::Exclusive, ..self.options.clone() }.words());
        words
    }
}

/// The fields of a body.
struct Fields(Value);

impl Fields {
    fn read(body: &[u8]) -> Result<Self, ApiError> {
        let wrong_form = |why: String| wrong(format!("the body must be a JSON object{why}"));
        let body = json::read(body).map_err(|error| wrong_form(format!(": {error}")))?;
        let Value::Object(mut fields) = body else { return Err(wrong_form(String::new())) };
        // Programs write null for what they leave out.
        fields.retain(|_, value| !value.is_null());
        Ok(Self(Value::Object(fields)))
    }

    /// Checks that the action has all these fields.
    fn check(&self, action: &str, known: &[&str]) -> Result<(), ApiError> {
        let mut names = self.0.as_object().into_iter().flat_map(Map::keys);
        let is_known = |name: &str| known.contains(&name) || COMMON.contains(&name);
        match names.find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => {
                let known = [COMMON, known].concat().join(", ");
                Err(wrong(format!("unknown field '{}': {action} has {known}", readable(name.as_bytes()))))
            }
        }
    }

    /// A field, if it is there and is what it must be.
    fn get<'a, T>(
        &'a self,
        name: &str,
        read: impl Fn(&'a Value) -> Option<T>,
        must: &str,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| format!("{name}: must be {must}"))
    }

    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        self.get(name, Value::as_str, "a text")
    }

    fn texts(&self, name: &str) -> Result<Vec<(String, String)>, String> {
        let read = |value: &Value| {
            let fields = value.as_object()?.iter();
            fields.map(|(field, value)| Some((field.clone(), value.as_str()?.to_owned()))).collect()
        };
        self.get(name, read, "an object of texts").map(Option::unwrap_or_default)
    }

    fn within(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, String> {
        let must = format!("a whole number from {} to {}", range.start(), range.end());
        let read = |value: &Value| value.as_u64().filter(|number| range.contains(number));
        self.get(name, read, &must)
    }

    fn owner(&self) -> Result<Vec<u8>, ApiError> {
        json::check_once(&self.0, "owner").map_err(wrong)?;
        let owner = bytes_of(&self.0, "owner").filter(|owner| (1..=OWNER_BYTES_MAX).contains(&owner.len()));
        owner.ok_or_else(|| wrong(format!("owner: must be a text of 1 to {OWNER_BYTES_MAX} bytes")))
    }

    fn token(&self) -> Result<Option<u64>, ApiError> {
        self.within("token", 1..=i64::MAX.unsigned_abs()).map_err(wrong)
    }

    fn lease_ms(&self) -> Result<Option<u64>, ApiError> {
        self.within("lease_ms", 1..=MILLIS_MAX).map_err(wrong)
    }

    fn any_of(&self) -> Result<Vec<Vec<u8>>, String> {
        let key = |key: &Value| key.as_str().filter(|key| !key.is_empty()).map(|key| key.as_bytes().to_vec());
        let read = |value: &Value| {
            let keys = value.as_array().filter(|keys| (1..KEYS_MAX).contains(&keys.len()))?;
            keys.iter().map(key).collect()
        };
        let must = format!("a list of 1 to {} texts that are not empty", KEYS_MAX - 1);
        self.get("any_of", read, &must).map(Option::unwrap_or_default)
    }

    fn terms(&self, key: &[u8]) -> Result<Terms, ApiError> {
        let (mut keys, options) = (self.any_of().map_err(wrong)?, self.options().map_err(wrong)?);
        if !keys.is_empty() {
            if !options.meta.is_empty() {
                return Err(wrong("any_of: excludes why and meta"));
            }
            if std::str::from_utf8(key).is_err() {
                return Err(wrong("any_of: needs a key in the path that is UTF-8, too"));
            }
            keys.insert(0, key.to_vec());
            let mut known = HashSet::new();
            keys.retain(|key| known.insert(key.clone()));
        }
        let wait_ms = self.within("wait_ms", 0..=HTTP_WAIT_MS_MAX).map_err(wrong)?.unwrap_or(0);
        Ok(Terms { lease_ms: self.lease_ms()?, wait_ms, keys, options })
    }

    fn options(&self) -> Result<Options, String> {
        let mut given = Given::default();
        for Row { name, takes, .. } in ROWS {
            match takes {
                Takes::Fields(note) => note(&mut given, self.texts(name)?),
                Takes::Flag(note) => {
                    note(&mut given, self.get(name, Value::as_bool, "true or false")?.unwrap_or_default());
                }
                Takes::Number(least, most, note) => note(&mut given, self.within(name, least..=most)?),
                Takes::Text(note) => note(&mut given, self.text(name)?.map(str::to_owned)),
            }
        }
        given.options(str::to_owned)
    }
}

/// A number as a command has it.
pub(super) fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn wrong(text: impl Into<String>) -> ApiError {
    ApiError::Request(text.into())
}

/// The fields of each action, those of all of them first. A `take` also has the options that all faces have.
const COMMON: &[&str] = &["action", "owner", "owner_base64"];
const RELEASE: &[&str] = &["token"];
const RENEW: &[&str] = &["lease_ms", "token"];
const TAKE: &[&str] = &["lease_ms", "wait_ms", "any_of"];

#[cfg(test)]
mod tests {
    use redlatch_proto::lock::META_BYTES_MAX;
    use serde_json::json;

    use super::*;

    fn read(target: &str, body: impl ToString) -> Result<HoldRequest, String> {
        let request = Request::builder().uri(target).body(Bytes::from(body.to_string())).unwrap();
        HoldRequest::read(&request).map_err(|error| error.text().to_owned())
    }

    #[test]
    fn the_key_is_the_rest_of_the_path_and_both_names_are_bytes() {
        let body = json!({ "action": "release", "owner_base64": "bWX+" });
        let asked = read("/api/locks/lock%3a%ff/+a//b%2f", body).unwrap();
        assert_eq!((&asked.key[..], &asked.owner[..]), (&b"lock:\xff/+a//b/"[..], &b"me\xfe"[..]));
        assert_eq!(asked.action, Action::Release { token: None });
    }

    #[test]
    fn terms_become_the_words_of_a_command() {
        let words = |body: Value| match read("/api/locks/a", body).unwrap().action {
            Action::Take(terms) => String::from_utf8(terms.words(b"a", b"me").join(&b' ')).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            words(json!({ "action": "take", "owner": "me", "shared": null })),
            "LOCK.ACQUIRE a me WAIT 0"
        );
        let body = json!({ "action": "take", "owner": "me", "lease_ms": 5, "wait_ms": 7, "shared": true });
        assert_eq!(words(body), "LOCK.ACQUIRE a me WAIT 7 LEASE 5 SHARED");
        let body = json!({
            "action": "take", "owner": "me", "permits": 2, "of": 3, "why": "w", "meta": { "job": "7" },
        });
        assert_eq!(words(body), "LOCK.ACQUIRE a me WAIT 0 PERMITS 2 OF 3 META job 7 reason w");
        let body =
            json!({ "action": "take", "owner": "me", "any_of": ["b", "a", "b"], "permits": 1, "of": 2 });
        let expected = "LOCK.MACQUIRE 2 a b me WAIT 0 ANY 1 MODE 1 PERMITS 1 OF 2 MODE 2 PERMITS 1 OF 2";
        assert_eq!(words(body), expected);
        let body = json!({ "action": "take", "owner": "me", "any_of": ["b"], "lease_ms": 5 });
        assert_eq!(words(body), "LOCK.MACQUIRE 2 a b me WAIT 0 LEASE 5 ANY 1");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = |bytes: usize| "x".repeat(bytes);
        let many: Map<String, Value> = (0..65).map(|n| (n.to_string(), json!(""))).collect();
        for (more, expected) in [
            (json!({ "action": "keep" }), "action: must be take, renew or release"),
            (json!({ "action": null }), "action: "),
            (json!({ "action": 7 }), "action: must be a text"),
            (json!({ "owner": "" }), "owner: must be a text of 1 to 1024 bytes"),
            (json!({ "owner": null }), "owner: "),
            (json!({ "owner": 7 }), "owner: "),
            (json!({ "owner": long(1025) }), "owner: "),
            (json!({ "owner_base64": "?" }), "owner: "),
            (
                json!({ "lease": 5 }),
                "unknown field 'lease': take has action, owner, owner_base64, lease_ms, ",
            ),
            (json!({ "token": 5 }), "unknown field 'token': take has "),
            (json!({ "action": "renew", "wait_ms": 5 }), "unknown field 'wait_ms': renew has "),
            (json!({ "action": "release", "lease_ms": 5 }), "unknown field 'lease_ms': release has "),
            (json!({ "action": "release", "token": 0 }), "token: must be a whole number from 1 to "),
            (json!({ "lease_ms": 0 }), "lease_ms: must be a whole number from 1 to 70368744177664"),
            (json!({ "lease_ms": 1_u64 << 47 }), "lease_ms: "),
            (json!({ "lease_ms": "10m" }), "lease_ms: "),
            (json!({ "lease_ms": 1.5 }), "lease_ms: "),
            (json!({ "wait_ms": -1 }), "wait_ms: must be a whole number from 0 to 600000"),
            (json!({ "wait_ms": 600_001 }), "wait_ms: "),
            (json!({ "shared": "yes" }), "shared: must be true or false"),
            (json!({ "shared": true, "permits": 1, "of": 2 }), "shared: "),
            (json!({ "permits": 1 }), "permits: needs of"),
            (json!({ "of": 1 }), "of: needs permits"),
            (json!({ "permits": 3, "of": 2 }), "permits: must be no more than of"),
            (json!({ "permits": 0, "of": 2 }), "permits: "),
            (json!({ "permits": 1, "of": 1_u64 << 32 }), "of: "),
            (json!({ "meta": [] }), "meta: must be an object of texts"),
            (json!({ "meta": { "a": 1 } }), "meta: must be an object of texts"),
            (json!({ "why": 1 }), "why: must be a text"),
            (json!({ "why": "a", "meta": { "reason": "b" } }), "why: is the field 'reason' of meta"),
            (json!({ "why": long(4091) }), "meta and why: at most 64 fields of 4096 bytes in all"),
            (json!({ "meta": many }), "meta and why: "),
            (json!({ "any_of": [] }), "any_of: must be a list of 1 to 999 texts that are not empty"),
            (json!({ "any_of": "b" }), "any_of: must be a list"),
            (json!({ "any_of": ["b", 7] }), "any_of: must be a list"),
            (json!({ "any_of": ["b", ""] }), "any_of: must be a list"),
            (json!({ "any_of": vec!["b"; 1_000] }), "any_of: must be a list"),
            (json!({ "any_of": ["b"], "why": "w" }), "any_of: excludes why and meta"),
            (json!({ "any_of": ["b"], "meta": { "a": "b" } }), "any_of: excludes why and meta"),
            (json!({ "action": "renew", "any_of": ["b"] }), "unknown field 'any_of': renew has "),
        ] {
            let mut body = json!({ "action": "take", "owner": "me" });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let said = read("/api/locks/a", &body).expect_err("it is wrong");
            assert!(said.starts_with(expected), "{body}: {said}");
        }
        for body in ["", "[]", "7", "{", "{}x", "action=take&owner=me", "\u{0}"] {
            let said = read("/api/locks/a", body).expect_err("it is wrong");
            assert!(said.starts_with("the body must be a JSON object"), "{body}: {said}");
        }
        for (body, name) in [
            (r#"{"action":"take","owner":"me","owner":"me"}"#, "owner"),
            (r#"{"action":"take","owner":"me","meta":{"a":"1","a":"2"}}"#, "a"),
        ] {
            let said = read("/api/locks/a", body).expect_err("it is wrong");
            assert!(
                said.starts_with(&format!("the body must be a JSON object: '{name}' is given twice")),
                "{said}"
            );
        }
        let body = json!({ "action": "take", "owner": "me", "owner_base64": "bWU=" });
        assert_eq!(read("/api/locks/a", body), Err("owner: is given twice, also as owner_base64".to_owned()));
        let body = json!({ "action": "take", "owner": "me" });
        for target in ["/api/locks/%ZZ", "/api/locks/a%", "/api/locks/a%4", "/api/locks/%%41"] {
            let said = read(target, &body).expect_err("it is wrong");
            assert_eq!(said, "the target must have two hexadecimal digits after each %", "{target}");
        }
        let any = json!({ "action": "take", "owner": "me", "any_of": ["b"] });
        assert!(read("/api/locks/a%ff", any).unwrap_err().starts_with("any_of: needs a key in the path"));
        assert_eq!(read("/api/locks/", &body), Err("the path must name a key: /api/locks/KEY".to_owned()));
        assert!(read("/api/locks/a?owner=me", &body).unwrap_err().starts_with("parameter 'owner'"));
    }

    #[test]
    fn the_longest_that_is_allowed_is_allowed() {
        let meta: Map<String, Value> = (0..63).map(|n| (format!("{n:02}"), json!(""))).collect();
        let why = "x".repeat(META_BYTES_MAX - 2 * 63 - "reason".len());
        let body = json!({
            "action": "take", "owner": "o".repeat(OWNER_BYTES_MAX), "lease_ms": MILLIS_MAX, "wait_ms": HTTP_WAIT_MS_MAX,
            "meta": meta, "why": why,
        });
        assert!(read("/api/locks/a", body).is_ok());
    }
}
