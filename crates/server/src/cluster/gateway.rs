//! The JSON of etcd's gateway: requests and answers as text.
//!
//! Source  etcd's `rpc.proto` in the JSON form of protocol buffers: bytes are base64, 64-bit integers are strings, and a
//!         field with its default value is left out. The codes of errors are those of gRPC.

use std::num::ParseIntError;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use redlatch_core::replication::etcd::{Answer, Compare, EtcdError, KeyValue, Operation, Transaction};

/// The body of POST /v3/kv/txn.
pub(super) fn transaction(transaction: &Transaction) -> Bytes {
    let operations = |operations: &[Operation]| operations.iter().map(operation).collect::<Vec<_>>();
    let conditions: Vec<_> = transaction.conditions.iter().map(condition).collect();
    body(&json!({
        "compare": conditions,
        "success": operations(&transaction.then),
        "failure": operations(&transaction.otherwise),
    }))
}

/// The body of POST /v3/auth/authenticate.
pub(super) fn login(user: &str, password: &str) -> Bytes {
    body(&json!({ "name": user, "password": password }))
}

/// The body of POST /v3/kv/compaction: the revisions before this one are forgotten.
pub(super) fn compaction(revision: i64) -> Bytes {
    body(&json!({ "revision": revision.to_string() }))
}

/// The body of POST /v3/watch: every change of the keys that begin with this.
pub(super) fn watch(prefix: &[u8]) -> Bytes {
    let end = behind(prefix);
    body(&json!({ "create_request": { "key": text(prefix), "range_end": text(&end) } }))
}

fn body(value: &Value) -> Bytes {
    value.to_string().into()
}

fn text(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The first key behind all that begin with `prefix`, which ends in a byte below 0xff.
fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

fn condition(compare: &Compare) -> Value {
    match compare {
        Compare::ModRevision { key, revision } => {
            json!({ "target": "MOD", "result": "EQUAL", "key": text(key), "mod_revision": revision.to_string() })
        }
        Compare::Value { key, value } => {
            json!({ "target": "VALUE", "result": "EQUAL", "key": text(key), "value": text(value) })
        }
    }
}

fn operation(operation: &Operation) -> Value {
    let range = |key: &Bytes, end: &Option<Bytes>| match end {
        Some(end) => json!({ "key": text(key), "range_end": text(end) }),
        None => json!({ "key": text(key) }),
    };
    match operation {
        Operation::Put { key, value } => json!({ "request_put": { "key": text(key), "value": text(value) } }),
        Operation::Delete { key, end } => json!({ "request_delete_range": range(key, end) }),
        Operation::Read { key, end, limit } => {
            let mut range = range(key, end);
            range["limit"] = limit.to_string().into();
            json!({ "request_range": range })
        }
    }
}

/// Reads the answer to a transaction.
///
/// # Errors
/// What it is not: [`EtcdError::Unknown`], since the transaction may have happened.
pub(super) fn answer(body: &[u8]) -> Result<Answer, EtcdError> {
    let answer: TxnResponse = parsed(body)?;
    let ranges = answer.responses.into_iter().filter_map(|response| response.range);
    let reads = ranges.map(|range| range.kvs.into_iter().map(KeyValue::from).collect()).collect();
    let Header { cluster_id: etcd, revision } = answer.header;
    Ok(Answer { etcd, revision, has_succeeded: answer.succeeded, reads })
}

/// Reads the token that a login has got.
///
/// # Errors
/// There is none.
pub(super) fn token(body: &[u8]) -> Result<String, EtcdError> {
    #[derive(Deserialize)]
    struct AuthenticateResponse {
        token: String,
    }
    parsed(body).map(|answer: AuthenticateResponse| answer.token)
}

fn parsed<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, EtcdError> {
    serde_json::from_slice(body).map_err(|error| EtcdError::Unknown(format!("no answer of etcd's: {error}")))
}

/// Why a request has failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// The token of the login is not valid any more. The request has not been carried out.
    Login(String),
    /// Another endpoint may answer. The request may have been carried out.
    Elsewhere(String),
    /// The request has not been carried out, and is not by another endpoint.
    Refused(String),
}

/// Reads the body of an answer with another status than 200.
pub(super) fn failure(status: u16, body: &[u8]) -> Failure {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct ErrorBody {
        error: Option<String>,
        message: Option<String>,
        code: i32,
    }
    let error: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    let text = error.message.or(error.error).unwrap_or_else(|| format!("HTTP status {status}"));
    let text: String = text.chars().take(REASON_CHARS_MAX).collect();
    // It says so in plain text, and to every request.
    if status == 400 && String::from_utf8_lossy(body).contains("CommonName") {
        return Failure::Refused(COMMON_NAME.to_owned());
    }
    match (error.code, status) {
        (UNAUTHENTICATED, _) | (_, 401) => Failure::Login(text),
        // The user has changed since the login.
        (INVALID_ARGUMENT, _) if text.contains("revision of auth store is old") => Failure::Login(text),
        (
            INVALID_ARGUMENT | PERMISSION_DENIED | RESOURCE_EXHAUSTED | FAILED_PRECONDITION | OUT_OF_RANGE,
            _,
        ) => Failure::Refused(text),
        // A server that is not etcd, or one without the gateway.
        (_, 404 | 405) => Failure::Refused(format!("no gateway of etcd: {text}")),
        _ => Failure::Elsewhere(text),
    }
}

