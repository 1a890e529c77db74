//! The engine: the whole server without a socket, a thread or a clock of its own.
//!
//! Owns    the gates every command passes, in order, and the connection's life from HELLO to QUIT.
//! Time    comes from the injected clock: once per batch, and again after whatever may have taken long.
//! Rule    what goes to other clients enters their outboxes while the shards are still locked; the shell only flushes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use crate::clock::{LockTime, Now};
use crate::commands::row::{Flags, Group};
use crate::commands::{self, Args, Call, Command, EXEC, Outcome, Shared, Source, table};
use crate::error::Refusal;
use crate::keyspace::{Due, View, Waiter};
use crate::limits::REPLY_BYTES_MAX;
use crate::resp::{Reply, Request, RequestLimits};
use crate::state::clients::{Client, Wait};
use crate::state::session::{Parked, Replies, Session};

mod ahead;
mod transaction;
mod unknown;
mod work;

/// One server, ready to carry out requests.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// What the connection does after a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flow {
    /// The next request.
    Next,
    /// Send what is there, then close.
    Close,
    /// The same request again, no later than this moment: CLIENT PAUSE holds it back.
    Again(LockTime),
    /// The same request again, where a thread may be held: with [`Session::may_block`] set. Only a session that says it
    /// may not be held gets this.
    Offload,
    /// Nothing until [`Engine::resume`] says so: a call of this session waits.
    Wait,
}

/// What a batch of requests, of one session or of several, has in common: one reading of the clock, until something takes
/// long.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    now: Now,
    commands: u32,
    /// The command last carried out, by its index, and how often in a row: its counter learns of it when another
    /// command comes or the batch ends. A counter touched by every thread for every command would cost them dearly.
    run: (u16, u64),
}

/// Milliseconds after which a request that met a long call is tried again, if nobody wakes its session before.
const LATER_MS: u64 = 100;
/// Milliseconds between two looks of the tick at whether CLIENT PAUSE has ended.
const PAUSED_TICK_MS: u64 = 100;
/// Commands after which a batch reads the clock again.
const COMMANDS_PER_READING: u32 = 64;

impl Engine {
    /// An engine over that state.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// What all commands share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A connection begins.
    pub fn connect(&self, mut client: Client) -> Session {
        client.output_limits = Arc::clone(self.shared.settings.output_limits());
        let client = Arc::new(client);
        self.shared.metrics.connections.add(1);
        self.shared.audience.clients.enter(Arc::clone(&client));
        let acl = &self.shared.acl;
        Session::new(client, Arc::clone(acl.default_account()), acl.is_open())
    }

    /// A connection is gone.
    pub fn disconnect(&self, session: &mut Session) {
        if let Some(parked) = &session.parked {
            parked.claim.take();
            self.leave_queues(session);
        }
        commands::leave_all(session, &self.shared);
        self.shared.monitors.leave(session.client.id);
        commands::discard_all(session, &self.shared);
        commands::end_tracking(session, &self.shared);
        self.shared.audience.clients.leave(session.client.id);
    }

    /// A batch of requests begins.
    #[inline]
    pub fn batch(&self) -> Batch {
        Batch { now: self.shared.clock.now(), commands: 0, run: (0, 0) }
    }

    /// A batch of one session is over: the counters learn of it.
    pub fn end_batch(&self, session: &mut Session, batch: Batch) {
        self.leave_batch(session, &batch);
        self.settle_batch(batch);
    }

    /// A session has no more requests in a batch that others take part in.
    #[inline]
    pub fn leave_batch(&self, session: &mut Session, batch: &Batch) {
        session.called.settle(&self.shared.stats);
        session.client.last_active_ms.store(batch.now.lock.as_millis(), Relaxed);
    }

    /// A batch is over, and all who took part have left it: the counters learn of it.
    #[inline]
    pub fn settle_batch(&self, batch: Batch) {
        self.shared.metrics.commands.add(u64::from(batch.commands));
        self.count(batch.run);
    }

