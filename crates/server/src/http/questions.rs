//! HTTP asks the engine by ordinary commands, which run on the workers: [`Engine::ask`](redlatch_core::engine::Engine::ask).
//!
//! Rule    the thread of HTTP locks no shard. A command runs where the commands of clients do, and one that meets a long
//!         script ends after [`STEP_MAX`]: the request gets a 503.
//! Rule    a command has all permissions, because the request has shown its right before.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::{Response, StatusCode};
use redlatch_core::engine::question::{Asked, Requester};
use redlatch_platform::boot;
use redlatch_proto::error::Refusal;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::responses::{Body, whole};
use super::sampler::BYTES_MAX;
use super::{HttpContext, json};
use crate::keeper::Keeper;

/// Why a request of `/api` has no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ApiError {
    /// The engine refuses a request that is well formed.
    Refused(StatusCode, String),
    Request(String),
    /// The engine does not answer now.
    Unavailable(String),
}

/// How long one command may take. The server's own scripts end or are refused in less.
const STEP_MAX: Duration = Duration::from_secs(2);
/// The time between two tries of a command that a long call or a pause holds up.
const RETRY: Duration = Duration::from_millis(20);
/// How often [`caught_up`] looks.
const CATCH_UP_EVERY: Duration = Duration::from_millis(5);

/// The reply to a command that answers at once, as JSON.
///
/// # Errors
/// [`ApiError::Unavailable`] when the engine refuses it, or does not answer in time.
pub(super) async fn ask(context: &HttpContext, words: &[&[u8]]) -> Result<Value, ApiError> {
    ask_for(context, &Requester::default(), words).await
}

/// Like [`ask`], in the name of the peer that has sent the HTTP request.
pub(super) async fn ask_for(
    context: &HttpContext,
    requester: &Requester,
    words: &[&[u8]],
) -> Result<Value, ApiError> {
    match reply_to(context, requester, words).await? {
        reply if reply.len() > BYTES_MAX => Err(unavailable("the answer is too long")),
        reply => json::value(&reply).ok_or_else(ApiError::unexpected),
    }
}

/// Like [`ask_for`], but the reply as it is, however long.
pub(super) async fn reply_to(
    context: &HttpContext,
    requester: &Requester,
    words: &[&[u8]],
) -> Result<Vec<u8>, ApiError> {
    let answered = async {
        let mut permit: Option<OwnedSemaphorePermit> = None;
        loop {
            let (engine, words, permit_now) = (context.server.engine.clone(), owned(words), permit.take());
            let (may_take_long, requester) = (permit_now.is_some(), requester.clone());
            let work = move || {
                let _permit = permit_now;
                let words: Vec<&[u8]> = words.iter().map(|word| &**word).collect();
                engine.ask(&requester, &words, may_take_long)
            };
            let asked = match may_take_long {
                true => Asking(spawn_blocking(work)),
                false => Asking(context.workers.next().spawn(async move { work() })),
            };
            // A worker that has ended does not answer.
            match asked.await.map_err(unavailable)? {
                Ok(Asked::Answered(reply)) => return Ok(reply),
                Ok(Asked::Later) => sleep(RETRY).await,
                Ok(Asked::Offload) => permit = Arc::clone(&context.blocking).acquire_owned().await.ok(),
                Err(refusal) => return Err(unavailable(refusal.text())),
            }
        }
    };
    within_a_step(answered).await?
}

/// Resolves when the journal, if there is one, has what commands up to now have changed.
///
/// # Errors
/// [`ApiError::Unavailable`] when the disk does not take it in time.
pub(super) async fn recorded(context: &HttpContext) -> Result<(), ApiError> {
    match context.server.keeper() {
        Some(keeper) => within_a_step(caught_up(keeper)).await,
        None => Ok(()),
    }
}

/// Resolves when the log has what was changed up to now; never after a sync has failed.
async fn caught_up(keeper: &Keeper) {
    let owed = keeper.log.owed();
    keeper.write();
    while !keeper.log.has(owed, boot::millis) {
        keeper.wanted.notify_one();
        sleep(CATCH_UP_EVERY).await;
    }
}

/// A command on another thread. One that has not begun when it is dropped does not begin.
struct Asking(JoinHandle<Result<Asked, Refusal>>);

impl Future for Asking {
    type Output = Result<Result<Asked, Refusal>, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn within_a_step<T>(step: impl Future<Output = T>) -> Result<T, ApiError> {
    let late = |_| unavailable(format!("no answer within {STEP_MAX:?}"));
    timeout(STEP_MAX, step).await.map_err(late)
}

fn owned(words: &[&[u8]]) -> Vec<Box<[u8]>> {
    words.iter().map(|word| Box::from(*word)).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unavailable(error: impl ToString) -> ApiError {
    ApiError::Unavailable(error.to_string())
}

impl ApiError {
    /// The engine's reply has another form than its command promises.
    pub(super) fn unexpected() -> Self {
        Self::Unavailable("the engine has given an unexpected reply".into())
    }

    /// What is wrong, for people.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Refused(_, text) | Self::Request(text) | Self::Unavailable(text) => text,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(status, _) => *status,
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The response with this value, or with the error.
pub(super) fn response(answer: Result<Value, ApiError>) -> Response<Body> {
    response_with(answer.map(|value| (StatusCode::OK, value)))
}

/// Like [`response`], with a status of the answer's own.
pub(super) fn response_with(answer: Result<(StatusCode, Value), ApiError>) -> Response<Body> {
    let (status, value) = answer.unwrap_or_else(|error| (error.status(), json!({ "error": error.text() })));
    whole(status, "application/json", value.to_string())
}
