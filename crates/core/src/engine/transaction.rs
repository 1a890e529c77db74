//! EXEC: the requests of a transaction, one after the other at one instant, with all their shards locked.
//!
//! Locks   the shards of all keys that its requests name, and of all watched keys: none of these keys changes between
//!         the check of the watches and the last request. With an interpreted script it runs on the script thread, and locks
//!         further shards if the script asks for them.
//! Source  Redis 7.0 `multi.c`.

use redlatch_proto::error::Refusal;
use redlatch_proto::limits::TRANSACTION_BYTES_MAX;
use redlatch_proto::resp::{OwnedRequest, Protocol, Reply, Request};

use super::panic::finish_at_panic;
use super::{Batch, Engine, Flow, mute};
use crate::commands::row::Flags;
use crate::commands::{self, Command, EXEC, Outcome, Shared, table};
use crate::keyspace::{ShardSet, View};
use crate::state::session::{Replies, Session};
use crate::state::transaction::{Transaction, Watching};

/// The command of a queued request, and the request.
pub(super) type Step<'a> = (&'static Command, Request<'a>);

/// Queues a request for EXEC.
#[cold]
pub(super) fn queue(
    shared: &Shared,
    (transaction, watching): (&mut Transaction, Option<&Watching>),
    command: &Command,
    request: Request<'_>,
    protocol: Protocol,
    out: &mut Vec<u8>,
) {
    let mut reply = Reply::new(out, protocol);
    // A transaction that EXEC will not run keeps no requests.
    if !transaction.is_aborted && !watching.is_some_and(|watching| watching.watch.is_broken()) {
        let owned = OwnedRequest::of(request);
        let bytes = size_of::<OwnedRequest>() + owned.heap_bytes();
        if transaction.bytes + bytes > TRANSACTION_BYTES_MAX {
            transaction.abort();
            return reply.error("ERR the requests of this transaction take too much memory");
        }
        transaction.may_grow |= command.row.flags.has(Flags::DENYOOM);
        transaction.may_write |= commands::may_write(shared, command, request);
        transaction.push(owned, bytes);
    }
    reply.status("QUEUED");
}

/// The shards of a transaction: all shards if a request may use keys that it does not name. On the script thread these can
/// be locked later.
fn reach<'b, 'a: 'b>(
    shared: &Shared,
    (steps, is_long): (&[Step<'a>], bool),
    watched: impl Iterator<Item = &'a [u8]>,
    keys: &'b mut Vec<&'a [u8]>,
) -> ShardSet<'b> {
    keys.extend(watched);
    for (command, request) in steps {
        let is_script = command.row.flags.has(Flags::SCRIPT);
        let asks_further = || !is_long || commands::asks_further(shared, command, *request);
        if command.row.flags.has(Flags::ALL_SHARDS.with(Flags::SUMS)) || (is_script && asks_further()) {
            return ShardSet::All;
        }
        keys.extend(command.positions(*request).map(|at| request.word(at)));
    }
    if keys.is_empty() { ShardSet::Nothing } else { ShardSet::Keys(keys) }
}

impl Engine {
    /// Aborts the transaction, because a request was refused before its execution. A refused EXEC discards the
    /// transaction at once. Its error says so even without a transaction, except those about slots, as in Redis.
    pub(super) fn abort(
        &self,
        session: &mut Session,
        refusal: Refusal,
        (command, request): (Option<&'static Command>, Request<'_>),
    ) -> Refusal {
        if let Some(transaction) = &mut session.transaction {
            transaction.is_aborted = true;
        }
        let Some(exec) = command.filter(|command| command.row.name == EXEC) else { return refusal };
        crate::commands::discard_all(session, &self.shared);
        if matches!(refusal, Refusal::CrossSlot | Refusal::Rerouted(_)) {
            return refusal;
        }
        self.show(session, (exec, request));
        let text = refusal.text();
        let reason = text.strip_prefix("ERR ").unwrap_or(&text);
        Refusal::said(format!("EXECABORT Transaction discarded because of: {reason}"))
    }

    /// Shows EXEC to monitors, also one that executes nothing: they have seen MULTI.
    fn show(&self, session: &Session, (command, request): Step<'_>) {
        if self.shared.monitors.is_any() {
            commands::show(session, &self.shared, command, request, commands::Source::Client);
        }
    }

