//! The engine: the whole server without sockets, threads and a clock of its own.
//!
//! Owns    the checks that every command passes, in order, and the execution of commands for a session.
//! Time    comes from the injected clock: once per batch, and again after a command that may have taken long.
//! Rule    messages to other clients enter their outboxes while the shards are still locked; the shell only flushes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::error::Refusal;
use redlatch_proto::limits::REPLY_BYTES_MAX;
use redlatch_proto::resp::{Reply, Request, RequestLimits};
use smallvec::{SmallVec, smallvec};

use crate::commands::peers::{self, Elsewhere, Peers};
use crate::commands::row::Flags;
use crate::commands::{self, Args, Call, Caller, Command, EXEC, Outcome, Shared};
use crate::keyspace::{Due, Lookahead, ShardSet, View};
use crate::state::clients::Client;
use crate::state::session::{Replies, Session};
use crate::state::settings;
use crate::state::slot_map::SlotRequest;
use crate::state::wait::{WaitEnd, WaitFor};

mod offload;
mod panic;
pub mod question;
mod spans;
mod transaction;
mod unknown;

use panic::finish_at_panic;

/// One server, which executes requests.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// The next step of a connection after a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flow {
    /// It processes the next request.
    Next,
    /// It writes its output, then closes.
    Close,
    /// It repeats this request at this time, or earlier when it is woken: CLIENT PAUSE, or a long call.
    Again(LockTime),
    /// It repeats this request on the script thread, with [`Session::may_block`] set.
    Offload,
    /// A command of this session waits. The connection waits until [`Engine::resume`] returns [`Flow::Next`].
    Wait,
}

/// A batch of requests of one session. It shares one reading of the clock until a command takes long.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    now: Now,
    commands: u32,
    /// The index of the last command, and how often it was executed in a row. Its counter is updated when another
    /// command follows or the batch ends, because a counter that all threads write for every command is slow.
    run: (u16, u64),
    lookahead: Lookahead,
}

/// Milliseconds after which a request that met a long call is retried, if its session is not woken earlier.
const RETRY_MS: u64 = 100;
/// Milliseconds between two checks of the tick whether CLIENT PAUSE has ended.
const PAUSED_TICK_MS: u64 = 100;
/// Commands after which a batch reads the clock again.
const COMMANDS_PER_READING: u32 = 64;

impl Engine {
    /// Creates an engine for this state.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The state that all commands share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Registers a connection.
    pub fn connect(&self, mut client: Client) -> Session {
        client.output_limits = Arc::clone(self.shared.settings.output_limits());
        client.charge_to(self.shared.keyspace.ledger());
        let client = Arc::new(client);
        self.shared.stats.metrics.connections.add(1);
        self.shared.registries.clients.enter(Arc::clone(&client));
        let (acl, span) = (&self.shared.access.acl, spans::connection(&client));
        let mut session = Session::new(client, Arc::clone(acl.default_account()), acl.is_open());
        session.span = span;
        session
    }

    /// Logs a connection in by the names in its TLS certificate, as the first of them that is the name of a user who is on.
    /// If there is none, its next requests are those of a client without a certificate.
    pub fn log_in_by_certificate(&self, session: &mut Session, names: &[Vec<u8>]) {
        commands::log_in(session, &self.shared, names);
    }

    /// Ends a connection.
    pub fn disconnect(&self, session: &mut Session) {
        if let Some(reason) = session.client.cut_reason() {
            self.log_drop(session, reason);
        }
        if let Some(parked) = &session.parked {
            let unread =
                if parked.claim.take() { None } else { self.shared.locks.waits.get(parked.place.number) };
            self.end_wait(session, WaitEnd::Disconnected, None);
            if let Some(waiter) = unread {
                let shared = &self.shared;
                shared.keyspace.give_back(&waiter, shared.clock.now(), shared.events(), &shared.registries);
            }
        }
        if session.login_turn.is_waiting() {
            self.shared.end_login(session, self.shared.clock.now().lock);
        }
        commands::end_lock_session(session, &self.shared);
        commands::leave_all(session, &self.shared);
        self.shared.monitors.leave(session.client.id);
        commands::discard_all(session, &self.shared);
        commands::end_tracking(session, &self.shared);
        self.shared.registries.clients.leave(session.client.id);
        session.span = tracing::Span::none();
    }