    /// How much this session may ask for.
    pub fn trust(&self, session: &Session) -> RequestLimits {
        let (settings, acl) = (&self.shared.settings, &self.shared.acl);
        RequestLimits {
            bulk_bytes_max: settings.bulk_bytes_max(),
            request_bytes_max: settings.request_bytes_max(),
            authenticated: session.authenticated || acl.is_open(),
        }
    }

    /// Carries out one request and appends its answer to `out`.
    #[inline]
    pub fn execute(
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
            session.worked(millis.saturating_mul(1_000_000));
            batch.now = now;
        }
        let start = out.len();
        let flow = match self.admit(session, request, batch.now) {
            Ok(Admitted::Run(command)) => self.run(session, command, request, batch, out),
            Ok(Admitted::Hold(until)) => {
                batch.commands -= 1;
                return Flow::Again(until);
            }
            Ok(Admitted::Later) => return self.later(session, batch),
            // Hung up on without a word, as in Redis: not even what came before it is answered.
            Err((_, None)) if unknown::is_http(request.word(0)) => {
                self.warn_of_http(session);
                session.client.cut();
                Flow::Close
            }
            Err((refusal, command)) => {
                session.reads = session.reads.after_next();
                if let Some(command) = command {
                    self.shared.stats[usize::from(command.index)].rejected.add(1);
                }
                let refusal = self.abort(session, refusal, command);
                self.refuse(session, &refusal, out);
                Flow::Next
            }
        };
        if out.len() >= REPLY_BYTES_MAX {
            return too_long(session, out, start);
        }
        if session.replies != Replies::On {
            mute(session, out, start);
        } else if session.reads.are_told() && flow == Flow::Next {
            tell(session, out);
        }
        flow
    }

    /// Looks after a call that waits: appends its answer and says [`Flow::Next`] once its time has come.
    pub fn resume(&self, session: &mut Session, out: &mut Vec<u8>) -> Flow {
        let now = self.shared.clock.now().lock;
        let Some(parked) = &session.parked else { return Flow::Next };
        if !session.client.collect_answer(out) {
            let is_over = parked.until.is_some_and(|until| until <= now);
            // Whoever has taken the claim is about to answer.
            if !is_over || !parked.claim.take() {
                return Flow::Wait;
            }
            out.extend_from_slice(&parked.answer);
        }
        self.leave_queues(session);
        Flow::Next
    }

    /// The session's call waits no more.
    fn leave_queues(&self, session: &mut Session) {
        session.client.end_wait();
        if let Some(parked) = session.parked.take() {
            self.shared.keyspace.unpark(parked.database, &parked.keys);
        }
    }

    /// Whether CLIENT PAUSE holds anything back.
    pub fn is_paused(&self) -> bool {
        self.shared.pause.holds(|| true, self.shared.clock.now().lock).is_some()
    }

    /// The next moment at which a waiting call or a pause ends, as far as is known: for whoever moves a manual clock.
    pub fn next_wait(&self) -> Option<LockTime> {
        let now = self.shared.clock.now().lock;
        let calls = self.shared.audience.clients.all().into_iter().filter_map(|client| client.waits_until());
        calls.chain(self.shared.pause.holds(|| true, now)).filter(|until| *until > now).min()
    }

    /// Has connections that nothing is heard of give back memory, and ends clients that were idle for longer than `timeout`
    /// says, or that have been too far behind for too long.
    pub fn sweep(&self) {
        let now = self.shared.clock.now().lock;
        let mut held_bytes = 0_u64;
        let idle_ms_max = self.shared.settings.integer("timeout") as u64 * 1000;
        self.shared.audience.clients.each(|client| {
            client.let_rest(now);
            held_bytes = held_bytes.saturating_add(client.held_bytes());
            if client.is_behind(now) {
                client.drop_behind();
            } else if client.is_idle(now, idle_ms_max) {
                client.cut();
            }
        });
        self.shared.metrics.client_bytes.store(held_bytes, Relaxed);
    }

    /// Does expiry work that is due, a bounded amount of it.
    pub fn tick(&self) -> Due {
        let shared = &self.shared;
        let now = shared.clock.now();
        shared.metrics.rates.sample(now.lock.as_millis(), || shared.metrics.traffic());
        // While the server sleeps nothing happens, as in Redis; expired keys are invisible all the same.
        if let Some(until) = shared.pause.is_frozen(now.lock) {
            return Due::Next(Some(until));
        }
        // CLIENT PAUSE keeps expired keys until it ends, and CLIENT UNPAUSE may end it at any time.
        if let Some(until) = shared.pause.holds(|| true, now.lock) {
            return Due::Next(Some(until.min(now.lock + PAUSED_TICK_MS)));
        }
        if !shared.expires_actively.load(Relaxed) {
            return Due::Next(None);
        }
        shared.keyspace.tick(now, shared.events(), &shared.audience)
    }

    /// The gates, in Redis' order, but for authentication, which comes first as in Valkey 9: a stranger learns nothing
    /// of what there is. Then name, arity, rights, memory, subscriptions, pause.
    #[inline]
    fn admit(&self, session: &mut Session, request: Request<'_>, now: Now) -> Result<Admitted, Refused> {
        let name = request.word(0);
        let table = table();
        if !session.authenticated && !self.shared.acl.is_open() {
            self.admit_stranger(request)?;
        }
        let command = table.find_from(&mut session.last_row, name);
        let command = command.ok_or_else(|| (unknown::command(request), None))?;
        let command = self.subcommand(command, request)?;
        if !command.fits(request.len()) {
            return Err((Refusal::Arity(command.name.as_str().into()), Some(command)));
        }
        let flags = command.row.flags;
        if flags.has(Flags::NO_MULTI.with(Flags::PROTECTED)) {
            self.admit_special(session, command).map_err(|why| (why, Some(command)))?;
        }
        if !session.account.is_unlimited() {
            commands::check(session, &self.shared, command, request).map_err(|why| (why, Some(command)))?;
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
        if let Some(since) = self.shared.running.long_since()
            && !flags.has(Flags::BUSY)
        {
            return self.while_busy(command, since);
        }
        Ok(Admitted::Run(command))
    }

    /// The gates of commands that MULTI or a setting may forbid.
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

    /// Whether the request may write: EXEC does what it has gathered.
    fn may_write(&self, session: &Session, command: &Command, request: Request<'_>) -> bool {
        let gathered = || session.transaction.as_ref().is_some_and(|transaction| transaction.may_write);
        commands::may_write(&self.shared, command, request) || (command.row.name == EXEC && gathered())
    }

    /// Whoever has yet to say who it is may say little else.
    #[cold]
    fn admit_stranger(&self, request: Request<'_>) -> Result<(), Refused> {
        match table().find(request.word(0)) {
            Some(command) if command.row.flags.has(Flags::NO_AUTH) => Ok(()),
            found => {
                self.shared.metrics.denied_auth.add(1);
                Err((Refusal::NoAuth, found))
            }
        }
    }

    /// A script takes long: what needs the keys is carried out later, and after a time everybody is told.
    #[cold]
    fn while_busy(&self, command: &'static Command, since: LockTime) -> Result<Admitted, Refused> {
        let shared = &*self.shared;
        let millis = shared.clock.now().lock.millis_since(since);
        if shared.settings.busy_millis().is_some_and(|limit| millis >= limit) {
            let is_function = shared.running.script().is_some_and(|script| script.function.is_some());
            return Err((commands::busy(is_function), Some(command)));
        }
        let talks_only = matches!(command.row.group, Group::Connection | Group::PubSub);
        Ok(if talks_only { Admitted::Run(command) } else { Admitted::Later })
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
            self.shared.stats[usize::from(index)].calls.add(times);
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
                transaction::queue(&self.shared, transaction, command, request, session.protocol, out);
                session.client.show_queued(Some(transaction.queued.len()), transaction.bytes);
                return Flow::Next;
            }
            if command.row.name == EXEC {
                return self.exec(session, command, batch, out);
            }
        }
        if command.row.flags.has(Flags::OFFLOAD) && !session.may_block {
            batch.commands -= 1;
            return Flow::Offload;
        }
        let shared = &*self.shared;
        let mut keys = SmallVec::new();
        let reach = command.reach(request, &mut keys);
        let mut view = View::try_lock(&shared.keyspace, reach, session.database, batch.now, shared.events());
        // A view is used where it was made: to move it would cost every request.
        let Some(view) = &mut view else { return self.later(session, batch) };
        let is_much = self.is_much(command, request, view);
        if is_much && !session.may_block {
            batch.commands -= 1;
            return Flow::Offload;
        }
        // Until the shards have been let go.
        let _during = is_much.then(|| shared.keyspace.long_call.during());
        view.on_behalf_of(session.client.id);
        let result = self.perform(session, command, request, view, batch, out);
        let flow = match result {
            Err(Refusal::Occupied) => self.later(session, batch),
            Ok(Outcome::Replied) | Err(_) => Flow::Next,
            Ok(Outcome::Close) => Flow::Close,
            Ok(Outcome::Park { until, answer, waiter }) => {
                // Before the shards are let go: whoever ends the wait finds that there is one.
                if let Some(waiter) = &waiter {
                    view.park(waiter);
                }
                park(session, until, answer, waiter);
                Flow::Wait
            }
            Ok(Outcome::Offload) => {
                batch.commands -= 1;
                Flow::Offload
            }
        };
        view.finish(&shared.audience);
        flow
    }

    /// Carries out one command on shards that are locked, and appends its answer, a refusal included.
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
        let is_measured = command.is_measured || shared.settings.measures_all();
        let started = is_measured.then(|| shared.clock.micros());
        session.client.last_command.store(command.index, Relaxed);
        if batch.run.0 != command.index {
            // It may be one that tells what has been counted.
            self.count(std::mem::replace(&mut batch.run, (command.index, 0)));
            session.called.settle(&shared.stats);
        }
        let mark = out.len();
        let is_script = command.row.flags.has(Flags::SCRIPT);
        if is_script && shared.monitors.is_any() && !std::mem::take(&mut session.is_shown) {
            commands::show(session, shared, command, request, Source::Client);
        }
        let result = (command.row.run)(&mut Call {
            now: view.now(),
            view,
            args: Args::new(request, command.name_words),
            reply: Reply::new(out, session.protocol),
            session,
            shared,
            command,
        });
        if matches!(result, Ok(Outcome::Offload) | Err(Refusal::Occupied)) {
            // The request comes again. A script that was shown to monitors is not shown again.
            session.is_shown = is_script && shared.monitors.is_any();
            out.truncate(mark);
            return result;
        }
        if shared.monitors.is_any() && !is_script {
            commands::show(session, shared, command, request, Source::Client);
        }
        if session.reads.matter() {
            commands::remember(session, shared, command, request, view);
        }
        batch.run.1 += 1;
        if let Some(started) = started {
            let micros = shared.clock.micros().saturating_sub(started);
            shared.took(&session.client, command, request, micros);
            session.worked(micros.saturating_mul(1000));
            if micros >= 1000 {
                batch.now = shared.clock.now();
            }
        }
        if is_script && result.is_ok() && out.get(mark) == Some(&b'-') {
            self.count_error_reply(command, &out[mark + 1..]);
        }
        if let Err(refusal) = &result {
            out.truncate(mark);
            shared.stats[usize::from(command.index)].failed.add(1);
            self.refuse(session, refusal, out);
        }
        match result {
            // Nothing of it is moved where nothing has to be.
            Ok(Outcome::Replied) => Ok(Outcome::Replied),
            result => result,
        }
    }

    /// Counts an error that a script returned as its reply: `redis.error_reply`.
    #[cold]
    fn count_error_reply(&self, command: &Command, text: &[u8]) {
        self.shared.stats[usize::from(command.index)].failed.add(1);
        self.shared.metrics.errors.add(1);
        self.shared.metrics.error_codes.add(&String::from_utf8_lossy(text.trim_ascii_end()));
    }

    /// A long call holds what the request needs: the session is woken when it is over.
    #[cold]
    fn later(&self, session: &Session, batch: &mut Batch) -> Flow {
        batch.commands -= 1;
        let now = self.shared.clock.now().lock;
        let is_waiting = self.shared.keyspace.long_call.wait(&session.client);
        Flow::Again(if is_waiting { now + LATER_MS } else { now })
    }

    /// Somebody's browser may have been talked into this.
    #[cold]
    fn warn_of_http(&self, session: &Session) {
        if let Some(times) = self.shared.http_seen.happened(self.shared.clock.now().lock) {
            let peer = &session.client.peer;
            tracing::warn!(
                times,
                peer,
                "HTTP instead of requests: the connection is closed without an answer"
            );
        }
    }

    fn refuse(&self, session: &Session, refusal: &Refusal, out: &mut Vec<u8>) {
        self.shared.metrics.errors.add(1);
        self.shared.metrics.error_codes.add(&refusal.text());
        Reply::new(out, session.protocol).error_bytes(&refusal.line());
    }
}

