//! The access of a script to the server: `redis.call`, one command after the other at one instant.
//!
//! Owns    the checks before a command that a script calls.
//! Source  Redis 7.0 `script.c`, `scriptCall`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redlatch_proto::clock::{Deadline, Now};
use redlatch_proto::error::Refusal;
use redlatch_proto::number::integer;
use redlatch_proto::resp::{OwnedRequest, Protocol, Reply, Request};
use smallvec::SmallVec;

use crate::commands::admin::acl_check;
use crate::commands::expiry::{self, Unit};
use crate::commands::peers::{self, Elsewhere};
use crate::commands::row::Flags;
use crate::commands::script::watchdog::ScriptWatch;
use crate::commands::{Args, Call, Caller, Command, Outcome, Peers, Shared, table};
use crate::keyspace::{Asked, Entry, Occupied, ShardSet, View};
use crate::locks::{EndReason, HolderRequest, RequestOutcome};
use crate::scripts::Purpose;
use crate::scripts::interpreter::{Commands, Level, Limits, Verdict, Watchdog};
use crate::scripts::native::{Calls, Change};
use crate::state::running::Running;
use crate::state::running::Script;
use crate::state::session::Session;
use crate::state::settings::Settings;
use crate::state::slot_map::SlotRequest;

/// The state of a running script: keys, session, permissions.
#[derive(Debug)]
pub(in crate::commands) struct ScriptContext<'c, 'k> {
    view: &'c mut View<'k>,
    now: Now,
    session: &'c mut Session,
    shared: &'k Shared,
    only_reads: bool,
    /// Whether it may call commands that could need memory while memory is short: its flags allow it, or it has
    /// written already and must not end halfway.
    pub(in crate::commands) may_grow: bool,
    /// What it does to locks, if it is a known script.
    pub(in crate::commands) purpose: Option<Purpose>,
    /// Present while the script is interpreted: INFO and FUNCTION STATS show it, and SCRIPT KILL can end it.
    watched: Option<Watched<'k>>,
    /// Whether it has done more than to read, so that it cannot start again.
    has_acted: bool,
    /// The commands that it has called until then, and how often.
    reads: SmallVec<[(u16, u64); 4]>,
    /// Whether it must end now, to start again with all shards.
    starts_again: bool,
    /// Set when an interpreted script asks for keys in shards that it has not locked.
    asks_further: Option<&'c AtomicBool>,
    /// The database of the caller, which is selected again at the end of the script.
    database: u16,
    /// Whether the script itself is a part of EXEC.
    was_nested: bool,
    /// Which slots its keys may be in.
    slots: Slots,
    /// The slot of the request before the script.
    slot_before: Option<u16>,
}

/// Which slots the keys of a script may be in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Slots {
    /// Any: the server is not in cluster mode.
    Any,
    /// Those of each command in one.
    OnePerCommand,
    /// All in one, which is also that of the declared keys.
    One,
}

/// The registration of an interpreted script. It is dropped in every case, also after a panic: a server that still
/// saw a running script would refuse all other clients.
#[derive(Debug)]
struct Watched<'k>(&'k Running);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<'c, 'k> ScriptContext<'c, 'k> {
    /// Begins a script. With `only_reads`, commands that write are refused.
    pub(in crate::commands) fn new(
        view: &'c mut View<'k>,
        session: &'c mut Session,
        shared: &'k Shared,
        only_reads: bool,
    ) -> Self {
        let (now, database) = (view.now(), session.database);
        let may_grow = !session.is_short_of_memory;
        let was_nested = std::mem::replace(&mut session.is_nested, true);
        let slots = if shared.cluster_enabled { Slots::OnePerCommand } else { Slots::Any };
        let slot_before = session.slot;
        view.set_nested(true);
        Self {
            view,
            now,
            session,
            shared,
            only_reads,
            may_grow,
            purpose: None,
            watched: None,
            // A transaction may have acted before its script.
            has_acted: was_nested,
            reads: SmallVec::new(),
            starts_again: false,
            asks_further: None,
            database,
            was_nested,
            slots,
            slot_before,
        }
    }

    /// In cluster mode, all its keys must be in one slot.
    pub(in crate::commands) fn keep_to_one_slot(&mut self) {
        if self.slots != Slots::Any {
            self.slots = Slots::One;
        }
    }

