//! The route table, and what happens to a request on its way to a route.
//!
//! Rule    the checks come in this order: host, route, method, access, body. A route runs only after all of them.
//! Rule    a route answers at once, asks the engine, or locks shards: then it runs on a thread for blocking work. The
//!         body of a response may be a stream.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::{Method, Request, Response};
use redlatch_core::engine::question::Requester;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::HttpContext;
use super::access::{Access, check_access, check_host};
use super::connection::Peer;
use super::limits::{BODY_BYTES_MAX, BODY_WAIT_MAX};
use super::refusal::Refusal;
use super::responses::{Body, finished};
use super::{api, events, groups, health, hold_request, holds, metrics, page};

/// What answers requests for a path.
pub(super) struct Route {
    pub(super) method: Method,
    /// [`hold_request::PATH`] begins paths; others are whole.
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) run: Run,
}

/// What a route does with a request.
pub(super) enum Run {
    /// Asks the engine, and answers with its reply.
    Asks(fn(Arc<HttpContext>, Request<Bytes>) -> LaterResponse),
    /// Locks shards, one after the other.
    Blocks(fn(&HttpContext, &Request<Bytes>) -> Response<Body>),
    /// Answers at once.
    Now(fn(&HttpContext, &Request<Bytes>) -> Response<Body>),
}

/// A response that takes time.
pub(super) type LaterResponse = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// All routes. HEAD is allowed wherever GET is.
const ROUTES: &[Route] = &[
    now("/", page::index),
    Route {
        method: Method::POST,
        path: "/api/break",
        access: Access::Admin,
        run: Run::Asks(|c, r| Box::pin(api::break_lock(c, r))),
    },
    asks("/api/clients", |c, r| Box::pin(api::clients(c, r))),
    asks("/api/contention", |c, r| Box::pin(api::contention(c, r))),
    asks("/api/events", |c, r| Box::pin(async move { events::follow(&c, &r) })),
    asks("/api/graph", |c, r| Box::pin(api::graph(c, r))),
    asks("/api/groups", |c, r| Box::pin(async move { api::groups(&c, &r) })),
    asks("/api/lint", |c, r| Box::pin(api::lint(c, r))),
    asks("/api/lock", |c, r| Box::pin(api::lock(c, r))),
    asks("/api/locks", |c, r| Box::pin(api::locks(c, r))),
    Route {
        method: Method::POST,
        path: hold_request::PATH,
        access: Access::Holder,
        run: Run::Asks(|c, r| Box::pin(holds::change(c, r))),
    },
    now("/healthz", health::alive),
    now("/icon.svg", page::icon),
    Route { method: Method::GET, path: "/metrics", access: Access::Reader, run: Run::Blocks(metrics::show) },
    now("/page.js", page::script),
    Route {
        method: Method::GET,
        path: "/readyz",
        access: Access::Open,
        run: Run::Asks(|c, _| Box::pin(health::ready(c))),
    },
    now("/style.css", page::style),
];

/// A route that asks the engine for its readers.
const fn asks(path: &'static str, run: fn(Arc<HttpContext>, Request<Bytes>) -> LaterResponse) -> Route {
    Route { method: Method::GET, path, access: Access::Reader, run: Run::Asks(run) }
}

/// A route that answers everybody at once.
const fn now(path: &'static str, run: fn(&HttpContext, &Request<Bytes>) -> Response<Body>) -> Route {
    Route { method: Method::GET, path, access: Access::Open, run: Run::Now(run) }
}

/// Answers a request. Never fails: what is wrong with the request is said in the response.
pub(super) async fn answer(
    context: &Arc<HttpContext>,
    peer: &Peer,
    mut request: Request<Incoming>,
) -> Response<Body> {
    request.extensions_mut().insert(Requester { user: Bytes::new(), peer: peer.address() });
    let cluster = context.server.engine.shared().cluster.as_deref();
    let page = groups::origin_of_page(request.headers(), cluster).cloned();
    let response = match find(context, peer, &request) {
        Ok(route) => run(context, route, request).await,
        // A browser asks before a page sends a login elsewhere.
        Err(Refusal::Method(_)) if page.is_some() && request.method() == Method::OPTIONS => {
            Ok(groups::may_ask())
        }
        Err(refusal) => Err(refusal),
    };
    let mut response = finished(response.unwrap_or_else(Refusal::response));
    if let Some(page) = page {
        groups::let_read(&mut response, page);
    }
    response
}

async fn run(
    context: &Arc<HttpContext>,
    route: &'static Route,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    // Without a body there is nothing to wait for: peers without a right cannot hold places.
    if route.method == Method::GET && !body.is_end_stream() {
        return Err(Refusal::Body);
    }
    let mut request = Request::from_parts(head, read(body).await?);
    // Passwords may have changed while the body arrived.
    let user = check_access(context, route.access, &request)?;
    if let Some(requester) = request.extensions_mut().get_mut::<Requester>() {
        requester.user = user;
    }
    match route.run {
        Run::Asks(run) => Ok(run(Arc::clone(context), request).await),
        Run::Blocks(run) => {
            // A request keeps its thread, also after its peer has gone.
            let permit = Arc::clone(&context.blocking).try_acquire_owned().map_err(|_| Refusal::Busy)?;
            let context = Arc::clone(context);
            let answer = spawn_blocking(move || {
                let _permit = permit;
                run(&context, &request)
            });
            // A panic has been reported by its hook, or the server ends.
            answer.await.map_err(|_| Refusal::Failed)
        }
        Run::Now(run) => Ok(run(context, &request)),
    }
}

/// The route of a request that may have it.
fn find<B>(context: &HttpContext, peer: &Peer, request: &Request<B>) -> Result<&'static Route, Refusal> {
    if matches!(peer, Peer::Tcp(_)) {
        check_host(request, &context.names)?;
    }
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let path = request.uri().path();
    let is_for = |route: &&Route| match route.path {
        hold_request::PATH => path.starts_with(hold_request::PATH),
        whole => whole == path,
    };
    let mut routes = ROUTES.iter().filter(is_for).peekable();
    let allowed = routes.peek().ok_or(Refusal::NoRoute)?.method.as_str();
    let route = routes.find(|route| route.method == method).ok_or(Refusal::Method(allowed))?;
    check_access(context, route.access, request)?;
    Ok(route)
}

/// Reads the body of a request, which is empty for most.
async fn read(body: Incoming) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(Refusal::Body);
    }
    let whole = timeout(BODY_WAIT_MAX, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    match whole {
        Err(_) => Err(Refusal::SlowBody),
        Ok(Err(_)) => Err(Refusal::Body),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}
