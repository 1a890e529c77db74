//! A blocking HTTP client, just enough to see every byte that the server sends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::waits::PATIENCE;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// The status line and the headers.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpReply {
    /// The value of a header; names are in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// A connection that is kept between requests.
pub(crate) struct HttpClient<S: Read + Write = TcpStream>(pub(crate) BufReader<S>);

impl HttpClient {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        Self(BufReader::new(stream))
    }
}

impl<S: Read + Write> HttpClient<S> {
    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the server reads");
    }

    /// Sends a request without a body and with further headers, each with its line end; returns the response.
    pub(crate) fn ask(&mut self, method: &str, path: &str, headers: &str) -> HttpReply {
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes());
        self.reply(method != "HEAD")
    }

    /// Sends a POST with a body and with further headers, each with its line end.
    pub(crate) fn post(&mut self, path: &str, headers: &str, body: &str) {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}");
        self.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }

    /// The next response; one without a length lasts until the end of the connection.
    pub(crate) fn reply(&mut self, has_body: bool) -> HttpReply {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut head).expect("a line") > 0, "the connection ends in '{head}'");
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut reply = HttpReply { status, head, body: String::new() };
        let length = reply.header("content-length").map(|length| length.parse().expect("a length"));
        if has_body {
            let source = Read::by_ref(&mut self.0).take(length.unwrap_or(u64::MAX));
            let mut source = source;
            source.read_to_string(&mut reply.body).expect("a body of text");
        }
        reply
    }

    /// Whether the server closes the connection without another byte.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.fill_buf().is_ok_and(<[u8]>::is_empty)
    }
}

/// Asks for a path with a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> HttpReply {
    HttpClient::to(address).ask("GET", path, "")
}