    /// Takes the session's buffer for replies; [`ScriptContext::keep_scratch`] gives it back.
    pub(in crate::commands) fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.session.scratch)
    }

    /// Gives back the buffer for replies.
    pub(in crate::commands) fn keep_scratch(&mut self, scratch: Vec<u8>) {
        self.session.scratch = scratch;
    }

    pub(in crate::commands) fn end(self) {
        self.session.database = self.database;
        self.session.is_nested = self.was_nested;
        self.view.set_nested(self.was_nested);
        self.view.select(self.database);
    }

    /// Has `flag` set when the script asks for keys in shards that it has not locked.
    pub(in crate::commands) fn note_asks_further(&mut self, flag: &'c AtomicBool) {
        self.asks_further = Some(flag);
    }

    /// Runs `body`, then ends the script.
    ///
    /// # Errors
    /// The error of `body`.
    #[inline]
    pub(in crate::commands) fn run(
        mut self,
        body: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<Outcome, Refusal> {
        let result = body(&mut self);
        let starts_again = self.starts_again;
        if starts_again {
            self.session.slot = self.slot_before;
        }
        self.end();
        match starts_again {
            true => Err(Refusal::StartAgain),
            false => result.map(|()| Outcome::Replied),
        }
    }

    /// Whether the thread may wait for the interpreter.
    pub(in crate::commands) fn may_block(&self) -> bool {
        self.session.may_block
    }

    /// Locks the shards of the keys of a command that an interpreted script calls, if they are not locked.
    ///
    /// # Errors
    /// [`Refusal::StartAgain`] if the script has only read: it ends now.
    fn reach_further(&mut self, command: &Command, words: &[&[u8]]) -> Result<(), Refusal> {
        // A native script has locked the shards of all its keys.
        if self.watched.is_none() || self.view.holds_all() {
            return Ok(());
        }
        let mut keys = SmallVec::new();
        let request = Request::listed(words);
        let reach = match command.row.flags.has(Flags::SUMS) {
            true => ShardSet::All,
            false => command.reach(request, &mut keys),
        };
        if !self.view.covers(reach) {
            if let Some(asks_further) = self.asks_further {
                asks_further.store(true, Relaxed);
            }
            if !self.has_acted && self.start_again() {
                return Err(Refusal::StartAgain);
            }
            self.view.lock_further(reach);
            self.now = self.view.now();
        }
        self.has_acted |= !command.row.flags.has(Flags::READONLY) || self.shared.monitors.is_any();
        if !self.has_acted {
            match self.reads.iter_mut().find(|(index, _)| *index == command.index) {
                Some((_, times)) => *times = times.saturating_add(1),
                None => self.reads.push((command.index, 1)),
            }
        }
        Ok(())
    }

    /// The script ends, to start again: its calls do not count. Returns false if it has been killed: it goes on until it
    /// learns of that.
    #[cold]
    fn start_again(&mut self) -> bool {
        if !self.shared.scripts.running.give_up() {
            return false;
        }
        self.starts_again = true;
        self.session.called.flush(&self.shared.stats.commands);
        for (index, times) in &self.reads {
            self.shared.stats.commands[usize::from(*index)].calls.take_back(*times);
        }
        true
    }

    /// Registers the script, so that other clients can see it and end it.
    pub(in crate::commands) fn watch(
        &mut self,
        name: &str,
        function_call: Option<OwnedRequest>,
    ) -> Arc<dyn Watchdog> {
        let (running, clock, now) =
            (&self.shared.scripts.running, &self.shared.clock, self.shared.clock.now().lock);
        let client = Arc::clone(&self.session.client);
        running.begin(Script { name: name.to_owned(), function_call, client }, now);
        self.watched = Some(Watched(running));
        Arc::new(ScriptWatch {
            running: Arc::clone(running),
            clock: Arc::clone(clock),
            slow_from: self.shared.settings.busy_millis().map(|limit| now + limit),
            is_reported: AtomicBool::new(false),
        })
    }

    /// Executes one command and appends its reply or error. `known` is the command if the caller has looked it up.
    fn carry_out(
        &mut self,
        known: Option<&'static Command>,
        words: &[&[u8]],
        protocol: Protocol,
        out: &mut Vec<u8>,
    ) {
        let mark = out.len();
        let admitted = self.admit(known, words).and_then(|command| {
            self.reach_further(command, words)?;
            if self.shared.is_one_of_several() {
                self.check_node(command, Request::listed(words))?;
            }
            Ok(command)
        });
        let result = admitted.and_then(|command| {
            let stats = &self.shared.stats.commands;
            if command.is_measured {
                // The command may report the counters.
                self.session.called.flush(stats);
            }
            self.session.called.note(command.index, stats);
            let mut call = Call {
                view: &mut *self.view,
                args: Args::new(Request::listed(words), command.name_words),
                reply: Reply::new(out, protocol),
                now: self.now,
                session: &mut *self.session,
                shared: self.shared,
                command,
                caller: Caller::Script(self.purpose),
            };
            call.run().inspect_err(|_| self.shared.stats.commands[usize::from(command.index)].failed.add(1))
        });
        // SELECT holds for the rest of the script.
        self.view.select(self.session.database);
        match result {
            Ok(Outcome::Park { wait, .. }) => out.extend_from_slice(&wait.answer),
            Ok(Outcome::Replied | Outcome::Close | Outcome::Offload) => {}
            Err(refusal) => {
                self.has_acted = true;
                out.truncate(mark);
                Reply::new(out, protocol).error_bytes(&refusal.line());
            }
        }
    }

    /// The checks before a command, in Redis' order.
    fn admit(
        &mut self,
        known: Option<&'static Command>,
        words: &[&[u8]],
    ) -> Result<&'static Command, Refusal> {
        let unknown = || Refusal::said("ERR Unknown Redis command called from script");
        let command = known.or_else(|| self.shared.commands.named(words)).ok_or_else(unknown)?;
        let flags = command.row.flags;
        if !command.fits(words.len()) {
            Err(Refusal::said("ERR Wrong number of args calling Redis command from script"))
        } else if flags.has(Flags::NOSCRIPT) {
            Err(Refusal::said("ERR This Redis command is not allowed from script"))
        } else if !self.session.account.is_unlimited()
            && let Err(refusal) = self.check_rights(command, Request::listed(words))
        {
            Err(refusal)
        } else if self.only_reads && flags.has(Flags::WRITE.with(Flags::REPLICATED)) {
            Err(Refusal::said("ERR Write commands are not allowed from read-only scripts."))
        } else if !self.may_grow && flags.has(Flags::DENYOOM) {
            Err(Refusal::OutOfMemory)
        } else {
            self.may_grow |= flags.has(Flags::WRITE);
            if self.watched.is_some() && flags.has(Flags::WRITE) {
                self.shared.scripts.running.note_write();
            }
            if self.slots != Slots::Any {
                self.check_slot(command, Request::listed(words))?;
            }
            Ok(command)
        }
    }

    /// Checks that the keys of a command are in one slot, and if need be in that of the script.
    #[cold]
    fn check_slot(&mut self, command: &Command, request: Request<'_>) -> Result<(), Refusal> {
        if self.slots == Slots::OnePerCommand && !command.may_cross {
            return Ok(());
        }
        match command.slot(request).map_err(|_| not_local())? {
            Some(slot) if self.slots == Slots::One && *self.session.slot.get_or_insert(slot) != slot => {
                let text = "ERR Script attempted to access keys that do not hash to the same slot";
                Err(Refusal::said(text))
            }
            _ => Ok(()),
        }
    }

    /// Checks that this node serves the keys of a command, whose shards are locked.
    #[cold]
    fn check_node(&mut self, command: &'static Command, request: Request<'_>) -> Result<(), Refusal> {
        let is_replica = self.shared.peers.as_ref().is_some_and(Peers::is_replica);
        if is_replica && command.row.flags.has(Flags::WRITE) {
            return Err(peers::read_only());
        }
        // Keys in several slots have been refused.
        let Ok(Some(slot)) = command.slot(request) else { return Ok(()) };
        if self.shared.group().is_some_and(|group| !group.has(slot)) {
            return Err(not_local());
        }
        let Some(peers) = &self.shared.peers else { return Ok(()) };
        let is_asking = self.session.asking.is_now();
        let asked = SlotRequest { slot, is_asking, may_be_at_replica: self.session.reads_replicas };
        let checked = peers.check_locked(asked, &[(command, request)], self.view);
        checked.map_err(|elsewhere| match elsewhere {
            Elsewhere::NotOk => {
                Refusal::said("ERR Script attempted to execute a command while the cluster is down")
            }
            _ => not_local(),
        })
    }

    /// Whether every command with one key that scripts may call is carried out, and no read is remembered for tracking.
    #[inline]
    fn is_open(&self) -> bool {
        self.session.account.is_unlimited()
            && !self.session.reads.may_be_tracked()
            && !self.shared.monitors.is_any()
            && !self.shared.locks.quarantine.is_on()
            && (self.slots == Slots::Any || self.serves_each_key())
    }

    /// Whether, in cluster mode, no command with one key is refused for its slot.
    #[cold]
    fn serves_each_key(&self) -> bool {
        self.slots != Slots::One && !self.shared.is_one_of_several()
    }

    /// Counts a refused command. Returns the error for the script.
    #[cold]
    fn failed(&self, command: &Command, refusal: &Refusal) -> Vec<u8> {
        self.shared.stats.commands[usize::from(command.index)].failed.add(1);
        refusal.line().to_vec()
    }

    fn check_rights(&mut self, command: &'static Command, request: Request<'_>) -> Result<(), Refusal> {
        acl_check::check_in_script(self.session, self.shared, command, request)
    }

    pub(in crate::commands) fn settings(&self) -> &'k Settings {
        &self.shared.settings
    }
}

