//! Every connected client, as other connections see it.
//!
//! Owns    the registry of clients, and per client: what CLIENT LIST shows, and the outbox for messages of other clients.
//! Rule    a message enters the outbox while the shards it is about are locked, so that all clients see one order. The
//!         shell only flushes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use redlatch_proto::clock::LockTime;
use redlatch_proto::number::total;
use redlatch_proto::resp::{Protocol, Reply};

use super::channels::{Kind, PerKind, Subscriptions};
use super::ledger::Ledger;
use super::output_limits::{Class, OutputLimits};
use super::polling::{Pollers, Polling, Polls};
use super::search_budget::SearchBudget;
use super::wait::Wait;

mod parts;

use self::parts::{Activity, Address, Blocking, Buffers, Closing, Login, Options, TransactionSize};
use self::parts::{KEPT, RELEASE_ASKED, RELEASED};

/// The number of a client. It rises with every connection and is never reused.
pub type ClientId = u64;

/// One connected client, shared between its own connection and all others.
#[derive(Debug)]
pub struct Client {
    pub id: ClientId,
    pub since: LockTime,
    pub address: Address,
    /// CLIENT SETNAME and CLIENT SETINFO.
    pub names: Mutex<Names>,
    pub login: Login,
    pub options: Options,
    pub activity: Activity,
    subscriptions: Mutex<Subscriptions>,
    /// The number of its subscriptions of each kind.
    subscribed: PerKind<AtomicU32>,
    /// Whether there is any: each request asks.
    is_subscribed: AtomicBool,
    pub transaction: TransactionSize,
    /// The number of its lock session; 0 if it has begun none.
    pub lock_session: AtomicU64,
    /// The lock that it is refused again and again, if there is one.
    pub polling: Polling,
    /// What has been looked at for it in search of circles of requests that wait for each other.
    pub searches: SearchBudget,
    pub blocking: Blocking,
    pub buffers: Buffers,
    outbox: Mutex<Outbox>,
    has_messages: AtomicBool,
    /// How many bytes of replies and messages may be unsent before the client is dropped.
    pub output_limits: Arc<OutputLimits>,
    /// Where the memory is charged that the server holds for it.
    ledger: Arc<Ledger>,
    closing: Closing,
}

/// The names that a client has set for itself.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub library: String,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: String,
}

/// Bytes of an idle connection: the growth of the process per connection, measured with ten thousand.
const CLIENT_BYTES: u64 = 2 * 1024;

/// How long a connection is idle before it is asked to release its buffers, in milliseconds.
const RELEASE_AFTER_MS: u64 = 1000;

#[derive(Debug, Default)]
struct Outbox {
    /// Messages that follow the reply to the current request directly.
    next: Vec<u8>,
    bytes: Vec<u8>,
    /// Whether `bytes` contains the answer of the waiting command.
    is_answered: bool,
    /// Since when more than the soft limit has been unsent.
    behind_since: Option<LockTime>,
    /// Called when the connection must check its outbox and its state.
    notifier: Option<Notifier>,
}

/// Wakes a connection. Set by the shell that serves it.
struct Notifier(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notifier")
    }
}

impl Outbox {
    fn len(&self) -> usize {
        self.next.len() + self.bytes.len()
    }
}

impl Client {
    /// A client that has just connected.
    pub fn new(id: ClientId, peer: String, local: String, is_unix: bool, since: LockTime) -> Self {
        let ledger = Arc::default();
        Self {
            id,
            since,
            address: Address { peer, local, is_unix },
            names: Mutex::default(),
            login: Login::default(),
            options: Options::default(),
            activity: Activity::new(since),
            subscriptions: Mutex::new(Subscriptions::new(&ledger)),
            subscribed: Default::default(),
            is_subscribed: AtomicBool::new(false),
            transaction: TransactionSize::default(),
            lock_session: AtomicU64::new(0),
            polling: Polling::default(),
            searches: SearchBudget::default(),
            blocking: Blocking::default(),
            buffers: Buffers::default(),
            outbox: Mutex::default(),
            has_messages: AtomicBool::new(false),
            output_limits: Arc::default(),
            ledger,
            closing: Closing::default(),
        }
    }

