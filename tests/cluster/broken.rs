//! Gateways of etcd that are broken on purpose: a proxy between the nodes and a correct member changes their commits.
//!
//! Owns    a port, and a runtime with a thread of its own.
//! Rule    what is no commit passes as it is.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn;
use hyper::header::CONTENT_LENGTH;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// What is wrong with the cluster behind the gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// Nothing, for comparison.
    None,
    /// A commit has no conditions: a leader that was replaced leads on.
    NoFence,
    /// A commit is answered before it is made.
    EarlyReplies,
    /// Every request is late by so many milliseconds.
    Slow(u64),
}

/// How long after its answer a commit is made at the latest, with [`Fault::EarlyReplies`].
const LATE: Duration = Duration::from_millis(800);

/// A broken gateway. It ends when it is dropped.
pub(crate) struct Gateway {
    address: SocketAddr,
    late: Late,
    _runtime: Runtime,
}

/// Commits that have been answered and not made; `None`: each is made before its answer.
type Late = Arc<Mutex<Option<Vec<Bytes>>>>;

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Gateway {
    pub(crate) fn before(member: SocketAddr, fault: Fault) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a port");
        let address = listener.local_addr().expect("a port");
        let is_early = fault == Fault::EarlyReplies;
        let late = Late::new(Mutex::new(is_early.then(Vec::new)));
        runtime.spawn(make(member, Arc::clone(&late)));
        let of_clients = Arc::clone(&late);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let late = Arc::clone(&of_clients);
                let service = service_fn(move |request| relay(request, member, fault, Arc::clone(&late)));
                // Ends when either side has closed.
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, late, _runtime: runtime }
    }

    /// The endpoint, for `cluster-etcd`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The leader has been killed: what it has not committed is lost. The gateway is whole from now on, because a node that
    /// takes over would find that its own commits are not there.
    pub(crate) fn lose_commits(&self) {
        *self.late.lock().expect("no panic") = None;
    }
}

async fn relay(
    request: Request<Incoming>,
    member: SocketAddr,
    fault: Fault,
    late: Late,
) -> Result<Response<BoxBody<Bytes, hyper::Error>>, Failure> {
    if let Fault::Slow(millis) = fault {
        sleep(Duration::from_millis(millis)).await;
    }
    let (head, body) = request.into_parts();
    let mut body = body.collect().await?.to_bytes();
    if let Some(mut commit) = commit(&body) {
        if let Some(late) = &mut *late.lock().expect("no panic") {
            late.push(body);
            let done = Full::from(r#"{"header":{},"succeeded":true}"#);
            return Ok(Response::new(done.map_err(|never| match never {}).boxed()));
        }
        if fault == Fault::NoFence {
            commit["compare"] = json!([]);
            body = commit.to_string().into();
        }
    }
    let mut request = Request::from_parts(head, Full::from(body));
    request.headers_mut().remove(CONTENT_LENGTH);
    Ok(ask(member, request).await?.map(BodyExt::boxed))
}

/// The transaction, if it is a commit of an entry of the log.
fn commit(body: &[u8]) -> Option<Value> {
    let transaction: Value = serde_json::from_slice(body).ok()?;
    let puts_entry = |operation: &Value| {
        let key = operation["request_put"]["key"].as_str().and_then(|key| STANDARD.decode(key).ok());
        key.is_some_and(|key| key.starts_with(b"/redlatch/log/"))
    };
    let is_commit = transaction["success"].as_array()?.iter().any(puts_entry);
    is_commit.then_some(transaction)
}

/// Makes the late commits in order, until there are no more.
async fn make(member: SocketAddr, late: Late) {
    loop {
        sleep(LATE).await;
        let Some(due) = late.lock().expect("no panic").as_mut().map(std::mem::take) else { return };
        for body in due {
            let request = Request::post("/v3/kv/txn").header("host", "etcd").body(Full::from(body));
            let made = ask(member, request.expect("a request")).await;
            drop(made.expect("a member that answers"));
        }
    }
}

async fn ask(member: SocketAddr, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
    let stream = TcpStream::connect(member).await?;
    let (mut sender, connection) = conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}
