//! The page of locks: files that are part of the program. They hold no secret, so everybody may have them.

use bytes::Bytes;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use hyper::{Request, Response, StatusCode};

use super::HttpContext;
use super::groups::hosts;
use super::responses::{Body, POLICY, whole};

/// The page. That of one of several groups of slots may ask the nodes that lead the others.
pub(super) fn index(context: &HttpContext, request: &Request<Bytes>) -> Response<Body> {
    let mut response = whole(StatusCode::OK, "text/html; charset=utf-8", include_str!("page/index.html"));
    let hosts = hosts(context.server.engine.shared().cluster.as_deref(), request.headers());
    if !hosts.is_empty() {
        let nodes: String = hosts.iter().map(|host| format!(" http://{host}:*")).collect();
        let policy = HeaderValue::from_str(&format!("{POLICY}; connect-src 'self'{nodes}"));
        response.headers_mut().extend(policy.map(|policy| (CONTENT_SECURITY_POLICY, policy)));
    }
    response
}

pub(super) fn script(_: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    whole(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("page/page.js"))
}

pub(super) fn style(_: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    whole(StatusCode::OK, "text/css; charset=utf-8", include_str!("page/style.css"))
}

pub(super) fn icon(_: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    whole(StatusCode::OK, "image/svg+xml", include_str!("page/icon.svg"))
}