    pub fn protocol(&self) -> Protocol {
        if self.options.protocol.load(Relaxed) == 3 { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    pub fn set_protocol(&self, protocol: Protocol) {
        self.options.protocol.store(if protocol == Protocol::Resp3 { 3 } else { 2 }, Relaxed);
    }

    /// Charges its memory to this ledger from now on. It has no subscription yet.
    pub(crate) fn charge_to(&mut self, ledger: &Arc<Ledger>) {
        self.ledger = Arc::clone(ledger);
        self.subscriptions = Mutex::new(Subscriptions::new(ledger));
    }

    /// Where the memory is charged that the server holds for it.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Reads or changes its subscriptions, and shows their numbers to other connections.
    pub fn subscriptions<T>(&self, change: impl FnOnce(&mut Subscriptions) -> T) -> T {
        let mut subscriptions = self.subscriptions.lock();
        let result = change(&mut subscriptions);
        for (kind, shown) in Kind::ALL.iter().zip(&self.subscribed) {
            shown.store(bounded(subscriptions.of(*kind).len()), Relaxed);
        }
        self.is_subscribed.store(!subscriptions.is_empty(), Relaxed);
        result
    }

    /// The number of its subscriptions of that kind.
    pub fn subscribed(&self, kind: Kind) -> u32 {
        self.subscribed[kind as usize].load(Relaxed)
    }

    /// Whether it is subscribed to anything.
    #[inline]
    pub(crate) fn is_subscribed(&self) -> bool {
        self.is_subscribed.load(Relaxed)
    }

    /// When its waiting command times out; `None` if it does not wait, or without a limit.
    pub fn waits_until(&self) -> Option<LockTime> {
        self.blocking.wait.lock().as_ref().and_then(|wait| wait.until)
    }

    /// Sets the waiting command of this client.
    pub fn begin_wait(&self, wait: &Arc<Wait>) {
        *self.blocking.wait.lock() = Some(Arc::clone(wait));
    }

    /// Clears the waiting command of this client.
    pub fn end_wait(&self) {
        *self.blocking.wait.lock() = None;
    }

    /// Whether one of its requests waits, for any reason.
    pub fn is_blocked(&self) -> bool {
        self.blocking.is_held.load(Relaxed) || self.waits()
    }

    /// The first `count` keys that its command waits for.
    pub fn waits_for(&self, count: usize) -> Vec<Bytes> {
        let wait = self.blocking.wait.lock();
        wait.as_ref().map_or_else(Vec::new, |wait| wait.keys.iter().take(count).cloned().collect())
    }

    /// Whether a command of this client waits for a key or for its timeout.
    pub fn waits(&self) -> bool {
        self.blocking.wait.lock().is_some()
    }

    /// CLIENT UNBLOCK: ends its wait like the timeout, or with an error. False if no command of this client waits, or if
    /// something else has ended the wait before.
    pub fn unblock(&self, error: Option<&str>) -> bool {
        let Some(wait) = self.blocking.wait.lock().clone() else { return false };
        let Some(text) = error else {
            let is_unblocked = wait.unblock();
            self.wake();
            return is_unblocked;
        };
        if !wait.claim.take() {
            return false;
        }
        let mut line = Vec::new();
        Reply::new(&mut line, self.protocol()).error(text);
        self.answer(&line);
        true
    }

    /// Answers the waiting command and wakes the connection. The caller has taken the claim of the wait.
    pub fn answer(&self, bytes: &[u8]) {
        let is_muted = self.blocking.wait.lock().as_ref().is_some_and(|wait| wait.is_muted);
        let mut outbox = self.outbox.lock();
        if !is_muted {
            outbox.bytes.extend_from_slice(bytes);
        }
        outbox.is_answered = true;
        self.has_messages.store(true, SeqCst);
        drop(outbox);
        self.wake();
    }

    /// Moves the messages to the end of `out` if the answer of the waiting command is in the outbox; false if it is not.
    pub(crate) fn collect_answer(&self, out: &mut Vec<u8>) -> bool {
        if !self.has_messages() {
            return false;
        }
        let mut outbox = self.outbox.lock();
        let is_answered = std::mem::take(&mut outbox.is_answered);
        if is_answered {
            self.empty(&mut outbox, out);
        }
        is_answered
    }

    /// Puts a message into the outbox and wakes the connection. A client with more unsent messages and replies than the
    /// limit of its class is dropped.
    pub fn deliver(&self, bytes: &[u8]) {
        self.put(bytes, |outbox| &mut outbox.bytes);
    }

    /// Like [`Client::deliver`], for a message that the client has caused itself: it follows the reply to the current
    /// request directly; see `Client::collect_next`.
    pub fn deliver_next(&self, bytes: &[u8]) {
        self.put(bytes, |outbox| &mut outbox.next);
    }

    fn put(&self, bytes: &[u8], queue: impl FnOnce(&mut Outbox) -> &mut Vec<u8>) {
        if self.is_closing() {
            return;
        }
        let mut outbox = self.outbox.lock();
        let unread = outbox.len() + self.buffers.reply_bytes.load(Relaxed) as usize;
        let is_full = self.output_limits.of(Class::Pubsub).is_broken_by(unread.saturating_add(bytes.len()));
        if is_full {
            (outbox.next, outbox.bytes) = (Vec::new(), Vec::new());
        } else {
            queue(&mut outbox).extend_from_slice(bytes);
            self.has_messages.store(true, SeqCst);
        }
        drop(outbox);
        if is_full { self.drop_behind() } else { self.wake() }
    }

    /// Whether this number of unsent bytes exceeds the limit of its class.
    #[inline]
    pub fn is_too_far_behind(&self, reply_bytes: usize) -> bool {
        self.output_limits.of(self.class(false)).is_broken_by(reply_bytes)
    }

    /// Drops the client because it does not read what it is sent, and counts that.
    #[cold]
    pub fn drop_behind(&self) {
        self.output_limits.disconnections.add(1);
        self.cut("leaves too much unread");
    }

    fn class(&self, has_messages: bool) -> Class {
        if has_messages || self.is_subscribed() { Class::Pubsub } else { Class::Normal }
    }

    /// Whether it has been idle for longer than `idle_ms_max` milliseconds. Zero means no limit; subscribers and clients
    /// with a waiting request have none either.
    pub fn is_idle(&self, now: LockTime, idle_ms_max: u64) -> bool {
        let since = LockTime::from_millis(self.activity.last_active_ms.load(Relaxed));
        idle_ms_max > 0
            && now.millis_since(since) > idle_ms_max
            && !self.is_subscribed()
            && !self.blocking.is_held.load(Relaxed)
    }

    /// Whether more than the soft limit has been unsent for too long. Measured between the calls of this function.
    pub fn is_behind(&self, now: LockTime) -> bool {
        let reply_bytes = self.buffers.reply_bytes.load(Relaxed) as usize;
        if reply_bytes == 0 && !self.has_messages() {
            return false;
        }
        let mut outbox = self.outbox.lock();
        let limit = self.output_limits.of(self.class(outbox.len() > 0));
        if !limit.is_strained_by(outbox.len() + reply_bytes) {
            outbox.behind_since = None;
            return false;
        }
        let since = *outbox.behind_since.get_or_insert(now);
        now.millis_since(since) > limit.soft_secs.saturating_mul(1000)
    }

    /// Approximate bytes of memory that it uses: its buffers, its transaction, its outbox and itself.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.buffer_bytes().saturating_add(self.transaction.queued_bytes.load(Relaxed))
    }

    /// Approximate bytes of its buffers, its outbox, its names and itself. What else it holds is in the [`Ledger`].
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let names = self.names.lock();
        let names = [&names.name, &names.library, &names.library_version].map(|name| name.capacity() as u64);
        let Buffers { query_bytes, query_room, decoder_bytes, .. } = &self.buffers;
        let buffers = [query_bytes, query_room, decoder_bytes].map(|bytes| bytes.load(Relaxed));
        let parts = names.into_iter().chain(buffers).chain([CLIENT_BYTES, self.unsent_bytes()]);
        total(parts)
    }

