//! The keyspace as a script sees it: `redis.call`, one command after the other at the same instant.
//!
//! Owns    the gates that a command passes when a script calls it.
//! Source  Redis 7.0 `script.c`, `scriptCall`.

#[cfg(feature = "lua")]
use std::sync::Arc;

use super::expiry::{self, Unit};
use super::row::Flags;
use super::script_cache::Trials;
#[cfg(feature = "lua")]
use super::watchdog::Guard;
use super::{Args, Call, Command, Outcome, Shared, rights, table};
use crate::clock::Now;
use crate::error::Refusal;
use crate::keyspace::{Entry, Occupied, View};
use crate::limits::WORK_MAX;
use crate::number::integer;
use crate::resp::{Protocol, Reply, Request};
use crate::scripts::Inputs;
#[cfg(feature = "lua")]
use crate::scripts::lua::Watchdog;
use crate::scripts::plain::{Calls, Change};
#[cfg(feature = "lua")]
use crate::state::running::{Function, Script as Running};
use crate::state::session::Session;
#[cfg(feature = "lua")]
use crate::state::settings::Settings;

/// What it takes to hand a word to a script, beside its bytes.
const INPUT_WORK: u64 = 64;
/// The share of all work for which the keys of a command are not looked up.
#[cfg(feature = "lua")]
const WORK_SHARE: u64 = 256;

/// A script's view of the server.
#[derive(Debug)]
pub(super) struct Inside<'c, 'k> {
    view: &'c mut View<'k>,
    now: Now,
    session: &'c mut Session,
    shared: &'k Shared,
    only_reads: bool,
    /// Whether it may call what could need memory while memory is short: its flags say so, or it has written already and
    /// is to come to its end.
    pub(super) may_grow: bool,
    /// While it is interpreted: others may see it, and end it.
    watched: Option<Watched<'k>>,
    /// Whether it may turn out to take long, and to begin again.
    is_trial: bool,
    /// Whether it is alone in that, and no part of EXEC.
    owns_trial: bool,
    /// The database of whoever called the script: what a script selects does not outlive it.
    database: u16,
    /// Whether the script itself is a part of EXEC.
    was_nested: bool,
}

/// A script that others may see. Over when dropped, however that comes about: a server that believed it to run for ever
/// would refuse everybody else.
#[derive(Debug)]
struct Watched<'k> {
    shared: &'k Shared,
    #[cfg(feature = "lua")]
    guard: &'k Guard,
}

impl Watched<'_> {
    /// What comes next may take long: nobody is to wait for it with a thread.
    fn takes_long(&self) {
        #[cfg(feature = "lua")]
        self.guard.takes_long();
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        // The shards are let go in a moment: whoever comes again now finds them free, or nearly.
        if self.shared.running.end() {
            self.shared.keyspace.occupancy.end();
        }
    }
}

impl<'c, 'k> Inside<'c, 'k> {
    /// A script begins; where it `only_reads`, commands that write are refused to it.
    pub(super) fn new(
        view: &'c mut View<'k>,
        session: &'c mut Session,
        shared: &'k Shared,
        only_reads: bool,
    ) -> Self {
        let (now, database) = (view.now(), session.database);
        let may_grow = !session.is_short_of_memory;
        let was_nested = std::mem::replace(&mut session.is_nested, true);
        Self {
            view,
            now,
            session,
            shared,
            only_reads,
            may_grow,
            watched: None,
            is_trial: false,
            owns_trial: false,
            database,
            was_nested,
        }
    }

