//! Connections of HTTP: accepting them, refusing those beyond the limit, serving them with hyper.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::HttpContext;
use super::limits::{BUFFER_BYTES_MAX, CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_WAIT_MAX, HEADERS_MAX};
use super::routes::answer;
use super::timed_stream::TimedStream;
use crate::server::listener::{Accepted, Listener};
use crate::server::spare_descriptor::{SpareDescriptor, is_peer_error};

/// How a peer is connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Peer {
    Tcp,
    /// No browser connects so.
    Unix,
}

/// Accepts connections from all listeners of HTTP.
#[derive(Clone, Debug)]
pub(super) struct Acceptor {
    context: Arc<HttpContext>,
    permits: Arc<Semaphore>,
}

/// What a peer beyond the limit gets.
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\n\
                    Retry-After: 1\r\n\r\nthere are too many HTTP connections\n";
/// What a peer gets that protected mode denies.
const PROTECTED: &str = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n\
                         protected mode is on, and neither http-token nor a password is \
                         set: only this machine may connect\n";

impl Acceptor {
    pub(super) fn new(context: Arc<HttpContext>) -> Self {
        Self { context, permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }

    /// Accepts connections for as long as the runtime lives.
    pub(super) async fn run(self, listener: Listener) {
        let mut spare = SpareDescriptor::new();
        loop {
            match listener.accept().await {
                Ok(accepted) => {
                    spare.accept_succeeded();
                    self.admit(accepted);
                }
                Err(error) if is_peer_error(&error) => tokio::task::yield_now().await,
                Err(error) => {
                    tracing::debug!(%error, "accepting HTTP failed");
                    spare.recover(false).await;
                }
            }
        }
    }

    fn admit(&self, accepted: Accepted) {
        let server = &self.context.server;
        if accepted.is_denied(server) && server.engine.shared().settings.text("http-token").is_empty() {
            return accepted.refuse(PROTECTED);
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return accepted.refuse(FULL);
        };
        let spawned = match accepted {
            Accepted::Tcp(stream, _) => {
                // A response leaves in one write or is long, so waiting for more gains nothing.
                let _ = stream.set_nodelay(true);
                TcpStream::from_std(stream).map(|stream| self.spawn(stream, Peer::Tcp, permit))
            }
            Accepted::Unix(stream) => {
                UnixStream::from_std(stream).map(|stream| self.spawn(stream, Peer::Unix, permit))
            }
        };
        if let Err(error) = spawned {
            tracing::debug!(%error, "cannot open an HTTP connection");
        }
    }

    fn spawn<S>(&self, stream: S, peer: Peer, permit: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let context = Arc::clone(&self.context);
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = serve(&context, stream, peer).await {
                tracing::debug!(%error, "an HTTP connection failed");
            }
        });
    }
}

/// Serves a connection until its peer closes it, or breaks a limit.
async fn serve<S>(context: &Arc<HttpContext>, stream: S, peer: Peer) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        let context = Arc::clone(context);
        async move { Ok::<_, Infallible>(answer(&context, peer, request).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(TimedStream::new(stream)), service)
        .await
}
