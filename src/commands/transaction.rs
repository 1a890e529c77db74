//! Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! Owns    what they say when there is no transaction; EXEC itself is the engine's, which holds all shards of a
//!         transaction at once.
//! Source  Redis 7.0 `multi.c`.

use bytes::Bytes;

use crate::commands::row::{Flags, Group, Row, key};
use crate::commands::{Call, Outcome, Shared};
use crate::error::Refusal;
use crate::state::session::Session;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "DISCARD",
        summary: "Forgets the requests since MULTI and the keys watched.",
        since: "2.0.0",
        run: discard,
        ..ROW
    },
    Row {
        name: EXEC,
        summary: "Carries out the requests since MULTI as one, unless a watched key has changed.",
        since: "1.2.0",
        flags: ROW.flags.without(Flags::FAST).without(Flags::BUSY),
        run: exec,
        ..ROW
    },
    Row {
        name: "MULTI",
        summary: "Gathers the requests that follow, for EXEC.",
        since: "1.2.0",
        run: multi,
        ..ROW
    },
    Row {
        name: "UNWATCH",
        summary: "Watches no key any more.",
        since: "2.2.0",
        flags: ROW.flags.without(Flags::UNQUEUED),
        run: unwatch,
        ..ROW
    },
    Row {
        name: "WATCH",
        summary: "Has the next EXEC do nothing if one of the keys changes before it.",
        since: "2.2.0",
        args: &[key("key").many()],
        run: watch,
        ..ROW
    },
];

/// The command that ends a transaction: the engine carries it out itself.
pub(crate) const EXEC: &str = "EXEC";

const ROW: Row = Row {
    name: "",
    summary: "",
    since: "",
    group: Group::Transactions,
    flags: Flags::NOSCRIPT
        .with(Flags::LOADING)
        .with(Flags::STALE)
        .with(Flags::FAST)
        .with(Flags::BUSY)
        .with(Flags::UNQUEUED),
    args: &[],
    subcommands: &[],
    run: multi,
};

fn multi(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if call.session.transaction.is_some() {
        return Err(Refusal::said("ERR MULTI calls can not be nested"));
    }

    call.session.transaction = Some(Box::default());
    call.session.client.show_queued(Some(0), 0);

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// EXEC of a connection that has not said MULTI.
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

    let database = call.view.database();
    for name in call.args.rest() {
        let watching = call.session.watching.get_or_insert_default();
        let name = Bytes::copy_from_slice(name);
        if watching.keys.insert((database, name.clone())) {
            call.view.watch(&name, &watching.watch);
        }
    }
    call.session.client.show_watching(call.session.watching.as_deref());

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn unwatch(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    forget_watch(call.session, call.shared);

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// Forgets what a connection has gathered for its next EXEC.
pub(crate) fn discard_all(session: &mut Session, shared: &Shared) {
    session.transaction = None;
    session.client.show_queued(None, 0);
    forget_watch(session, shared);
}

fn forget_watch(session: &mut Session, shared: &Shared) {
    if let Some(watching) = session.watching.take() {
        session.client.show_watching(None);
        shared.keyspace.unwatch(*watching);
    }
}
