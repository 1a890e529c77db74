//! A client of the engine without a socket, for one HTTP request that takes, renews or releases a lock.
//!
//! Owns    its end of a stream to the engine, and what it has received on it.
//! Rule    it is a client like any other: it has a place among `maxclients`, CLIENT LIST shows it with the address of the
//!         HTTP peer, it waits in queues, and its replies leave when the journal has what they tell of.
//! Rule    dropping it ends its connection. So a wait leaves its queue, and a grant that was not sent is given back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use redlatch_core::commands::Shared;
use redlatch_core::engine::question::Requester;
use redlatch_core::state::acl::Account;
use redlatch_proto::lock::ANSWER_MAX;
use redlatch_proto::resp::{Element, Protocol, Reply};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use super::access::TOKEN_USER;
use super::questions::ApiError;
use super::sampler::BYTES_MAX;
use super::{HttpContext, json};
use crate::handle::open_stream_as;
use crate::listener;

#[derive(Debug)]
pub(super) struct LockClient {
    stream: DuplexStream,
    received: Vec<u8>,
}

impl LockClient {
    /// Connects in the name of the peer that has sent the HTTP request.
    ///
    /// # Errors
    /// Its user has been removed since.
    pub(super) fn connect(context: &HttpContext, requester: &Requester) -> Result<Self, ApiError> {
        let (server, peer) = (&context.server, &requester.peer);
        let account = account_of(server.engine.shared(), &requester.user);
        let gone = || ApiError::Refused(StatusCode::FORBIDDEN, "the user has been removed".to_owned());
        let account = account.ok_or_else(gone)?;
        let address = peer.parse::<SocketAddr>().ok();
        let is_local = address.is_none_or(|address| address.ip().to_canonical().is_loopback());
        let enter = || {
            let mut session = listener::enter(server, peer.clone(), String::new(), address.is_none());
            session.enter_as(account, true);
            session.protocol = Protocol::Resp3;
            session.client.set_protocol(Protocol::Resp3);
            LIBRARY.clone_into(&mut session.client.names.lock().library);
            session
        };
        let stream = open_stream_as(server, &context.workers, is_local, enter);
        Ok(Self { stream, received: Vec::new() })
    }

    /// The reply to a command that answers at once, as JSON.
    ///
    /// # Errors
    /// The engine refuses it, or does not answer in time.
    pub(super) async fn call(&mut self, words: &[&[u8]]) -> Result<Value, ApiError> {
        self.call_and_wait(words, Duration::ZERO).await
    }

    /// Like [`LockClient::call`], of a command that may wait for so long.
    pub(super) async fn call_and_wait(&mut self, words: &[&[u8]], wait: Duration) -> Result<Value, ApiError> {
        let mut request = Vec::new();
        Reply::new(&mut request, Protocol::Resp2).bulks(words);
        let answered = async {
            self.stream.write_all(&request).await.map_err(|_| ended())?;
            self.reply().await
        };
        let late = |_| ApiError::Unavailable(format!("no answer within {ANSWER_MAX:?}"));
        timeout(wait + ANSWER_MAX, answered).await.map_err(late)?
    }

    /// The next reply. No message comes before it: this client holds no lock until it has its only grant.
    async fn reply(&mut self) -> Result<Value, ApiError> {
        let (mut end, mut lacking) = (0, 1);
        while lacking > 0 {
            let mut rest = &self.received[end..];
            match Element::take(&mut rest) {
                Some(element) => {
                    end = self.received.len() - rest.len();
                    lacking += if let Element::Aggregate(_, len) = element { len } else { 0 };
                    lacking -= 1;
                }
                None if self.received.len() > BYTES_MAX => {
                    return Err(ApiError::Unavailable("the answer is too long".into()));
                }
                None => {
                    let received = self.stream.read_buf(&mut self.received).await;
                    received.ok().filter(|received| *received > 0).ok_or_else(ended)?;
                }
            }
        }
        let reply: Vec<u8> = self.received.drain(..end).collect();
        match reply.strip_prefix(b"-") {
            Some(line) => Err(refused(String::from_utf8_lossy(line).trim_end().to_owned())),
            None => json::value(&reply).ok_or_else(ApiError::unexpected),
        }
    }
}

/// The account of who has sent the request; none for a user who has been removed since. The token is no user of the ACL: its
/// name gets no space, because CLIENT LIST separates its fields by spaces.
fn account_of(shared: &Shared, user: &Bytes) -> Option<Arc<Account>> {
    let acl = &shared.access.acl;
    if user == TOKEN_USER {
        let name = user.iter().map(|byte| if *byte == b' ' { b'-' } else { *byte }).collect();
        return Some(acl.trusted_account_of(&name));
    }
    acl.find(user)
}

