//! One connection: bytes in, requests to the engine, bytes out.
//!
//! Owns    the buffers of one stream and the session behind it.
//! Rule    per batch one read and one write. Nobody is read from while more than
//!         [`UNREAD_REPLY_BYTES_MAX`] of replies to it lie unread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::Sleep;

use super::house::House;
use crate::clock::LockTime;
use crate::engine::Flow;
use crate::error::ProtocolError;
use crate::limits::{UNAUTHENTICATED_REPLY_BYTES_MAX, UNREAD_REPLY_BYTES_MAX};
use crate::resp::{Decoder, Reply};
use crate::state::session::Session;

/// Room made for every read.
const READ_BYTES: usize = 16 * 1024;
/// Input buffer kept by an idle connection; what a large request needed is given back.
const INPUT_BYTES_KEPT: usize = 2 * READ_BYTES;
/// Output kept by an idle connection; what a large reply needed is given back.
const OUTPUT_BYTES_KEPT: usize = 64 * 1024;
/// Output gathered before it is sent although more requests wait in the buffer.
const OUTPUT_BYTES_BATCH: usize = 256 * 1024;
/// Rounds before other connections have their turn: a request that comes alone takes two.
const ROUNDS_PER_TURN: usize = 4;

/// One connection, until it ends.
pub(super) struct Connection<S> {
    stream: S,
    house: House,
    session: Session,
    decoder: Decoder,
    input: BytesMut,
    output: Vec<u8>,
    written: usize,
    state: State,
    sleep: Option<(LockTime, Pin<Box<Sleep>>)>,
    watching: Option<Waker>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Takes requests.
    Open,
    /// The request at the front of the input is held back until then.
    Held(LockTime),
    /// A call of the session waits.
    Waiting,
    /// Sends what is there and ends.
    Closing,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S, house: House, session: Session) -> Self {
        Self {
            stream,
            house,
            session,
            decoder: Decoder::new(),
            input: BytesMut::new(),
            output: Vec::new(),
            written: 0,
            state: State::Open,
            sleep: None,
            watching: None,
        }
    }

    /// Carries out the requests in the input, as far as they are whole and may run now. True when it stopped for the
    /// sake of the output, and more may follow once that is sent.
    fn carry_out(&mut self) -> bool {
        let engine = &self.house.engine;
        match self.state {
            State::Held(until) if until > engine.shared().clock.now().lock && engine.is_paused() => {
                return false;
            }
            State::Waiting => match engine.resume(&mut self.session, &mut self.output) {
                Flow::Next => {}
                _ => return false,
            },
            State::Closing => return false,
            _ => {}
        }
        self.state = State::Open;
        if self.input.is_empty() {
            return false;
        }
        let enough = self.output.len() + OUTPUT_BYTES_BATCH;
        let mut batch = engine.batch();
        let (mut taken, mut more) = (0, true);
        while self.state == State::Open && self.output.len() < enough {
            let buffer = &self.input[taken..];
            match self.decoder.next(buffer, engine.trust(&self.session)) {
                Ok(Some(bytes)) => {
                    let request = self.decoder.request(buffer);
                    match engine.execute(&mut self.session, request, &mut batch, &mut self.output) {
                        Flow::Next => {}
                        Flow::Close => self.state = State::Closing,
                        Flow::Again(until) => {
                            self.state = State::Held(until);
                            break;
                        }
                        Flow::Wait => self.state = State::Waiting,
                    }
                    taken += bytes;
                }
                Ok(None) => {
                    more = false;
                    break;
                }
                Err(error) => {
                    refuse(error, &self.session, &mut self.output);
                    self.state = State::Closing;
                }
            }
        }
        self.input.advance(taken);
        if taken > INPUT_BYTES_KEPT && self.input.len() < taken / 4 {
            // What a large request needed is not kept for the few bytes behind it.
            self.input = BytesMut::from(&self.input[..]);
        }
        engine.end_batch(&self.session, batch);
        more && self.state == State::Open
    }

    /// Sends what the output holds; pending when the peer does not take it.
    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.written < self.output.len() {
            let Poll::Ready(sent) = Pin::new(&mut self.stream).poll_write(cx, &self.output[self.written..])
            else {
                self.forget_written();
                return Poll::Pending;
            };
            let sent = sent?;
            if sent == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.house.engine.shared().metrics.output_bytes.add(sent as u64);
            self.written += sent;
        }
        self.written = 0;
        self.output.clear();
        if self.output.capacity() > OUTPUT_BYTES_KEPT {
            self.output = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Drops what has been sent, once that is most of the output: a slow reader never lets it run empty.
    fn forget_written(&mut self) {
        if self.written > OUTPUT_BYTES_KEPT && self.written > self.output.len() / 2 {
            self.output.drain(..self.written);
            self.output.shrink_to(2 * self.output.len());
            self.written = 0;
        }
    }

    /// Bytes of replies that the peer has yet to take.
    fn unread(&self) -> usize {
        self.output.len() - self.written
    }

    /// Receives into the input; true when something came, an error when nothing ever will.
    fn receive(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let wanted = self.decoder.wanted(&self.input);
        // What a bulk string still needs, but never much more than it has already sent: a claim costs nothing.
        self.input.reserve(READ_BYTES.max(wanted.min(self.input.len())));
        let received = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(cx))?;
        if received == 0 {
            return Poll::Ready(Err(std::io::ErrorKind::UnexpectedEof.into()));
        }
        self.house.engine.shared().metrics.input_bytes.add(received as u64);
        Poll::Ready(Ok(()))
    }

    /// Sleeps until what holds this connection back is over; true when it already is.
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        let until = match self.state {
            State::Held(until) => Some(until),
            State::Waiting => self.session.parked.as_ref().and_then(|parked| parked.until),
            _ => None,
        };
        let Some(until) = until else {
            self.sleep = None;
            return false;
        };
        let now = self.house.engine.shared().clock.now().lock;
        if until <= now {
            return true;
        }
        if self.house.is_manual() {
            return false;
        }
        if self.sleep.as_ref().is_none_or(|(moment, _)| *moment != until) {
            let sleep = tokio::time::sleep(Duration::from_millis(until.millis_since(now)));
            self.sleep = Some((until, Box::pin(sleep)));
        }
        let Some((_, sleep)) = &mut self.sleep else { return false };
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => {
                self.sleep = None;
                true
            }
            Poll::Pending => false,
        }
    }

    fn watch_mail(&mut self, cx: &mut Context<'_>) {
        if !self.watching.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            self.session.client.watch(cx.waker());
            self.watching = Some(cx.waker().clone());
        }
    }

    /// One round: requests, mail, output, input. Ready when another round may find something to do, or with an error
    /// when the connection is over.
    fn round(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let turn = self.house.turn();
        self.watch_mail(cx);
        if self.session.client.is_closing() {
            self.state = State::Closing;
        }
        let was_full = self.unread() >= UNREAD_REPLY_BYTES_MAX;
        let more = !was_full && self.carry_out();
        if self.session.client.is_cut() {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        // What cannot be sent soon stays in the mailbox, whose size is bounded.
        if self.session.client.has_mail() && self.unread() < OUTPUT_BYTES_BATCH {
            self.session.client.collect(&mut self.output);
        }
        let is_blocked = match self.flush(cx) {
            Poll::Ready(sent) => {
                sent?;
                false
            }
            Poll::Pending => true,
        };
        let unread = self.unread();
        let is_full = unread >= UNREAD_REPLY_BYTES_MAX;
        if self.state == State::Closing && !is_blocked {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        if !self.session.authenticated && unread > UNAUTHENTICATED_REPLY_BYTES_MAX {
            return Poll::Ready(Err(std::io::ErrorKind::PermissionDenied.into()));
        }
        if ((more || was_full) && !is_full)
            || (self.session.client.has_mail() && !is_blocked)
            || self.is_due(cx)
        {
            return Poll::Ready(Ok(()));
        }
        // A client that went away while its call waits is noticed by reading on; what it sent stays in the input.
        let waits = matches!(self.state, State::Held(_) | State::Waiting) && self.input.len() < READ_BYTES;
        if !is_full && (waits || (self.state == State::Open && !more)) {
            if let Poll::Ready(received) = self.receive(cx) {
                return Poll::Ready(received);
            }
            if self.input.is_empty() {
                self.decoder.trim();
                if self.input.capacity() > INPUT_BYTES_KEPT {
                    self.input = BytesMut::new();
                }
            }
        }
        self.session.client.query_bytes.store(self.input.len() as u64, Relaxed);
        self.session.client.reply_bytes.store(unread as u64, Relaxed);
        self.session.client.settled.store(turn, SeqCst);
        self.house.settled();
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Connection<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..ROUNDS_PER_TURN {
            if ready!(this.round(cx)).is_err() {
                return Poll::Ready(());
            }
        }
        // Whoever never pauses would otherwise keep the thread.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.house.engine.disconnect(&mut self.session);
        self.house.settled();
    }
}

/// Tells the client what is wrong with its frame.
fn refuse(error: ProtocolError, session: &Session, output: &mut Vec<u8>) {
    tracing::debug!(client = session.client.id, %error, "protocol error");
    if error != ProtocolError::RequestTooLarge {
        Reply::new(output, session.protocol).error_bytes(&error.line());
    }
}
