//! The page of locks: files that are part of the program. They hold no secret, so everybody may have them.

use bytes::Bytes;
use hyper::{Request, Response, StatusCode};

use super::HttpContext;
use super::responses::{Body, whole};

pub(super) fn index(_: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    whole(StatusCode::OK, "text/html; charset=utf-8", include_str!("page/index.html"))
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
