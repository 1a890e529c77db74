//! EXEC: the requests of a transaction, one after the other at one instant, with every shard of theirs locked.
//!
//! Locks   the shards of all keys that its requests name, and of those it watches: nobody changes one of these between
//!         the look at the watches and the last request.
//! Source  Redis 7.0 `multi.c`.

use super::work::{self, Place};
use super::{Batch, Engine, Flow};
use crate::commands::row::Flags;
use crate::commands::{self, Command, EXEC, Outcome, Shared, table};
use crate::error::Refusal;
use crate::keyspace::{ShardSet, View};
use crate::limits::TRANSACTION_BYTES_MAX;
use crate::resp::{OwnedRequest, Protocol, Reply, Request};
use crate::state::session::Session;
use crate::state::transaction::Transaction;

/// A request of a transaction, and the command it names.
type Step<'a> = (&'static Command, Request<'a>);

/// How a transaction is carried out.
#[derive(Clone, Copy)]
struct ExecMode {
    is_much: bool,
    /// The request with which its trial ends, if it is one.
    tries_until: Option<usize>,
}

/// Gathers a request for EXEC.
#[cold]
pub(super) fn queue(
    shared: &Shared,
    transaction: &mut Transaction,
    command: &Command,
    request: Request<'_>,
    protocol: Protocol,
    out: &mut Vec<u8>,
) {
    let mut reply = Reply::new(out, protocol);
    // What EXEC will not carry out need not be kept.
    if !transaction.is_aborted {
        let owned = OwnedRequest::of(request);
        transaction.bytes += size_of::<OwnedRequest>() + owned.heap_bytes();
        if transaction.bytes > TRANSACTION_BYTES_MAX {
            *transaction = Transaction { is_aborted: true, ..Transaction::default() };
            return reply.error("ERR the requests of this transaction take too much memory");
        }
        transaction.runs_scripts |= command.row.flags.has(Flags::SCRIPT.with(Flags::OFFLOAD));
        work::note(transaction, command, request);
        transaction.may_grow |= command.row.flags.has(Flags::DENYOOM);
        transaction.may_write |= commands::may_write(shared, command, request);
        transaction.queued.push(owned);
    }
    reply.status("QUEUED");
}

/// The shards of a transaction: all of them if a request may touch keys that it does not name.
fn reach<'b, 'a: 'b>(
    steps: &[Step<'a>],
    watched: impl Iterator<Item = &'a [u8]>,
    keys: &'b mut Vec<&'a [u8]>,
) -> ShardSet<'b> {
    keys.extend(watched);
    for (command, request) in steps {
        if command.row.flags.has(Flags::ALL_SHARDS.with(Flags::SCRIPT).with(Flags::SUMS)) {
            return ShardSet::All;
        }
        keys.extend(command.positions(*request).map(|at| request.word(at)));
    }
    if keys.is_empty() { ShardSet::Nothing } else { ShardSet::Keys(keys) }
}

impl Engine {
    /// A request was refused at a gate: a transaction under way comes to nothing. A refused EXEC ends it at once, and says
    /// so even where there was none.
    pub(super) fn abort(
        &self,
        session: &mut Session,
        refusal: Refusal,
        command: Option<&'static Command>,
    ) -> Refusal {
        if let Some(transaction) = &mut session.transaction {
            transaction.is_aborted = true;
        }
        if command.is_none_or(|command| command.row.name != EXEC) {
            return refusal;
        }
        crate::commands::discard_all(session, &self.shared);
        let text = refusal.text();
        let reason = text.strip_prefix("ERR ").unwrap_or(&text);
        Refusal::said(format!("EXECABORT Transaction discarded because of: {reason}"))
    }