/// More has been asked for than anybody is sent: whatever was to be changed has been, and the client is cut off.
#[cold]
fn too_long(session: &Session, out: &mut Vec<u8>, start: usize) -> Flow {
    tracing::warn!(client = session.client.id, "a reply is too long: the client is cut off");
    out.truncate(start);
    out.shrink_to_fit();
    session.client.drop_behind();
    Flow::Close
}

/// The session's call waits from now on, on its keys or for its time alone.
fn park(session: &mut Session, until: Option<LockTime>, answer: Vec<u8>, waiter: Option<Arc<Waiter>>) {
    let is_muted = session.replies != Replies::On;
    let (claim, database, keys) = match waiter {
        Some(waiter) => (Arc::clone(&waiter.claim), waiter.database, waiter.keys.clone()),
        None => Default::default(),
    };
    let wait = Wait { claim: Arc::clone(&claim), answer: answer.clone(), is_muted };
    session.client.begin_wait(until, wait);
    let answer = if is_muted { Vec::new() } else { answer };
    session.parked = Some(Parked { until, answer, claim, database, keys });
}

type Refused = (Refusal, Option<&'static Command>);

enum Admitted {
    Run(&'static Command),
    Hold(LockTime),
    Later,
}

/// Whether the command could need memory. Whatever is gathered for EXEC takes some; EXEC does what it has gathered.
#[cold]
fn may_grow(session: &Session, command: &Command) -> bool {
    match &session.transaction {
        Some(transaction) if command.row.name == EXEC => transaction.may_grow,
        Some(_) => !command.row.flags.has(Flags::UNQUEUED) || command.row.flags.has(Flags::DENYOOM),
        None => command.row.flags.has(Flags::DENYOOM),
    }
}

/// What a client has put out of date itself it is told behind the reply, and before that of its next request; of prefixes,
/// when there are no more requests, as in Redis.
#[cold]
fn tell(session: &Session, out: &mut Vec<u8>) {
    if session.client.has_messages() {
        match session.reads.matter() {
            true => session.client.collect(out),
            false => session.client.collect_next(out),
        }
    }
}

/// Takes back what a muted session was not to be told.
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
