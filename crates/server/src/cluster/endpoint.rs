//! The endpoints of etcd, and connections to them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::client::GrpcService;

use super::rpc::causes;
use redlatch_client::Trust;
use redlatch_client::wire::{Stream, handshake};

/// The port of etcd for clients.
const DEFAULT_PORT: u16 = 2379;
/// More endpoints than a cluster of etcd has.
const ENDPOINTS_MAX: usize = 16;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Endpoint {
    is_tls: bool,
    /// A name, or an address without brackets.
    host: String,
    port: u16,
}

/// A connection, which carries any number of calls side by side. Clones are handles of it.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    sender: SendRequest<Body>,
    /// Why it has ended.
    ended: watch::Receiver<Option<String>>,
}

impl Connection {
    /// Whether it is of no use any more.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Why it has ended, if it has: a call only knows that it was cancelled.
    pub(super) async fn reason(mut self) -> Option<String> {
        if !self.is_closed() {
            return None;
        }
        self.ended.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl GrpcService<Body> for Connection {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}

impl Endpoint {
    /// Reads the endpoints of the setting `cluster-etcd`: separated by commas or spaces, each `[http[s]://]host[:port]`.
    ///
    /// # Errors
    /// A sentence about the setting.
    pub(super) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        let endpoints: Vec<_> = words.map(Self::parse).collect::<Result<_, _>>()?;
        match endpoints.len() {
            0 => Err("cluster-etcd: names no endpoint".to_owned()),
            1..=ENDPOINTS_MAX => Ok(endpoints),
            _ => Err(format!("cluster-etcd: names more than {ENDPOINTS_MAX} endpoints")),
        }
    }

    fn parse(word: &str) -> Result<Self, String> {
        // A password has no place here, and none in an error.
        let shown = word.rsplit('@').next().unwrap_or_default();
        let unfit = || format!("cluster-etcd '{shown}': must be [http[s]://]host[:port]");
        let (is_tls, rest) = match word.split_once("://") {
            None => (false, word),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(unfit()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((host, ""))) => (host, None),
            Some(Some((host, port))) => (host, Some(port.strip_prefix(':').ok_or_else(unfit)?)),
            Some(None) => return Err(unfit()),
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let is_name = |char: char| char.is_ascii_alphanumeric() || ".-_:%".contains(char);
        let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse().map_err(|_| unfit()))?;
        match !host.is_empty() && host.chars().all(is_name) && port > 0 {
            true => Ok(Self { is_tls, host: host.to_owned(), port }),
            false => Err(unfit()),
        }
    }

    /// Whether connections to it take TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// What a path is added to.
    pub(super) fn origin(&self) -> Uri {
        let scheme = if self.is_tls { "https" } else { "http" };
        let authority = self.authority();
        Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build().unwrap_or_default()
    }

    /// Host and port, as they are written in a URL.
    pub(super) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Opens a connection within a time; a task of this runtime drives it.
    ///
    /// # Errors
    /// The system's, those of TLS, and a time-out.
    pub(super) async fn connect(&self, trust: &Trust, limit: Duration) -> io::Result<Connection> {
        let opened = async {
            let stream = TcpStream::connect((&*self.host, self.port)).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn Stream> = match self.is_tls {
                true => handshake(stream, &self.host, trust, &[b"h2"]).await.map_err(io::Error::other)?,
                false => Box::new(stream),
            };
            let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
            let (sender, connection) = opened.map_err(io::Error::other)?;
            let (ends, ended) = watch::channel(None);
            // A server says so after its handshake, and its alert may be lost in what is written then.
            let hint = if self.is_tls { "; it may want another certificate" } else { "" };
            tokio::spawn(async move {
                let ended = connection.await;
                let reason =
                    ended.map_or_else(|error| causes(&error), |()| "the connection was closed".to_owned());
                let reason = reason + hint;
                // Nobody may be left who asks.
                let _ = ends.send(Some(reason));
            });
            Ok(Connection { sender, ended })
        };
        match timeout(limit, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_written_as_for_etcdctl() {
        let of = |is_tls, host: &str, port| Endpoint { is_tls, host: host.to_owned(), port };
        let all =
            Endpoint::parse_all("http://127.0.0.1:2379,https://etcd-1.local:23790/ b [::1]:7 [fe80::1]");
        let expected = [
            of(false, "127.0.0.1", 2379),
            of(true, "etcd-1.local", 23_790),
            of(false, "b", 2379),
            of(false, "::1", 7),
            of(false, "fe80::1", 2379),
        ];
        assert_eq!(all.unwrap(), expected);
        assert_eq!(expected[3].authority(), "[::1]:7");
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for text in ["", " , ", "ftp://a", "a:x", "a:0", "a:70000", "[::1", "[::1]7", "http://", "a/b", "u@a"]
        {
            assert!(Endpoint::parse_all(text).is_err_and(|text| text.starts_with("cluster-etcd")), "{text}");
        }
        assert!(Endpoint::parse_all(&"a,".repeat(ENDPOINTS_MAX + 1)).is_err());
    }
}