/// What it means for an HTTP request that the engine refuses a command with this text.
fn refused(text: String) -> ApiError {
    let status = match text.split(' ').next() {
        Some("NOLEASE") => {
            return ApiError::Request("lease_ms: the lock has no lease: say how long it is to last".into());
        }
        Some("DEADLOCK" | "ERR" | "WRONGTYPE") => StatusCode::CONFLICT,
        Some("NOPERM") => StatusCode::FORBIDDEN,
        // Another node of the cluster serves the key.
        Some("ASK" | "MOVED") => StatusCode::MISDIRECTED_REQUEST,
        _ => return ApiError::Unavailable(text),
    };
    ApiError::Refused(status, text)
}

fn ended() -> ApiError {
    ApiError::Unavailable("the server ends, has no place for a further client, or has closed this one".into())
}

/// How CLIENT LIST and those who tell of clients name its library.
const LIBRARY: &str = "http";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Server;

    async fn client(settings: &[(&str, &str)], user: &'static [u8]) -> (Server, LockClient) {
        let builder =
            settings.iter().fold(Server::builder(), |builder, (name, value)| builder.set(*name, *value));
        let server = builder.start().await.unwrap();
        let context = HttpContext::new(server.context().clone(), Arc::clone(&server.workers), Vec::new());
        let requester = Requester { user: Bytes::from_static(user), peer: "127.0.0.1:9".to_owned() };
        let client = LockClient::connect(&context, &requester).unwrap();
        (server, client)
    }

    #[tokio::test]
    async fn replies_come_one_by_one_and_refusals_have_their_status() {
        let (_server, mut client) = client(&[], b"default").await;
        let taken = client.call(&[b"LOCK.ACQUIRE", b"a", b"me", b"LEASE", b"60000"]).await;
        assert_eq!(taken, Ok(json!({ "token": 1, "lease": 60_000, "waited": 0 })));
        assert_eq!(client.call(&[b"LOCK.ACQUIRE", b"a", b"you"]).await, Ok(Value::Null));
        let who = client.call(&[b"LOCK.WHO", b"a"]).await.unwrap();
        let holder = &who["holders"][0]["client"];
        assert_eq!((&holder["addr"], &holder["lib-name"]), (&json!("127.0.0.1:9"), &json!("http")));
        let refused = client.call(&[b"RPUSH", b"a", b"x"]).await;
        assert!(
            matches!(refused, Err(ApiError::Refused(StatusCode::CONFLICT, text)) if text.starts_with("WRONGTYPE "))
        );
        let large = vec![b'x'; 1 << 20];
        assert_eq!(client.call(&[b"SET", b"large", &large]).await, Ok(json!("OK")));
        let read = client.call(&[b"GET", b"large"]).await.unwrap();
        assert_eq!(read.as_str().map(str::len), Some(large.len()));
        assert_eq!(client.call(&[b"PING"]).await, Ok(json!("PONG")));
    }

    #[tokio::test]
    async fn it_has_the_name_of_its_user_and_a_place_among_maxclients() {
        let settings = [("maxclients", "1"), ("maxclients-reserved", "0")];
        let (server, mut first) = client(&settings, b"HTTP token").await;
        let list = first.call(&[b"CLIENT", b"LIST"]).await.unwrap();
        assert!(list.as_str().is_some_and(|list| list.contains(" user=HTTP-token ")), "{list}");
        let context = HttpContext::new(server.context().clone(), Arc::clone(&server.workers), Vec::new());
        let requester = |user| Requester { user: Bytes::from_static(user), ..Requester::default() };
        let mut second = LockClient::connect(&context, &requester(TOKEN_USER)).unwrap();
        assert_eq!(second.call(&[b"PING"]).await, Err(ended()));
        let removed = LockClient::connect(&context, &requester(b"removed")).unwrap_err();
        assert!(matches!(removed, ApiError::Refused(StatusCode::FORBIDDEN, _)), "and no trusted one");
    }

    #[test]
    fn what_another_node_serves_and_what_may_be_tried_again_have_statuses_of_their_own() {
        for (text, status) in [
            ("ERR the lock has 2 permits, not 3", StatusCode::CONFLICT),
            ("DEADLOCK a (held by x) -> b (held by y) -> a", StatusCode::CONFLICT),
            ("NOPERM no", StatusCode::FORBIDDEN),
            ("MOVED 1 10.0.0.2:7001", StatusCode::MISDIRECTED_REQUEST),
        ] {
            assert_eq!(refused(text.to_owned()), ApiError::Refused(status, text.to_owned()));
        }
        for text in ["OOM", "BUSY x", "MISCONF x", "QUARANTINE x", "UNBLOCKED x", "CLUSTERDOWN x"] {
            assert_eq!(refused(text.to_owned()), ApiError::Unavailable(text.to_owned()));
        }
    }
}