    /// Bytes of replies and messages that were not sent yet.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        let messages = if self.has_messages() { self.outbox.lock().len() as u64 } else { 0 };
        total([self.buffers.reply_bytes.load(Relaxed), messages])
    }

    /// Asks the connection to release its buffers if it has been idle for `RELEASE_AFTER_MS`.
    pub(crate) fn release_if_idle(&self, now: LockTime) {
        let since = LockTime::from_millis(self.activity.last_active_ms.load(Relaxed));
        if self.buffers.kept.load(Relaxed) == KEPT && now.millis_since(since) >= RELEASE_AFTER_MS {
            self.buffers.kept.store(RELEASE_ASKED, Relaxed);
            self.wake();
        }
    }

    /// Called by an idle connection: whether it must release its buffers.
    #[inline]
    pub fn should_release_buffers(&self) -> bool {
        let buffers = self.buffers.kept.load(Relaxed);
        match buffers {
            RELEASED => self.buffers.kept.store(KEPT, Relaxed),
            RELEASE_ASKED => self.buffers.kept.store(RELEASED, Relaxed),
            _ => {}
        }
        buffers == RELEASE_ASKED
    }

    /// Ends the connection at once and discards its unsent output. The log names the first `reason` that is given.
    pub fn cut(&self, reason: &'static str) {
        self.note_end(reason);
        self.closing.is_cut.store(true, SeqCst);
        self.close();
    }

    /// Notes why the server ends the connection; the first reason stays.
    pub(crate) fn note_end(&self, reason: &'static str) {
        let _ = self.closing.reason.set(reason);
    }

    /// Why the server ends the connection, if it does.
    pub(crate) fn cut_reason(&self) -> Option<&'static str> {
        self.closing.reason.get().copied()
    }

    /// Whether the connection must close at once.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.closing.is_cut.load(SeqCst)
    }

    /// Asks the connection to close once its replies and messages have been sent.
    pub fn close(&self) {
        self.closing.is_asked.store(true, SeqCst);
        self.wake();
    }

    /// Wakes the connection: there may be messages, its wait may be over, or it may have to close.
    pub fn wake(&self) {
        if let Some(Notifier(notify)) = &self.outbox.lock().notifier {
            notify();
        }
    }

    /// Whether the connection has been asked to close.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.closing.is_asked.load(SeqCst)
    }

    /// Whether the outbox holds anything.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.has_messages.load(SeqCst)
    }

    /// Moves all messages to the end of `out`. If the answer of the waiting command is in the outbox, all stays for
    /// `Client::collect_answer`, which ends the wait.
    pub fn collect(&self, out: &mut Vec<u8>) {
        let mut outbox = self.outbox.lock();
        if !outbox.is_answered {
            self.empty(&mut outbox, out);
        }
    }

    /// Like [`Client::collect`], of the messages that follow the reply to the current request directly.
    pub(crate) fn collect_next(&self, out: &mut Vec<u8>) {
        let mut outbox = self.outbox.lock();
        if !outbox.is_answered {
            out.append(&mut outbox.next);
        }
    }

    fn empty(&self, outbox: &mut Outbox, out: &mut Vec<u8>) {
        out.append(&mut outbox.next);
        out.append(&mut outbox.bytes);
        if self.buffers.reply_bytes.load(Relaxed) == 0 {
            outbox.behind_since = None;
        }
        self.has_messages.store(false, SeqCst);
    }

    /// From now on [`Client::wake`] and every message call `notify`. It is called with the outbox locked and must not use
    /// the client. The connection checks its outbox after this call, because messages may have arrived before.
    pub fn set_notifier(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.outbox.lock().notifier = Some(Notifier(Box::new(notify)));
    }
}

