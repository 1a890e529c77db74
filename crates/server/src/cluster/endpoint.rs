//! The endpoints of etcd, and connections to them.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

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

/// A connection that carries one request at a time.
pub(super) type Sender = SendRequest<Full<Bytes>>;

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

    /// The value of the header `host`.
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
    pub(super) async fn connect(&self, trust: &Trust, limit: Duration) -> io::Result<Sender> {
        let opened = async {
            let stream = TcpStream::connect((&*self.host, self.port)).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn Stream> = match self.is_tls {
                true => handshake(stream, &self.host, trust).await.map_err(io::Error::other)?,
                false => Box::new(stream),
            };
            let (sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            Ok(sender)
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
