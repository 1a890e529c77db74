//! One connection: bytes in, requests to the desk, bytes out.
//!
//! Owns    the stream, and the desk while it is here.
//! Rule    per batch one read and one write, in the stages of its [crew](super::crew). Nobody is read from while more than
//!         [`UNREAD_REPLY_BYTES_MAX`] of replies to it lie unread.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::crew::{Member, Traffic};
use super::desk::{Desk, INPUT_BYTES_KEPT, OUTPUT_BYTES_BATCH, READ_BYTES, State};
use super::house::{House, Seat};
use crate::clock::LockTime;
use crate::limits::{UNAUTHENTICATED_REPLY_BYTES_MAX, UNREAD_REPLY_BYTES_MAX};
use crate::state::clients::Client;
use crate::state::session::Session;

/// Output kept by an idle connection; what a large reply needed is given back.
const OUTPUT_BYTES_KEPT: usize = 64 * 1024;
/// Reads of one round: the last of few finds that nothing more has come.
const READS_PER_ROUND: usize = 3;

/// One connection, until it ends.
pub(super) struct Connection<S> {
    line: Line<S>,
    place: Place,
    /// Asks to be the one whose desk is on a thread that may be held.
    permit: Option<Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
    /// Free for somebody else when all that is gone.
    _seat: Seat,
}

/// Where the desk is.
enum Place {
    Here(Box<Desk>),
    /// On a thread that may be held.
    Away(JoinHandle<Box<Desk>>),
    /// Lost: that thread has panicked, or the runtime ends.
    Lost,
}

