//! One connection to a server: requests, their replies, and pushes between them.
//!
//! Rule    every call may be dropped at any point: what it left unanswered is read, and dropped, by the next one.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use redlatch_proto::resp::Protocol;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::error::Error;
use super::target::Target;
use crate::received::{Replies, Reply, encode};

/// A stream of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub struct Connection {
    stream: Box<dyn Stream>,
    protocol: Protocol,
    is_in_cluster: bool,
    replies: Replies,
    /// Bytes of requests that have not been written.
    output: Vec<u8>,
    /// Requests whose replies have not been read.
    unanswered: usize,
    pushes: VecDeque<Vec<Reply>>,
    /// How long a request that does not wait may take.
    step_max: Duration,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("unanswered", &self.unanswered).finish_non_exhaustive()
    }
}

impl Connection {
    pub fn over(stream: Box<dyn Stream>, step_max: Duration) -> Self {
        Self {
            stream,
            protocol: Protocol::Resp2,
            is_in_cluster: false,
            replies: Replies::default(),
            output: Vec::new(),
            unanswered: 0,
            pushes: VecDeque::new(),
            step_max,
        }
    }

    /// Logs in, in RESP3 where the server knows it, and chooses the database.
    ///
    /// # Errors
    /// The server refuses the login or the database, or the connection fails.
    pub async fn enter(&mut self, target: &Target) -> Result<(), Error> {
        let user = if target.user.is_empty() { "default" } else { &target.user };
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if !target.password.is_empty() {
            hello.extend([&b"AUTH"[..], user.as_bytes(), target.password.as_bytes()]);
        }
        // An error reply is the same in both.
        self.protocol = Protocol::Resp3;
        match self.call(&hello).await {
            Ok(reply) => self.is_in_cluster = reply.field("mode").is_some_and(|mode| mode.is("cluster")),
            Err(Error::Refused(text)) if is_unknown(&text) || text.starts_with("NOPROTO") => {
                self.protocol = Protocol::Resp2;
                self.authenticate(target).await?;
            }
            Err(error) => return Err(error),
        }
        if target.database != 0 {
            self.call(&[b"SELECT", target.database.to_string().as_bytes()]).await?;
        }
        // What LOCK.WHO shows of this client. Servers before Redis 7.2 refuse it.
        for (field, value) in [("LIB-NAME", "redlatch"), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
            self.ask(&[b"CLIENT", b"SETINFO", field.as_bytes(), value.as_bytes()]).await?;
        }
        Ok(())
    }

    /// Speaks RESP3 from now on.
    ///
    /// # Errors
    /// The server refuses it, or the connection fails.
    pub async fn speak_resp3(&mut self) -> Result<(), Error> {
        self.protocol = Protocol::Resp3;
        self.call(&[b"HELLO", b"3"]).await.map(drop)
    }

    /// Sends the password, if there is one.
    ///
    /// # Errors
    /// The server refuses it, or the connection fails.
    pub async fn authenticate(&mut self, target: &Target) -> Result<(), Error> {
        if target.password.is_empty() {
            return Ok(());
        }
        let mut words: Vec<&[u8]> = vec![b"AUTH"];
        words.extend((!target.user.is_empty()).then_some(target.user.as_bytes()));
        words.push(target.password.as_bytes());
        self.call(&words).await.map(drop)
    }

    /// Like [`Self::ask`]; an error reply is an error.
    pub async fn call(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        match self.ask(words).await? {
            Reply::Error(text) => Err(Error::of_reply(text)),
            reply => Ok(reply),
        }
    }

    /// Sends a request and returns its reply.
    ///
    /// # Errors
    /// The connection fails, takes too long, or carries something that is no reply.
    pub async fn ask(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        let step_max = self.step_max;
        timeout(step_max, self.ask_and_wait(words)).await.unwrap_or_else(|_| Err(no_answer(step_max)))
    }

    /// Like [`Self::ask`]; `hear` is called with each push that comes before the reply, in place of [`Self::next_push`].
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn ask_hearing(
        &mut self,
        words: &[&[u8]],
        mut hear: impl FnMut(&[Reply]),
    ) -> Result<Reply, Error> {
        let step_max = self.step_max;
        let answered = async {
            self.send(words).await?;
            loop {
                match self.answer_or_push().await? {
                    Reply::Push(items) => hear(&items),
                    reply => return Ok(reply),
                }
            }
        };
        timeout(step_max, answered).await.unwrap_or_else(|_| Err(no_answer(step_max)))
    }

    /// Sends a request that may wait, and returns its reply whenever it comes.
    ///
    /// # Errors
    /// The connection fails, or carries something that is no reply.
    pub async fn ask_and_wait(&mut self, words: &[&[u8]]) -> Result<Reply, Error> {
        self.send(words).await?;
        self.answer().await
    }

