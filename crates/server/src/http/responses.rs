//! Responses: their bodies, and the headers that all of them have.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

/// The body of a response: bytes, or a stream of them.
pub(super) type Body = BoxBody<Bytes, Infallible>;

/// What a browser may load, and where it may show a page.
pub(super) const POLICY: &str =
    "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'";

/// What a browser is told with every response: to load nothing from elsewhere, to show the page in no frame, to guess no
/// types, to keep nothing, and to tell nobody the address.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// A response with a whole body.
pub(super) fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A response of one line for people.
pub(super) fn text(status: StatusCode, line: &str) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// Adds the headers that every response has. A route's own come first.
pub(super) fn finished(mut response: Response<Body>) -> Response<Body> {
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
