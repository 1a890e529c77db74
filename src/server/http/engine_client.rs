//! HTTP as a client of the engine: a connection without a socket, on which it sends ordinary commands.
//!
//! Rule    the thread of HTTP locks no shard. A command runs where the commands of other clients do, and one that meets a
//!         long script ends after [`STEP_MAX`]: the request gets a 503.
//! Rule    the connection has all permissions, because the request has shown its right before.

use std::time::Duration;

use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::HttpContext;
use super::responses::{Body, whole};
use crate::client::{Connection, Reply};
use crate::server::handle::open_stream;

/// A connection for the commands of one request.
#[derive(Debug)]
pub(super) struct EngineClient(Connection);

/// Why a request of `/api` has no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ApiError {
    /// The request is wrong.
    Request(String),
    /// The engine does not answer now.
    Unavailable(String),
}

/// How CLIENT LIST shows connections of HTTP.
pub(super) const NAME: &str = "redlatch-http";
/// How long one command may take. The server's own scripts end or are refused in less.
const STEP_MAX: Duration = Duration::from_secs(2);

impl EngineClient {
    /// Connects.
    ///
    /// # Errors
    /// [`ApiError::Unavailable`] when all `maxclients` are there, or a long call holds everything.
    pub(super) async fn connect(context: &HttpContext) -> Result<Self, ApiError> {
        let stream = open_stream(&context.server, &context.workers, true);
        let mut client = Self(Connection::over(Box::new(stream), STEP_MAX));
        client.0.speak_resp3().await.map_err(unavailable)?;
        client.call(&[b"CLIENT", b"SETNAME", NAME.as_bytes()]).await?;
        Ok(client)
    }

    /// The reply to a command.
    ///
    /// # Errors
    /// [`ApiError::Unavailable`] when the engine refuses it, or does not answer in time.
    pub(super) async fn call(&mut self, words: &[&[u8]]) -> Result<Reply, ApiError> {
        self.0.call(words).await.map_err(unavailable)
    }
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
            Self::Request(text) | Self::Unavailable(text) => text,
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The response with this value, or with the error.
pub(super) fn response(answer: Result<Value, ApiError>) -> Response<Body> {
    let (status, value) = match answer {
        Ok(value) => (StatusCode::OK, value),
        Err(error) => (error.status(), json!({ "error": error.text() })),
    };
    whole(status, "application/json", value.to_string())
}