    /// Sends a request, whose reply is read later.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn send(&mut self, words: &[&[u8]]) -> Result<(), Error> {
        encode(words, &mut self.output);
        self.unanswered += 1;
        self.flush().await
    }

    /// Sends a request that pushes answer, and no reply: SUBSCRIBE in RESP3.
    ///
    /// # Errors
    /// The connection fails.
    pub async fn tell(&mut self, words: &[&[u8]]) -> Result<(), Error> {
        encode(words, &mut self.output);
        self.flush().await
    }

    /// Whether the server is in cluster mode, as it said at the login.
    pub fn is_in_cluster(&self) -> bool {
        self.is_in_cluster
    }

    /// Whether the connection has not ended, as far as is known here. A push that has come is dropped.
    pub(crate) async fn is_open(&mut self) -> bool {
        tokio::select! {
            biased;
            push = self.next_push() => push.is_ok(),
            () = std::future::ready(()) => true,
        }
    }

    /// Whether a request has no reply yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.unanswered > 0
    }

    /// Whether the server sends messages beside replies.
    pub fn has_pushes(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// The reply to the request that was sent last, whenever it comes.
    ///
    /// # Errors
    /// The connection fails, or carries something that is no reply.
    pub async fn answer(&mut self) -> Result<Reply, Error> {
        loop {
            match self.answer_or_push().await? {
                Reply::Push(_) if self.pushes.len() >= PUSHES_MAX => {
                    return Err(Error::Broken(format!("more than {PUSHES_MAX} messages before a reply")));
                }
                Reply::Push(items) => self.pushes.push_back(items),
                reply => return Ok(reply),
            }
        }
    }

    /// The reply to the request that was sent last, or a push that comes before it.
    async fn answer_or_push(&mut self) -> Result<Reply, Error> {
        loop {
            let reply = self.receive().await?;
            if !matches!(reply, Reply::Push(_)) {
                self.unanswered = self.unanswered.saturating_sub(1);
                if self.unanswered > 0 {
                    continue;
                }
            }
            return Ok(reply);
        }
    }

    /// Waits for the next push.
    ///
    /// # Errors
    /// The connection fails, or carries something that is no reply.
    pub async fn next_push(&mut self) -> Result<Vec<Reply>, Error> {
        loop {
            if let Some(push) = self.pushes.pop_front() {
                return Ok(push);
            }
            self.flush().await?;
            match self.receive().await? {
                Reply::Push(items) => return Ok(items),
                _ => self.unanswered = self.unanswered.saturating_sub(1),
            }
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        while !self.output.is_empty() {
            // Nothing is awaited between the write and the removal of what was written.
            let written = self.stream.write(&self.output).await?;
            if written == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into());
            }
            self.output.drain(..written);
        }
        Ok(self.stream.flush().await?)
    }

    async fn receive(&mut self) -> Result<Reply, Error> {
        loop {
            if let Some(reply) = self.replies.next()? {
                return Ok(reply);
            }
            if self.stream.read_buf(&mut self.replies.bytes).await? == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
        }
    }
}

fn no_answer(step_max: Duration) -> Error {
    Error::unreachable(format!("no answer within {step_max:?}"))
}

/// Pushes that are kept for [`Connection::next_push`]. A server that sends more before a reply has failed.
const PUSHES_MAX: usize = 100_000;

/// Whether an error reply says that the server does not know the command, or its subcommand.
pub fn is_unknown(text: &str) -> bool {
    let starts_with =
        |start: &str| text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start));
    starts_with("ERR unknown command") || starts_with("ERR unknown subcommand")
}

/// Whether an error reply says that the server is about to close the connection, because it shuts down.
pub(crate) fn is_ending(text: &str) -> bool {
    text.starts_with("SHUTDOWN ") || text.starts_with("UNBLOCKED the server ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_sends_messages_in_place_of_a_reply_has_failed() {
        let sent = std::io::Cursor::new(b">0\r\n".repeat(PUSHES_MAX + 1));
        let stream = tokio::io::join(sent, tokio::io::sink());
        let mut connection = Connection::over(Box::new(stream), Duration::from_secs(3_600));
        let asked = connection.ask(&[b"PING"]).await;
        assert!(matches!(asked, Err(Error::Broken(_))), "{asked:?}");
    }

    #[test]
    fn an_unknown_command_or_subcommand_is_known_by_its_text_in_any_case() {
        for text in [
            "ERR unknown command 'LOCK.WHO', with args beginning with: 'a' ",
            "ERR Unknown command `hello`",
            "ERR unknown subcommand 'no-touch'. Try CLIENT HELP.",
            "ERR Unknown subcommand or wrong number of arguments for 'SETINFO'",
        ] {
            assert!(is_unknown(text), "{text}");
        }
        for text in [
            "", "ERR unknown", "ERR syntax error", "NOPERM unknown command",
            "ERR unknown \u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert!(!is_unknown(text), "{text}");
        }
    }
}
