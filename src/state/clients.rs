//! Every connected client, as the others may see it.
//!
//! Owns    the registry, and per client: facts for CLIENT LIST, and the outbox that others put pushes into.
//! Rule    a push enters the outbox while the shards it speaks of are locked, so that all clients see one order; the
//!         shell only flushes.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst,
};

use dashmap::DashMap;
use parking_lot::Mutex;

use super::acl::Account;
use super::channels::{Kind, PerKind, Subscriptions};
use super::output_limits::{Class, OutputLimits};
use super::transaction::{Watch, Watching};
use super::wait::Wait;
use crate::clock::LockTime;
use crate::resp::{Protocol, Reply};

/// A client's number: rises with every connection, is never used twice.
pub type ClientId = u64;

/// One connected client, shared between its own connection and whoever asks about it.
#[derive(Debug)]
pub struct Client {
    /// Its number.
    pub id: ClientId,
    /// Where it connected from: `127.0.0.1:50000`, a socket's path, or empty for an in-process stream.
    pub peer: String,
    /// Where it connected to.
    pub local: String,
    /// Whether it came through a Unix socket.
    pub is_unix: bool,
    /// When it connected.
    pub since: LockTime,
    /// Names it gave itself.
    pub names: Mutex<Names>,
    /// The user in whose name it sends.
    account: Mutex<Option<Arc<Account>>>,
    /// The database it has selected.
    pub database: AtomicU16,
    /// When it last sent a request, in milliseconds of lock time.
    pub last_active_ms: AtomicU64,
    /// Index of the last command in the command table; `u16::MAX` before the first.
    pub last_command: AtomicU16,
    /// How much of each kind it listens to.
    subscriptions: PerKind<AtomicU32>,
    /// Requests gathered since MULTI; [`NO_TRANSACTION`] outside of a transaction.
    queued: AtomicU32,
    /// Bytes that these take.
    pub queued_bytes: AtomicU64,
    /// The keys it watches, if it watches any.
    watching: Mutex<Option<Watched>>,
    /// Whether CLIENT NO-EVICT is on.
    pub no_evict: AtomicBool,
    /// Whether CLIENT NO-TOUCH is on.
    pub no_touch: AtomicBool,
    /// Bytes received and not yet understood.
    pub query_bytes: AtomicU64,
    /// Bytes that its buffer for requests has room for beyond these.
    pub query_room: AtomicU64,
    /// Bytes of replies not yet sent.
    pub reply_bytes: AtomicU64,
    /// How many of these there may be, and of messages.
    pub output_limits: Arc<OutputLimits>,
    /// Whether a request of its own waits, for a moment, an event or the end of a pause.
    pub is_held: AtomicBool,
    /// Whether its connection keeps room for requests to come: [`ROOMY`], [`TO_REST`] or [`AT_REST`].
    room: AtomicU8,
    /// The turn of a manual clock up to which the connection has seen to everything.
    pub settled: AtomicU64,
    /// Its command that waits.
    wait: Mutex<Option<Arc<Wait>>>,
    protocol: AtomicU8,
    closing: AtomicBool,
    is_cut: AtomicBool,
    /// Why the server ends the connection, if it does.
    cut_reason: OnceLock<&'static str>,
    outbox: Mutex<Outbox>,
    has_messages: AtomicBool,
}

/// Names a client gave itself.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub library: String,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: String,
}

/// Watched keys, as others may see them.
#[derive(Debug)]
struct Watched {
    keys: usize,
    watch: Arc<Watch>,
}

/// What a connection costs that holds nothing: measured as the growth of a process with ten thousand of them.
const CLIENT_BYTES: u64 = 3 * 1024;

/// It keeps room and has not been asked for it.
const ROOMY: u8 = 0;
/// It has been asked.
const TO_REST: u8 = 1;
/// It has given it back, or has yet to take it.
const AT_REST: u8 = 2;
/// For how long nothing has been heard of a connection that is asked, in milliseconds.
const REST_AFTER_MS: u64 = 1000;

/// What stands in place of a count outside of a transaction.
const NO_TRANSACTION: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Outbox {
    /// What belongs directly behind the reply to the request that is being carried out.
    next: Vec<u8>,
    bytes: Vec<u8>,
    /// The answer of the call that waits is among the bytes.
    is_answered: bool,
    /// Since when the client has been behind by more than the soft limit.
    behind_since: Option<LockTime>,
    /// Called when the connection is to look at its outbox and its state.
    notifier: Option<Notifier>,
}

