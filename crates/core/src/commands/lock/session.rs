//! LOCK.SESSION: locks that end with their connection, and the push message `lock-contended`.
//!
//! Rule    the end of a connection ends the locks of its session, at once or after their delay.

use bytes::Bytes;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::{Protocol, Reply};

use super::reader::Reader;
use super::replies::maybe_bulk;
use crate::commands::help;
use crate::commands::lock::SINCE;
use crate::commands::row::{Flags, Group, Row, one_of, text, token};
use crate::commands::{Call, Outcome, Shared};
use crate::keyspace::{LockObserver, View};
use crate::locks::{Grants, LockRequest, RequestEvent, RequestOutcome};
use crate::state::clients::Client;
use crate::state::lock_sessions::{self, LockSession, SessionLock};
use crate::state::registries::Registries;
use crate::state::session::Session;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(in crate::commands) const ROWS: &[Row] =
    &[Row::container(Group::Lock, "LOCK.SESSION", SINCE, SUBCOMMANDS)
        .summary("A container for commands about the session of a connection.")];

const SUBCOMMANDS: &[Row] = &[
    Row::new(Group::Lock, "ATTACH", SINCE, attach)
        .summary("Moves a session and its locks to this connection; returns how many locks it has.")
        .flags(Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::ALL_SHARDS))
        .args(&[text("id")]),
    Row::new(Group::Lock, "CONTENDED", SINCE, contended)
        .summary("Says whether this connection is told when somebody waits for a lock of it.")
        .flags(Flags::NOSCRIPT.with(Flags::FAST))
        .args(&[one_of("told", &[token("yes", "YES"), token("no", "NO")])]),
    help::row(Group::Lock).since(SINCE),
    Row::new(Group::Lock, "ID", SINCE, id)
        .summary("Returns the id of the session of this connection, and begins one if it has none.")
        .flags(Flags::NOSCRIPT.with(Flags::FAST)),
];

/// The session of this connection; begins one if it has none.
pub(super) fn own<'s>(session: &'s mut Session, shared: &Shared) -> &'s Arc<LockSession> {
    let client = session.client.id;
    // Another connection may have taken it over.
    session.lock_session.take_if(|own| own.client() != Some(client));
    session.lock_session.get_or_insert_with(|| {
        let id = shared.random.unguessable().iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte));
        session.client.lock_session.store(id, Relaxed);
        shared.registries.lock_sessions.begin(id, client)
    })
}

/// Notes a grant in the session that it belongs to. If the connection of the session has ended, the lock ends, too.
pub(super) fn hold(
    view: &mut View<'_>,
    session: Option<&LockSession>,
    keys: &[Bytes],
    request: &LockRequest,
    token: u64,
) {
    let (Some(session), Some((_, delay_ms))) = (session, request.term.session()) else { return };
    let lock = SessionLock { owner: request.owner.clone(), token, delay_ms };
    for key in keys {
        if !session.hold(view.database(), key.clone(), lock.clone()) {
            view.locks().end_session(key, &lock, session);
        }
    }
}

/// Like [`hold`], for what a request for several locks was granted.
pub(super) fn hold_grants(
    view: &mut View<'_>,
    session: Option<&LockSession>,
    keys: &[Bytes],
    request: &LockRequest,
    grants: &Grants,
) {
    match grants {
        Grants::All(granted) => hold(view, session, keys, request, granted.token),
        Grants::Some(some) => some.iter().for_each(|(key, granted)| {
            hold(view, session, std::slice::from_ref(key), request, granted.token);
        }),
    }
}

/// The refusal of what needs a session that has ended.
pub(super) fn no_such() -> Refusal {
    Refusal::said("ERR no such session")
}

/// A connection ends: so does its session.
pub(crate) fn end(session: &mut Session, shared: &Shared) {
    let Some(own) = session.lock_session.take() else { return };
    if !shared.registries.lock_sessions.detach(&own, session.client.id) {
        return;
    }
    for (place, lock) in own.locks() {
        let now = shared.clock.now();
        shared.keyspace.end_session_lock(place, (lock, &own), now, shared.events(), &shared.registries);
    }
}

