//! Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! Knows   nothing of the execution of EXEC: the engine does it, with all shards of the transaction locked.
//! Source  Redis 7.0 `multi.c`.

use bytes::Bytes;
use redlatch_proto::error::Refusal;

use crate::commands::row::{Flags, Group, Row, key};
use crate::commands::{Call, Outcome, Shared};
use crate::state::session::Session;
use crate::state::transaction::{Transaction, Watching};

pub(super) const ROWS: &[Row] = &[
    Row::new(Group::Transactions, "DISCARD", "2.0.0", discard)
        .summary("Discards the requests since MULTI and the watched keys.")
        .flags(FLAGS),
    Row::new(Group::Transactions, EXEC, "1.2.0", exec)
        .summary("Executes the requests since MULTI atomically, unless a watched key has changed.")
        .flags(FLAGS.without(Flags::FAST).without(Flags::BUSY)),
    Row::new(Group::Transactions, "MULTI", "1.2.0", multi)
        .summary("Queues the requests that follow, for EXEC.")
        .flags(FLAGS),
    Row::new(Group::Transactions, "UNWATCH", "2.2.0", unwatch)
        .summary("Ends the watch of all keys.")
        .flags(FLAGS.without(Flags::UNQUEUED)),
    Row::new(Group::Transactions, "WATCH", "2.2.0", watch)
        .summary("Makes the next EXEC do nothing if one of the keys changes before it.")
        .flags(FLAGS)
        .args(&[key("key").many()]),
];

/// The name of EXEC, which the engine executes itself.
pub const EXEC: &str = "EXEC";

const FLAGS: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::BUSY)
    .with(Flags::UNQUEUED);

fn multi(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if call.session.transaction.is_some() {
        return Err(Refusal::said("ERR MULTI calls can not be nested"));
    }

    call.session.transaction = Some(Box::new(Transaction::new(call.session.client.ledger())));
    call.session.client.transaction.show_queued(Some(0), 0);

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// EXEC without MULTI.
fn exec(_: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    Err(Refusal::said("ERR EXEC without MULTI"))
}

fn discard(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if call.session.transaction.is_none() {
        return Err(Refusal::said("ERR DISCARD without MULTI"));
    }

    discard_all(call.session, call.shared);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn watch(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if call.session.transaction.is_some() {
        return Err(Refusal::said("ERR WATCH inside MULTI is not allowed"));
    }

    call.session.may_hold()?;

    let database = call.view.database();
    for name in call.args.rest() {
        let ledger = call.session.client.ledger();
        let watching = call.session.watching.get_or_insert_with(|| Box::new(Watching::new(ledger)));
        let name = Bytes::copy_from_slice(name);
        if watching.insert(database, &name) {
            call.view.watch(&name, &watching.watch);
        }
    }
    call.session.client.transaction.show_watching(call.session.watching.as_deref());

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn unwatch(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    unwatch_all(call.session, call.shared);

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// Discards the queued requests and the watched keys of a connection.
pub(crate) fn discard_all(session: &mut Session, shared: &Shared) {
    session.transaction = None;
    session.client.transaction.show_queued(None, 0);
    unwatch_all(session, shared);
}

fn unwatch_all(session: &mut Session, shared: &Shared) {
    if let Some(watching) = session.watching.take() {
        session.client.transaction.show_watching(None);
        shared.keyspace.unwatch(*watching);
    }
}
