//! The requests of one connection: from bytes received to replies not yet written.
//!
//! Owns    the session, the input and the output. The processor has no stream, so that it can move to the script
//!         thread for a long request.
//! Rule    one reading of the clock per batch of requests, one call of the engine per request.
//! Rule    messages that are in the outbox when a batch begins leave before its replies. If client A has seen the
//!         reply to its request, then client B gets the messages of that request before the reply to B's next
//!         request.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use redlatch_core::engine::Flow;
use redlatch_core::journal::Mode;
use redlatch_core::journal::log::Owed;
use redlatch_core::state::clients::Client;
use redlatch_core::state::metrics::Metrics;
use redlatch_core::state::session::Session;
use redlatch_proto::clock::LockTime;
use redlatch_proto::error::ProtocolError;
use redlatch_proto::limits::TURN_NANOS_MAX;
use redlatch_proto::resp::{Decoder, Reply};

use super::context::ServerContext;
use super::listener;
use super::testing::{self, ConnectionFaults};

/// Bytes reserved for every read of a connection that has filled a smaller buffer.
pub(super) const READ_BYTES: usize = 16 * 1024;
/// Bytes reserved for every read of any other connection: lock requests are short.
pub(super) const READ_BYTES_AT_FIRST: usize = 1024;
/// Bytes of input buffer that an idle connection keeps. A larger buffer is released.
pub(super) const INPUT_BYTES_KEPT: usize = 2 * READ_BYTES;
/// Bytes of output after which it is written although more requests are in the input.
pub(super) const OUTPUT_BYTES_BATCH: usize = 256 * 1024;
/// What a call that waits is told when the server ends. The code is that of CLIENT UNBLOCK.
const STOPPING: &str = "UNBLOCKED the server is shutting down";
/// The length of a wait without a limit.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Processes the requests of one connection.
pub(super) struct RequestProcessor {
    context: ServerContext,
    session: Session,
    pub(super) decoder: Decoder,
    pub(super) input: BytesMut,
    /// Bytes to reserve for the next read.
    pub(super) read_bytes: usize,
    pub(super) output: Vec<u8>,
    /// Bytes of the output that have been written.
    pub(super) written: usize,
    /// What the journal must have before the output leaves.
    pub(super) owed: Owed,
    pub(super) state: State,
    /// The last batch stopped before the end of the input, so that its output is written or other connections have a
    /// turn.
    pub(super) has_more: bool,
    /// Whether a request has arrived.
    pub(super) has_begun: bool,
    /// What faults of the test backend do to the connection; `None` before its first request and without a test backend.
    faults: Option<Box<ConnectionFaults>>,
    /// The engine and the client that the connection has moved to, until it follows.
    pub(super) moved: Option<(ServerContext, Arc<Client>)>,
}

/// The next step of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Open,
    /// The next request waits until this moment.
    Held(LockTime),
    /// The next request must run on the script thread. At this moment it is tried here again, where it is refused
    /// with BUSY.
    Offload(LockTime),
    /// A fault of the test backend holds the connection up until this moment. Nothing is read.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only faults hold connections up"))]
    Stalled(LockTime),
    /// A blocking call of the session waits.
    Waiting,
    /// It writes its output and ends.
    Closing,
}

impl RequestProcessor {
    pub(super) fn new(context: ServerContext, mut session: Session) -> Self {
        session.may_block = false;
        Self {
            context,
            session,
            decoder: Decoder::new(),
            input: BytesMut::new(),
            read_bytes: READ_BYTES_AT_FIRST,
            output: Vec::new(),
            written: 0,
            owed: Owed::default(),
            state: State::Open,
            has_more: false,
            has_begun: false,
            faults: None,
            moved: None,
        }
    }

    /// Processes the complete requests in the input, as far as they may run now.
    pub(super) fn process(&mut self) {
        self.session.used_nanos = 0;
        let (before, mark) = (self.owed_now(), self.output.len());
        let waited = self.state == State::Waiting;
        self.has_more = self.is_ready() && self.process_batch();
        let waits = matches!(self.state, State::Held(_) | State::Stalled(_) | State::Waiting);
        if waits && self.context.is_stopping() {
            // It arrived with the stop: nobody wakes it later.
            self.hurry();
        }
        let (Some((mode, before)), Some((_, after))) = (before, self.owed_now()) else { return };
        // What a call waited for was done by another request, and with `always` no reply tells of what is not on the disk.
        let tells_of_others = self.output.len() > mark && (waited || mode == Mode::Always);
        if tells_of_others || after.written != before.written {
            self.owed.written = after.written;
        }
        if tells_of_others || after.synced != before.synced {
            (self.owed.synced, self.owed.proven) = (after.synced, after.proven);
        }
    }

