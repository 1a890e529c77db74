//! `/metrics`: the figures of the metrics table, for Prometheus.

use bytes::Bytes;
use hyper::{Request, Response, StatusCode};

use super::HttpContext;
use super::responses::{Body, whole};

/// The figures of the server.
pub(super) fn show(context: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    let text = crate::commands::prometheus(context.server.engine.shared());
    whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}