fn id(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let name = lock_sessions::name(own(call.session, call.shared).id);

    call.reply.bulk(name.as_bytes());
    Ok(Outcome::Replied)
}

fn attach(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let id = call.args.word()?;
    call.args.finish()?;
    let sessions = &call.shared.registries.lock_sessions;
    let number = std::str::from_utf8(id).ok().and_then(|id| u64::from_str_radix(id, 16).ok());
    let number = number.filter(|number| lock_sessions::name(*number).as_bytes() == id);
    let found = number.and_then(|number| sessions.get(number)).ok_or_else(no_such)?;
    let client = call.session.client.id;
    // Another connection may have taken its session over.
    call.session.lock_session.take_if(|own| own.client() != Some(client));
    if call.session.lock_session.as_ref().is_some_and(|own| own.id != found.id && !own.locks().is_empty()) {
        return Err(Refusal::said("ERR this connection already has a session with locks"));
    }

    if let Some(own) = call.session.lock_session.take().filter(|own| own.id != found.id) {
        sessions.detach(&own, client);
    }
    if let Some(former) = found.client().and_then(|former| call.shared.registries.clients.get(former)) {
        former.lock_session.store(0, Relaxed);
    }
    sessions.attach(&found, client);
    let selected = call.view.database();
    let mut count: usize = 0;
    for ((database, key), lock) in found.locks() {
        call.view.select(database);
        count =
            count.saturating_add(usize::from(call.view.locks().attach_session(&key, &lock, &found, client)));
    }
    call.view.select(selected);
    call.session.client.lock_session.store(found.id, Relaxed);
    call.session.lock_session = Some(found);

    call.reply.count(count);
    Ok(Outcome::Replied)
}

fn contended(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let is_told = call.args.take("YES");
    if !is_told && !call.args.take("NO") {
        return Err(Refusal::Syntax);
    }
    call.args.finish()?;

    call.session.client.options.tells_contended.store(is_told, Relaxed);
    if is_told {
        call.shared.keyspace.tell_contended();
    }

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// Tells the holder of a lock that somebody begins to wait for it, and who is the first that waits, with its priority, if it
/// has asked for that.
#[derive(Debug)]
pub(in crate::commands) struct Contended;

/// Holders of one lock that are told that somebody waits for it.
const HOLDERS_TOLD_MAX: usize = 100;

impl LockObserver for Contended {
    fn asked(&self, event: &RequestEvent, view: &mut View<'_>, registries: &Registries) {
        let Some(wait) = event.wait.filter(|_| event.outcome == RequestOutcome::Waits) else { return };
        for key in &event.keys {
            let mut holders = Vec::new();
            view.locks().each_holder(key, HOLDERS_TOLD_MAX, |_, client, token| holders.push((client, token)));
            let queues = view.queues();
            let first = queues.lock_waiters(key).next().filter(|first| first.wait.place < wait.place);
            let first = first.and_then(|first| first.serve.asker());
            let first = first.map(|asker| (asker.owner, asker.request.priority.level));
            let first = first.or(event.owner.as_ref().map(|owner| (owner, wait.priority)));
            for (client, token) in holders {
                if let Some(client) = registries.clients.get(client) {
                    tell_contended(&client, (key, token), first);
                }
            }
        }
    }
}

fn tell_contended(client: &Client, (key, token): (&[u8], u64), first: Option<(&Bytes, u8)>) {
    if !client.options.tells_contended.load(Relaxed) || client.protocol() != Protocol::Resp3 {
        return;
    }
    let mut message = Vec::new();
    let mut push = Reply::new(&mut message, Protocol::Resp3);
    push.push(5);
    push.bulk(b"lock-contended");
    push.bulk(key);
    push.integer(i64::try_from(token).unwrap_or(i64::MAX));
    let first = first.filter(|_| Reader::of_client(client).may_see(key));
    maybe_bulk(&mut push, first.map(|(owner, _)| &owner[..]));
    push.integer(first.map_or(0, |(_, priority)| priority.into()));
    client.deliver(&message);
}