    /// Room for replies, to be given back.
    pub(super) fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.session.scratch)
    }

    /// The room for replies, given back.
    pub(super) fn keep_scratch(&mut self, scratch: Vec<u8>) {
        self.session.scratch = scratch;
    }

    /// The script is over.
    pub(super) fn end(self) {
        self.session.database = self.database;
        self.session.is_nested = self.was_nested;
        self.view.select(self.database);
    }

    /// Runs the script as `body` does, to its end. With inputs and its record for a `trial` it is tried out, and to come
    /// again elsewhere where it cannot be, or has turned out not to be short.
    ///
    /// # Errors
    /// What `body` refuses.
    #[inline]
    pub(super) fn run(
        mut self,
        trial: Option<(Inputs<'_>, &Trials)>,
        body: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<Outcome, Refusal> {
        if trial.is_some_and(|(inputs, _)| !self.try_out(inputs)) {
            self.end();
            return Ok(Outcome::Aside);
        }
        let result = body(&mut self);
        let has_left = self.ends_trial();
        self.end();
        if has_left {
            trial.iter().for_each(|(_, trials)| trials.was_not_short());
            return Ok(Outcome::Aside);
        }
        result.map(|()| Outcome::Replied)
    }

    /// Somebody looks after the script from here on, and others may see it.
    #[cfg(feature = "lua")]
    pub(super) fn watch(&mut self, function: Option<Function>) -> Arc<dyn Watchdog> {
        let shared = self.shared;
        shared.guard.begin(self.is_trial);
        self.watched = Some(Watched { shared, guard: &shared.guard });
        let client = Arc::clone(&self.session.client);
        shared.running.begin(Running { function, client });
        Arc::clone(&shared.guard) as Arc<dyn Watchdog>
    }

    /// It runs on these inputs where others wait for it, to see whether it is short; false where they are too many for
    /// that, or what it changes could not be taken back.
    fn try_out(&mut self, inputs: Inputs<'_>) -> bool {
        let words = (inputs.len() as u64).saturating_mul(INPUT_WORK);
        if inputs.bytes().saturating_add(words) > WORK_MAX {
            return false;
        }
        self.owns_trial = self.view.try_out();
        self.is_trial = self.view.is_tried_out();
        self.is_trial
    }

    /// Ends the trial, if it was one. True where the script has turned out not to be short: then it is as if it had not run,
    /// or will be when EXEC has taken back what it has done.
    fn ends_trial(&mut self) -> bool {
        let has_left = self.view.has_given_up();
        match self.owns_trial {
            true if has_left => self.view.take_back(),
            true => self.view.end_trial(&self.shared.audience.tracking),
            false => {}
        }
        #[cfg(feature = "lua")]
        if let Some(watched) = &self.watched
            && self.is_trial
            && !has_left
        {
            self.session.worked(watched.guard.work());
        }
        has_left
    }

    /// Keeps what a command is about to change, while that is tried out. It gives up where that cannot be taken back, or
    /// takes long.
    fn keeps(&mut self, command: &Command, words: &[&[u8]]) -> bool {
        if !self.view.is_tried_out() {
            return true;
        }
        let is_kept = !self.view.has_given_up()
            && self.has_time(command, words)
            && command.keep(Request::listed(words), self.view);
        if !is_kept {
            self.give_up();
        }
        is_kept
    }

    /// Whether a command with these words is not too much for what is tried out.
    #[cfg(feature = "lua")]
    fn has_time(&mut self, command: &Command, words: &[&[u8]]) -> bool {
        let Some(watched) = self.watched.as_ref().filter(|_| self.is_trial) else { return true };
        let most = self.shared.keyspace.work_of(words.len());
        // Where some value is large it need not be one of these.
        let is_told = most <= WORK_MAX / WORK_SHARE;
        let work = if is_told { most } else { command.looks_at(Request::listed(words), self.view) };
        watched.guard.allows(work)
    }

    /// What is tried out is to begin again.
    fn give_up(&mut self) {
        self.view.give_up();
        #[cfg(feature = "lua")]
        if let Some(watched) = &self.watched
            && self.is_trial
        {
            watched.guard.give_up();
        }
    }

    /// Carries out one command, `known` if its caller knows which it is, and appends its answer, a refusal included.
    fn carry_out(
        &mut self,
        known: Option<&'static Command>,
        words: &[&[u8]],
        protocol: Protocol,
        out: &mut Vec<u8>,
    ) {
        let mark = out.len();
        let result = self.admit(known, words).and_then(|command| {
            if !self.keeps(command, words) {
                // Nobody will see this.
                return Err(Refusal::Occupied);
            }
            let stats = &self.shared.stats;
            if command.is_measured {
                // It may be one that tells what has been counted.
                self.session.called.settle(stats);
            }
            self.session.called.note(command.index, stats);
            if let Some(watched) = &self.watched
                && command.is_measured
                && self.shared.keyspace.work_of(words.len()) > WORK_MAX
            {
                watched.takes_long();
            }
            let result = (command.row.run)(&mut Call {
                view: &mut *self.view,
                args: Args::new(Request::listed(words), command.name_words),
                reply: Reply::new(out, protocol),
                now: self.now,
                session: &mut *self.session,
                shared: self.shared,
                command,
            });
            if self.session.reads.matter() {
                super::remember(self.session, self.shared, command, Request::listed(words), self.view);
            }
            if result.is_err() {
                self.shared.stats[usize::from(command.index)].failed.add(1);
            }
            result
        });
        // SELECT holds for the rest of the script.
        self.view.select(self.session.database);
        match result {
            Ok(Outcome::Park { answer, .. }) => out.extend_from_slice(&answer),
            Ok(Outcome::Replied | Outcome::Close | Outcome::Aside) => {}
            Err(refusal) => {
                out.truncate(mark);
                Reply::new(out, protocol).error_bytes(&refusal.line());
            }
        }
    }

    /// The gates, in Redis' order.
    fn admit(
        &mut self,
        known: Option<&'static Command>,
        words: &[&[u8]],
    ) -> Result<&'static Command, Refusal> {
        let unknown = || Refusal::said("ERR Unknown Redis command called from script");
        let command = known.or_else(|| table().named(words)).ok_or_else(unknown)?;
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
                self.shared.running.note_write();
            }
            Ok(command)
        }
    }

    /// Whether no gate can shut for a command that is not refused to scripts, and nothing it reads has to be remembered.
    #[inline]
    fn is_open(&self) -> bool {
        self.session.account.is_unlimited() && !self.session.reads.matter()
    }

    /// A command has been refused: what the script is told.
    #[cold]
    fn failed(&self, command: &Command, refusal: &Refusal) -> Vec<u8> {
        self.shared.stats[usize::from(command.index)].failed.add(1);
        refusal.line().to_vec()
    }

    fn check_rights(&mut self, command: &'static Command, request: Request<'_>) -> Result<(), Refusal> {
        if self.view.is_tried_out() && !rights::allow(self.session, command, request) {
            // What is refused is logged, and is to be once.
            self.give_up();
            return Err(Refusal::Occupied);
        }
        rights::check_inside(self.session, self.shared, command, request)
    }

    /// How the server is set.
    #[cfg(feature = "lua")]
    pub(super) fn settings(&self) -> &'k Settings {
        &self.shared.settings
    }
}

