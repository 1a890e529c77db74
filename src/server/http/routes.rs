//! The route table, and what happens to a request on its way to a route.
//!
//! Rule    the checks come in this order: host, route, method, access, body. A route runs only after all of them.
//! Rule    a route is synchronous. One that anybody may ask for answers at once; any other may wait for the shards, which a
//!         script may hold, and runs on a thread for blocking work. The body of its response may be a stream.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::HttpContext;
use super::access::{Access, check_access, check_host};
use super::connection::Peer;
use super::limits::{BODY_BYTES_MAX, BODY_WAIT_MAX};
use super::refusal::Refusal;
use super::responses::{Body, finished};
use super::{health, metrics};

/// What answers requests for a path.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Who may ask.
    pub(super) access: Access,
    pub(super) run: fn(&HttpContext, &Request<Bytes>) -> Response<Body>,
}

/// All routes. HEAD is allowed wherever GET is.
const ROUTES: &[Route] = &[
    Route { method: Method::GET, path: "/healthz", access: Access::Open, run: health::alive },
    Route { method: Method::GET, path: "/metrics", access: Access::Reader, run: metrics::show },
    Route { method: Method::GET, path: "/readyz", access: Access::Open, run: health::ready },
];

/// Answers a request. Never fails: what is wrong with the request is said in the response.
pub(super) async fn answer(
    context: &Arc<HttpContext>,
    peer: Peer,
    request: Request<Incoming>,
) -> Response<Body> {
    let response = match find(context, peer, &request) {
        Ok(route) => run(context, route, request).await,
        Err(refusal) => Err(refusal),
    };
    finished(response.unwrap_or_else(Refusal::response))
}

async fn run(
    context: &Arc<HttpContext>,
    route: &'static Route,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    let request = Request::from_parts(head, read(body).await?);
    if route.access == Access::Open {
        return Ok((route.run)(context, &request));
    }
    let context = Arc::clone(context);
    // A panic has been reported by its hook, or the server ends.
    spawn_blocking(move || (route.run)(&context, &request)).await.map_err(|_| Refusal::Failed)
}

/// The route of a request that may have it.
fn find<B>(context: &HttpContext, peer: Peer, request: &Request<B>) -> Result<&'static Route, Refusal> {
    if peer == Peer::Tcp {
        check_host(request, &context.names)?;
    }
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let mut routes = ROUTES.iter().filter(|route| route.path == request.uri().path()).peekable();
    let allowed = routes.peek().ok_or(Refusal::NoRoute)?.method.as_str();
    let route = routes.find(|route| route.method == method).ok_or(Refusal::Method(allowed))?;
    check_access(context, route.access, request)?;
    Ok(route)
}

/// Reads the body of a request, which is empty for most.
async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    let whole = timeout(BODY_WAIT_MAX, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    match whole {
        Err(_) => Err(Refusal::SlowBody),
        Ok(Err(_)) => Err(Refusal::Body),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}
