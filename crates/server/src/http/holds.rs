//! `POST /api/locks/KEY`: takes, renews and releases a lock, by its owner's name. docs/http.md is the reference.
//!
//! Rule    a request whose answer was lost is sent again: the same owner gets the same grant, and a release of what is not
//!         held is no error.
//! Rule    requests that wait are bounded, and take no place from those that do not: [`HTTP_WAITS_MAX`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Request, Response, StatusCode};
use redlatch_core::engine::question::Requester;
use redlatch_proto::limits::HTTP_WAITS_MAX;
use redlatch_proto::log_name::readable;
use serde_json::{Map, Value, json};

use super::HttpContext;
use super::hold_request::{Action, HoldRequest, Terms, number};
use super::json::insert;
use super::lock_client::LockClient;
use super::questions::{ApiError, response_with};
use super::responses::Body;
use super::sampler::unix_ms;

/// Takes, renews or releases a lock.
pub(super) async fn change(context: Arc<HttpContext>, request: Request<Bytes>) -> Response<Body> {
    response_with(changed(&context, &request).await)
}

async fn changed(context: &HttpContext, request: &Request<Bytes>) -> Result<(StatusCode, Value), ApiError> {
    let asked = HoldRequest::read(request)?;
    let full = |_| ApiError::Unavailable(format!("{HTTP_WAITS_MAX} requests wait already"));
    let _place = match &asked.action {
        Action::Take(terms) if terms.wait_ms > 0 => Some(context.waits.try_acquire().map_err(full)?),
        _ => None,
    };
    let requester = request.extensions().get::<Requester>().cloned().unwrap_or_default();
    let client = LockClient::connect(context, &requester)?;
    let mut change = Change { context, client, asked: &asked, key: &asked.key };

    match &asked.action {
        Action::Release { token } => change.release(*token).await,
        Action::Renew { token, lease_ms } => change.renew(*token, *lease_ms).await,
        Action::Take(terms) => change.take(terms).await,
    }
}

/// A change of a lock, on its way.
struct Change<'r> {
    context: &'r HttpContext,
    client: LockClient,
    asked: &'r HoldRequest,
    /// The key in the path, or the one that was got.
    key: &'r [u8],
}

impl<'r> Change<'r> {
    async fn take(&mut self, terms: &'r Terms) -> Result<(StatusCode, Value), ApiError> {
        let (key, owner) = (self.key, &self.asked.owner);
        let words = terms.words(key, owner);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let sent_ms = unix_ms(self.context);
        let mut reply = self.client.call_and_wait(&words, Duration::from_millis(terms.wait_ms)).await?;
        if !reply.is_null() {
            if !terms.keys.is_empty() {
                self.key = got(&mut reply, &terms.keys).ok_or_else(ApiError::unexpected)?;
            }
            return self.granted(&reply, sent_ms);
        }
        // The lock is refused in any case: why may be unknown.
        let mut held = self.client.call(&[b"LOCK.WHO", key]).await.unwrap_or_default();
        if let Some(holders) = held.get_mut("holders").and_then(Value::as_array_mut) {
            holders.truncate(HOLDERS_MAX);
        }
        let error = match terms.keys.len() {
            0 => format!("not taken: {} is held", readable(key)),
            count => format!("not taken: none of {count} locks is free"),
        };
        Ok((StatusCode::CONFLICT, self.answer(false, [("error", error.into()), ("held", held)])))
    }