    /// Begins a batch of requests.
    #[inline]
    pub fn batch(&self) -> Batch {
        Batch { now: self.shared.clock.now(), commands: 0, run: (0, 0), lookahead: Lookahead::Nothing }
    }

    /// Called before a request is executed: begins to load what it and the next one need. `rest` is the input behind it.
    #[inline]
    pub fn look_ahead(&self, session: &Session, rest: &[u8], batch: &mut Batch) {
        self.shared.keyspace.prefetch(session.database, rest, &mut batch.lookahead);
    }

    /// Ends a batch and updates the counters.
    #[inline]
    pub fn end_batch(&self, session: &mut Session, batch: Batch) {
        session.called.flush(&self.shared.stats.commands);
        session.client.activity.last_active_ms.store(batch.now.lock.as_millis(), Relaxed);
        self.shared.stats.metrics.commands.add(u64::from(batch.commands));
        self.count(batch.run);
    }

    /// The size limits of requests of this session.
    pub fn trust(&self, session: &Session) -> RequestLimits {
        let (settings, acl) = (&self.shared.settings, &self.shared.access.acl);
        RequestLimits {
            bulk_bytes_max: settings.get(settings::PROTO_MAX_BULK_LEN),
            request_bytes_max: settings.get(settings::CLIENT_QUERY_BUFFER_LIMIT),
            authenticated: session.authenticated || acl.is_open(),
        }
    }