#[cfg(not(feature = "lua"))]
impl Inside<'_, '_> {
    /// What is not interpreted is short.
    fn has_time(&self, _: &Command, _: &[&[u8]]) -> bool {
        true
    }
}

impl Calls for Inside<'_, '_> {
    fn call(&mut self, listed: Option<usize>, words: &[&[u8]], reply: &mut Vec<u8>) {
        self.carry_out(listed.and_then(|place| table().listed(place)), words, Protocol::Resp2, reply);
    }

    #[inline]
    fn holds(&mut self, listed: Option<usize>, key: &[u8], value: &[u8]) -> Option<Result<bool, Vec<u8>>> {
        if !self.is_open() {
            return None;
        }
        let command = listed.and_then(|place| table().listed(place))?;
        self.session.called.note(command.index, &self.shared.stats);
        let Entry::Occupied(found) = &mut self.view.counted(key) else { return Some(Ok(false)) };
        Some(is_held(found, value).map_err(|refusal| self.failed(command, &refusal)))
    }

    #[inline]
    fn change_if_held(&mut self, change: &Change<'_>) -> Option<Result<bool, Vec<u8>>> {
        if !self.is_open() || self.only_reads || self.view.is_tried_out() {
            return None;
        }
        let deadline = match change.millis {
            Some(millis) => Some(Unit::Millis.deadline(integer(millis)?, self.now, "pexpire").ok()?),
            None => None,
        };
        let listed = |place: usize| table().listed(change.commands[place]);
        let (get, changes) = (listed(0)?, listed(1)?);
        self.session.called.note(get.index, &self.shared.stats);
        // What has been found is changed where it is: to move it costs as much.
        let Entry::Occupied(found) = &mut self.view.counted(change.key) else { return Some(Ok(false)) };
        match is_held(found, change.value) {
            Ok(true) => {}
            Ok(false) => return Some(Ok(false)),
            Err(refusal) => return Some(Err(self.failed(get, &refusal))),
        }
        self.session.called.note(changes.index, &self.shared.stats);
        match deadline {
            Some(deadline) => expiry::set_or_delete(found, deadline, self.now),
            None => {
                found.remove_entry();
                found.event(b'g', "del");
            }
        }
        Some(Ok(true))
    }
}

/// What GET does, for whoever only wants to know whether it finds that value. The end of the key is likely to be next.
#[inline]
fn is_held(found: &mut Occupied<'_>, value: &[u8]) -> Result<bool, Refusal> {
    found.touch();
    found.foresee_end();
    found.string().map(|held| held == value)
}

#[cfg(feature = "lua")]
impl crate::scripts::lua::Commands for Inside<'_, '_> {
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) {
        self.carry_out(None, words, protocol, reply);
    }

    fn limits(&self) -> Option<crate::scripts::lua::Limits> {
        let account = &self.session.account;
        let user = (!account.is_unlimited()).then(|| account.user())?;
        let may_send = move |words: &[&[u8]]| rights::may_send(&user, words);
        Some(crate::scripts::lua::Limits(Box::new(may_send)))
    }

    fn log(&mut self, level: crate::scripts::lua::Level, text: &[u8]) {
        use crate::scripts::lua::Level;
        let text = text.escape_ascii();
        match level {
            Level::Debug => tracing::trace!(%text, "script"),
            Level::Verbose => tracing::debug!(%text, "script"),
            Level::Notice => tracing::info!(%text, "script"),
            Level::Warning => tracing::warn!(%text, "script"),
        }
    }
}
