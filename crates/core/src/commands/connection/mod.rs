//! Commands on the connection itself: HELLO, AUTH, PING, SELECT and similar.
//!
//! Rule    HELLO applies its options one by one: an error in a later option does not undo earlier ones.
//! Source  Redis 7.0 `networking.c`, `acl.c`.

pub(crate) mod certificate;
pub(in crate::commands) mod client;
pub(in crate::commands) mod client_list;
mod filter;
pub(in crate::commands) mod tracking;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;
use redlatch_proto::log_name::LogName;
use redlatch_proto::number;
use redlatch_proto::resp::{Protocol, Request};

use crate::commands::admin::acl_check;
use crate::commands::pubsub;
use crate::commands::row::{Flags, Group, Row, block, integer, text};
use crate::commands::transaction;
use crate::commands::{Call, Outcome, Peers, Shared};
use crate::state::acl::Account;
use crate::state::acl::log::{Context, Reason};
use crate::state::audit::Author;
use crate::state::session::{Replies, Session};
use crate::state::settings;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Connection, "AUTH", "1.0.0", auth)
        .summary("Authenticates the connection.")
        .flags(EARLY.with(Flags::SECRET))
        .args(&[text("username").maybe(), text("password")]),
    Row::new(Group::Connection, "ECHO", "1.0.0", echo)
        .summary("Returns the message.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .args(&[text("message")]),
    Row::new(Group::Connection, "HELLO", "6.0.0", hello)
        .summary("Sets the protocol; may authenticate and name the connection.")
        .flags(EARLY.with(Flags::SECRET))
        .args(&[block(
            "arguments",
            &[
                integer("protover"),
                block("auth", &[text("username"), text("password")]).after("AUTH").maybe(),
                text("clientname").after("SETNAME").maybe(),
            ],
        )
        .maybe()]),
    Row::new(Group::Connection, "PING", "1.0.0", ping)
        .summary("Returns PONG, or the message.")
        .flags(Flags::FAST.with(Flags::SUBSCRIBED))
        .args(&[text("message").maybe()]),
    Row::new(Group::Connection, "QUIT", "1.0.0", quit)
        .summary("Closes the connection after the reply.")
        .flags(EARLY.with(Flags::SUBSCRIBED).with(Flags::UNQUEUED))
        .args(&[text("ignored").maybe().many()]),
    Row::new(Group::Connection, "RESET", "6.2.0", reset)
        .summary("Resets the connection to its initial state.")
        .flags(EARLY.with(Flags::SUBSCRIBED).with(Flags::UNQUEUED)),
    Row::new(Group::Connection, "SELECT", "1.0.0", select)
        .summary("Changes the database.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST))
        .args(&[integer("index")]),
];

/// The flags of commands that are allowed before authentication.
const EARLY: Flags = Flags::NOSCRIPT
    .with(Flags::LOADING)
    .with(Flags::STALE)
    .with(Flags::FAST)
    .with(Flags::NO_AUTH)
    .with(Flags::BUSY);

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const HELLO_NEEDS_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
same time";
const TOO_MANY: &str = "ERR too many wrong passwords from this address: log in outside of MULTI";
const NO_PASSWORD_SET: &str = "ERR AUTH <password> called without any password configured for the default user. \
Are you sure your configuration is correct?";

fn auth(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let first = call.args.word()?;
    let second = call.args.maybe_word();
    call.args.finish()?;

    let is_open = call.shared.access.acl.default_account().user().needs_none();
    if second.is_none() && is_open && !names_own_namespace(call, first) {
        return Err(Refusal::said(NO_PASSWORD_SET));
    }
    let (user, password) = second.map_or((&b"default"[..], first), |password| (first, password));
    authenticate(call, user, password)?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// Whether a password names the namespace that the client is in. It needs no other.
fn names_own_namespace(call: &Call<'_, '_>, password: &[u8]) -> bool {
    let (extension, client) = (call.shared.extension.as_ref(), &call.session.client);
    extension.is_some_and(|extension| extension.is_own_password(password) && extension.is_open_to(client))
}

/// The first user and password that a request shows, if it shows any. A request with too few words is refused as such.
pub(crate) fn login_of<'r>(request: Request<'r>) -> Option<(&'r [u8], &'r [u8])> {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let name = request.get(0)?;
    if is(name, "AUTH") {
        let first = request.get(1).unwrap_or_default();
        return Some(request.get(2).map_or((b"default", first), |password| (first, password)));
    }
    let at = request.words().skip(2).position(|word| is(word, "AUTH")).filter(|_| is(name, "HELLO"))?;
    let word = |behind: usize| request.get(at.saturating_add(behind)).unwrap_or_default();
    Some((word(3), word(4)))
}

fn authenticate(call: &mut Call<'_, '_>, user: &[u8], password: &[u8]) -> Result<(), Refusal> {
    if names_own_namespace(call, password) {
        call.session.enter_as(Arc::clone(call.shared.access.acl.default_account()), true);
        return Ok(());
    }
    let Some(account) = look_at((user, password), call)? else {
        call.shared.stats.metrics.denied_auth.add(1);
        let context = if call.session.is_nested { Context::Transaction } else { Context::Request };
        let name = call.args.request().word(0);
        acl_check::note(call.session, call.shared, (Reason::Auth, context), name, user);
        // Another name is not logged, because it may be a password by mistake.
        let known = call.shared.access.acl.find(user).map(|account| account.name().clone());
        tell_failed_login(call.session, call.shared, call.now, known.as_deref());
        return Err(Refusal::said(WRONG_PASSWORD));
    };
    call.session.enter_as(account, true);
    call.shared.access.audit.login(call.now, Author::of(call.session));
    Ok(())
}

/// The account that a login is for, if it is right, and not known to be wrong. It has waited for its turn, except in EXEC.
///
/// # Errors
/// [`TOO_MANY`].
fn look_at(login: (&[u8], &[u8]), call: &mut Call<'_, '_>) -> Result<Option<Arc<Account>>, Refusal> {
    let (session, shared, now) = (&mut *call.session, call.shared, call.now.lock);
    let peer = &session.client.address.peer;
    if shared.is_failed_login(peer, login) {
        if session.login_turn.is_waiting() {
            shared.end_login(session, now);
        }
        return Ok(None);
    }
    if session.is_nested && shared.delays_logins_of(peer, now) {
        shared.tell_delayed_login(peer, now);
        return Err(Refusal::said(TOO_MANY));
    }
    let account = shared.access.acl.authenticate(login.0, login.1);
    if account.is_none() {
        shared.note_failed_login(peer, login, now);
    }
    shared.end_login(session, now);
    if account.is_none() {
        session.login_turn.was_wrong();
    }
    Ok(account)
}

/// Tells the audit log and the log that a login has failed, and under which name if that may be shown.
fn tell_failed_login(session: &Session, shared: &Shared, now: Now, name: Option<&[u8]>) {
    shared.access.audit.failed_login(now, Author::of(session), name);
    if let Some(times) = shared.log_limits.failed_logins.happened(now.lock) {
        let user = name.map_or_else(|| "(unknown)".to_owned(), |name| LogName(name).to_string());
        let (client, peer) = (session.client.id, &session.client.address.peer);
        tracing::warn!(client, peer, user, times, "A login has failed");
    }
}

fn echo(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let message = call.args.word()?;

    call.reply.bulk(message);
    Ok(Outcome::Replied)
}

fn hello(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let protocol = match call.args.maybe_word().map(number::integer) {
        None => call.session.protocol,
        Some(Some(2)) => Protocol::Resp2,
        Some(Some(3)) => Protocol::Resp3,
        Some(Some(_)) => return Err(Refusal::said("NOPROTO unsupported protocol version")),
        Some(None) => {
            return Err(Refusal::said("ERR Protocol version is not an integer or out of range"));
        }
    };
    while let Some(option) = call.args.maybe_word() {
        if option.eq_ignore_ascii_case(b"AUTH") && call.args.len() >= 2 {
            let (user, password) = (call.args.word()?, call.args.word()?);
            authenticate(call, user, password)?;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && !call.args.is_empty() {
            client::rename(call.session, call.args.word()?)?;
        } else {
            return Err(Refusal::quoting("ERR Syntax error in HELLO option '", option, "'"));
        }
    }
    if !call.session.authenticated && !call.shared.access.acl.is_open() {
        return Err(Refusal::said(HELLO_NEEDS_AUTH));
    }

    set_protocol(call, protocol);

    call.reply.map(7);
    let version = call.shared.settings.get(settings::REDIS_VERSION);
    for (name, value) in [("server", "redis"), ("version", &version)] {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    call.reply.bulk(b"proto");
    call.reply.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    call.reply.bulk(b"id");
    call.reply.integer(i64::try_from(call.session.client.id).unwrap_or(i64::MAX));
    let mode = if call.shared.cluster_enabled { "cluster" } else { "standalone" };
    let is_replica = call.shared.peers.as_ref().is_some_and(Peers::is_replica);
    let role = if is_replica { "replica" } else { "master" };
    for (name, value) in [("mode", mode), ("role", role)] {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    call.reply.bulk(b"modules");
    call.reply.array(0);
    Ok(Outcome::Replied)
}

/// Sets the protocol of the connection, from this reply on.
fn set_protocol(call: &mut Call<'_, '_>, protocol: Protocol) {
    call.session.protocol = protocol;
    call.session.client.set_protocol(protocol);
    call.reply.set_protocol(protocol);
}

fn ping(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let message = call.args.maybe_word();
    if !call.args.is_empty() {
        return Err(Refusal::Arity("ping".into()));
    }

    match message {
        // A RESP2 subscriber cannot distinguish replies from messages, so this reply has the form of a message.
        _ if call.session.is_subscriber() => call.reply.bulks(&[&b"pong"[..], message.unwrap_or_default()]),
        Some(message) => call.reply.bulk(message),
        None => call.reply.status("PONG"),
    }
    Ok(Outcome::Replied)
}

fn quit(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.ok();
    Ok(Outcome::Close)
}

fn reset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    tracking::end(call.session, call.shared);
    pubsub::leave_all(call.session, call.shared);
    call.shared.monitors.leave(call.session.client.id);
    transaction::discard_all(call.session, call.shared);
    let session = &mut *call.session;
    session.replies = Replies::On;
    session.reads_replicas = false;
    session.enter_as(Arc::clone(call.shared.access.acl.default_account()), call.shared.access.acl.is_open());
    session.client.names.lock().name.clear();
    session.client.options.no_evict.store(false, Relaxed);
    session.client.options.no_touch.store(false, Relaxed);
    select_database(session, 0);
    set_protocol(call, Protocol::Resp2);

    call.reply.status("RESET");
    Ok(Outcome::Replied)
}

fn select(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let database = crate::commands::key::database::selected(call.args.word()?, call.shared)?;

    select_database(call.session, database);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn select_database(session: &mut Session, database: u16) {
    session.database = database;
    session.client.activity.database.store(database, Relaxed);
}