    /// Executes one request and appends its reply to `out`.
    #[inline]
    pub fn execute(
        &self,
        session: &mut Session,
        request: Request<'_>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        if spans::are_wanted() {
            return self.execute_in_span(session, request, batch, out);
        }
        self.execute_request(session, request, batch, out)
    }

    #[inline]
    fn execute_request(
        &self,
        session: &mut Session,
        request: Request<'_>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        if request.is_empty() {
            return Flow::Next;
        }
        batch.commands += 1;
        if batch.commands.is_multiple_of(COMMANDS_PER_READING) {
            let now = self.shared.clock.now();
            let millis = now.lock.millis_since(batch.now.lock);
            session.add_nanos(millis.saturating_mul(1_000_000));
            batch.now = now;
        }
        let start = out.len();
        let flow = match self.admit(session, request, batch.now) {
            Ok(Admitted::Run(command)) => self.run(session, command, request, batch, out),
            Ok(Admitted::Hold(until)) => {
                batch.commands -= 1;
                session.asking = session.asking.again();
                return Flow::Again(until);
            }
            // The connection is closed without a reply, as in Redis: earlier requests are not answered either.
            Err((_, None)) if unknown::is_http(request.word(0)) => {
                self.warn_of_http(session);
                session.client.cut("spoke HTTP");
                Flow::Close
            }
            Err((refusal, command)) => self.reject(session, refusal, (command, request), out),
        };
        if out.len() >= REPLY_BYTES_MAX {
            return too_long(session, out, start);
        }
        if matches!(flow, Flow::Again(_) | Flow::Offload) {
            // The request comes again, and CLIENT REPLY SKIP is about its reply.
            session.asking = session.asking.again();
            return flow;
        }
        if session.replies != Replies::On {
            mute(session, out, start);
        } else if session.reads.is_on() && flow == Flow::Next {
            collect_own_messages(session, out);
        }
        flow
    }

    /// Answers a request that is refused before its command runs.
    #[cold]
    fn reject(
        &self,
        session: &mut Session,
        refusal: Refusal,
        (command, request): (Option<&'static Command>, Request<'_>),
        out: &mut Vec<u8>,
    ) -> Flow {
        session.reads = session.reads.after_next();
        if let Some(command) = command {
            self.shared.stats.commands[usize::from(command.index)].rejected.add(1);
        }
        let refusal = self.abort(session, refusal, (command, request));
        self.refuse(session, &refusal, out);
        Flow::Next
    }

    /// Checks a session whose command waits: if the wait is over, appends the answer and returns [`Flow::Next`].
    pub fn resume(&self, session: &mut Session, out: &mut Vec<u8>) -> Flow {
        let now = self.shared.clock.now();
        let Some(parked) = &session.parked else { return Flow::Next };
        let is_over = parked.until.is_some_and(|until| until <= now.lock);
        // The timer of a lease that has ended may be later than that of the wait.
        if is_over && parked.kind == WaitFor::Locks && !self.is_paused() {
            self.shared.keyspace.look_up(parked, now, self.shared.events(), &self.shared.registries);
        }
        if session.client.collect_answer(out) {
            self.end_wait(session, WaitEnd::Answered, None);
            return Flow::Next;
        }
        // If the claim was taken by another thread, that thread is about to answer.
        if !parked.is_unblocked() && (!is_over || !parked.claim.take()) {
            return Flow::Wait;
        }
        let how = if parked.is_unblocked() { WaitEnd::Unblocked } else { WaitEnd::TimedOut };
        self.end_wait(session, how, Some(out));
        Flow::Next
    }

    /// Ends the wait of the session, whose claim has been taken. A wait that has timed out is answered in `timed_out`.
    fn end_wait(&self, session: &mut Session, how: WaitEnd, timed_out: Option<&mut Vec<u8>>) {
        session.client.end_wait();
        let Some(wait) = session.parked.take() else { return };
        let (shared, now) = (&self.shared, self.shared.clock.now());
        if wait.kind == WaitFor::Locks {
            shared.locks.waits.leave(wait.place.number);
        }
        let refusal = shared.keyspace.unpark((&wait, how), now, shared.events(), &shared.registries);
        if let Some(out) = timed_out {
            wait.time_out(refusal, out);
        }
    }

    /// Whether a CLIENT PAUSE is active.
    pub fn is_paused(&self) -> bool {
        self.shared.pause.holds(|| true, self.shared.clock.now().lock).is_some()
    }

    /// Asks idle connections to release their buffers, and closes clients that were idle for longer than `timeout`, have not
    /// authenticated within `login-timeout`, or have exceeded their soft output limit for too long.
    pub fn sweep(&self) {
        let now = self.shared.clock.now().lock;
        let mut client_bytes = 0_u64;
        let seconds = |setting| self.shared.settings.get(setting);
        let idle_ms_max = seconds(settings::TIMEOUT) * 1000;
        let login_ms_max =
            if self.shared.access.acl.is_open() { 0 } else { seconds(settings::LOGIN_TIMEOUT) * 1000 };
        self.shared.registries.clients.each(|client| {
            client.release_if_idle(now);
            client_bytes = client_bytes.saturating_add(client.buffer_bytes());
            if client.is_behind(now) {
                client.drop_behind();
            } else if client.is_idle(now, idle_ms_max) {
                client.cut("was idle for longer than timeout");
            } else if login_ms_max > 0 && client.login.is_late(now, login_ms_max) {
                client.cut("has not authenticated within login-timeout");
            }
        });
        self.shared.stats.metrics.client_bytes.store(client_bytes, Relaxed);
        if self.shared.extension.is_some() {
            // Shows other namespaces what this one uses.
            self.shared.used_bytes();
        }
    }

    /// Removes expired keys, a bounded number in one call.
    pub fn tick(&self) -> Due {
        let shared = &self.shared;
        let now = shared.clock.now();
        shared.stats.metrics.rates.sample(now.lock.as_millis(), || shared.stats.metrics.traffic());
        // During DEBUG SLEEP nothing is removed, as in Redis. Commands do not see expired keys in any case.
        if let Some(until) = shared.pause.is_frozen(now.lock) {
            return Due::Next(Some(until));
        }
        // CLIENT PAUSE keeps expired keys until it ends, and CLIENT UNPAUSE may end it at any time.
        if let Some(until) = shared.pause.holds(|| true, now.lock) {
            return Due::Next(Some(until.min(now.lock + PAUSED_TICK_MS)));
        }
        shared.peers.iter().for_each(Peers::fail_over);
        let in_quarantine = if shared.locks.quarantine.is_on() { self.check_quarantine(now) } else { None };
        let Due::Next(watched) = commands::watch_locks(shared, now) else { return Due::More };
        let audited = shared.access.audit.tell_left_out(now);
        let next = in_quarantine.into_iter().chain(watched).chain(audited).min();
        // The master of a replica removes its keys.
        if !shared.expires_actively.load(Relaxed) || shared.peers.as_ref().is_some_and(Peers::is_replica) {
            return Due::Next(next);
        }
        match shared.keyspace.tick(now, shared.events(), &shared.registries) {
            Due::Next(expiry) => Due::Next(expiry.into_iter().chain(next).min()),
            Due::More => Due::More,
        }
    }

    /// Ends a quarantine or an error of the disk that is over, and serves the requests that wait for locks. Returns when to
    /// look again.
    #[cold]
    fn check_quarantine(&self, now: Now) -> Option<LockTime> {
        let (shared, quarantine) = (&self.shared, &self.shared.locks.quarantine);
        if let Some(until) = quarantine.until(now.lock) {
            return Some(until + 1);
        }
        // All shards are locked: a command that has seen the quarantine waits in its queue already, and later commands have
        // at least this time.
        let view = View::try_lock(&shared.keyspace, ShardSet::All, 0, now, shared.events());
        let Some(mut view) = view else { return Some(now.lock + RETRY_MS) };
        if let Some(reason) = quarantine.end() {
            tracing::info!(reason, "The quarantine is over: locks are granted and extended again");
        }
        if !quarantine.is_on() {
            view.queues().serve_all_locks();
        }
        view.finish(&shared.registries);
        None
    }

    /// The checks before a command: authentication, name, arity, permissions, memory, subscriptions, pause. The order
    /// is that of Redis, except that authentication comes first as in Valkey 9, so that unauthenticated clients
    /// cannot find out which commands exist.
    #[inline]
    fn admit(&self, session: &mut Session, request: Request<'_>, now: Now) -> Result<Admitted, Refused> {
        let name = request.word(0);
        if !session.authenticated && !self.shared.access.acl.is_open() {
            self.admit_unauthenticated(request)?;
        }
        let command = self.shared.commands.find_from(&mut session.last_row, name);
        let command = command.ok_or_else(|| (unknown::command(request), None))?;
        if !self.shared.offers(command.row.group, &session.client) {
            return Err((unknown::command(request), None));
        }
        let command = self.subcommand(command, request)?;
        if !command.fits(request.len()) {
            return Err((Refusal::Arity(command.name.as_str().into()), Some(command)));
        }
        let flags = command.row.flags;
        if flags.has(Flags::NO_MULTI.with(Flags::PROTECTED).with(Flags::SECRET)) {
            self.admit_special(session, command).map_err(|why| (why, Some(command)))?;
            if let Some(until) = self.holds_login(session, request, now) {
                return Ok(Admitted::Hold(until));
            }
        }
        if !session.account.is_unlimited() {
            commands::check(session, &self.shared, command, request).map_err(|why| (why, Some(command)))?;
        }
        if self.shared.cluster_enabled && (command.may_cross || self.shared.is_one_of_several()) {
            let held = self.check_slot(session, command, request, now).map_err(|why| (why, Some(command)))?;
            if let Some(until) = held {
                return Ok(Admitted::Hold(until));
            }
        }
        session.is_short_of_memory = self.shared.is_short_of_memory();
        if session.is_short_of_memory && may_grow(session, command) {
            return Err((Refusal::OutOfMemory, Some(command)));
        }
        if session.is_subscriber() && !flags.has(Flags::SUBSCRIBED) {
            return Err((unknown::while_subscribed(&command.name), Some(command)));
        }
        if let Some(until) = self.shared.pause.holds(|| self.may_write(session, command, request), now.lock)
            && (!flags.has(Flags::UNPAUSED) || self.shared.pause.is_frozen(now.lock).is_some())
        {
            return Ok(Admitted::Hold(until));
        }
        Ok(Admitted::Run(command))
    }

    /// The checks of commands that MULTI or a setting may forbid.
    #[cold]
    fn admit_special(&self, session: &Session, command: &Command) -> Result<(), Refusal> {
        if session.transaction.is_some() && command.row.flags.has(Flags::NO_MULTI) {
            return Err(Refusal::said("ERR Command not allowed inside a transaction"));
        }
        match command.row.flags.has(Flags::PROTECTED) {
            true => commands::check_protected(&self.shared, &session.client),
            false => Ok(()),
        }
    }

    /// Checks that all keys are in one slot, which this node serves, and notes it for the scripts in the request. EXEC has
    /// the keys of the requests that are queued. Returns until when the request is held, if a long call has its keys.
    #[cold]
    fn check_slot(
        &self,
        session: &mut Session,
        command: &'static Command,
        request: Request<'_>,
        now: Now,
    ) -> Result<Option<LockTime>, Refusal> {
        let steps: SmallVec<[transaction::Step<'_>; 1]> = match &session.transaction {
            Some(transaction) if command.row.name == EXEC => {
                transaction.queued.iter().filter_map(transaction::step).collect()
            }
            _ => smallvec![(command, request)],
        };
        session.slot = commands::common_slot(steps.iter().copied())?;
        if let Some(slot) = session.slot {
            peers::check_group(&self.shared, &session.client, slot)?;
        }
        let Some(peers) = &self.shared.peers else { return Ok(None) };
        session.asking = session.asking.begin(session.transaction.is_some());
        session.is_half_way = session.slot.is_some_and(|slot| peers.is_half_way(slot));
        let Some(slot) = session.slot else {
            let is_write = command.row.flags.has(Flags::WRITE);
            return if is_write && peers.is_replica() { Err(peers::read_only()) } else { Ok(None) };
        };
        let shared = &*self.shared;
        let look = |keys: &[&[u8]]| {
            let (set, database) = (ShardSet::Keys(keys), session.database);
            let mut view = View::try_lock(&shared.keyspace, set, database, now, shared.events())?;
            let found = peers::count_present(&mut view, keys);
            view.finish(&shared.registries);
            Some(found)
        };
        let keys: SmallVec<[&[u8]; 4]> = peers::keys(&steps).collect();
        match peers.check(slot_request(session, slot, &steps), &keys, look) {
            Ok(()) => Ok(None),
            Err(Elsewhere::Held) => {
                let is_waiting = shared.keyspace.long_call.wait(&session.client);
                Ok(Some(if is_waiting { now.lock + RETRY_MS } else { now.lock }))
            }
            Err(elsewhere) => Err(elsewhere.refusal(slot, &session.client, shared)),
        }
    }

    /// Checks again that this node serves requests whose slot is moving, now that their keys are locked: a key may have gone
    /// since it was looked at, and the next client may have been sent to the other node.
    #[cold]
    fn check_locked(
        &self,
        session: &Session,
        steps: &[transaction::Step<'_>],
        view: &mut View<'_>,
    ) -> Result<(), Refusal> {
        let shared = &*self.shared;
        let (Some(peers), Some(slot)) = (&shared.peers, session.slot) else { return Ok(()) };
        peers
            .check_locked(slot_request(session, slot, steps), steps, view)
            .map_err(|elsewhere| elsewhere.refusal(slot, &session.client, shared))
    }

    /// Until when a login is held, because its address has sent too many wrong passwords. One that MULTI queues is refused
    /// by EXEC.
    #[cold]
    fn holds_login(&self, session: &mut Session, request: Request<'_>, now: Now) -> Option<LockTime> {
        let login = commands::login_of(request).filter(|_| session.transaction.is_none())?;
        self.shared.login_waits(session, login, now.lock)
    }

    /// Whether the request may write. EXEC writes what its queued requests write.
    fn may_write(&self, session: &Session, command: &Command, request: Request<'_>) -> bool {
        let queued = || session.transaction.as_ref().is_some_and(|transaction| transaction.may_write);
        commands::may_write(&self.shared, command, request) || (command.row.name == EXEC && queued())
    }

    /// Unauthenticated clients may send only commands like AUTH, HELLO, QUIT and RESET.
    #[cold]
    fn admit_unauthenticated(&self, request: Request<'_>) -> Result<(), Refused> {
        match self.shared.commands.find(request.word(0)) {
            Some(command) if command.row.flags.has(Flags::NO_AUTH) => Ok(()),
            found => {
                self.shared.stats.metrics.denied_auth.add(1);
                Err((Refusal::NoAuth, found))
            }
        }
    }

    #[inline]
    fn subcommand(
        &self,
        command: &'static Command,
        request: Request<'_>,
    ) -> Result<&'static Command, Refused> {
        match request.get(1) {
            Some(name) if !command.subcommands.is_empty() => command
                .subcommand(name)
                .ok_or_else(|| (unknown::subcommand(&command.name, name), Some(command))),
            _ => Ok(command),
        }
    }

    #[inline]
    fn count(&self, (index, times): (u16, u64)) {
        if times > 0 {
            self.shared.stats.commands[usize::from(index)].calls.add(times);
        }
    }

    #[inline]
    fn run(
        &self,
        session: &mut Session,
        command: &'static Command,
        request: Request<'_>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        if let Some(transaction) = &mut session.transaction {
            if !command.row.flags.has(Flags::UNQUEUED) {
                let queue = (&mut **transaction, session.watching.as_deref());
                transaction::queue(&self.shared, queue, command, request, session.protocol, out);
                session.client.transaction.show_queued(Some(transaction.queued.len()), transaction.bytes);
                session.client.activity.last_command.store(command.index, Relaxed);
                return Flow::Next;
            }
            if command.row.name == EXEC {
                return self.exec(session, (command, request), batch, out);
            }
        }
        if command.row.flags.has(Flags::OFFLOAD) && !session.may_block {
            return self.offload(session, (command, request), batch, out);
        }
        let shared = &*self.shared;
        let mut keys = SmallVec::new();
        let reach = command.reach(request, &mut keys);
        let mut view = View::try_lock(&shared.keyspace, reach, session.database, batch.now, shared.events());
        // The view is used in place, because moving it would cost every request.
        let Some(view) = &mut view else { return self.retry_later(session, (command, request), batch, out) };
        let is_long = command.row.flags.has(Flags::OFFLOAD) || self.is_large(command, request, view);
        if is_long {
            if !session.may_block {
                return self.offload(session, (command, request), batch, out);
            }
            view.announce_long_call();
        }
        if session.is_half_way
            && let Err(refusal) = self.check_locked(session, &[(command, request)], view)
        {
            view.finish(&shared.registries);
            return self.reject(session, refusal, (Some(command), request), out);
        }
        view.on_behalf_of(session.client.id);
        let mut lock_waiter = None;
        let result = finish_at_panic(view, &shared.registries, |view| {
            self.perform(session, command, request, view, batch, out)
        });
        let flow = match result {
            Err(Refusal::Occupied) => self.retry_later(session, (command, request), batch, out),
            Err(Refusal::StartAgain) => {
                // What it has found to be expired is gone for others, too.
                view.finish(&shared.registries);
                session.locks_all = true;
                let flow = self.run(session, command, request, batch, out);
                session.locks_all = false;
                return flow;
            }
            Ok(Outcome::Replied) | Err(_) => Flow::Next,
            Ok(Outcome::Close) => Flow::Close,
            Ok(Outcome::Park { wait, waiter }) => {
                // The shards are still locked, so that the write that ends the wait finds it.
                if let Some(waiter) = &waiter {
                    view.queues().park(waiter);
                }
                session.client.begin_wait(&wait);
                session.parked = Some(wait);
                lock_waiter = waiter.filter(|waiter| {
                    waiter.wait.kind == WaitFor::Locks && shared.locks.waits.may_close_circle(view, waiter)
                });
                Flow::Wait
            }
            Ok(Outcome::Offload) => self.offload(session, (command, request), batch, out),
        };
        view.finish(&shared.registries);
        if let Some(waiter) = lock_waiter {
            commands::refuse_circle(shared, &waiter);
        }
        if is_long || (session.may_block && command.row.flags.has(Flags::SCRIPT)) {
            batch.now = shared.clock.now();
        }
        flow
    }

    /// Executes one command on locked shards, and appends its reply or error.
    #[inline]
    fn perform<'k>(
        &'k self,
        session: &mut Session,
        command: &'static Command,
        request: Request<'_>,
        view: &mut View<'k>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Refusal> {
        let shared = &*self.shared;
        let mut is_timed = command.is_measured | session.is_sampled() || shared.settings.measures_all();
        session.client.activity.last_command.store(command.index, Relaxed);
        if batch.run.0 != command.index {
            is_timed |= shared.stats.commands[usize::from(command.index)].is_untimed();
            // The command may report the counters.
            self.count(std::mem::replace(&mut batch.run, (command.index, 0)));
            session.called.flush(&shared.stats.commands);
        }
        let started = is_timed.then(|| shared.clock.micros());
        let mark = out.len();
        let mut call = Call {
            now: view.now(),
            view,
            args: Args::new(request, command.name_words),
            reply: Reply::new(out, session.protocol),
            session,
            shared,
            command,
            caller: Caller::Client,
        };
        let result = call.run();
        if commands::is_repeated(&result) {
            out.truncate(mark);
            return result;
        }
        batch.run.1 += 1;
        if let Some(started) = started {
            let micros = shared.clock.micros().saturating_sub(started);
            shared.record_duration(view, &session.client, command, request, micros);
            session.add_nanos(micros.saturating_mul(1000));
            if micros >= 1000 {
                batch.now = shared.clock.now();
            }
        }
        if command.row.flags.has(Flags::SCRIPT) && result.is_ok() && out.get(mark) == Some(&b'-') {
            self.count_error_reply(command, &out[mark + 1..]);
        }
        if let Err(refusal) = &result {
            out.truncate(mark);
            shared.stats.commands[usize::from(command.index)].failed.add(1);
            self.refuse(session, refusal, out);
        }
        match result {
            // The common case does not move the whole outcome.
            Ok(Outcome::Replied) => Ok(Outcome::Replied),
            result => result,
        }
    }

    /// Counts an error that a script returned as its reply: `redis.error_reply`.
    #[cold]
    fn count_error_reply(&self, command: &Command, text: &[u8]) {
        self.shared.stats.commands[usize::from(command.index)].failed.add(1);
        self.shared.stats.metrics.errors.add(1);
        self.shared.stats.metrics.error_codes.add(&String::from_utf8_lossy(text.trim_ascii_end()));
    }

    /// A long call holds shards that the request needs. The session is woken when that call ends; with a script that runs too
    /// long, the request is refused.
    #[cold]
    fn retry_later(
        &self,
        session: &mut Session,
        (command, request): transaction::Step<'_>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        let now = self.shared.clock.now().lock;
        if let Some(busy) = commands::busy_now(&self.shared, now) {
            return self.reject(session, busy, (Some(command), request), out);
        }
        batch.commands -= 1;
        let is_waiting = self.shared.keyspace.long_call.wait(&session.client);
        Flow::Again(if is_waiting { now + RETRY_MS } else { now })
    }

    /// The request needs the script thread. It is refused while a script runs there too long.
    #[cold]
    fn offload(
        &self,
        session: &mut Session,
        (command, request): transaction::Step<'_>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        if let Some(busy) = commands::busy_now(&self.shared, self.shared.clock.now().lock) {
            return self.reject(session, busy, (Some(command), request), out);
        }
        batch.commands -= 1;
        Flow::Offload
    }

    /// Logged every ten seconds at most, because unauthenticated clients can cause it.
    #[cold]
    fn log_drop(&self, session: &Session, reason: &'static str) {
        if let Some(times) = self.shared.log_limits.drops.happened(self.shared.clock.now().lock) {
            let (client, peer) = (session.client.id, &session.client.address.peer);
            tracing::info!(client, peer, reason, times, "The server has ended a connection");
        }
    }

    fn refuse(&self, session: &Session, refusal: &Refusal, out: &mut Vec<u8>) {
        self.shared.stats.metrics.errors.add(1);
        self.shared.stats.metrics.error_codes.add(&refusal.text());
        Reply::new(out, session.protocol).error_bytes(&refusal.line());
    }
}