impl Calls for ScriptContext<'_, '_> {
    fn call(&mut self, listed: Option<usize>, words: &[&[u8]], reply: &mut Vec<u8>) {
        self.carry_out(listed.and_then(|place| table().listed(place)), words, Protocol::Resp2, reply);
    }

    #[inline]
    fn holds(&mut self, listed: Option<usize>, key: &[u8], value: &[u8]) -> Option<Result<bool, Vec<u8>>> {
        if !self.is_open() {
            return None;
        }
        let command = listed.and_then(|place| table().listed(place))?;
        self.session.called.note(command.index, &self.shared.stats.commands);
        let Entry::Occupied(found) = &mut self.view.counted(key) else { return Some(Ok(false)) };
        Some(is_held(found, value).map_err(|refusal| self.failed(command, &refusal)))
    }

    #[inline]
    fn change_if_held(&mut self, change: &Change<'_>) -> Option<Result<bool, Vec<u8>>> {
        if !self.is_open() || self.only_reads {
            return None;
        }
        let deadline = match change.millis {
            Some(millis) => Some(Unit::Millis.deadline(integer(millis)?, self.now, "pexpire").ok()?),
            None => None,
        };
        let listed = |place: usize| table().listed(change.commands[place]);
        let (get, changes) = (listed(0)?, listed(1)?);
        self.session.called.note(get.index, &self.shared.stats.commands);
        let mut failing = get;
        // A script that compares the owner first does not take a lock from another one.
        self.view.begin(EndReason::Released);
        // The entry is changed in place, because moving it costs as much as changing it.
        let is_held = match &mut self.view.counted(change.key) {
            Entry::Vacant(_) => Ok(false),
            Entry::Occupied(found) => {
                let mut is_held = is_held(found, change.value);
                if matches!(is_held, Ok(true)) {
                    self.session.called.note(changes.index, &self.shared.stats.commands);
                    if let Err(refusal) = change_entry(found, deadline, self.now) {
                        failing = changes;
                        is_held = Err(refusal);
                    }
                }
                is_held
            }
        };
        if matches!(is_held, Ok(false)) && Caller::Script(self.purpose).says_outcomes() {
            let (asked, name) = match deadline {
                Some(_) => (HolderRequest::Extend, "extending script"),
                None => (HolderRequest::Release, "releasing script"),
            };
            let (outcome, asked) =
                (RequestOutcome::NotHeld(asked), Asked { owner: Some(change.value), name, wait: None });
            self.view.locks().comes_to(
                outcome,
                (change.key, std::iter::empty()),
                self.shared.asking(self.session),
                asked,
            );
        }
        Some(is_held.map_err(|refusal| self.failed(failing, &refusal)))
    }
}