    /// Carries out the transaction of this session.
    #[cold]
    pub(super) fn exec(
        &self,
        session: &mut Session,
        command: &'static Command,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        let Some(gathered) = session.transaction.as_deref() else { return Flow::Next };
        let is_much = self.is_much_together(gathered);
        let tries_until = match self.placed(session, gathered, is_much) {
            Place::Elsewhere => {
                batch.commands -= 1;
                return Flow::Offload;
            }
            Place::Here => None,
            Place::OnTrial { until } => Some(until),
        };
        let Some(transaction) = session.transaction.take() else { return Flow::Next };
        if transaction.is_aborted {
            crate::commands::discard_all(session, &self.shared);
            self.count((command.index, 1));
            let text = "EXECABORT Transaction discarded because of previous errors.";
            self.refuse(session, &Refusal::said(text), out);
            return Flow::Next;
        }
        let steps: Vec<Step<'_>> = transaction.queued.iter().filter_map(step).collect();
        let watching = session.watching.take();
        let watched = watching.iter().flat_map(|watching| &watching.keys).map(|(_, key)| &key[..]);
        let mut keys = Vec::new();
        let reach = reach(&steps, watched, &mut keys);
        let shared = &*self.shared;
        let view = View::try_lock(&shared.keyspace, reach, session.database, batch.now, shared.events());
        let Some(mut view) = view else {
            session.watching = watching;
            session.transaction = Some(transaction);
            return self.later(session, batch);
        };
        view.on_behalf_of(session.client.id);
        let is_broken = watching.as_ref().is_some_and(|watching| watching.watch.is_broken());
        if let Some(watching) = &watching {
            view.unwatch(watching);
        }
        let long_call = &shared.keyspace.long_call;
        let _during = is_much.then(|| long_call.during());
        let mark = out.len();
        let flow = if is_broken {
            Reply::new(out, session.protocol).null_array();
            Some(Flow::Next)
        } else {
            self.carry_out(session, &steps, &mut view, ExecMode { is_much, tries_until }, batch, out)
        };
        let Some(flow) = flow else {
            out.truncate(mark);
            if let Some(watching) = &watching {
                view.watch_again(watching);
            }
            session.watching = watching;
            session.transaction = Some(transaction);
            view.finish(&shared.audience);
            batch.commands -= 1;
            return Flow::Offload;
        };
        self.count((command.index, 1));
        if shared.monitors.is_any() {
            let words = [EXEC.as_bytes()];
            commands::show(session, shared, command, Request::listed(&words), commands::Source::Client);
        }
        session.reads = session.reads.after_next();
        session.client.show_queued(None, 0);
        session.client.show_watching(None);
        view.finish(&shared.audience);
        flow
    }

    /// Where a transaction is carried out.
    fn placed(&self, session: &Session, gathered: &Transaction, is_much: bool) -> Place {
        if session.may_block {
            return Place::Here;
        }
        if is_much {
            return Place::Elsewhere;
        }
        if !gathered.runs_scripts {
            return Place::Here;
        }
        self.place(gathered)
    }

    /// Carries out the requests of a transaction; `None`, and it is as if nothing had been done, where what was tried out is
    /// to begin again elsewhere.
    fn carry_out<'k>(
        &'k self,
        session: &mut Session,
        steps: &[Step<'_>],
        view: &mut View<'k>,
        manner: ExecMode,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Option<Flow> {
        let (mut flow, database) = (Flow::Next, session.database);
        Reply::new(out, session.protocol).array(steps.len());
        session.is_nested = true;
        if manner.tries_until.is_some() {
            view.try_out();
        }
        for (at, step) in steps.iter().enumerate() {
            if manner.is_much {
                // A script among them says that it is over.
                self.shared.keyspace.long_call.begin();
            }
            if !view.is_tried_out() || step.0.keep(step.1, view) {
                flow = self.step(session, *step, view, batch, out, flow);
            }
            if view.has_given_up() {
                view.take_back();
                session.is_nested = false;
                session.database = database;
                return None;
            }
            if manner.tries_until == Some(at) {
                view.end_trial(&self.shared.audience.tracking);
            }
        }
        session.is_nested = false;
        Some(flow)
    }

    /// Carries out one request of a transaction. Nothing in a transaction waits: what would is answered at once, as if
    /// its time were over.
    fn step<'k>(
        &'k self,
        session: &mut Session,
        (command, request): Step<'_>,
        view: &mut View<'k>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
        flow: Flow,
    ) -> Flow {
        if !session.account.is_unlimited()
            && let Err(refusal) = commands::check_again(session, &self.shared, command, request)
        {
            self.refuse(session, &refusal, out);
            return flow;
        }
        let result = self.perform(session, command, request, view, batch, out);
        // SELECT holds for the rest of the transaction, and after it; CONFIG SET and CLIENT TRACKING as well.
        view.select(session.database);
        view.attend(self.shared.events());
        match result {
            Ok(Outcome::Park { wait, .. }) => out.extend_from_slice(&wait.answer),
            Ok(Outcome::Close) => return Flow::Close,
            // Only what is tried out asks for that.
            Ok(Outcome::Offload) => view.give_up(),
            Ok(Outcome::Replied) | Err(_) => {}
        }
        flow
    }
}

/// The command that a gathered request names; every one of them was found when it came.
pub(super) fn step(owned: &OwnedRequest) -> Option<Step<'_>> {
    let request = owned.request();
    let command = table().find(request.word(0))?;
    let subcommand = request.get(1).and_then(|name| command.subcommand(name));
    Some((subcommand.unwrap_or(command), request))
}