/// The reply exceeds [`REPLY_BYTES_MAX`]: the client is disconnected. The effects of the request stay.
#[cold]
fn too_long(session: &Session, out: &mut Vec<u8>, start: usize) -> Flow {
    tracing::warn!(client = session.client.id, "a reply is too long: the client is disconnected");
    out.truncate(start);
    out.shrink_to_fit();
    session.client.note_end("asked for too long a reply");
    session.client.drop_behind();
    Flow::Close
}

/// What a node of a cluster is to know of a request whose keys are in this slot.
fn slot_request(session: &Session, slot: u16, steps: &[transaction::Step<'_>]) -> SlotRequest {
    let is_write = |(command, _): &transaction::Step<'_>| command.row.flags.has(Flags::WRITE);
    let is_of_channels = peers::keys(steps).next().is_none();
    let only_reads = session.reads_replicas && !steps.iter().any(is_write);
    SlotRequest { slot, is_asking: session.asking.is_now(), may_be_at_replica: only_reads || is_of_channels }
}

type Refused = (Refusal, Option<&'static Command>);

enum Admitted {
    Run(&'static Command),
    Hold(LockTime),
}

/// Whether the command could need memory. A queued request needs memory, and so does EXEC if a request inside it
/// does.
#[cold]
fn may_grow(session: &Session, command: &Command) -> bool {
    match &session.transaction {
        Some(transaction) if command.row.name == EXEC => transaction.may_grow,
        Some(_) => !command.row.flags.has(Flags::UNQUEUED) || command.row.flags.has(Flags::DENYOOM),
        None => command.row.flags.has(Flags::DENYOOM),
    }
}

/// Appends the invalidations that the client's own request has caused to its reply. With BCAST the client gets them
/// after the last request of the batch, as in Redis.
#[cold]
fn collect_own_messages(session: &Session, out: &mut Vec<u8>) {
    if session.client.has_messages() {
        match session.reads.may_be_tracked() {
            true => session.client.collect(out),
            false => session.client.collect_next(out),
        }
    }
}

/// Removes the reply of a session that CLIENT REPLY has muted.
fn mute(session: &mut Session, out: &mut Vec<u8>, start: usize) {
    match session.replies {
        Replies::On => {}
        Replies::Off => out.truncate(start),
        Replies::SkipNext => session.replies = Replies::Skip,
        Replies::Skip => {
            out.truncate(start);
            session.replies = Replies::On;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::commands::table;
    use crate::keyspace::{Keyspace, Layout};
    use crate::state::settings::Settings;
    use redlatch_proto::clock::Clock;

    /// A clock that advances by 3 microseconds with each reading.
    #[derive(Default)]
    struct SteppingClock(AtomicU64);

    impl Clock for SteppingClock {
        fn now(&self) -> Now {
            Now { lock: LockTime::from_millis(5), wall_offset_ms: 0 }
        }

        fn micros(&self) -> u64 {
            self.0.fetch_add(3, Relaxed)
        }

        fn wall_micros(&self) -> u64 {
            7_000_000
        }
    }

    fn engine() -> (Engine, Arc<SteppingClock>) {
        let clock = Arc::new(SteppingClock::default());
        let layout = Layout { shards: 1, databases: 1, seed: 1, journal: None };
        let keyspace = Keyspace::new(layout, || {});
        let injected = Arc::clone(&clock) as Arc<dyn Clock>;
        let shared = Shared::new(keyspace, Settings::default(), injected, 1);
        (Engine::new(Arc::new(shared)), clock)
    }

    /// A session sends these requests `times` times, each in a batch of its own.
    fn send(engine: &Engine, id: u64, requests: &[&[&[u8]]], times: usize) {
        let client = Client::new(id, String::new(), String::new(), false, LockTime::from_millis(1));
        let (mut session, mut out) = (engine.connect(client), Vec::new());
        for words in requests.iter().cycle().take(requests.len() * times) {
            let mut batch = engine.batch();
            engine.execute(&mut session, Request::listed(words), &mut batch, &mut out);
            engine.end_batch(&mut session, batch);
        }
        engine.disconnect(&mut session);
    }

    #[test]
    fn the_durations_of_fast_commands_are_estimated_from_a_sample() {
        let (engine, clock) = engine();
        let requests: [&[&[u8]]; 2] = [&[b"SET", b"k", b"v"], &[b"GET", b"k"]];
        send(&engine, 7, &requests, 3_050);
        for name in ["SET", "GET"] {
            let command = table().find(name.as_bytes()).unwrap();
            let stats = &engine.shared().stats.commands[usize::from(command.index)];
            assert_eq!((stats.calls.get(), stats.micros()), (3_050, 9_150), "{name}");
            assert_eq!(stats.micros_per_call(), 3.0, "{name}");
            assert_eq!(stats.cumulative(), [(4, 3_050)], "{name}: the histogram counts every call");
            assert_eq!(
                stats.histogram.cumulative(),
                [(4, 51)],
                "{name}: one call in 61 is timed, and the first"
            );
        }
        assert_eq!(clock.0.load(Relaxed), 2 * 2 * 51 * 3, "two readings for each call that is timed");
    }

    #[test]
    fn connections_that_end_soon_are_sampled_as_often_as_others() {
        let (engine, _) = engine();
        (0..610).for_each(|id| send(&engine, id, &[&[b"SET", b"k", b"v"]], 2));
        let command = table().find(b"SET").unwrap();
        let stats = &engine.shared().stats.commands[usize::from(command.index)];
        assert_eq!(stats.histogram.cumulative(), [(4, 20)]);
        assert_eq!((stats.calls.get(), stats.micros()), (1_220, 3_660));
    }
}