fn not_local() -> Refusal {
    Refusal::said("ERR Script attempted to access a non local key in a cluster node")
}

/// Sets the deadline, or removes the key.
#[inline]
fn change_entry(found: &mut Occupied<'_>, deadline: Option<Deadline>, now: Now) -> Result<(), Refusal> {
    match deadline {
        Some(deadline) => expiry::set_or_delete(found, deadline, now)?,
        None => {
            found.remove_entry();
            found.event(b'g', "del");
        }
    }
    Ok(())
}

/// Reads the key as GET does. Returns true if its value is `value`.
#[inline]
fn is_held(found: &mut Occupied<'_>, value: &[u8]) -> Result<bool, Refusal> {
    found.touch();
    found.string().map(|held| held == value)
}

impl Commands for ScriptContext<'_, '_> {
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Verdict {
        self.carry_out(None, words, protocol, reply);
        if self.starts_again { Verdict::Kill } else { Verdict::GoOn }
    }

    fn limits(&self) -> Option<Limits> {
        let account = &self.session.account;
        let user = (!account.is_unlimited()).then(|| account.user())?;
        let may_send = move |words: &[&[u8]]| acl_check::may_send(&user, words);
        Some(Limits(Box::new(may_send)))
    }

    fn log(&mut self, level: Level, text: &[u8]) {
        self.has_acted = true;
        let text = text.escape_ascii();
        match level {
            Level::Debug => tracing::trace!(%text, "script"),
            Level::Verbose => tracing::debug!(%text, "script"),
            Level::Notice => tracing::info!(%text, "script"),
            Level::Warning => tracing::warn!(%text, "script"),
        }
    }
}
