//! One connection, as one task: reads requests, has them processed, writes the replies.
//!
//! Owns    the stream, and the [`RequestProcessor`] while it is not on the script thread.
//! Rule    a round is one read, the requests in it, and one write. A connection with more to do lets other tasks run
//!         after [`ROUNDS_PER_POLL`].
//! Rule    if a request has woken a few connections, these write before the reply to the request is written. A client
//!         that waits for a lock or a message gets it one system call earlier.
//! Rule    replies leave when the journal has what they tell of, if there is a journal. A connection with replies lets the
//!         others of its round run first, so that one write takes the records of all.
//! Rule    nothing is read from a peer that has left [`UNREAD_REPLY_BYTES_MAX`] bytes of replies unread.

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_platform::boot;
use redlatch_proto::clock::LockTime;
use redlatch_proto::limits::{UNAUTHENTICATED_REPLY_BYTES_MAX, UNREAD_REPLY_BYTES_MAX};
use tokio::io::{AsyncReadExt, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::context::{ConnectionPermit, ServerContext};
use super::peer::Peer;
use super::processor::{
    INPUT_BYTES_KEPT, OUTPUT_BYTES_BATCH, READ_BYTES, READ_BYTES_AT_FIRST, RequestProcessor, State,
};
use super::testing::Reach;

/// Bytes of output buffer that an idle connection keeps. A larger buffer is released.
const OUTPUT_BYTES_KEPT: usize = 64 * 1024;
/// Rounds after which a busy connection lets the other tasks of its thread run.
const ROUNDS_PER_POLL: usize = 3;

/// Reads of a connection after the server has begun to end: what a client has sent until then fits, and a client that
/// never pauses does not keep the server from ending.
const LAST_READS_MAX: u32 = 16;

/// Connections woken by one batch that write before its replies are written. With more, the sender's reply would be
/// late.
const WOKEN_FIRST_MAX: u64 = 8;

/// One connection. As a future it resolves when the connection has ended.
pub(super) struct Connection<S> {
    io: ConnectionIo<S>,
    processing: Processing,
    /// The request for the script thread, while another connection is on it.
    offload_permit: Option<Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
    /// Dropped last: the place is free after all other resources of the connection.
    _permit: ConnectionPermit,
}

/// The thread on which the requests of a connection are processed.
enum Processing {
    Here(Box<RequestProcessor>),
    /// On the script thread, until the task is done.
    Offloaded(JoinHandle<Box<RequestProcessor>>),
    /// The script thread panicked, or the runtime is shutting down.
    Lost,
}

/// The parts of a connection that stay while its processor is on the script thread.
struct ConnectionIo<S> {
    stream: S,
    context: ServerContext,
    client: Arc<Client>,
    /// The deadline of the current wait, and its timer.
    sleep: Option<(LockTime, Pin<Box<Sleep>>)>,
    /// True once the outbox wakes this task.
    is_watched: bool,
    /// The batch has been processed, and its replies are written once the woken connections have written.
    has_yielded: bool,
    /// The step of a test's clock that this poll belongs to.
    clock_step: u64,
    /// The round of the journal's keeper that this connection waits for.
    waiting_round: u64,
    /// Reads since the server has begun to end.
    last_reads: u32,
}

impl<S: Peer> Connection<S> {
    pub(super) fn new(stream: S, context: ServerContext, session: Session, permit: ConnectionPermit) -> Self {
        let io = ConnectionIo {
            stream,
            context: context.clone(),
            client: Arc::clone(&session.client),
            sleep: None,
            is_watched: false,
            has_yielded: false,
            clock_step: 0,
            waiting_round: 0,
            last_reads: 0,
        };
        let processing = Processing::Here(Box::new(RequestProcessor::new(context, session)));
        Self { io, processing, offload_permit: None, _permit: permit }
    }

    /// One round. `Ready(Ok)` asks for another round, `Ready(Err)` ends the connection, and after `Pending` the task
    /// will be woken.
    fn poll_round(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Processing::Offloaded(task) = &mut self.processing
            && let Poll::Ready(processor) = Pin::new(task).poll(cx)
        {
            self.processing = processor.map_or(Processing::Lost, Processing::Here);
        }
        let processor = match &mut self.processing {
            Processing::Here(processor) => {
                self.io.follow(processor, cx);
                match self.io.reach(processor) {
                    Reach::Open => processor,
                    // It is not answered any more: its namespace or the server ends.
                    Reach::Silent if self.io.client.is_closing() || self.io.context.is_stopping() => {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                    }
                    Reach::Silent => {
                        self.io.finish_clock_step();
                        return Poll::Pending;
                    }
                    Reach::Reset => {
                        self.io.stream.reset_when_closed();
                        return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                    }
                }
            }
            Processing::Offloaded(_) => {
                if self.io.client.is_cut() {
                    // The peer is told now, although the script goes on.
                    let _ = Pin::new(&mut self.io.stream).poll_shutdown(cx)?;
                }
                self.io.finish_unless_short();
                return Poll::Pending;
            }
            Processing::Lost => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        };
        let (was_full, has_yielded) = (is_full(processor), std::mem::take(&mut self.io.has_yielded));
        if !was_full && !has_yielded {
            let wakeups = self.io.context.wakeups().load(Relaxed);
            processor.process();
            self.io.follow(processor, cx);
            let woken = self.io.context.wakeups().load(Relaxed).wrapping_sub(wakeups);
            if (1..=WOKEN_FIRST_MAX).contains(&woken) || self.io.awaits_write(processor) {
                self.io.has_yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let has_more = match self.io.may_reply(processor)? {
            true => self.io.poll_reply(processor, was_full, cx)?.is_ready(),
            false => false,
        };
        let has_received = self.io.poll_receive(processor, cx)?.is_ready();
        let is_offloaded = matches!(processor.state, State::Offload(_));
        if !is_offloaded {
            self.offload_permit = None;
        }
        if has_more || has_received {
            return Poll::Ready(Ok(()));
        }
        if is_offloaded {
            let permitted = self.poll_offload(cx);
            if permitted.is_pending() {
                self.io.finish_unless_short();
            }
            return permitted.map(Ok);
        }
        if self.io.context.is_stopping() && processor.state == State::Open {
            // All that has arrived is answered.
            processor.state = State::Closing;
            return Poll::Ready(Ok(()));
        }
        self.io.pause(processor);
        Poll::Pending
    }

    /// Moves the processor to the script thread once no other connection is on it.
    fn poll_offload(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let context = &self.io.context;
        let permit = self.offload_permit.get_or_insert_with(|| Box::pin(context.offload_permit()));
        let permit = ready!(permit.as_mut().poll(cx));
        self.offload_permit = None;
        if let Processing::Here(mut processor) = std::mem::replace(&mut self.processing, Processing::Lost) {
            self.io.show_buffers(&processor);
            self.processing = Processing::Offloaded(tokio::task::spawn_blocking(move || {
                processor.process_offloaded();
                drop(permit);
                processor
            }));
        }
        Poll::Ready(())
    }
}

impl<S: Peer> Future for Connection<S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if !this.io.is_watched {
            this.io.watch(cx);
        }
        this.io.clock_step = this.io.context.clock_step();
        for _ in 0..ROUNDS_PER_POLL {
            if ready!(this.poll_round(cx)).is_err() {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: Peer> ConnectionIo<S> {
    /// Lets the outbox wake this task.
    fn watch(&mut self, cx: &Context<'_>) {
        self.is_watched = true;
        let wakeups = Arc::clone(self.context.wakeups());
        let task = cx.waker().clone();
        self.client.set_notifier(move || {
            wakeups.fetch_add(1, Relaxed);
            task.wake_by_ref();
        });
    }

    /// Follows the processor into the namespace that its client has entered, if it has.
    fn follow(&mut self, processor: &mut RequestProcessor, cx: &Context<'_>) {
        if let Some((context, client)) = processor.moved.take() {
            (self.context, self.client) = (context, client);
            // In this order, as in `poll`: a step that begins later wakes this task.
            self.watch(cx);
            self.clock_step = self.context.clock_step();
        }
    }

    /// Whether the node answers this client. The first request decides it, because it may enter another namespace.
    fn reach(&self, processor: &RequestProcessor) -> Reach {
        match self.context.membership() {
            Some(membership) if processor.has_begun => membership.reach(&self.client),
            _ => Reach::Open,
        }
    }

    /// Whether there are replies, and records that the journal has not written.
    fn awaits_write(&self, processor: &RequestProcessor) -> bool {
        processor.unread() > 0 && self.context.keeper().is_some_and(|keeper| keeper.log.is_pending())
    }

    /// Writes the journal, and returns whether the output may leave then. Otherwise this task is woken when that may have
    /// changed.
    fn may_reply(&mut self, processor: &RequestProcessor) -> io::Result<bool> {
        let Some(keeper) = self.context.keeper() else { return Ok(true) };
        if processor.unread() == 0 && !self.client.has_messages() {
            return Ok(true);
        }
        keeper.write();
        if keeper.log.has(processor.owed, boot::millis) {
            return Ok(true);
        }
        // After a failed sync, nothing that waits for the disk is ever answered.
        if self.client.is_cut() || keeper.has_failed() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        keeper.wait(&self.client, &mut self.waiting_round);
        // What it waits for may have happened before it was in the list.
        Ok(keeper.log.has(processor.owed, boot::millis))
    }

    /// Reads once into the input buffer, unless there is a backlog of requests or replies. `Ready` if bytes were
    /// read.
    fn poll_receive(
        &mut self,
        processor: &mut RequestProcessor,
        cx: &mut Context<'_>,
    ) -> io::Result<Poll<()>> {
        if !wants_input(processor) {
            return Ok(Poll::Pending);
        }
        if self.context.is_stopping() {
            self.last_reads += 1;
            if self.last_reads > LAST_READS_MAX {
                return Ok(Poll::Pending);
            }
        }
        let received = self.poll_read(processor, cx)?;
        if let Some(client) = self.stream.take_client() {
            processor.come_from(client);
        }
        if let Some(names) = self.stream.take_names() {
            processor.log_in_by_certificate(&names);
        }
        let Poll::Ready(received) = received else {
            // What wakes the client that the processor has moved to wakes this task from the next round on.
            let is_new = processor.moved.is_some();
            return Ok(if is_new { Poll::Ready(()) } else { Poll::Pending });
        };
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.context.engine.shared().stats.metrics.input_bytes.add(received as u64);
        if received >= processor.read_bytes {
            processor.read_bytes = READ_BYTES;
        }
        if received < processor.input.len() {
            // Part of a request also counts as activity.
            let now = self.context.clock().now().lock;
            self.client.activity.last_active_ms.store(now.as_millis(), Relaxed);
        }
        Ok(Poll::Ready(()))
    }

    /// Reads once, and returns how many bytes were received. A short request comes through the stack: so a connection that
    /// waits for one needs no room for it, and one that has got one keeps no more than that. With ten thousand
    /// connections, an idle one takes 1.8 KB in place of 2.9.
    fn poll_read(
        &mut self,
        processor: &mut RequestProcessor,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if !processor.input.is_empty() || processor.read_bytes > READ_BYTES_AT_FIRST {
            reserve_input(processor);
            return pin!(self.stream.read_buf(&mut processor.input)).poll(cx);
        }
        let mut room = [MaybeUninit::uninit(); READ_BYTES_AT_FIRST];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        processor.input.extend_from_slice(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Writes the output. `Pending` if the peer does not read.
    fn poll_flush(&mut self, processor: &mut RequestProcessor, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while processor.written < processor.output.len() {
            let unsent = &processor.output[processor.written..];
            let Poll::Ready(sent) = Pin::new(&mut self.stream).poll_write(cx, unsent)? else {
                drop_written(processor);
                return Poll::Pending;
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.context.engine.shared().stats.metrics.output_bytes.add(sent as u64);
            processor.written += sent;
        }
        processor.written = 0;
        processor.output.clear();
        if processor.output.capacity() > OUTPUT_BYTES_KEPT {
            processor.output = Vec::new();
        }
        // A TLS stream may hold bytes in a record that its socket has not taken.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Writes replies and messages. `Ready` if another round may find work.
    fn poll_reply(
        &mut self,
        processor: &mut RequestProcessor,
        was_full: bool,
        cx: &mut Context<'_>,
    ) -> io::Result<Poll<()>> {
        if self.client.is_cut() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        // Messages for a slow reader stay in the outbox, whose size is bounded. The reply of a blocked call also
        // stays there, with everything behind it, until the engine takes it out.
        let is_silent = processor.is_silent();
        if self.client.has_messages() && processor.unread() < OUTPUT_BYTES_BATCH && !is_silent {
            self.client.collect(&mut processor.output);
        }
        let is_flushed = self.poll_flush(processor, cx)?.is_ready();
        let unread = processor.unread();
        if !is_flushed && self.client.is_too_far_behind(unread) {
            self.client.drop_behind();
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if processor.state == State::Closing && is_flushed {
            if processor.resets() {
                self.stream.reset_when_closed();
            }
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if unread > UNAUTHENTICATED_REPLY_BYTES_MAX && !processor.is_authenticated() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if ((processor.has_more || was_full) && !is_full(processor))
            || (self.client.has_messages() && is_flushed && !is_silent)
            || self.is_due(processor, cx)
        {
            return Ok(Poll::Ready(()));
        }
        self.client.blocking.is_held.store(processor.is_held(), Relaxed);
        self.show_buffers(processor);
        Ok(Poll::Pending)
    }

    /// Lets CLIENT LIST see the buffers as they are now.
    fn show_buffers(&self, processor: &RequestProcessor) {
        let input = &processor.input;
        let buffers = &self.client.buffers;
        buffers.query_bytes.store(input.len() as u64, Relaxed);
        buffers.query_room.store((input.capacity() - input.len()) as u64, Relaxed);
        buffers.decoder_bytes.store(processor.decoder.heap_bytes() as u64, Relaxed);
        buffers.reply_bytes.store(processor.unread() as u64, Relaxed);
    }

    /// Whether the deadline of the connection's wait has passed. Otherwise its timer wakes the task.
    fn is_due(&mut self, processor: &RequestProcessor, cx: &mut Context<'_>) -> bool {
        let Some(until) = processor.until() else {
            self.sleep = None;
            return false;
        };
        let now = self.context.engine.shared().clock.now().lock;
        if until <= now {
            return true;
        }
        if self.context.is_frozen() {
            return false;
        }
        let (_, sleep) = match &mut self.sleep {
            // The clock of a test may have been moved since the timer was set.
            Some(sleep) if sleep.0 == until && self.context.membership().is_none() => sleep,
            sleep => {
                let timer = tokio::time::sleep(Duration::from_millis(until.millis_since(now)));
                sleep.insert((until, Box::pin(timer)))
            }
        };
        let is_over = sleep.as_mut().poll(cx).is_ready();
        if is_over {
            self.sleep = None;
        }
        is_over
    }

    /// Prepares the connection for a wait: releases the memory of unusually large requests, and all buffers of a
    /// connection that has been idle for long.
    fn pause(&self, processor: &mut RequestProcessor) {
        if processor.input.is_empty() {
            let before = processor.request_bytes();
            processor.decoder.trim();
            if processor.input.capacity() > INPUT_BYTES_KEPT {
                processor.input = BytesMut::new();
            }
            if self.client.should_release_buffers() {
                processor.release_buffers();
            }
            if processor.request_bytes() < before {
                self.show_buffers(processor);
            }
        }
        self.finish_clock_step();
    }

    /// A connection on the script thread, or on its way there: a step of a test's clock does not wait for a long call.
    fn finish_unless_short(&self) {
        if self.context.engine.shared().keyspace.long_call.is_on() {
            self.finish_clock_step();
        }
    }

    /// Reports that this connection has done all work of the current step of a test's clock.
    fn finish_clock_step(&self) {
        self.context.finish_clock_step(self.client.id, self.clock_step);
    }
}

/// Reserves memory for the next read: for the rest of a bulk string, but at most about as much as the peer has
/// already sent, because announcing a length costs the peer nothing.
fn reserve_input(processor: &mut RequestProcessor) {
    let wanted = processor.decoder.wanted(&processor.input);
    processor.input.reserve(processor.read_bytes.max(wanted.min(processor.input.len())));
}

/// Whether too many bytes of replies are unread for more requests to be processed.
fn is_full(processor: &RequestProcessor) -> bool {
    processor.unread() >= UNREAD_REPLY_BYTES_MAX
}

/// Whether the connection reads from the peer.
fn wants_input(processor: &RequestProcessor) -> bool {
    // While a call waits, only a read shows that the peer has closed. Requests that arrive in this time stay in the
    // input.
    let waits = processor.ends_with_its_peer() && processor.input.len() < READ_BYTES;
    !is_full(processor) && (waits || (processor.state == State::Open && !processor.has_more))
}

/// Drops the written part of the output once it is the larger part. The output of a slow reader never becomes empty.
fn drop_written(processor: &mut RequestProcessor) {
    if processor.written > OUTPUT_BYTES_KEPT && processor.written > processor.output.len() / 2 {
        processor.output.drain(..processor.written);
        processor.output.shrink_to(2 * processor.output.len());
        processor.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use parking_lot::Mutex;
    use tokio::io::{AsyncRead, AsyncWrite};

    use super::*;
    use crate::{Builder, Server, listener};

    /// A peer that reads everything at once and sends a request `left` times. Then it closes or stays silent.
    struct Sender {
        request: &'static [u8],
        left: usize,
        then_closes: bool,
        received: Arc<Mutex<Vec<u8>>>,
    }

    impl Default for Sender {
        fn default() -> Self {
            Self { request: b"PING\r\n", left: 1, then_closes: false, received: Arc::default() }
        }
    }

    impl AsyncRead for Sender {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.left == 0 {
                return if self.then_closes { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            self.left -= 1;
            to.put_slice(self.request);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Sender {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.received.lock().extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl Peer for Sender {}

    fn connection(server: &Server, peer: Sender) -> Connection<Sender> {
        let context = server.context().clone();
        let session = listener::enter(&context, String::new(), String::new(), false);
        let permit = context.connection_permit(false).unwrap();
        Connection::new(peer, context, session, permit)
    }

    /// Polls a connection to `peer` `times` times. Returns whether it has ended, and the number of replies received.
    async fn poll(peer: Sender, times: usize) -> (bool, usize) {
        let server = Builder::default().start().await.unwrap();
        let received = Arc::clone(&peer.received);
        let mut connection = connection(&server, peer);
        let cx = &mut Context::from_waker(Waker::noop());
        let mut has_ended = false;
        for _ in 0..times {
            has_ended = Pin::new(&mut connection).poll(cx).is_ready();
        }
        (has_ended, received.lock().len() / b"+PONG\r\n".len())
    }

    #[tokio::test]
    async fn a_client_that_never_pauses_lets_others_run() {
        let peer = || Sender { left: usize::MAX, ..Sender::default() };
        // Requests of the last round are processed in the next poll.
        assert_eq!(poll(peer(), 1).await, (false, ROUNDS_PER_POLL - 1));
        assert_eq!(poll(peer(), 2).await, (false, 2 * ROUNDS_PER_POLL - 1));
    }

    #[tokio::test]
    async fn a_reply_is_written_in_the_poll_that_reads_the_request() {
        let peer = Sender { left: 1, ..Sender::default() };
        assert_eq!(poll(peer, 1).await, (false, 1));
    }

    #[tokio::test]
    async fn the_requests_of_a_client_that_closes_are_processed_first() {
        for left in 1..=2 * ROUNDS_PER_POLL {
            let peer = Sender { left, then_closes: true, ..Sender::default() };
            assert_eq!(poll(peer, left / ROUNDS_PER_POLL + 1).await, (true, left), "{left}");
        }
    }

    #[tokio::test]
    async fn a_woken_connection_writes_before_the_reply_of_the_request_that_woke_it() {
        for (waiting, waking, written) in [
            (
                &b"SUBSCRIBE c\r\n"[..],
                &b"PUBLISH c m\r\n"[..],
                "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n:1\r\n",
            ),
            (b"BLPOP q 0\r\n", b"LPUSH q m\r\n", "*2\r\n$1\r\nq\r\n$1\r\nm\r\n:1\r\n"),
        ] {
            let server = Builder::default().start().await.unwrap();
            let received = Arc::default();
            for request in [waiting, waking] {
                let peer = Sender { request, received: Arc::clone(&received), ..Sender::default() };
                tokio::spawn(connection(&server, peer));
            }
            // The tasks run in turn, in this thread.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(String::from_utf8_lossy(&received.lock()), written);
        }
    }
}