fn bounded(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[derive(Debug, Default)]
pub struct Clients {
    by_id: DashMap<ClientId, Arc<Client>>,
    last_id: AtomicU64,
    connected: AtomicU64,
}

impl Clients {
    /// The number for the next client.
    pub fn next_id(&self) -> ClientId {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// The next client has a number above this one: clients of an earlier run are never mistaken for new ones.
    pub fn raise_ids(&self, to: ClientId) {
        self.last_id.fetch_max(to, Relaxed);
    }

    /// Registers a client that has connected.
    pub fn enter(&self, client: Arc<Client>) {
        self.connected.fetch_add(1, Relaxed);
        self.by_id.insert(client.id, client);
    }

    /// Removes a client whose connection has ended.
    pub fn leave(&self, id: ClientId) {
        if self.by_id.remove(&id).is_some() {
            self.connected.fetch_sub(1, Relaxed);
        }
    }

    /// Calls `visit` with each client, in no order. `visit` must not use the registry.
    pub fn each(&self, mut visit: impl FnMut(&Client)) {
        self.by_id.iter().for_each(|client| visit(&client));
    }

    /// The number of connected clients.
    pub fn len(&self) -> usize {
        self.connected.load(Relaxed) as usize
    }

    /// True while no client is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The client of that number.
    pub fn get(&self, id: ClientId) -> Option<Arc<Client>> {
        self.by_id.get(&id).map(|client| Arc::clone(&client))
    }

    /// The clients that poll the lock of that hash, from the one that has polled the longest.
    pub fn polling(&self, key: u64, now: LockTime) -> Vec<(Arc<Client>, Polls)> {
        let polls = |client: &Arc<Client>| Some((Arc::clone(client), client.polling.polls(key, now)?));
        let mut found: Vec<_> = self.by_id.iter().filter_map(|client| polls(&client)).collect();
        found.sort_unstable_by_key(|(client, polls)| (polls.since, client.id));
        found
    }

    /// Who polls which lock, by the hash of the lock.
    pub fn pollers(&self, now: LockTime) -> BTreeMap<u64, Pollers> {
        let mut pollers = BTreeMap::new();
        for (key, polls) in self.by_id.iter().filter_map(|client| client.polling.current(now)) {
            let counted = Pollers::with(pollers.get(&key).copied(), polls);
            pollers.insert(key, counted);
        }
        pollers
    }

    /// All clients, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        let mut all: Vec<_> = self.by_id.iter().map(|client| Arc::clone(&client)).collect();
        all.sort_unstable_by_key(|client| client.id);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_number_above_those_of_an_earlier_run() {
        let clients = Clients::default();
        clients.raise_ids(40);
        clients.raise_ids(7);
        assert_eq!([clients.next_id(), clients.next_id()], [41, 42]);
    }

    #[test]
    fn only_collect_answer_takes_the_answer_of_a_waiting_command() {
        let client = Client::new(1, String::new(), String::new(), false, LockTime::from_millis(1));
        let mut out = Vec::new();
        client.deliver(b"message ");
        assert!(!client.collect_answer(&mut out) && out.is_empty());
        client.answer(b"answer ");
        client.deliver(b"more");
        client.collect(&mut out);
        assert!(out.is_empty() && client.has_messages(), "the waiting command would never end");
        assert!(client.collect_answer(&mut out));
        assert_eq!(out, b"message answer more");
        assert!(!client.has_messages() && !client.collect_answer(&mut out));
    }
}