/// What is wrong with `cluster-etcd-cert`, if etcd does not take it.
const COMMON_NAME: &str = "the certificate of cluster-etcd-cert has a common name (CN), which etcd's \
                           gateway takes for a login that it does not support: use one without";

/// Characters of a reason that are kept.
const REASON_CHARS_MAX: usize = 300;

// Codes of gRPC.
const INVALID_ARGUMENT: i32 = 3;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

#[derive(Deserialize)]
struct TxnResponse {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default, deserialize_with = "integer")]
    cluster_id: u64,
    #[serde(default, deserialize_with = "integer")]
    revision: i64,
}

#[derive(Deserialize)]
struct Response {
    #[serde(rename = "response_range")]
    range: Option<RangeResponse>,
}

#[derive(Deserialize)]
struct RangeResponse {
    #[serde(default)]
    kvs: Vec<RangeKeyValue>,
}

#[derive(Deserialize)]
struct RangeKeyValue {
    #[serde(default, deserialize_with = "bytes")]
    key: Bytes,
    #[serde(default, deserialize_with = "bytes")]
    value: Bytes,
    #[serde(default, deserialize_with = "integer")]
    mod_revision: i64,
}

impl From<RangeKeyValue> for KeyValue {
    fn from(found: RangeKeyValue) -> Self {
        Self { key: found.key, value: found.value, mod_revision: found.mod_revision }
    }
}

fn integer<'de, D: Deserializer<'de>, N: Deserialize<'de> + FromStr<Err = ParseIntError>>(
    from: D,
) -> Result<N, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Integer<N> {
        Text(String),
        Number(N),
    }
    match Integer::deserialize(from)? {
        Integer::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Integer::Number(number) => Ok(number),
    }
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(from)?;
    STANDARD.decode(text).map(Bytes::from).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_written_as_etcd_reads_it() {
        let (key, value) = (Bytes::from_static(b"a"), Bytes::from_static(b"1"));
        let written = transaction(&Transaction {
            conditions: vec![
                Compare::ModRevision { key: key.clone(), revision: 7 },
                Compare::Value { key: key.clone(), value: value.clone() },
            ],
            then: vec![
                Operation::Put { key: key.clone(), value },
                Operation::Delete { key: key.clone(), end: None },
            ],
            otherwise: vec![Operation::Read { key, end: Some(Bytes::from_static(b"b")), limit: 2 }],
        });
        let written: Value = serde_json::from_slice(&written).unwrap();
        let expected = json!({
            "compare": [
                { "target": "MOD", "result": "EQUAL", "key": "YQ==", "mod_revision": "7" },
                { "target": "VALUE", "result": "EQUAL", "key": "YQ==", "value": "MQ==" },
            ],
            "success": [
                { "request_put": { "key": "YQ==", "value": "MQ==" } },
                { "request_delete_range": { "key": "YQ==" } },
            ],
            "failure": [{ "request_range": { "key": "YQ==", "range_end": "Yg==", "limit": "2" } }],
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn an_answer_may_leave_out_every_default() {
        let body = br#"{"header":{"cluster_id":"18446744073709551615","revision":"12","raft_term":"3"},
            "succeeded":true,"responses":[
            {"response_put":{"header":{"revision":"12"}}},
            {"response_range":{"header":{},"kvs":[{"key":"YQ==","mod_revision":"9","version":"1"}],"count":"1"}},
            {"response_range":{"header":{}}}]}"#;
        let found = KeyValue { key: Bytes::from_static(b"a"), value: Bytes::new(), mod_revision: 9 };
        let expected =
            Answer { etcd: u64::MAX, revision: 12, has_succeeded: true, reads: vec![vec![found], vec![]] };
        assert_eq!(answer(body), Ok(expected));
        assert!(!answer(br#"{"header":{}}"#).unwrap().has_succeeded);
        for other in ["", "{}", "[]", r#"{"header":{"revision":"x"}}"#] {
            assert!(matches!(answer(other.as_bytes()), Err(EtcdError::Unknown(_))), "{other}");
        }
    }

    #[test]
    fn only_an_error_that_says_so_is_a_refusal() {
        let fails = |status, body: &str| failure(status, body.as_bytes());
        let quota = r#"{"error":"etcdserver: mvcc: database space exceeded","code":8}"#;
        assert_eq!(
            fails(429, quota),
            Failure::Refused("etcdserver: mvcc: database space exceeded".to_owned())
        );
        let lost = r#"{"message":"etcdserver: request timed out","code":14}"#;
        assert_eq!(fails(503, lost), Failure::Elsewhere("etcdserver: request timed out".to_owned()));
        let token = r#"{"error":"etcdserver: invalid auth token","code":16}"#;
        assert_eq!(fails(401, token), Failure::Login("etcdserver: invalid auth token".to_owned()));
        assert!(matches!(
            fails(400, r#"{"error":"etcdserver: revision of auth store is old","code":3}"#),
            Failure::Login(_)
        ));
        assert!(matches!(fails(404, "Not Found"), Failure::Refused(_)));
        let named =
            "CommonName of client sending a request against gateway will be ignored and not used as expected";
        assert!(matches!(fails(400, named), Failure::Refused(text) if text.contains("cluster-etcd-cert")));
        assert_eq!(fails(502, "<html>"), Failure::Elsewhere("HTTP status 502".to_owned()));
    }

    #[test]
    fn a_watch_covers_the_keys_with_its_prefix() {
        let written: Value = serde_json::from_slice(&watch(b"/a/")).unwrap();
        assert_eq!(written, json!({ "create_request": { "key": "L2Ev", "range_end": "L2Ew" } }));
    }
}
