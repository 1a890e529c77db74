//! Clients that speak over a stream in words and lines: one over asynchronous streams, one over a blocking socket.

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use super::waits::PATIENCE;
use super::words::request;

/// A client over any asynchronous stream.
pub(crate) struct StreamClient<S>(pub(crate) BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> StreamClient<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    /// Sends bytes as they are.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).await.expect("the server reads");
    }

    pub(crate) async fn say(&mut self, words: &[&str]) {
        self.send(request(words)).await;
    }

    /// The next line without its CRLF.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).await.expect("text") > 0, "the server has closed");
        line.trim_end().to_owned()
    }

    /// The next lines, none of which may be an error.
    pub(crate) async fn lines(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::with_capacity(count);
        for _ in 0..count {
            let line = self.line().await;
            assert!(!line.starts_with('-'), "refused: {line}");
            lines.push(line);
        }
        lines
    }

    /// Sends one request; returns the first line of its reply.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> String {
        self.say(words).await;
        self.line().await
    }

    /// Sends one request, and returns the text of the bulk string that answers it.
    pub(crate) async fn text(&mut self, words: &[&str]) -> String {
        let head = self.ask(words).await;
        let mut text = vec![0; bulk_bytes(&head) + 2];
        self.0.read_exact(&mut text).await.expect("its bytes");
        String::from_utf8(text).expect("text")
    }

    /// Sends bytes; returns so many lines, none of which may be an error.
    pub(crate) async fn ask_lines(&mut self, bytes: &str, count: usize) -> Vec<String> {
        self.send(bytes).await;
        self.lines(count).await
    }

    /// What the server has already sent, without waiting for more.
    pub(crate) async fn received(&mut self) -> String {
        let mut bytes = vec![0; 64 * 1024];
        tokio::select! {
            biased;
            read = self.0.read(&mut bytes) => String::from_utf8_lossy(&bytes[..read.expect("bytes")]).into_owned(),
            () = std::future::ready(()) => String::new(),
        }
    }

    /// Waits for the next bytes. True if there are none, because the server has closed the stream.
    pub(crate) async fn has_ended(&mut self) -> bool {
        self.0.fill_buf().await.expect("a stream").is_empty()
    }

    /// Whether no reply has arrived yet.
    pub(crate) async fn has_no_answer(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.0.fill_buf() => false,
            () = std::future::ready(()) => true,
        }
    }
}

/// A blocking connection that fails instead of waiting for ever.
pub(crate) struct Peer(pub(crate) std::io::BufReader<TcpStream>);

impl Peer {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server accepts"))
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_nodelay(true).expect("a socket takes the option");
        Self(std::io::BufReader::new(stream))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.stream().write_all(bytes).expect("the server takes what it is sent");
    }

    /// The next line without its CRLF.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("a line");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, request: &[u8]) -> String {
        self.send(request);
        self.line()
    }

    /// The next bulk string's length; its bytes are dropped.
    pub(crate) fn bulk(&mut self) -> usize {
        let length = bulk_bytes(&self.line());
        let copied =
            std::io::copy(&mut Read::by_ref(&mut self.0).take(length as u64 + 2), &mut std::io::sink());
        assert_eq!(copied.expect("its bytes"), length as u64 + 2);
        length
    }

    /// Sends a request, and returns the text of the bulk string that answers it.
    pub(crate) fn text(&mut self, request: &[u8]) -> String {
        let mut text = vec![0; bulk_bytes(&self.ask(request)) + 2];
        self.0.read_exact(&mut text).expect("its bytes");
        String::from_utf8(text).expect("text")
    }

    /// Sends bytes and an ECHO; returns all that comes before the reply to the ECHO.
    pub(crate) fn answers(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        self.send(bytes);
        self.send(b"ECHO this-is-the-end\r\n");
        let end = b"$15\r\nthis-is-the-end\r\n";
        let mut heard = Vec::new();
        while !heard.ends_with(end) {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            heard.push(byte[0]);
        }
        heard.truncate(heard.len() - end.len());
        Ok(heard)
    }

    /// All bytes until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            // What the server left unread when it closed turns the close into a reset.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
        rest
    }
}

/// The length that the first line of a bulk string announces.
fn bulk_bytes(head: &str) -> usize {
    let length = head.strip_prefix('$').and_then(|length| length.parse().ok());
    length.unwrap_or_else(|| panic!("no bulk string: {head}"))
}
