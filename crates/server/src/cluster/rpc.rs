//! What a node calls in etcd over gRPC: the messages, and what an error says of a call.
//!
//! Source  etcd's `rpc.proto` and `kv.proto`: the numbers of the fields, and the paths. A field that nothing reads here is
//!         left out, and the members of a `oneof` are optional fields: the encoding allows both.
//! Why     by hand: what makes these types from the files takes `protoc`, and so does each crate with a client of etcd.

use std::error::Error;

use bytes::Bytes;
use prost::Message;
use redlatch_core::replication::etcd::{Answer, Compare, KeyValue, Operation, Transaction};
use tonic::{Code, Status};

/// The message that a call begins with.
pub(super) trait Call: Message + Clone + 'static {
    /// The service and the method.
    const PATH: &'static str;
    /// Whether etcd answers until the caller ends the call.
    const IS_OPEN: bool = false;
    type Answer: Message + Default + 'static;
}

/// A transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Condition>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    failure: Vec<RequestOp>,
}

impl Call for TxnRequest {
    const PATH: &'static str = "/etcdserverpb.KV/Txn";
    type Answer = TxnResponse;
}

/// A condition: `result` is that of EQUAL, which is 0.
#[derive(Clone, PartialEq, Message)]
struct Condition {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    key: Bytes,
    #[prost(int64, optional, tag = "6")]
    mod_revision: Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    value: Option<Bytes>,
}

const TARGET_MOD: i32 = 2;
const TARGET_VALUE: i32 = 3;

#[derive(Clone, PartialEq, Message)]
struct RequestOp {
    #[prost(message, optional, tag = "1")]
    range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    delete: Option<DeleteRangeRequest>,
    #[prost(message, optional, tag = "4")]
    txn: Option<TxnRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    range_end: Bytes,
    #[prost(int64, tag = "3")]
    limit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    range_end: Bytes,
}

/// The answer to a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    cluster_id: u64,
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    range: Option<RangeResponse>,
    #[prost(message, optional, tag = "4")]
    txn: Option<TxnResponse>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<Found>,
}

/// A key that was read.
#[derive(Clone, PartialEq, Message)]
struct Found {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(int64, tag = "3")]
    mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
}

/// Revisions before this one are forgotten.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

impl Call for CompactionRequest {
    const PATH: &'static str = "/etcdserverpb.KV/Compact";
    type Answer = Nothing;
}

/// A login.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

impl Call for AuthenticateRequest {
    const PATH: &'static str = "/etcdserverpb.Auth/Authenticate";
    type Answer = AuthenticateResponse;
}

/// What a login has got.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

/// A watch of a range of keys.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreateRequest>,
}

impl Call for WatchRequest {
    const PATH: &'static str = "/etcdserverpb.Watch/Watch";
    const IS_OPEN: bool = true;
    type Answer = Nothing;
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    range_end: Bytes,
}

/// An answer that says by its arrival what there is to know.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}

impl From<&Transaction> for TxnRequest {
    fn from(from: &Transaction) -> Self {
        Self {
            compare: from.conditions.iter().map(Condition::from).collect(),
            success: from.then.iter().map(RequestOp::from).collect(),
            failure: from.otherwise.iter().map(RequestOp::from).collect(),
        }
    }
}

impl TxnRequest {
    /// Several transactions in one: each has its own conditions, and no two write the same key.
    pub(super) fn of_all<'a>(transactions: impl Iterator<Item = &'a Transaction>) -> Self {
        let nested = |from| RequestOp { txn: Some(Self::from(from)), ..RequestOp::default() };
        Self { success: transactions.map(nested).collect(), ..Self::default() }
    }
}

impl TxnResponse {
    /// The answers to the transactions of [`TxnRequest::of_all`], in their order. The header of the call is that of each.
    pub(super) fn into_all(self) -> Vec<Answer> {
        let header = self.header;
        let nested = self.responses.into_iter().filter_map(|response| response.txn);
        nested.map(|answer| Self { header: header.clone(), ..answer }.into()).collect()
    }
}

impl From<&Compare> for Condition {
    fn from(compare: &Compare) -> Self {
        match compare.clone() {
            Compare::ModRevision { key, revision } => {
                Self { target: TARGET_MOD, key, mod_revision: Some(revision), value: None }
            }
            Compare::Value { key, value } => {
                Self { target: TARGET_VALUE, key, mod_revision: None, value: Some(value) }
            }
        }
    }
}

impl From<&Operation> for RequestOp {
    fn from(operation: &Operation) -> Self {
        match operation.clone() {
            Operation::Put { key, value } => Self { put: Some(PutRequest { key, value }), ..Self::default() },
            Operation::Delete { key, end } => {
                let range_end = end.unwrap_or_default();
                Self { delete: Some(DeleteRangeRequest { key, range_end }), ..Self::default() }
            }
            Operation::Read { key, end, limit } => {
                let range_end = end.unwrap_or_default();
                Self { range: Some(RangeRequest { key, range_end, limit: limit.into() }), ..Self::default() }
            }
        }
    }
}

impl From<TxnResponse> for Answer {
    fn from(answer: TxnResponse) -> Self {
        let ranges = answer.responses.into_iter().filter_map(|response| response.range);
        let reads = ranges.map(|range| range.kvs.into_iter().map(KeyValue::from).collect()).collect();
        let ResponseHeader { cluster_id: etcd, revision } = answer.header.unwrap_or_default();
        Self { etcd, revision, has_succeeded: answer.succeeded, reads }
    }
}

impl From<Found> for KeyValue {
    fn from(Found { key, value, mod_revision }: Found) -> Self {
        Self { key, value, mod_revision }
    }
}

