//! Connections of HTTP: accepting them, refusing those beyond the limit, serving them with hyper.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use redlatch_platform::unix_socket::UnixStream;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::HttpContext;
use super::limits::{BUFFER_BYTES_MAX, HEAD_BYTES_MAX, HEAD_WAIT_MAX, HEADERS_MAX};
use super::places::{Place, Places, Taken};
use super::routes::answer;
use super::timed_stream::TimedStream;
use crate::listener::{self, Accepted, Listener, Open};
use crate::spare_descriptor::{SpareDescriptor, is_peer_error};
use redlatch_core::state::settings;

/// How a peer is connected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    /// Through the socket with this address. No browser connects so.
    Unix(Arc<str>),
}

impl Peer {
    /// Where it connected from, as CLIENT LIST shows clients.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(address) => address.to_string(),
        }
    }
}

/// Accepts connections from all listeners of HTTP.
#[derive(Clone, Debug)]
pub(super) struct Acceptor {
    context: Arc<HttpContext>,
    places: Places,
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
        Self { context, places: Places::default() }
    }

    /// Accepts connections for as long as the runtime lives and the server has a handle.
    pub(super) async fn run(self, listener: Listener, mut open: Open) {
        // The socket is closed before `open` says so, also when the runtime ends this task: locals are dropped before
        // arguments.
        let listener = listener;
        tokio::select! {
            biased;
            // A server that stops answers until then.
            _ = open.has_handle.wait_for(|has_handle| !has_handle) => {}
            () = self.accept_all(&listener) => {}
        }
    }

    async fn accept_all(&self, listener: &Listener) {
        let mut spare = SpareDescriptor::new();
        let address: Arc<str> = listener.address().into();
        loop {
            match listener.accept().await {
                Ok(accepted) => {
                    spare.accept_succeeded();
                    self.admit(accepted, &address);
                    // A connection that has lost its place closes its socket before the next one is accepted.
                    tokio::task::yield_now().await;
                }
                Err(error) if is_peer_error(&error) => tokio::task::yield_now().await,
                Err(error) => {
                    tracing::debug!(%error, "accepting HTTP failed");
                    spare.recover(false).await;
                }
            }
        }
    }

    /// `address` is that of a Unix socket.
    fn admit(&self, accepted: Accepted, address: &Arc<str>) {
        let server = &self.context.server;
        if accepted.is_denied(server) && server.engine.shared().settings.get(settings::HTTP_TOKEN).is_empty()
        {
            return accepted.refuse(PROTECTED);
        }
        let waiting = self.context.waiting();
        let Some(taken) = self.places.take(waiting) else { return accepted.refuse(FULL) };
        let spawned = match accepted {
            Accepted::Tcp(stream, peer) => {
                let seconds = server.engine.shared().settings.get(settings::TCP_KEEPALIVE);
                // A peer that vanishes while it waits for a lock leaves the queue.
                listener::set_options(&SockRef::from(&stream), seconds);
                TcpStream::from_std(stream).map(|stream| self.spawn(stream, Peer::Tcp(peer), taken))
            }
            Accepted::Unix(stream) => {
                let peer = Peer::Unix(Arc::clone(address));
                UnixStream::from_std(stream).map(|stream| self.spawn(stream, peer, taken))
            }
        };
        if let Err(error) = spawned {
            tracing::debug!(%error, "cannot open an HTTP connection");
        }
    }

    fn spawn<S>(&self, stream: S, peer: Peer, taken: Taken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let context = Arc::clone(&self.context);
        tokio::spawn(async move {
            let served = serve(&context, stream, &peer, taken.place());
            tokio::select! {
                biased;
                () = taken.place().lost() => {}
                ended = served => if let Err(error) = ended {
                    tracing::debug!(%error, "an HTTP connection failed");
                }
            }
        });
    }
}

/// Serves a connection until its peer closes it, or breaks a limit.
async fn serve<S>(
    context: &Arc<HttpContext>,
    stream: S,
    peer: &Peer,
    place: &Arc<Place>,
) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        let (context, place) = (Arc::clone(context), Arc::clone(place));
        async move { Ok::<_, Infallible>(place.during(answer(&context, peer, request)).await) }
    });
    let stream = TokioIo::new(TimedStream::new(stream, Arc::clone(place)));
    bounded(HEAD_WAIT_MAX).serve_connection(stream, service).await
}

/// HTTP/1 within the limits of every connection. `head_wait`: how long the head of a request may take.
pub(super) fn bounded(head_wait: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head_wait)
        .max_header_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX);
    builder
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::Server;
    use crate::http::limits::{BODY_WAIT_MAX, WRITE_WAIT_MAX};

    /// A connection that is served, and our end of it. The buffer between them has so many bytes.
    async fn served(bytes: usize) -> (DuplexStream, tokio::task::JoinHandle<bool>) {
        let server = Server::builder().set("http-admin", "yes").start().await.unwrap();
        let context = HttpContext::new(server.context().clone(), Arc::clone(&server.workers), Vec::new());
        let (theirs, ours) = tokio::io::duplex(bytes);
        let task = tokio::spawn(async move {
            let taken = Places::default().take(0).unwrap();
            let peer = Peer::Tcp(([127, 0, 0, 1], 9).into());
            let is_fine = serve(&Arc::new(context), theirs, &peer, taken.place()).await.is_ok();
            drop(server);
            is_fine
        });
        (ours, task)
    }

    const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n";

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_arrive_in_time_ends_the_connection() {
        let (mut ours, task) = served(4096).await;
        let started = Instant::now();
        for byte in REQUEST {
            if ours.write_all(&[*byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        assert!(!task.await.unwrap());
        assert!((HEAD_WAIT_MAX..HEAD_WAIT_MAX + Duration::from_secs(15)).contains(&started.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed_and_the_time_begins_anew_with_each_request() {
        let (mut ours, task) = served(4096).await;
        let (started, request) = (Instant::now(), [REQUEST, b"\r\n"].concat());
        for _ in 0..3 {
            ours.write_all(&request).await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\nok\n") {
                assert!(ours.read_buf(&mut answer).await.unwrap() > 0);
            }
            sleep(HEAD_WAIT_MAX - Duration::from_secs(1)).await;
        }
        assert!(!task.await.unwrap());
        assert_eq!(started.elapsed().as_secs(), (3 * HEAD_WAIT_MAX).as_secs() - 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_in_time_is_refused() {
        let (mut ours, task) = served(4096).await;
        let half = b"POST /api/break HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf";
        ours.write_all(half).await.unwrap();
        let (started, mut answer) = (Instant::now(), Vec::new());
        ours.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", answer.escape_ascii());
        assert_eq!(started.elapsed(), BODY_WAIT_MAX);
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_its_response_is_dropped() {
        let (mut ours, task) = served(64).await;
        ours.write_all(&[REQUEST, b"\r\n"].concat()).await.unwrap();
        let started = Instant::now();
        assert!(!task.await.unwrap());
        assert_eq!(started.elapsed(), WRITE_WAIT_MAX);
    }
}
