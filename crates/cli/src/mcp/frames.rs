//! Messages of the protocol on two streams: one line of JSON each.
//!
//! Rule    a line is bounded before it is read whole. What cannot be read is answered with an error, and the next line
//!         is read.
//! Rule    reading may be interrupted at any point, as the SDK does it: a line that has begun goes on with the next call.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use serde_json::error::Category;
use tokio::io::{self, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// The bytes of a message at most, without the end of its line.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;

pub(super) struct Frames<R, W> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// Whether the rest of the line is skipped, because it is too long.
    is_skipping: bool,
    output: Arc<Mutex<W>>,
    /// The answer to a line that could not be read, until it is written.
    answering: Option<JoinHandle<io::Result<()>>>,
    /// True from the end of the input on, or when nobody reads the output.
    closed: watch::Sender<bool>,
}

/// What a reader has found.
enum Found {
    End,
    Line,
    /// A line that is longer than [`FRAME_BYTES_MAX`], up to there.
    TooLong,
}

impl<R: AsyncRead + Unpin, W> Frames<R, W> {
    pub(super) fn new(input: R, output: W, closed: watch::Sender<bool>) -> Self {
        let (input, output) = (BufReader::new(input), Arc::new(Mutex::new(output)));
        Self { input, line: Vec::new(), is_skipping: false, output, answering: None, closed }
    }

    /// Reads up to the end of a line.
    async fn read_line(&mut self) -> Found {
        loop {
            let Ok(read) = self.input.fill_buf().await else { return Found::End };
            if read.is_empty() {
                return Found::End;
            }
            // Nothing is awaited between the look at the bytes and their removal.
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            let is_too_long = !self.is_skipping && self.line.len() + part.len() > FRAME_BYTES_MAX;
            if !self.is_skipping && !is_too_long {
                self.line.extend_from_slice(part);
            }
            let taken = end.map_or(read.len(), |end| end + 1);
            self.input.consume(taken);
            let was_skipping = self.is_skipping;
            self.is_skipping = end.is_none() && (was_skipping || is_too_long);
            if is_too_long {
                self.line = Vec::new();
                return Found::TooLong;
            }
            if end.is_some() && !was_skipping {
                return Found::Line;
            }
        }
    }
}

impl<R, W> Transport<RoleServer> for Frames<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (output, closed) = (Arc::clone(&self.output), self.closed.clone());
        async move {
            let written = write(&output, &message).await;
            if written.is_err() {
                closed.send_replace(true);
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let mut closed = self.closed.subscribe();
        loop {
            if let Some(answering) = &mut self.answering {
                // An answer that could not be written has closed the connection.
                let _ = answering.await;
                self.answering = None;
            }
            let found = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => Found::End,
                found = self.read_line() => found,
            };
            let fault = match found {
                Found::End => {
                    self.closed.send_replace(true);
                    return None;
                }
                Found::TooLong => {
                    let fault = format!("a message has more than {FRAME_BYTES_MAX} bytes");
                    (ErrorData::new(ErrorCode::INVALID_REQUEST, fault, None), None)
                }
                Found::Line => {
                    let line = std::mem::take(&mut self.line);
                    if line.trim_ascii().is_empty() {
                        continue;
                    }
                    match serde_json::from_slice(&line) {
                        Ok(message) => return Some(message),
                        Err(error) => unreadable(&line, &error),
                    }
                }
            };
            let (fault, id) = fault;
            let answer = self.send(TxJsonRpcMessage::<RoleServer>::error(fault, id));
            self.answering = Some(tokio::spawn(answer));
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.output.lock().await.flush().await
    }
}

async fn write(
    output: &Mutex<impl AsyncWrite + Unpin>,
    message: &TxJsonRpcMessage<RoleServer>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = output.lock().await;
    output.write_all(&line).await?;
    output.flush().await
}

/// Why a line is no message, and the id of the request that it was meant to be.
fn unreadable(line: &[u8], error: &serde_json::Error) -> (ErrorData, Option<RequestId>) {
    if matches!(error.classify(), Category::Eof | Category::Syntax) {
        return (ErrorData::new(ErrorCode::PARSE_ERROR, format!("no JSON: {error}"), None), None);
    }
    let value: Value = serde_json::from_slice(line).unwrap_or_default();
    let id = value.get("id").cloned().and_then(|id| serde_json::from_value(id).ok());
    (ErrorData::new(ErrorCode::INVALID_REQUEST, "no message of the protocol", None), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Streams = (Vec<Option<RxJsonRpcMessage<RoleServer>>>, String);

    /// What is received from the bytes, and what is written.
    async fn read(bytes: &[u8]) -> Streams {
        let (mut client, server) = io::duplex(1 << 24);
        client.write_all(bytes).await.expect("room for all");
        client.shutdown().await.expect("an end");
        let (input, output) = io::split(server);
        let mut frames = Frames::new(input, output, watch::channel(false).0);
        let mut received = vec![frames.receive().await];
        while received.last().is_some_and(Option::is_some) {
            received.push(frames.receive().await);
        }
        drop(frames);
        let mut written = String::new();
        io::AsyncReadExt::read_to_string(&mut client, &mut written).await.expect("text");
        (received, written)
    }

    const PING: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

    #[tokio::test]
    async fn what_is_no_message_is_answered_and_the_next_line_is_read() {
        for (line, part) in [
            (&b"garbage"[..], "no JSON"),
            (b"{\"jsonrpc\":", "no JSON"),
            (b"\xff\xfe", "no JSON"),
            (b"[1]", "no message of the protocol"),
            (br#"{"jsonrpc":"2.0","id":"x","method":7}"#, r#""id":"x""#),
        ] {
            let (received, written) = read(&[line, b"\n\r\n \n", PING, b"\n"].concat()).await;
            assert_eq!(received.len(), 2, "the ping and the end: {received:?}");
            assert_eq!(written.lines().count(), 1, "{written}");
            assert!(written.contains(part), "{part}: {written}");
        }
    }

    #[tokio::test]
    async fn a_line_is_read_up_to_its_bound_and_a_longer_one_is_skipped() {
        for (spaces, count) in [(FRAME_BYTES_MAX - PING.len(), 2), (FRAME_BYTES_MAX - PING.len() + 1, 1)] {
            let (received, written) = read(&[PING, &vec![b' '; spaces], b"\n", PING, b"\n"].concat()).await;
            assert_eq!(received.len(), count + 1, "{written}");
            assert_eq!(written.contains("more than 1048576 bytes"), count == 1, "{written}");
        }
        let (received, written) = read(&[&vec![b'x'; 3 * FRAME_BYTES_MAX], PING].concat()).await;
        assert_eq!(
            (received.len(), written.lines().count()),
            (1, 1),
            "one answer to a line that does not end"
        );
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_no_message() {
        let (received, written) = read(PING).await;
        assert_eq!((received.len(), written.as_str()), (1, ""));
    }
}