impl WatchRequest {
    /// A watch of all keys that begin with `prefix`, which ends in a byte below 0xff.
    pub(super) fn of_prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        let create = WatchCreateRequest { key: Bytes::copy_from_slice(prefix), range_end: end.into() };
        Self { create: Some(create) }
    }
}

/// Why a call has failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// The token of the login is not valid any more. The call has not been carried out.
    Login(String),
    /// Another endpoint may answer. The call may have been carried out.
    Elsewhere(String),
    /// The call has not been carried out, and is not by another endpoint.
    Refused(String),
}

/// What an error says of the call. Only etcd's own may be a refusal: those of the connection have a source.
pub(super) fn failure(status: &Status) -> Failure {
    let text: String = status.message().chars().take(REASON_CHARS_MAX).collect();
    match status.code() {
        _ if status.source().is_some() => Failure::Elsewhere(causes(status)),
        Code::Unauthenticated => Failure::Login(text),
        // The user has changed since the login.
        Code::InvalidArgument if text.contains("revision of auth store is old") => Failure::Login(text),
        Code::InvalidArgument
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange => Failure::Refused(text),
        // Another server that speaks gRPC.
        Code::Unimplemented => Failure::Refused(format!("this is not etcd: {text}")),
        _ => Failure::Elsewhere(text),
    }
}

/// Characters of a reason that are kept.
const REASON_CHARS_MAX: usize = 300;

/// An error with what has caused it: the alert of TLS, for example.
pub(super) fn causes(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_written_as_etcd_reads_it() {
        let (key, value) = (Bytes::from_static(b"a"), Bytes::from_static(b"1"));
        let written = TxnRequest::from(&Transaction {
            conditions: vec![
                Compare::ModRevision { key: key.clone(), revision: 0 },
                Compare::Value { key: key.clone(), value: value.clone() },
            ],
            then: vec![
                Operation::Put { key: key.clone(), value },
                Operation::Delete { key: key.clone(), end: None },
            ],
            otherwise: vec![Operation::Read { key, end: Some(Bytes::from_static(b"b")), limit: 2 }],
        });
        let conditions = b"\x0a\x07\x10\x02\x1a\x01a\x30\x00\x0a\x08\x10\x03\x1a\x01a\x3a\x011";
        let then = b"\x12\x08\x12\x06\x0a\x01a\x12\x011\x12\x05\x1a\x03\x0a\x01a";
        let otherwise = b"\x1a\x0a\x0a\x08\x0a\x01a\x12\x01b\x18\x02";
        assert_eq!(written.encode_to_vec(), [&conditions[..], then, otherwise].concat());
    }

    #[test]
    fn an_answer_may_leave_out_every_default() {
        let header = b"\x0a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x18\x0c\x20\x03";
        let of_put = b"\x1a\x02\x12\x00";
        let of_reads = b"\x1a\x0d\x0a\x0b\x12\x07\x0a\x01a\x18\x09\x20\x01\x20\x01\x1a\x02\x0a\x00";
        let bytes = [&header[..], b"\x10\x01", of_put, of_reads].concat();
        let found = KeyValue { key: Bytes::from_static(b"a"), value: Bytes::new(), mod_revision: 9 };
        let expected =
            Answer { etcd: u64::MAX, revision: 12, has_succeeded: true, reads: vec![vec![found], vec![]] };
        assert_eq!(TxnResponse::decode(&bytes[..]).map(Answer::from), Ok(expected));
        assert_eq!(TxnResponse::decode(&b""[..]).map(Answer::from), Ok(Answer::default()));
    }

    #[test]
    fn transactions_in_one_are_written_as_etcd_reads_them() {
        let put = |value| Transaction {
            then: vec![Operation::Put { key: Bytes::from_static(b"a"), value: Bytes::from_static(value) }],
            ..Transaction::default()
        };
        let written = TxnRequest::of_all([put(b"1"), put(b"2")].iter());
        let nested = |value| [&b"\x12\x0c\x22\x0a\x12\x08\x12\x06\x0a\x01a\x12\x01"[..], value].concat();
        assert_eq!(written.encode_to_vec(), [nested(&b"1"[..]), nested(b"2")].concat());
    }

    #[test]
    fn only_an_error_of_etcd_that_says_so_is_a_refusal() {
        let full = Status::resource_exhausted("etcdserver: mvcc: database space exceeded");
        assert_eq!(failure(&full), Failure::Refused("etcdserver: mvcc: database space exceeded".to_owned()));
        let lost = Status::unavailable("etcdserver: request timed out");
        assert_eq!(failure(&lost), Failure::Elsewhere("etcdserver: request timed out".to_owned()));
        let token = Status::unauthenticated("etcdserver: invalid auth token");
        assert_eq!(failure(&token), Failure::Login("etcdserver: invalid auth token".to_owned()));
        let old = Status::invalid_argument("etcdserver: revision of auth store is old");
        assert!(matches!(failure(&old), Failure::Login(_)));
        assert!(matches!(failure(&Status::unimplemented("unknown service")), Failure::Refused(_)));
        let broken = Status::from_error(std::io::Error::other("reset").into());
        assert!(matches!(failure(&broken), Failure::Elsewhere(text) if text.contains("reset")));
    }

    #[test]
    fn a_watch_covers_the_keys_with_its_prefix() {
        let WatchCreateRequest { key, range_end } = WatchRequest::of_prefix(b"/a/").create.unwrap();
        assert_eq!((&key[..], &range_end[..]), (&b"/a/"[..], &b"/a0"[..]));
    }
}