/// How a connection is woken: handed in by the shell that serves it.
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
        Self {
            id,
            peer,
            local,
            is_unix,
            since,
            names: Mutex::default(),
            account: Mutex::new(None),
            database: AtomicU16::new(0),
            last_active_ms: AtomicU64::new(since.as_millis()),
            last_command: AtomicU16::new(u16::MAX),
            subscriptions: Default::default(),
            queued: AtomicU32::new(NO_TRANSACTION),
            queued_bytes: AtomicU64::new(0),
            watching: Mutex::new(None),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            query_bytes: AtomicU64::new(0),
            query_room: AtomicU64::new(0),
            reply_bytes: AtomicU64::new(0),
            output_limits: Arc::default(),
            is_held: AtomicBool::new(false),
            room: AtomicU8::new(AT_REST),
            settled: AtomicU64::new(0),
            wait: Mutex::new(None),
            protocol: AtomicU8::new(2),
            closing: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            cut_reason: OnceLock::new(),
            outbox: Mutex::default(),
            has_messages: AtomicBool::new(false),
        }
    }

    /// Shows others in whose name it sends from now on.
    pub fn show_account(&self, account: &Arc<Account>) {
        *self.account.lock() = Some(Arc::clone(account));
    }

    /// The user in whose name it sends, once it has been let in.
    pub fn account(&self) -> Option<Arc<Account>> {
        self.account.lock().clone()
    }

    /// Whether it sends in the name of this user.
    pub fn is_in_name_of(&self, account: &Arc<Account>) -> bool {
        self.account.lock().as_ref().is_some_and(|own| Arc::ptr_eq(own, account))
    }

    /// The protocol it speaks now.
    pub fn protocol(&self) -> Protocol {
        if self.protocol.load(Relaxed) == 3 { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// HELLO has changed the protocol.
    pub fn set_protocol(&self, protocol: Protocol) {
        self.protocol.store(if protocol == Protocol::Resp3 { 3 } else { 2 }, Relaxed);
    }

    /// Shows others how much it listens to.
    pub fn show_subscriptions(&self, subscriptions: &Subscriptions) {
        for (kind, shown) in Kind::ALL.iter().zip(&self.subscriptions) {
            shown.store(bounded(subscriptions.of(*kind).len()), Relaxed);
        }
    }

    /// How much of that kind it listens to.
    pub fn subscriptions(&self, kind: Kind) -> u32 {
        self.subscriptions[kind as usize].load(Relaxed)
    }

    /// Whether it listens to anything.
    pub fn is_subscribed(&self) -> bool {
        Kind::ALL.iter().any(|kind| self.subscriptions(*kind) > 0)
    }

    /// Shows others how many requests it has gathered since MULTI, and their bytes; `None` outside of a transaction.
    pub fn show_queued(&self, requests: Option<usize>, bytes: usize) {
        self.queued_bytes.store(bytes as u64, Relaxed);
        self.queued
            .store(requests.map_or(NO_TRANSACTION, |count| bounded(count).min(NO_TRANSACTION - 1)), Relaxed);
    }

    /// How many requests it has gathered since MULTI; `None` outside of a transaction.
    pub fn queued(&self) -> Option<u32> {
        Some(self.queued.load(Relaxed)).filter(|count| *count != NO_TRANSACTION)
    }

    /// Shows others what it watches.
    pub fn show_watching(&self, watching: Option<&Watching>) {
        *self.watching.lock() = watching
            .map(|watching| Watched { keys: watching.keys.len(), watch: Arc::clone(&watching.watch) });
    }

    /// How many keys it watches, and whether one of them has changed.
    pub fn watching(&self) -> (usize, bool) {
        self.watching.lock().as_ref().map_or((0, false), |watched| (watched.keys, watched.watch.is_broken()))
    }

    /// When its waiting command times out; `None` if none waits, or waits without a timeout.
    pub fn waits_until(&self) -> Option<LockTime> {
        self.wait.lock().as_ref().and_then(|wait| wait.until)
    }

    /// A command of this client waits from now on.
    pub fn begin_wait(&self, wait: &Arc<Wait>) {
        *self.wait.lock() = Some(Arc::clone(wait));
    }

    /// No command of this client waits any more.
    pub fn end_wait(&self) {
        *self.wait.lock() = None;
    }

    /// Whether a request of its own waits for a moment, an event or the end of a pause.
    pub fn is_blocked(&self) -> bool {
        self.is_held.load(Relaxed) || self.waits()
    }

    /// Whether a call of its own waits.
    pub fn waits(&self) -> bool {
        self.wait.lock().is_some()
    }

    /// Ends its wait as its time limit would, or with an error; false when it does not wait, or is about to be served.
    pub fn unblock(&self, error: Option<&str>) -> bool {
        let Some(wait) = self.wait.lock().clone() else { return false };
        if !wait.claim.take() {
            return false;
        }
        match error {
            None => self.answer(&wait.answer),
            Some(text) => {
                let mut line = Vec::new();
                Reply::new(&mut line, self.protocol()).error(text);
                self.answer(&line);
            }
        }
        true
    }

    /// Answers the call that waits, whose claim the caller has taken, and has the connection go on.
    pub fn answer(&self, bytes: &[u8]) {
        let is_muted = self.wait.lock().as_ref().is_some_and(|wait| wait.is_muted);
        let mut outbox = self.outbox.lock();
        if !is_muted {
            outbox.bytes.extend_from_slice(bytes);
        }
        outbox.is_answered = true;
        self.has_messages.store(true, SeqCst);
        drop(outbox);
        self.wake();
    }

    /// Moves the mail to the end of `out` if the answer of the waiting call is in it; false when it is not there yet.
    pub fn collect_answer(&self, out: &mut Vec<u8>) -> bool {
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

    /// Puts bytes into the outbox and wakes the connection. A client that leaves more unread, there and of its replies,
    /// than its class may is dropped.
    pub fn deliver(&self, bytes: &[u8]) {
        self.put(bytes, |outbox| &mut outbox.bytes);
    }

    /// The same, directly behind the reply to the request that is being carried out, which is the client's own: before
    /// what [`Client::collect`] gives when there are no more requests.
    pub fn deliver_next(&self, bytes: &[u8]) {
        self.put(bytes, |outbox| &mut outbox.next);
    }

    fn put(&self, bytes: &[u8], where_to: impl FnOnce(&mut Outbox) -> &mut Vec<u8>) {
        if self.is_closing() {
            return;
        }
        let mut outbox = self.outbox.lock();
        let unread = outbox.len() + self.reply_bytes.load(Relaxed) as usize;
        let is_full = self.output_limits.of(Class::Pubsub).is_broken_by(unread.saturating_add(bytes.len()));
        if is_full {
            (outbox.next, outbox.bytes) = (Vec::new(), Vec::new());
        } else {
            where_to(&mut outbox).extend_from_slice(bytes);
            self.has_messages.store(true, SeqCst);
        }
        drop(outbox);
        if is_full { self.drop_behind() } else { self.wake() }
    }

    /// Whether so many bytes of replies that it does not take are more than its class may leave unread.
    #[inline]
    pub fn is_too_far_behind(&self, reply_bytes: usize) -> bool {
        self.output_limits.of(self.class(false)).is_broken_by(reply_bytes)
    }

    /// It leaves too much unread: ends at once, and is counted.
    #[cold]
    pub fn drop_behind(&self) {
        self.output_limits.disconnections.add(1);
        self.cut("leaves too much unread");
    }

    fn class(&self, has_messages: bool) -> Class {
        if has_messages || self.is_subscribed() { Class::Pubsub } else { Class::Normal }
    }

    /// Whether it has been idle for longer than `idle_ms_max` milliseconds; zero: it may be for ever, as a subscriber
    /// and a client with a call that waits always may.
    pub fn is_idle(&self, now: LockTime, idle_ms_max: u64) -> bool {
        let since = LockTime::from_millis(self.last_active_ms.load(Relaxed));
        idle_ms_max > 0
            && now.millis_since(since) > idle_ms_max
            && !self.is_subscribed()
            && !self.is_held.load(Relaxed)
    }

    /// Whether it has been behind by more than the soft limit for too long, as far as the calls of this have seen.
    pub fn is_behind(&self, now: LockTime) -> bool {
        let reply_bytes = self.reply_bytes.load(Relaxed) as usize;
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

    /// Bytes that it holds, about: what it has sent and not been told, and what it is made of.
    pub fn held_bytes(&self) -> u64 {
        let buffers = [&self.query_bytes, &self.query_room, &self.queued_bytes];
        CLIENT_BYTES + self.unsent_bytes() + buffers.map(|bytes| bytes.load(Relaxed)).iter().sum::<u64>()
    }

    /// Bytes of replies and messages that were not sent yet.
    pub fn unsent_bytes(&self) -> u64 {
        let messages = if self.has_messages() { self.outbox.lock().len() as u64 } else { 0 };
        self.reply_bytes.load(Relaxed) + messages
    }

    /// Asks the connection to give back what it keeps for requests to come, if none has come for a while.
    pub fn let_rest(&self, now: LockTime) {
        let since = LockTime::from_millis(self.last_active_ms.load(Relaxed));
        if self.room.load(Relaxed) == ROOMY && now.millis_since(since) >= REST_AFTER_MS {
            self.room.store(TO_REST, Relaxed);
            self.wake();
        }
    }

    /// The connection has nothing to do: whether it has been asked to give back what it keeps.
    #[inline]
    pub fn is_to_rest(&self) -> bool {
        let room = self.room.load(Relaxed);
        if room == AT_REST {
            self.room.store(ROOMY, Relaxed);
        } else if room == TO_REST {
            self.room.store(AT_REST, Relaxed);
        }
        room == TO_REST
    }

    /// Ends the connection at once, whatever is still queued for it. The log names the first `reason` that is given.
    pub fn cut(&self, reason: &'static str) {
        self.note_end(reason);
        self.is_cut.store(true, SeqCst);
        self.close();
    }

    /// Notes why the server ends the connection; the first reason stays.
    pub fn note_end(&self, reason: &'static str) {
        let _ = self.cut_reason.set(reason);
    }

    /// Why the server ends the connection, if it does.
    pub fn cut_reason(&self) -> Option<&'static str> {
        self.cut_reason.get().copied()
    }

    /// Whether it is to end at once.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(SeqCst)
    }

    /// Asks the connection to close once what is already queued for it has been sent.
    pub fn close(&self) {
        self.closing.store(true, SeqCst);
        self.wake();
    }

    /// Has the connection look around: for mail, for the end, for a wait that is over.
    pub fn wake(&self) {
        if let Some(Notifier(notify)) = &self.outbox.lock().notifier {
            notify();
        }
    }

    /// Whether it has been asked to close.
    #[inline]
    pub fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// Whether the outbox holds anything.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.has_messages.load(SeqCst)
    }

    /// Moves what the outbox holds to the end of `out`. Where it holds the answer of the call that waits, everything
    /// stays for [`Client::collect_answer`]: whoever takes the answer has to know that it is one.
    pub fn collect(&self, out: &mut Vec<u8>) {
        let mut outbox = self.outbox.lock();
        if !outbox.is_answered {
            self.empty(&mut outbox, out);
        }
    }

    /// The same of what belongs directly behind the reply to a request.
    pub fn collect_next(&self, out: &mut Vec<u8>) {
        let mut outbox = self.outbox.lock();
        if !outbox.is_answered {
            out.append(&mut outbox.next);
        }
    }

    fn empty(&self, outbox: &mut Outbox, out: &mut Vec<u8>) {
        out.append(&mut outbox.next);
        out.append(&mut outbox.bytes);
        if self.reply_bytes.load(Relaxed) == 0 {
            outbox.behind_since = None;
        }
        self.has_messages.store(false, SeqCst);
    }

    /// From now on [`Client::wake`] and every message call `notify`. It is called with the outbox locked and must not
    /// come back to the client. The connection looks at its outbox after this call, to miss nothing that came before.
    pub fn set_notifier(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.outbox.lock().notifier = Some(Notifier(Box::new(notify)));
    }
}

