//! One command during its execution.
//!
//! Owns    [`Call`], and [`Call::run`], through which every command runs: of a client, of a transaction, of a script, of the
//!         server itself.
//! Rule    the gates before a command, and the counts, belong to its caller: calls of clients are counted in batches. What
//!         every command needs is here: why its locks end, the answers of a quarantine, MONITOR, tracking.

use std::sync::Arc;

use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Reply;

use super::admin::monitor::{Source, show};
use super::connection::tracking::remember;
use super::row::Flags;
use super::{Args, Command, Shared, quarantine};
use crate::keyspace::{Asked, View, Waiter};
use crate::locks::{EndReason, RequestOutcome};
use crate::scripts::Purpose;
use crate::state::audit::{AuditLine, Author};
use crate::state::session::Session;
use crate::state::wait::Wait;

/// A command during its execution.
#[derive(Debug)]
pub struct Call<'a, 'k> {
    /// The shards that the command has locked.
    pub view: &'a mut View<'k>,
    /// The words after the name.
    pub args: Args<'a>,
    pub reply: Reply<'a>,
    /// The time at which the command takes effect.
    pub now: Now,
    /// The state of the connection.
    pub session: &'a mut Session,
    pub shared: &'k Shared,
    /// The row of the command, with its derived facts.
    pub command: &'static Command,
    /// Who has called it.
    pub caller: Caller,
}

/// Who has called a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Caller {
    /// A client, maybe in a transaction.
    Client,
    /// A script, with the purpose of a known one.
    Script(Option<Purpose>),
    /// The server, which asks for somebody else: no monitor sees that.
    Server,
}

impl Caller {
    /// Why locks end that the command removes.
    #[inline]
    const fn end_reason(self) -> EndReason {
        match self {
            Self::Script(Some(Purpose::Break)) => EndReason::Broken,
            Self::Script(Some(Purpose::Release)) => EndReason::Released,
            _ => EndReason::Deleted,
        }
    }

    /// Whether the command says what its request for a lock comes to. A known script says that itself.
    #[inline]
    pub(in crate::commands) const fn says_outcomes(self) -> bool {
        !matches!(self, Self::Script(Some(Purpose::Acquire(_) | Purpose::Extend | Purpose::Release)))
    }
}

/// The result of a command that was not refused.
#[derive(Clone, Debug)]
pub enum Outcome {
    Replied,
    /// The reply is complete, and the connection closes once it is sent.
    Close,
    /// The call waits. The next requests of the session wait behind it.
    Park {
        /// The end of the wait, and its keys.
        wait: Arc<Wait>,
        /// Serves the call when one of its keys is ready; `None` waits for the timeout alone.
        waiter: Option<Arc<Waiter>>,
    },
    /// The call had no effect. It may take long and is repeated on the script thread.
    Offload,
}

impl Call<'_, '_> {
    /// Runs the command. What is answered instead while there is a quarantine, and who sees the command, are decided here.
    ///
    /// # Errors
    /// The error of the command, of the quarantine, of the disk or of a shutdown.
    #[inline]
    pub(crate) fn run(&mut self) -> Result<Outcome, Refusal> {
        self.view.begin(self.caller.end_reason());
        let is_seen = self.shared.monitors.is_any() | self.session.reads.may_be_tracked();
        match is_seen | self.shared.locks.quarantine.is_on() {
            false => (self.command.row.run)(self),
            true => self.run_seen(),
        }
    }

    /// Like [`Call::run`], where somebody sees the command or there is a quarantine.
    #[cold]
    fn run_seen(&mut self) -> Result<Outcome, Refusal> {
        let (is_script, is_shown) =
            (self.command.row.flags.has(Flags::SCRIPT), self.shared.monitors.is_any());
        match self.caller {
            // It comes before what it calls. One that is repeated is shown once.
            Caller::Client if is_shown && is_script && !std::mem::take(&mut self.session.is_shown) => {
                self.show(Source::Client);
            }
            Caller::Script(_) if is_shown => self.show(Source::Script),
            _ => {}
        }
        let result = match self.shared.locks.quarantine.is_on() {
            false => (self.command.row.run)(self),
            true => quarantine::run(self),
        };
        if is_repeated(&result) {
            self.session.is_shown = is_shown && is_script && self.caller == Caller::Client;
            return result;
        }
        if is_shown && !is_script && self.caller == Caller::Client {
            self.show(Source::Client);
        }
        if self.session.reads.may_be_tracked() {
            remember(self.session, self.shared, self.command, self.args.request(), self.view);
        }
        result
    }

    fn show(&mut self, source: Source) {
        show(self.session, self.shared, self.command, self.args.request(), source);
    }

    /// The request for the lock of a key has come to this; `owner`: the name under which the client asks, if it says one.
    // Always inlined, down to what is counted: most callers know the outcome, and a call costs a refusal fifty instructions.
    #[inline(always)]
    pub(in crate::commands) fn comes_to(
        &mut self,
        outcome: RequestOutcome,
        key: &[u8],
        owner: Option<&[u8]>,
    ) {
        self.all_come_to(outcome, (key, std::iter::empty()), owner);
    }

    /// Like [`Call::comes_to`], for a request for several locks: the first key is the one in the way, others come after it.
    #[inline(always)]
    pub(in crate::commands) fn all_come_to<'n>(
        &mut self,
        outcome: RequestOutcome,
        keys: (&'n [u8], impl Iterator<Item = &'n [u8]> + Clone),
        owner: Option<&[u8]>,
    ) {
        if self.caller.says_outcomes() {
            let asked = Asked { owner, name: self.command.row.name, wait: None };
            self.view.locks().comes_to(outcome, keys, self.shared.asking(self.session), asked);
        }
    }

    /// Writes a line of the audit log about this call, if there is one; `fields` adds what it has done.
    pub(crate) fn audit(&self, event: &str, fields: impl FnOnce(&mut AuditLine)) {
        self.shared.access.audit.note(self.now, Author::of(self.session), event, fields);
    }
}

/// Whether a call had no effect and is repeated: on another thread, later, or with more shards.
#[inline]
pub(crate) fn is_repeated(result: &Result<Outcome, Refusal>) -> bool {
    matches!(result, Ok(Outcome::Offload) | Err(Refusal::Occupied | Refusal::StartAgain))
}