/// What stays while the desk is away.
struct Line<S> {
    stream: S,
    house: House,
    client: Arc<Client>,
    sleep: Option<(LockTime, Pin<Box<Sleep>>)>,
    /// More may have come than has been received: nobody is called for that.
    may_have_more: bool,
    /// The step of a manual clock that this round belongs to.
    turn: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S, house: House, session: Session, seat: Seat) -> Self {
        let line = Line {
            stream,
            house: house.clone(),
            client: Arc::clone(&session.client),
            sleep: None,
            may_have_more: true,
            turn: 0,
        };
        Self { line, place: Place::Here(Box::new(Desk::new(house, session))), permit: None, _seat: seat }
    }

    /// Carries the desk to a thread that may be held, when its turn has come.
    fn send_away(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let house = &self.line.house;
        let permit = self.permit.get_or_insert_with(|| Box::pin(house.permit()));
        let permit = ready!(permit.as_mut().poll(cx));
        self.permit = None;
        if let Place::Here(mut desk) = std::mem::replace(&mut self.place, Place::Lost) {
            self.place = Place::Away(tokio::task::spawn_blocking(move || {
                desk.carry_out_aside();
                drop(permit);
                desk
            }));
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Member for Connection<S> {
    fn watch(&mut self, waker: &Waker) {
        let waker = waker.clone();
        self.line.client.set_notifier(move || waker.wake_by_ref());
    }

    fn receive(&mut self, may_have: bool, traffic: &mut Traffic, cx: &mut Context<'_>) -> io::Result<usize> {
        self.line.turn = self.line.house.turn();
        self.line.may_have_more |= may_have;
        if let Place::Away(away) = &mut self.place
            && let Poll::Ready(desk) = Pin::new(away).poll(cx)
        {
            self.place = desk.map_or(Place::Lost, Place::Here);
        }
        match &mut self.place {
            Place::Here(desk) => self.line.receive(desk, traffic, cx)?,
            Place::Away(_) => {}
            Place::Lost => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
        Ok(0)
    }

    fn desk_mut(&mut self) -> Option<&mut Desk> {
        match &mut self.place {
            Place::Here(desk) if !is_full(desk) => Some(desk),
            _ => None,
        }
    }

    fn answer(&mut self, traffic: &mut Traffic, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Place::Here(desk) = &mut self.place else {
            // Whoever moves the clock does not wait for what takes long.
            if self.line.house.engine.shared().keyspace.long_call.is_on() {
                self.line.settle();
            }
            return Poll::Pending;
        };
        let state = self.line.answer(desk, traffic, cx);
        if state.is_ready() || !matches!(desk.state, State::Offload(_)) {
            self.permit = self.permit.take().filter(|_| matches!(desk.state, State::Offload(_)));
            return state;
        }
        self.send_away(cx).map(Ok)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    /// Receives what has come, unless there is enough to do.
    fn receive(&mut self, desk: &mut Desk, traffic: &mut Traffic, cx: &mut Context<'_>) -> io::Result<()> {
        for read in 0..READS_PER_ROUND {
            if !self.may_have_more || !wants_input(desk) {
                break;
            }
            if read == 0 || desk.input.len() == desk.input.capacity() {
                make_room(desk);
            }
            match self.receive_some(desk, cx) {
                Poll::Ready(Ok(received)) => traffic.received += received as u64,
                Poll::Pending => self.may_have_more = false,
                // What came before the end is carried out before it.
                Poll::Ready(Err(_)) if read > 0 => break,
                Poll::Ready(Err(over)) => return Err(over),
            }
        }
        Ok(())
    }

    /// Receives into the input: how much.
    fn receive_some(&mut self, desk: &mut Desk, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let received = ready!(pin!(self.stream.read_buf(&mut desk.input)).poll(cx))?;
        if received == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        if received >= desk.read_bytes {
            desk.read_bytes = READ_BYTES;
        }
        if received < desk.input.len() {
            // Part of a request is a sign of life too.
            let now = self.house.clock().now().lock;
            self.client.last_active_ms.store(now.as_millis(), Relaxed);
        }
        Poll::Ready(Ok(received))
    }

    /// Sends what the output holds; pending when the peer does not take it.
    fn flush(
        &mut self,
        desk: &mut Desk,
        traffic: &mut Traffic,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while desk.written < desk.output.len() {
            let Poll::Ready(sent) = Pin::new(&mut self.stream).poll_write(cx, &desk.output[desk.written..])
            else {
                forget_written(desk);
                return Poll::Pending;
            };
            let sent = sent?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            traffic.sent += sent as u64;
            desk.written += sent;
        }
        // What a stream has taken may lie in a record that its socket has not.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        desk.written = 0;
        desk.output.clear();
        if desk.output.capacity() > OUTPUT_BYTES_KEPT {
            desk.output = Vec::new();
        }
        flushed
    }

    /// Sleeps until what holds this connection back is over; true when it already is.
    fn is_due(&mut self, desk: &Desk, cx: &mut Context<'_>) -> bool {
        let Some(until) = desk.until() else {
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

    /// The connection has seen to everything of this turn.
    fn settle(&self) {
        if self.house.is_manual() {
            self.client.settled.store(self.turn, SeqCst);
            self.house.settled();
        }
    }

    /// Sends replies and mail. Ready when another round may find something to do, or with an error when the connection is
    /// over.
    fn answer(
        &mut self,
        desk: &mut Desk,
        traffic: &mut Traffic,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let was_full = is_full(desk);
        if self.client.is_cut() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        // What cannot be sent soon stays in the outbox, whose size is bounded. The answer of a call that waits
        // stays there, too, with all that comes behind it, until the engine takes it out.
        if self.client.has_messages() && desk.unread() < OUTPUT_BYTES_BATCH {
            self.client.collect(&mut desk.output);
        }
        let is_blocked = match self.flush(desk, traffic, cx) {
            Poll::Ready(sent) => {
                sent?;
                false
            }
            Poll::Pending => true,
        };
        let unread = desk.unread();
        if is_blocked && self.client.is_too_far_behind(unread) {
            self.client.drop_behind();
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let is_full = is_full(desk);
        if desk.state == State::Closing && !is_blocked {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if unread > UNAUTHENTICATED_REPLY_BYTES_MAX && !desk.is_trusted() {
            return Poll::Ready(Err(io::ErrorKind::PermissionDenied.into()));
        }
        if ((desk.has_more || was_full) && !is_full)
            || (self.client.has_messages() && !is_blocked)
            || (self.may_have_more && wants_input(desk))
            || self.is_due(desk, cx)
        {
            return Poll::Ready(Ok(()));
        }
        if desk.input.is_empty() {
            self.tidy(desk);
        }
        self.client.is_held.store(desk.is_held(), Relaxed);
        self.client.query_bytes.store(desk.input.len() as u64, Relaxed);
        self.client.query_room.store((desk.input.capacity() - desk.input.len()) as u64, Relaxed);
        self.client.reply_bytes.store(unread as u64, Relaxed);
        if !matches!(desk.state, State::Offload(_)) {
            self.settle();
        }
        Poll::Pending
    }

    /// Gives back what unusual requests have left behind, and everything when nothing has been heard for long.
    fn tidy(&self, desk: &mut Desk) {
        desk.decoder.trim();
        if desk.input.capacity() > INPUT_BYTES_KEPT {
            desk.input = BytesMut::new();
        }
        if self.client.is_to_rest() {
            desk.rest();
        }
    }
}

/// Room for what comes next: what a bulk string still needs, but never much more than its sender has already sent, whom a
/// claim costs nothing.
fn make_room(desk: &mut Desk) {
    let wanted = desk.decoder.wanted(&desk.input);
    desk.input.reserve(desk.read_bytes.max(wanted.min(desk.input.len())));
}

/// Whether so much lies unread that nothing more is to be done for the peer.
fn is_full(desk: &Desk) -> bool {
    desk.unread() >= UNREAD_REPLY_BYTES_MAX
}

/// Whether more is to be received.
fn wants_input(desk: &Desk) -> bool {
    // A client that went away while its call waits is noticed by reading on; what it sent stays in the input.
    let waits = desk.is_held() && desk.input.len() < READ_BYTES;
    !is_full(desk) && (waits || (desk.state == State::Open && !desk.has_more))
}

/// Drops what has been sent, once that is most of the output: a slow reader never lets it run empty.
fn forget_written(desk: &mut Desk) {
    if desk.written > OUTPUT_BYTES_KEPT && desk.written > desk.output.len() / 2 {
        desk.output.drain(..desk.written);
        desk.output.shrink_to(2 * desk.output.len());
        desk.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::ReadBuf;

    use super::*;
    use crate::server::{Builder, listen};

    /// A peer that always takes what it is sent, and sends the same request so many times; then it has gone, or waits.
    #[derive(Default)]
    struct Peer {
        left: usize,
        then_goes: bool,
        received: Vec<u8>,
    }

    impl AsyncRead for Peer {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.left == 0 {
                return if self.then_goes { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            self.left -= 1;
            to.put_slice(b"PING\r\n");
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Peer {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.received.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Takes such a connection through so many rounds: whether it asks for another one after each, and how many replies its
    /// peer has then; an error where it is over.
    async fn rounds(peer: Peer, rounds: usize) -> Vec<(Poll<bool>, usize)> {
        let server = Builder::default().start().await.unwrap();
        let house = server.house().clone();
        let session = listen::enter(&house, String::new(), String::new(), false);
        let mut connection = Connection::new(peer, house.clone(), session, house.seat().unwrap());
        let cx = &mut Context::from_waker(Waker::noop());
        let mut round = || {
            if connection.receive(false, &mut Traffic::default(), cx).is_err() {
                return Poll::Ready(false);
            }
            let mut batch = house.engine.batch();
            connection.desk_mut().unwrap().carry_out(&mut batch);
            house.engine.settle_batch(batch);
            connection.answer(&mut Traffic::default(), cx).map(|answered| answered.is_ok())
        };
        let mut seen = Vec::new();
        for _ in 0..rounds {
            let state = round();
            seen.push((state, 0));
        }
        seen.last_mut().unwrap().1 = connection.line.stream.received.len() / b"+PONG\r\n".len();
        seen
    }

    #[tokio::test]
    async fn a_client_that_never_pauses_is_read_from_so_often_in_a_round() {
        let peer = || Peer { left: usize::MAX, ..Peer::default() };
        assert_eq!(rounds(peer(), 1).await, [(Poll::Ready(true), READS_PER_ROUND)]);
        assert_eq!(rounds(peer(), 2).await[1], (Poll::Ready(true), 2 * READS_PER_ROUND));
    }

    #[tokio::test]
    async fn a_client_that_waits_has_its_reply_in_the_round_of_its_request() {
        let peer = Peer { left: 1, ..Peer::default() };
        assert_eq!(rounds(peer, 1).await, [(Poll::Pending, 1)]);
    }

    #[tokio::test]
    async fn a_client_that_goes_away_has_its_requests_carried_out_before() {
        for left in 1..=READS_PER_ROUND {
            let peer = Peer { left, then_goes: true, ..Peer::default() };
            assert_eq!(rounds(peer, 2).await, [(Poll::Ready(true), 0), (Poll::Ready(false), left)], "{left}");
        }
    }
}
