//! Why a request is not answered by its route, and the response that says so.

use hyper::header::{ALLOW, CONNECTION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

use super::responses::{Body, text};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// The setting `http-admin` does not allow changes.
    Admin,
    /// It shows no password and no token, or a wrong one.
    Authentication,
    /// Its body is too long.
    Body,
    /// Others like it wait for the engine.
    Busy,
    /// A page of another site has sent it.
    CrossSite,
    /// Its address has sent too many wrong passwords.
    Delayed,
    Failed,
    /// It is for a host that this server is not.
    Host,
    /// The route has another method.
    Method(&'static str),
    /// It does not say which host it is for.
    NoHost,
    /// There is no such path.
    NoRoute,
    /// Its user does not have all permissions.
    Permissions,
    /// It has a header twice that says who sends it.
    Repeated,
    /// Its body did not arrive in time.
    SlowBody,
}

impl Refusal {
    /// The response: a status, and a line that says what to do.
    pub(super) fn response(self) -> Response<Body> {
        let (status, line) = match self {
            Self::Admin => (StatusCode::FORBIDDEN, "changes need the setting 'http-admin yes'"),
            Self::Authentication => (
                StatusCode::UNAUTHORIZED,
                "show http-token as a bearer token, or the name and password of a user with all permissions",
            ),
            Self::Body => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body of the request is too long, broken, or of no use here",
            ),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "earlier requests wait for a script to end"),
            Self::CrossSite => (StatusCode::FORBIDDEN, "a page of another site may not send this request"),
            Self::Delayed => (StatusCode::TOO_MANY_REQUESTS, "too many wrong passwords from this address"),
            Self::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "the request has failed; see the log"),
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "this server is reached by an IP address, as localhost, or by a name that http-bind lists",
            ),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "the path has another method"),
            Self::NoHost => (StatusCode::BAD_REQUEST, "the request must have one Host header"),
            Self::NoRoute => (StatusCode::NOT_FOUND, "there is no such path"),
            Self::Permissions => (StatusCode::FORBIDDEN, "this is for users with all permissions"),
            Self::Repeated => (
                StatusCode::BAD_REQUEST,
                "the request must have Authorization, Origin and Sec-Fetch-Site once at most",
            ),
            Self::SlowBody => (StatusCode::REQUEST_TIMEOUT, "the body of the request did not arrive in time"),
        };
        let mut response = text(status, line);
        let headers = response.headers_mut();
        match self {
            Self::Method(allowed) => drop(headers.insert(ALLOW, HeaderValue::from_static(allowed))),
            Self::Authentication => {
                let scheme = HeaderValue::from_static("Basic realm=\"redlatch\", charset=\"UTF-8\"");
                headers.insert(WWW_AUTHENTICATE, scheme);
            }
            Self::Delayed => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
            // What is left of the body is not read.
            Self::Body | Self::SlowBody => {
                drop(headers.insert(CONNECTION, HeaderValue::from_static("close")))
            }
            _ => {}
        }
        response
    }
}
