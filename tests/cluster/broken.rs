//! Proxies of etcd that are broken on purpose: between the nodes and a correct member, they change the commits.
//!
//! Owns    a port, and a runtime with a thread of its own.
//! Rule    what is no commit passes as it is.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// What is wrong with the cluster behind the proxy.
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

/// A broken proxy. It ends when it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    late: Late,
    _runtime: Runtime,
}

/// Commits that have been answered and not made; `None`: each is made before its answer.
type Late = Arc<Mutex<Option<Vec<Bytes>>>>;

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Proxy {
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
                let server = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, late, _runtime: runtime }
    }

    /// The endpoint, for `cluster-etcd`.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The leader has been killed: what it has not committed is lost. The proxy is whole from now on, because a node that
    /// takes over would find that its own commits are not there.
    pub(crate) fn lose_commits(&self) {
        *self.late.lock().expect("no panic") = None;
    }
}

/// The body of a request or an answer.
type Body = BoxBody<Bytes, hyper::Error>;

/// The path of transactions.
const TXN: &str = "/etcdserverpb.KV/Txn";

async fn relay(
    request: Request<Incoming>,
    member: SocketAddr,
    fault: Fault,
    late: Late,
) -> Result<Response<Body>, Failure> {
    if let Fault::Slow(millis) = fault {
        sleep(Duration::from_millis(millis)).await;
    }
    if request.uri().path() != TXN {
        return Ok(ask(member, request.map(BodyExt::boxed)).await?.map(BodyExt::boxed));
    }
    let (head, body) = request.into_parts();
    let mut body = body.collect().await?.to_bytes();
    if let Some(mut commit) = commit(&body) {
        if let Some(late) = &mut *late.lock().expect("no panic") {
            late.push(body);
            return Ok(done());
        }
        if fault == Fault::NoFence {
            commit.conditions.clear();
            body = framed(&commit.encode_to_vec());
        }
    }
    let mut request = Request::from_parts(head, whole(body));
    request.headers_mut().remove(CONTENT_LENGTH);
    Ok(ask(member, request).await?.map(BodyExt::boxed))
}

/// A transaction, of whose parts only the number counts here.
#[derive(Clone, PartialEq, Message)]
struct Txn {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    conditions: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    then: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    otherwise: Vec<Bytes>,
}

/// The first byte of an operation that puts a key: field 2, with a length.
const PUT: u8 = 0x12;
/// What stands before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The transaction, if it is a commit of an entry of a log.
fn commit(mut body: &[u8]) -> Option<Txn> {
    body.advance(PREFIX_BYTES);
    let transaction = Txn::decode(body).ok()?;
    let log = b"/log/";
    let puts_entry =
        |operation: &Bytes| operation[0] == PUT && operation.windows(log.len()).any(|bytes| bytes == log);
    transaction.then.iter().any(puts_entry).then_some(transaction)
}

fn framed(message: &[u8]) -> Bytes {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat().into()
}

fn whole(body: Bytes) -> Body {
    Full::from(body).map_err(|never| match never {}).boxed()
}

/// The answer to a commit that is made: an empty header, and `succeeded`.
fn done() -> Response<Body> {
    let trailers = HeaderMap::from_iter([("grpc-status".parse().expect("a name"), HeaderValue::from(0))]);
    let body = whole(framed(b"\x0a\x00\x10\x01")).with_trailers(async { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Makes the late commits in order, until there are no more.
async fn make(member: SocketAddr, late: Late) {
    loop {
        sleep(LATE).await;
        let Some(due) = late.lock().expect("no panic").as_mut().map(std::mem::take) else { return };
        for body in due {
            let request = Request::post(format!("http://etcd{TXN}"))
                .header(CONTENT_TYPE, "application/grpc")
                .header(TE, "trailers");
            let made = ask(member, request.body(whole(body)).expect("a request")).await;
            let made = made.expect("a member that answers").into_body().collect().await;
            drop(made.expect("an answer"));
        }
    }
}

async fn ask(member: SocketAddr, request: Request<Body>) -> Result<Response<Incoming>, Failure> {
    let stream = TcpStream::connect(member).await?;
    let (mut sender, connection) = conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}
