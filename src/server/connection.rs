//! One connection: bytes in, requests to the desk, bytes out.
//!
//! Owns    the stream, and the desk while it is here.
//! Rule    per batch one read and one write. Nobody is read from while more than
//!         [`UNREAD_REPLY_BYTES_MAX`] of replies to it lie unread.
//! Rule    replies are sent when all who were ready together have had their requests carried out, as in Redis: a client
//!         that waits for several connections is woken once, and not by each. Whoever does not wait for replies has
//!         them at once, and others their turn after that.

use std::future::Future;
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

use super::desk::{Desk, INPUT_BYTES_KEPT, OUTPUT_BYTES_BATCH, READ_BYTES, State};
use super::house::House;
use crate::clock::LockTime;
use crate::limits::{UNAUTHENTICATED_REPLY_BYTES_MAX, UNREAD_REPLY_BYTES_MAX, WORK_MAX};
use crate::state::clients::Client;
use crate::state::session::Session;

/// Output kept by an idle connection; what a large reply needed is given back.
const OUTPUT_BYTES_KEPT: usize = 64 * 1024;
/// Rounds before other connections have their turn: a request that comes alone takes two.
const ROUNDS_PER_TURN: usize = 4;

/// One connection, until it ends.
pub(super) struct Connection<S> {
    line: Line<S>,
    place: Place,
    /// Asks to be the one whose desk is on a thread that may be held.
    permit: Option<Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
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
    watching: Option<Waker>,
    /// Nothing had come when it was last looked for: the peer waits for its replies, and leaves others their time.
    has_paused: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S, house: House, session: Session) -> Self {
        let client = Arc::clone(&session.client);
        let line =
            Line { stream, house: house.clone(), client, sleep: None, watching: None, has_paused: true };
        Self { line, place: Place::Here(Box::new(Desk::new(house, session))), permit: None }
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

    /// One round, wherever the desk is. Ready when another may find something to do, or with an error when the connection
    /// is over.
    fn round(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.place {
            Place::Here(desk) => {
                let state = self.line.round(desk, cx);
                if state.is_ready() || !matches!(desk.state, State::Aside(_)) {
                    self.permit = self.permit.take().filter(|_| matches!(desk.state, State::Aside(_)));
                    return state;
                }
                self.send_away(cx).map(Ok)
            }
            Place::Away(away) => {
                let turn = self.line.house.turn();
                self.line.watch_mail(cx);
                let Poll::Ready(desk) = Pin::new(away).poll(cx) else {
                    // Whoever moves the clock does not wait for what takes long.
                    if self.line.house.engine.shared().keyspace.occupancy.is_on() {
                        self.line.settle(turn);
                    }
                    return Poll::Pending;
                };
                self.place = desk.map_or(Place::Lost, Place::Here);
                Poll::Ready(Ok(()))
            }
            Place::Lost => Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    /// Sends what the output holds; pending when the peer does not take it.
    fn flush(&mut self, desk: &mut Desk, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while desk.written < desk.output.len() {
            let Poll::Ready(sent) = Pin::new(&mut self.stream).poll_write(cx, &desk.output[desk.written..])
            else {
                forget_written(desk);
                return Poll::Pending;
            };
            let sent = sent?;
            if sent == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            self.house.engine.shared().metrics.output_bytes.add(sent as u64);
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

    /// Receives into the input; true when something came, an error when nothing ever will.
    fn receive(&mut self, desk: &mut Desk, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let wanted = desk.decoder.wanted(&desk.input);
        // What a bulk string still needs, but never much more than it has already sent: a claim costs nothing.
        desk.input.reserve(desk.read_bytes.max(wanted.min(desk.input.len())));
        let received = ready!(pin!(self.stream.read_buf(&mut desk.input)).poll(cx))?;
        if received == 0 {
            return Poll::Ready(Err(std::io::ErrorKind::UnexpectedEof.into()));
        }
        if received >= desk.read_bytes {
            desk.read_bytes = READ_BYTES;
        }
        if received < desk.input.len() {
            // Part of a request is a sign of life too.
            let now = self.house.clock().now().lock;
            self.client.last_active_ms.store(now.as_millis(), Relaxed);
        }
        self.house.engine.shared().metrics.input_bytes.add(received as u64);
        Poll::Ready(Ok(()))
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

    fn watch_mail(&mut self, cx: &mut Context<'_>) {
        if !self.watching.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            self.client.watch(cx.waker());
            self.watching = Some(cx.waker().clone());
        }
    }

    /// The connection has seen to everything of that turn.
    fn settle(&self, turn: u64) {
        if self.house.is_manual() {
            self.client.settled.store(turn, SeqCst);
            self.house.settled();
        }
    }

    /// One round: requests, mail, output, input. Ready when another round may find something to do, or with an error
    /// when the connection is over.
    fn round(&mut self, desk: &mut Desk, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let turn = self.house.turn();
        self.watch_mail(cx);
        if self.client.is_closing() {
            desk.state = State::Closing;
        }
        let was_full = desk.unread() >= UNREAD_REPLY_BYTES_MAX;
        let so_far = desk.output.len();
        let more = !was_full && desk.carry_out();
        let has_replied = desk.output.len() > so_far && desk.state == State::Open;
        if has_replied && !more && self.has_paused {
            self.has_paused = false;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.client.is_cut() {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        // What cannot be sent soon stays in the mailbox, whose size is bounded. The answer of a call that waits
        // stays there, too, with all that comes behind it, until the engine takes it out.
        if self.client.has_mail() && desk.unread() < OUTPUT_BYTES_BATCH {
            self.client.collect(&mut desk.output);
        }
        let is_blocked = match self.flush(desk, cx) {
            Poll::Ready(sent) => {
                sent?;
                false
            }
            Poll::Pending => true,
        };
        let unread = desk.unread();
        if is_blocked && self.client.is_too_far_behind(unread) {
            self.client.drop_behind();
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        let is_full = unread >= UNREAD_REPLY_BYTES_MAX;
        if desk.state == State::Closing && !is_blocked {
            return Poll::Ready(Err(std::io::ErrorKind::ConnectionAborted.into()));
        }
        if !desk.is_trusted() && unread > UNAUTHENTICATED_REPLY_BYTES_MAX {
            return Poll::Ready(Err(std::io::ErrorKind::PermissionDenied.into()));
        }
        if ((more || was_full) && !is_full)
            || (self.client.has_mail() && !is_blocked)
            || self.is_due(desk, cx)
        {
            return Poll::Ready(Ok(()));
        }
        // A client that went away while its call waits is noticed by reading on; what it sent stays in the input.
        let waits = desk.is_held() && desk.input.len() < READ_BYTES;
        if !is_full && (waits || (desk.state == State::Open && !more)) {
            if let Poll::Ready(received) = self.receive(desk, cx) {
                return Poll::Ready(received);
            }
            self.has_paused = true;
            if desk.input.is_empty() {
                desk.decoder.trim();
                if desk.input.capacity() > INPUT_BYTES_KEPT {
                    desk.input = BytesMut::new();
                }
                if self.client.is_to_rest() {
                    desk.rest();
                }
            }
        }
        self.client.is_held.store(desk.is_held(), Relaxed);
        self.client.query_bytes.store(desk.input.len() as u64, Relaxed);
        self.client.reply_bytes.store(unread as u64, Relaxed);
        if !matches!(desk.state, State::Aside(_)) {
            self.settle(turn);
        }
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
            if matches!(&this.place, Place::Here(desk) if desk.session.work >= WORK_MAX) {
                break;
            }
        }
        // Whoever never pauses would otherwise keep the thread. It comes again once the runtime has looked who else is ready.
        pin!(tokio::task::yield_now()).poll(cx)
    }
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
    use std::io;
    use std::sync::Arc;

    use tokio::io::ReadBuf;

    use super::*;
    use crate::clock::LockTime;
    use crate::server::Builder;
    use crate::state::clients::Client;

    /// A peer that always takes what it is sent, and waits for replies or not.
    #[derive(Default)]
    struct Peer {
        /// Requests that it has yet to send.
        left: usize,
        received: Vec<u8>,
    }

    impl AsyncRead for Peer {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Some(left) = self.left.checked_sub(1) else { return Poll::Pending };
            self.left = left;
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

    /// Lets such a connection have so many turns: after each one, how often it has asked for another, and what its peer has
    /// received.
    async fn turns(requests: usize, turns: usize) -> Vec<(usize, String)> {
        let server = Builder::default().start().await.unwrap();
        let house = server.house().clone();
        let client = Client::new(1, String::new(), String::new(), false, LockTime::from_millis(1));
        let session = house.engine.connect(client);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let peer = Peer { left: requests, ..Peer::default() };
        let mut connection = Connection::new(peer, house, session);
        let mut seen = Vec::new();
        for _ in 0..turns {
            assert!(Pin::new(&mut connection).poll(&mut Context::from_waker(&waker)).is_pending());
            tokio::task::yield_now().await;
            let received = String::from_utf8_lossy(&connection.line.stream.received).into_owned();
            seen.push((woken.0.load(SeqCst), received));
        }
        seen
    }

    #[tokio::test]
    async fn a_client_that_never_pauses_gives_others_their_turn() {
        let seen = turns(usize::MAX, 3).await;
        assert!(seen.iter().map(|(wakes, _)| *wakes).eq([1, 2, 3]), "and asks for its next one: {seen:?}");
        assert!(seen[2].1.starts_with("+PONG\r\n+PONG\r\n+PONG\r\n"), "{seen:?}");
    }

    #[tokio::test]
    async fn a_reply_is_sent_when_others_have_had_their_requests_carried_out() {
        assert_eq!(turns(1, 2).await, [(1, String::new()), (1, "+PONG\r\n".to_owned())]);
    }

    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicUsize);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
}