    /// How the journal holds replies, and what those wait for that are made now.
    #[inline]
    fn owed_now(&self) -> Option<(Mode, Owed)> {
        self.context.engine.shared().log.as_ref().map(|log| (log.mode(), log.owed()))
    }

    /// Like [`RequestProcessor::process`], on the script thread, where blocking is allowed.
    pub(super) fn process_offloaded(&mut self) {
        self.session.may_block = true;
        self.state = State::Open;
        self.process();
        self.session.may_block = false;
    }

    /// Whether requests may be processed now. A blocked call that has its reply is finished.
    fn is_ready(&mut self) -> bool {
        if self.context.is_stopping() {
            self.hurry();
        }
        let engine = &self.context.engine;
        let has_passed = |until| until <= engine.shared().clock.now().lock;
        if self.session.client.is_closing() || self.session.client.is_cut() {
            self.state = State::Closing;
        }
        let may_go_on = match self.state {
            State::Open => true,
            State::Held(until) => has_passed(until) || !engine.is_paused(),
            State::Offload(until) => has_passed(until),
            State::Stalled(until) => has_passed(until) && self.end_hold(),
            State::Waiting => self.end_wait(),
            State::Closing => false,
        };
        if may_go_on {
            self.state = State::Open;
        }
        may_go_on && !self.input.is_empty()
    }

    /// The server ends: a waiting call is answered with an error, and a request that is held up is not executed.
    #[cold]
    fn hurry(&mut self) {
        match self.state {
            // In a cluster the client comes back, and goes on waiting at its place.
            State::Waiting if self.context.engine.shared().cluster.is_some() => self.state = State::Closing,
            State::Waiting => drop(self.session.client.unblock(Some(STOPPING))),
            State::Held(_) | State::Offload(_) | State::Stalled(_) => self.state = State::Closing,
            State::Open | State::Closing => {}
        }
    }

    /// A fault no longer holds the connection up. Returns whether requests may be processed now.
    fn end_hold(&mut self) -> bool {
        let engine = &self.context.engine;
        let faults = self.faults.as_mut();
        let closes = faults.is_some_and(|faults| faults.end_hold(engine, &self.session, &mut self.output));
        if closes {
            self.state = State::Closing;
        }
        !closes
    }

    /// Looks whether the blocking call has been answered. Returns whether requests may be processed now.
    fn end_wait(&mut self) -> bool {
        let (engine, mark) = (&self.context.engine, self.output.len());
        if engine.resume(&mut self.session, &mut self.output) != Flow::Next {
            return false;
        }
        match testing::end_wait(&mut self.faults, engine, &self.session, (mark, &mut self.output)) {
            Ok(Flow::Close) => self.state = State::Closing,
            Ok(_) => return true,
            Err(detour) => self.state = detour.outcome().0,
        }
        false
    }