    async fn renew(
        &mut self,
        token: Option<u64>,
        lease_ms: Option<u64>,
    ) -> Result<(StatusCode, Value), ApiError> {
        let (key, owner) = (self.key, &self.asked.owner);
        let (with_token, lease) = (words_of_token(token), lease_ms.map(number));
        let mut words: Vec<&[u8]> = vec![b"LOCK.EXTEND", key, owner];
        match &lease {
            Some(lease) => words.extend([&b"LEASE"[..], lease]),
            None => words.push(b"SAME"),
        }
        words.extend(with_token.iter().map(Vec::as_slice));
        let sent_ms = unix_ms(self.context);
        let reply = self.client.call(&words).await?;
        if !reply.is_null() {
            return self.granted(&reply, sent_ms);
        }
        let token = token.map(|token| format!(" with the token {token}")).unwrap_or_default();
        let error = format!("not renewed: {} does not hold {}{token}", readable(owner), readable(key));
        let explained = self.explained().await;
        let more = [("error", error.into()), ("explained", explained)];
        Ok((StatusCode::CONFLICT, self.answer(false, more)))
    }

    async fn release(&mut self, token: Option<u64>) -> Result<(StatusCode, Value), ApiError> {
        let (key, owner) = (self.key, &self.asked.owner);
        let with_token = words_of_token(token);
        let mut words: Vec<&[u8]> = vec![b"LOCK.RELEASE", key, owner];
        words.extend(with_token.iter().map(Vec::as_slice));
        let answer = match self.client.call(&words).await? == 1 {
            true => self.answer(true, []),
            false => {
                let explained = self.explained().await;
                self.answer(false, [("explained", explained)])
            }
        };
        Ok((StatusCode::OK, answer))
    }

    /// What has happened to the lock, in sentences; the server may not tell it now.
    async fn explained(&mut self) -> Value {
        let (key, owner) = (self.key, &self.asked.owner);
        let told = self.client.call(&[b"LOCK.EXPLAIN", key, b"OWNER", owner]).await;
        told.unwrap_or_else(|_| json!([]))
    }

    /// The answer to a request after which the owner holds the lock. `sent_ms`: a moment before the lease began, or before
    /// the wait for it.
    fn granted(&self, reply: &Value, sent_ms: u64) -> Result<(StatusCode, Value), ApiError> {
        let field = |name: &str| reply.get(name).and_then(Value::as_u64);
        let lease_ms = field("lease");
        let since_ms = sent_ms.saturating_add(field("waited").unwrap_or(0));
        // The key of a string that was not taken as a lock has the token 0.
        let token = field("token").ok_or_else(ApiError::unexpected)?;
        let more = [
            ("token", Some(token).filter(|token| *token > 0).into()),
            ("lease", lease_ms.into()),
            ("until", lease_ms.map(|lease_ms| since_ms.saturating_add(lease_ms)).into()),
        ];
        let waited = reply.get("waited").map(|waited| ("waited", waited.clone()));
        Ok((StatusCode::OK, self.answer(true, more.into_iter().chain(waited))))
    }

    /// An answer: whether it is done, of which lock and owner, and more.
    fn answer(&self, is_done: bool, more: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
        let HoldRequest { owner, action, .. } = self.asked;
        let done = match action {
            Action::Release { .. } => "released",
            Action::Renew { .. } => "renewed",
            Action::Take(_) => "taken",
        };
        let mut object = Map::from_iter([(done.to_owned(), is_done.into())]);
        insert(&mut object, "key", self.key);
        insert(&mut object, "owner", owner);
        object.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Value::Object(object)
    }
}

/// The key that was got of several, whose token becomes that of the reply.
fn got<'k>(reply: &mut Value, keys: &'k [Vec<u8>]) -> Option<&'k [u8]> {
    let (name, token) = reply.get("locks")?.as_object()?.iter().next()?;
    let key = keys.iter().find(|key| *key == name.as_bytes()).map(Vec::as_slice);
    reply["token"] = token.clone();
    key
}

/// The option of LOCK.EXTEND and LOCK.RELEASE for the hold with this token only.
fn words_of_token(token: Option<u64>) -> Vec<Vec<u8>> {
    token.into_iter().flat_map(|token| [b"TOKEN".to_vec(), number(token)]).collect()
}

/// Holders of a lock that a refusal names, as LOCK.LIST does.
const HOLDERS_MAX: usize = 100;