    /// Executes EXEC.
    #[cold]
    pub(super) fn exec(
        &self,
        session: &mut Session,
        (command, request): Step<'_>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        let Some(transaction) = session.transaction.take() else { return Flow::Next };
        let steps: Vec<Step<'_>> = transaction.queued.iter().filter_map(step).collect();
        let is_long = self.is_offloaded(&transaction, &steps);
        if is_long && !session.may_block {
            session.transaction = Some(transaction);
            return self.offload(session, (command, request), batch, out);
        }
        if transaction.is_aborted {
            crate::commands::discard_all(session, &self.shared);
            self.count((command.index, 1));
            self.show(session, (command, request));
            let text = "EXECABORT Transaction discarded because of previous errors.";
            self.refuse(session, &Refusal::said(text), out);
            return Flow::Next;
        }
        let watching = session.watching.take();
        let watched = watching.iter().flat_map(|watching| &watching.keys).map(|(_, key)| &key[..]);
        let mut keys = Vec::new();
        let shared = &*self.shared;
        let reach = reach(shared, (&steps, is_long), watched, &mut keys);
        let view = View::try_lock(&shared.keyspace, reach, session.database, batch.now, shared.events());
        let Some(mut view) = view else {
            (session.watching, session.transaction) = (watching, Some(transaction));
            return self.retry_later(session, (command, request), batch, out);
        };
        if is_long {
            view.announce_long_call();
        }
        view.on_behalf_of(session.client.id);
        let is_broken = watching.as_ref().is_some_and(|watching| view.end_watch(watching));
        let elsewhere =
            if session.is_half_way { self.check_locked(session, &steps, &mut view).err() } else { None };
        let flow = if is_broken {
            Reply::new(out, session.protocol).null_array();
            Flow::Next
        } else if let Some(refusal) = elsewhere {
            self.refuse(session, &refusal, out);
            Flow::Next
        } else {
            finish_at_panic(&mut view, &shared.registries, |view| {
                self.execute_queued(session, &steps, view, batch, out)
            })
        };
        self.count((command.index, 1));
        self.show(session, (command, request));
        session.reads = session.reads.after_next();
        session.client.transaction.show_queued(None, 0);
        session.client.transaction.show_watching(None);
        view.finish(&shared.registries);
        if is_long {
            batch.now = shared.clock.now();
        }
        flow
    }

    /// Executes the requests of a transaction and appends their replies.
    fn execute_queued<'k>(
        &'k self,
        session: &mut Session,
        steps: &[Step<'_>],
        view: &mut View<'k>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        Reply::new(out, session.protocol).array(steps.len());
        session.is_nested = true;
        view.set_nested(true);
        let mut flow = Flow::Next;
        for step in steps {
            flow = self.step(session, *step, view, batch, out, flow);
        }
        session.is_nested = false;
        view.set_nested(false);
        flow
    }

    /// Executes one request of a transaction. A blocking command does not wait: it answers at once, as after its
    /// timeout.
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
            && let Err(refusal) = commands::check_in_exec(session, &self.shared, command, request)
        {
            self.refuse(session, &refusal, out);
            return flow;
        }
        let result = self.perform(session, command, request, view, batch, out);
        // SELECT, CONFIG SET and CLIENT TRACKING apply to the rest of the transaction.
        view.select(session.database);
        view.set_events(self.shared.events());
        match result {
            Ok(Outcome::Park { wait, .. }) => out.extend_from_slice(&wait.answer),
            Ok(Outcome::Close) => return Flow::Close,
            // A command inside EXEC never asks to be offloaded.
            Ok(Outcome::Offload | Outcome::Replied) | Err(_) => {}
        }
        flow
    }

    /// Answers a request with an error in place of executing it. A refused EXEC discards its transaction.
    pub fn refuse_request(
        &self,
        session: &mut Session,
        request: Request<'_>,
        text: &[u8],
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        if request.get(0).is_some_and(|name| name.eq_ignore_ascii_case(EXEC.as_bytes())) {
            commands::discard_all(session, &self.shared);
        }
        self.refuse(session, &Refusal::Quoted(text.to_vec()), out);
        if session.replies != Replies::On {
            mute(session, out, start);
        }
    }
}

/// A queued request and its command, which exists: it was looked up when the request was queued.
pub(super) fn step(owned: &OwnedRequest) -> Option<Step<'_>> {
    let request = owned.request();
    let command = table().find(request.word(0))?;
    let subcommand = request.get(1).and_then(|name| command.subcommand(name));
    Some((subcommand.unwrap_or(command), request))
}