    /// Processes the input. Returns true if it stopped before the end of the input.
    fn process_batch(&mut self) -> bool {
        let engine = &self.context.engine;
        if self.session.client.has_messages() {
            self.session.client.collect(&mut self.output);
        }
        let mut batch = engine.batch();
        let output_bytes_max = self.output.len() + OUTPUT_BYTES_BATCH;
        let (mut taken, mut has_more, mut target) = (0, true, None);
        while self.state == State::Open
            && self.output.len() < output_bytes_max
            && self.session.used_nanos < TURN_NANOS_MAX
        {
            let (buffer, limits) = (&self.input[taken..], engine.trust(&self.session));
            if buffer.is_empty() {
                has_more = false;
                break;
            }
            let bytes = match self.decoder.next(buffer, limits) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    has_more = false;
                    break;
                }
                Err(error) => {
                    refuse(error, &engine.shared().stats.metrics, &self.session, &mut self.output);
                    self.state = State::Closing;
                    break;
                }
            };
            engine.look_ahead(&self.session, &buffer[bytes..], &mut batch);
            let request = self.decoder.request(buffer);
            self.has_begun = true;
            let result = match self.context.membership() {
                None => Ok(engine.execute(&mut self.session, request, &mut batch, &mut self.output)),
                Some(membership) => {
                    let server = (engine, membership, &mut self.faults);
                    testing::execute(server, &mut self.session, request, &mut batch, &mut self.output)
                }
            };
            let comes_again;
            (self.state, comes_again) = match result {
                Ok(Flow::Next) => (State::Open, false),
                Ok(Flow::Close) => (State::Closing, false),
                Ok(Flow::Wait) => (State::Waiting, false),
                Ok(Flow::Again(until)) => (State::Held(until), true),
                Ok(Flow::Offload) => (State::Offload(self.busy_from()), true),
                Err(detour) => {
                    let (state, comes_again, moved) = detour.outcome();
                    target = moved;
                    (state, comes_again)
                }
            };
            if comes_again {
                break;
            }
            taken += bytes;
        }
        engine.end_batch(&mut self.session, batch);
        self.drop_input(taken);
        if let Some(context) = target {
            self.move_to(context, None);
        }
        has_more && self.state == State::Open
    }

    /// Another node has passed on the address of the client. It is a new client, because the address of one never changes.
    #[cold]
    pub(super) fn come_from(&mut self, client: String) {
        self.move_to(self.context.clone(), Some(client));
    }

    /// Moves the connection to another engine, or another address, where it is a new client.
    fn move_to(&mut self, context: ServerContext, peer: Option<String>) {
        let (may_block, protocol) = (self.session.may_block, self.session.protocol);
        let old = Arc::clone(&self.session.client);
        testing::disconnected(self.context.engine.shared(), &self.session);
        self.context.engine.disconnect(&mut self.session);
        self.context.leave_clock_steps(self.session.client.id);
        let address = &old.address;
        let peer = peer.unwrap_or_else(|| address.peer.clone());
        self.session = listener::enter(&context, peer, address.local.clone(), address.is_unix);
        self.session.may_block = may_block;
        self.session.protocol = protocol;
        self.session.client.set_protocol(protocol);
        self.context = context.clone();
        self.moved = Some((context, Arc::clone(&self.session.client)));
    }

    /// Drops the first `taken` bytes of the input, and the memory that a large request has left.
    fn drop_input(&mut self, taken: usize) {
        if taken == self.input.len() {
            // After `advance` to the end, the next `reserve` would have to move the buffer back.
            self.input.clear();
            return;
        }
        self.input.advance(taken);
        if taken > INPUT_BYTES_KEPT && self.input.len() < taken / 4 {
            self.input = BytesMut::from(&self.input[..]);
        }
    }

    /// The time from which the server answers BUSY if the script still runs.
    fn busy_from(&self) -> LockTime {
        let shared = self.context.engine.shared();
        let millis = shared.settings.busy_millis().unwrap_or(FOREVER.as_millis() as u64);
        shared.clock.now().lock + millis.max(1)
    }

    /// Logs the client in by the names in its certificate.
    pub(super) fn log_in_by_certificate(&mut self, names: &[Vec<u8>]) {
        self.context.engine.log_in_by_certificate(&mut self.session, names);
    }

    /// Whether the client is authenticated, or need not be.
    pub(super) fn is_authenticated(&self) -> bool {
        self.context.engine.trust(&self.session).authenticated
    }

    /// Releases all buffers, unless they are in use.
    pub(super) fn release_buffers(&mut self) {
        if !self.input.is_empty() || self.unread() > 0 {
            return;
        }
        (self.input, self.output, self.written) = Default::default();
        self.read_bytes = READ_BYTES_AT_FIRST;
        self.decoder = Decoder::new();
        self.session.scratch = Vec::new();
    }

    /// Bytes that it takes for requests.
    pub(super) fn request_bytes(&self) -> usize {
        self.input.capacity() + self.decoder.heap_bytes()
    }

    /// Bytes of replies that are not written yet.
    pub(super) fn unread(&self) -> usize {
        self.output.len() - self.written
    }

    /// The end of the wait of the connection, if it has a limit.
    pub(super) fn until(&self) -> Option<LockTime> {
        match self.state {
            State::Held(until) | State::Offload(until) | State::Stalled(until) => Some(until),
            State::Waiting => self.session.parked.as_ref().and_then(|parked| parked.until),
            State::Open | State::Closing => None,
        }
    }

    /// Whether a request waits that is not executed once its peer has closed: a blocked one, or one that CLIENT PAUSE or
    /// `login-delay` holds up. A peer that has sent its last byte still gets the reply to a request that waits for a script.
    pub(super) fn ends_with_its_peer(&self) -> bool {
        match self.state {
            State::Waiting => true,
            State::Held(_) => self.context.engine.is_paused() || self.session.login_turn.is_waiting(),
            State::Open | State::Offload(_) | State::Stalled(_) | State::Closing => false,
        }
    }

    /// Whether a fault keeps messages of other clients from being sent now.
    pub(super) fn is_silent(&self) -> bool {
        self.faults.as_ref().is_some_and(|faults| faults.is_silent())
    }

    /// Whether a fault closes the connection by a reset.
    pub(super) fn resets(&self) -> bool {
        self.faults.as_ref().is_some_and(|faults| faults.resets())
    }

    /// Whether a request waits: for a moment, an event or the script thread.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_) | State::Offload(_) | State::Stalled(_) | State::Waiting)
    }
}