fn bounded(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// All connected clients.
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

    /// A client has connected.
    pub fn enter(&self, client: Arc<Client>) {
        self.connected.fetch_add(1, Relaxed);
        self.by_id.insert(client.id, client);
    }

    /// A client is gone.
    pub fn leave(&self, id: ClientId) {
        if self.by_id.remove(&id).is_some() {
            self.connected.fetch_sub(1, Relaxed);
        }
    }

    /// Looks at each of them, in no order; `look` must not come back to the registry.
    pub fn each(&self, mut look: impl FnMut(&Client)) {
        self.by_id.iter().for_each(|client| look(&client));
    }

    /// How many are connected.
    pub fn len(&self) -> usize {
        self.connected.load(Relaxed) as usize
    }

    /// True while nobody is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The client of that number.
    pub fn get(&self, id: ClientId) -> Option<Arc<Client>> {
        self.by_id.get(&id).map(|client| Arc::clone(&client))
    }

    /// All of them, oldest first.
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
    fn an_answer_is_taken_by_whoever_knows_that_it_is_one() {
        let client = Client::new(1, String::new(), String::new(), false, LockTime::from_millis(1));
        let mut out = Vec::new();
        client.deliver(b"news ");
        assert!(!client.collect_answer(&mut out) && out.is_empty());
        client.answer(b"answer ");
        client.deliver(b"more");
        client.collect(&mut out);
        assert!(
            out.is_empty() && client.has_messages(),
            "the call that waits would never hear that it is over"
        );
        assert!(client.collect_answer(&mut out));
        assert_eq!(out, b"news answer more");
        assert!(!client.has_messages() && !client.collect_answer(&mut out));
    }
}