impl Drop for RequestProcessor {
    fn drop(&mut self) {
        testing::disconnected(self.context.engine.shared(), &self.session);
        self.context.engine.disconnect(&mut self.session);
        self.context.leave_clock_steps(self.session.client.id);
    }
}

/// Replies with a protocol error.
fn refuse(error: ProtocolError, metrics: &Metrics, session: &Session, output: &mut Vec<u8>) {
    tracing::debug!(client = session.client.id, %error, "protocol error");
    if error == ProtocolError::RequestTooLarge {
        metrics.query_limit_disconnections.add(1);
    } else {
        Reply::new(output, session.protocol).error_bytes(&error.line());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{Builder, Server};
    use redlatch_core::journal::{Journal, Record};
    use redlatch_proto::limits::{LARGE_BYTES, REPLY_BYTES_MAX};

    /// A server, which ends when it is dropped, and the processor of its only client.
    async fn processor() -> (Server, RequestProcessor) {
        let server = Builder::default().start().await.unwrap();
        let context = server.context().clone();
        let client = Client::new(1, String::new(), String::new(), false, LockTime::from_millis(1));
        let session = context.engine.connect(client);
        (server, RequestProcessor::new(context, session))
    }

    /// Processes the whole input. On a busy machine a batch ends early.
    fn process_all(processor: &mut RequestProcessor) {
        processor.process();
        while processor.has_more {
            processor.process();
        }
    }

    #[tokio::test]
    async fn a_client_whose_reply_grows_too_long_is_cut_off() {
        let (_server, mut processor) = processor().await;
        let context = processor.context.clone();
        processor.input.extend_from_slice(b"SET k 0123456789\r\nGET k\r\n");
        process_all(&mut processor);
        assert_eq!(processor.output, b"+OK\r\n$10\r\n0123456789\r\n");
        // As if this request had produced so many bytes. The system maps no memory for zeros that are not read.
        processor.output = vec![0; REPLY_BYTES_MAX - 10];
        let mut batch = context.engine.batch();
        processor.input.extend_from_slice(b"GET k\r\nGET k\r\n");
        let bytes =
            processor.decoder.next(&processor.input, context.engine.trust(&processor.session)).unwrap();
        assert_eq!(bytes, Some(7));
        let request = processor.decoder.request(&processor.input);
        let flow = context.engine.execute(&mut processor.session, request, &mut batch, &mut processor.output);
        assert_eq!((flow, processor.output.len()), (Flow::Close, REPLY_BYTES_MAX - 10));
        assert!(processor.session.client.is_cut());
    }

    #[tokio::test]
    async fn no_request_of_a_client_is_processed_after_another_has_killed_it() {
        let server = Builder::default().start().await.unwrap();
        let (mut killer, mut victim) = (server.stream(), server.stream());
        let mut number = [0; 16];
        victim.write_all(b"CLIENT ID\r\n").await.unwrap();
        let length = victim.read(&mut number).await.unwrap();
        let number = String::from_utf8_lossy(&number[1..length - 2]);
        // Both requests are written before either task runs.
        killer.write_all(format!("CLIENT KILL ID {number}\r\n").as_bytes()).await.unwrap();
        victim.write_all(b"SET k v\r\n").await.unwrap();
        let mut answer = [0; 4];
        killer.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, *b":1\r\n");
        assert_eq!(victim.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(server.keys().get("k"), None);
    }

    #[tokio::test]
    async fn a_new_limit_applies_to_the_next_request_of_a_pipeline() {
        let (_server, mut processor) = processor().await;
        let long = vec![b'x'; (1 << 20) + 1];
        let echo = [format!("*2\r\n$4\r\nECHO\r\n${}\r\n", long.len()).as_bytes(), &long, b"\r\n"].concat();
        processor.input.extend_from_slice(
            b"SET k v\r\nCONFIG REWRITE\r\nCONFIG SET proto-max-bulk-len 1mb\r\nGET k\r\n",
        );
        processor.input.extend_from_slice(&echo);
        process_all(&mut processor);
        assert_eq!(processor.output, b"+OK\r\n");
        assert!(matches!(processor.state, State::Offload(_)), "writing a file may take long");
        processor.process_offloaded();
        process_all(&mut processor);
        let expected = "+OK\r\n-ERR The server is running without a config file\r\n+OK\r\n$1\r\nv\r\n\
                        -ERR Protocol error: invalid bulk length\r\n";
        assert_eq!(String::from_utf8_lossy(&processor.output), expected);
        assert_eq!(processor.state, State::Closing);
    }

    /// A journal that notes whether a client had an answer before the record of what it tells of.
    #[derive(Debug, Default)]
    struct Early(OnceLock<ServerContext>, AtomicBool);

    impl Journal for Early {
        fn append(&self, _: &Record<'_>) {
            let clients = self
                .0
                .get()
                .map(|context| context.engine.shared().registries.clients.all())
                .unwrap_or_default();
            self.1.fetch_or(clients.iter().any(|client| client.has_messages()), SeqCst);
        }
    }

    #[tokio::test]
    async fn a_call_that_waited_is_answered_after_the_record_of_what_it_got() {
        for (free, wait, give, answer) in [
            ("PING", "BLPOP l 0", "RPUSH l a", "*2\r\n$1\r\nl\r\n$1\r\na\r\n"),
            (
                "LOCK.ACQUIRE k one LEASE 9000",
                "LOCK.ACQUIRE k two LEASE 9000 WAIT 9000",
                "LOCK.RELEASE k one",
                "*",
            ),
        ] {
            let journal = Arc::new(Early::default());
            let server = Builder::default().journal(journal.clone()).start().await.unwrap();
            let context = server.context().clone();
            assert!(journal.0.set(context.clone()).is_ok());
            let mut processors = [1, 2].map(|id| {
                let client = Client::new(id, String::new(), String::new(), false, LockTime::from_millis(1));
                RequestProcessor::new(context.clone(), context.engine.connect(client))
            });
            for (index, request) in [(0, free), (1, wait), (0, give)] {
                processors[index].input.extend_from_slice(format!("{request}\r\n").as_bytes());
                processors[index].process();
            }
            let [_, waiter] = &mut processors;
            assert!(waiter.session.client.has_messages(), "{wait} is answered");
            waiter.process();
            assert!(String::from_utf8_lossy(&waiter.output).starts_with(answer), "{:?}", waiter.output);
            assert!(!journal.1.load(SeqCst), "{wait} is answered before the record");
        }
    }

    #[tokio::test]
    async fn a_long_text_of_a_native_script_is_read_on_the_script_thread() {
        let (_server, mut processor) = processor().await;
        let text = format!("return 1 --{}", "x".repeat(LARGE_BYTES as usize));
        let request = format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{text}\r\n$1\r\n0\r\n", text.len());
        processor.input.extend_from_slice(request.as_bytes());
        processor.process();
        assert!(matches!(processor.state, State::Offload(_)));
        processor.process_offloaded();
        assert_eq!(processor.output, b":1\r\n");
    }

    #[tokio::test]
    async fn a_message_in_the_outbox_leaves_before_the_reply_of_the_next_request() {
        let (_server, mut processor) = processor().await;
        processor.session.client.deliver(b"+message\r\n");
        processor.input.extend_from_slice(b"PING\r\n");
        processor.process();
        assert_eq!(String::from_utf8_lossy(&processor.output), "+message\r\n+PONG\r\n");
    }
}
