//! The connection itself: HELLO, AUTH, PING, SELECT and their kind.
//!
//! Source  Redis 7.0 `networking.c`, `acl.c`: there is one user, `default`, whose password is `requirepass`.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use super::row::{Flags, Group, Row, block, integer, text};
use super::{Args, Call, Outcome, VERSION};
use crate::error::Refusal;
use crate::number;
use crate::resp::Protocol;
use crate::state::session::{Replies, Session};

/// What commands about the connection have in common.
const EARLY: Flags =
    Flags::FAST.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::NO_AUTH);

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "AUTH",
        summary: "Shows the password.",
        since: "1.0.0",
        flags: EARLY.with(Flags::SECRET).with(Flags::UNPAUSED),
        args: &[text("username").maybe(), text("password")],
        run: auth,
        ..ROW
    },
    Row {
        name: "ECHO",
        summary: "Returns what it is given.",
        since: "1.0.0",
        flags: Flags::FAST.with(Flags::LOADING).with(Flags::STALE),
        args: &[text("message")],
        run: echo,
        ..ROW
    },
    Row {
        name: "HELLO",
        summary: "Introduces client and server to each other, and chooses the protocol.",
        since: "6.0.0",
        flags: EARLY.with(Flags::SECRET).with(Flags::UNPAUSED),
        args: &[block(
            "arguments",
            &[
                integer("protover"),
                block("auth", &[text("username"), text("password")]).after("AUTH").maybe(),
                text("clientname").after("SETNAME").maybe(),
            ],
        )
        .maybe()],
        run: hello,
        ..ROW
    },
    Row {
        name: "PING",
        summary: "Tells that the server is there.",
        since: "1.0.0",
        flags: Flags::FAST.with(Flags::SUBSCRIBED).with(Flags::LOADING).with(Flags::STALE),
        args: &[text("message").maybe()],
        run: ping,
        ..ROW
    },
    Row {
        name: "QUIT",
        summary: "Ends the connection.",
        since: "1.0.0",
        flags: EARLY.with(Flags::SUBSCRIBED).with(Flags::UNPAUSED),
        args: &[text("ignored").maybe().many()],
        run: quit,
        ..ROW
    },
    Row {
        name: "RESET",
        summary: "Brings the connection back to how it began.",
        since: "6.2.0",
        flags: EARLY.with(Flags::SUBSCRIBED).with(Flags::UNPAUSED),
        run: reset,
        ..ROW
    },
    Row {
        name: "SELECT",
        summary: "Chooses the database of the commands that follow.",
        since: "1.0.0",
        flags: Flags::FAST.with(Flags::LOADING).with(Flags::STALE),
        args: &[integer("index")],
        run: select,
        ..ROW
    },
];

const ROW: Row = Row {
    name: "",
    summary: "",
    since: "1.0.0",
    group: Group::Connection,
    flags: Flags::NONE,
    args: &[],
    subcommands: &[],
    run: ping,
};

fn ping(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let message = call.args.maybe_word();
    if !call.args.is_empty() {
        return Err(Refusal::Arity("ping".into()));
    }

    if call.session.is_subscriber() {
        call.reply.array(2);
        call.reply.bulk(b"pong");
        call.reply.bulk(message.unwrap_or_default());
    } else {
        match message {
            Some(message) => call.reply.bulk(message),
            None => call.reply.status("PONG"),
        }
    }
    Ok(Outcome::Replied)
}

fn echo(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let message = call.args.word()?;
    call.args.finish()?;

    call.reply.bulk(message);
    Ok(Outcome::Replied)
}

fn quit(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.ok();
    Ok(Outcome::Close)
}

fn select(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let index = call.args.integer()?;
    call.args.finish()?;

    let databases = call.shared.keyspace.databases();
    let index = u16::try_from(index).ok().filter(|index| *index < databases).ok_or(Refusal::DatabaseRange)?;
    choose(call.session, index);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn choose(session: &mut Session, database: u16) {
    session.database = database;
    session.client.database.store(database, Relaxed);
}

fn reset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    super::pubsub::leave_all(call.session, call.shared);
    let session = &mut *call.session;
    choose(session, 0);
    session.protocol = Protocol::Resp2;
    session.client.set_protocol(Protocol::Resp2);
    session.replies = Replies::On;
    session.authenticated = !call.shared.settings.needs_password();
    session.client.names.lock().name.clear();
    session.client.no_evict.store(false, Relaxed);
    session.client.no_touch.store(false, Relaxed);

    call.reply.set_protocol(Protocol::Resp2);
    call.reply.status("RESET");
    Ok(Outcome::Replied)
}

fn auth(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let first = call.args.word()?;
    let second = call.args.maybe_word();
    call.args.finish()?;

    let (user, password) = match second {
        Some(password) => (first, password),
        None if !call.shared.settings.needs_password() => {
            return Err(Refusal::said(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        None => (DEFAULT_USER, first),
    };
    authenticate(call, user, password)?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

const DEFAULT_USER: &[u8] = b"default";

/// The default user needs no password where none is set, as in Redis: any will do.
fn authenticate(call: &mut Call<'_, '_>, user: &[u8], password: &[u8]) -> Result<(), Refusal> {
    let wanted = call.shared.settings.text("requirepass");
    let knows = wanted.is_empty() || same(wanted.as_bytes(), password);
    if user != DEFAULT_USER || !knows {
        return Err(Refusal::said("WRONGPASS invalid username-password pair or user is disabled."));
    }
    call.session.authenticated = true;
    Ok(())
}

/// Compares in time that tells nothing but the lengths.
fn same(wanted: &[u8], given: &[u8]) -> bool {
    let differing = wanted.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(differing) == 0 && wanted.len() == given.len()
}

fn hello(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let protocol = match call.args.maybe_word().map(number::integer) {
        None => None,
        Some(None) => return Err(Refusal::said("ERR Protocol version is not an integer or out of range")),
        Some(Some(2)) => Some(Protocol::Resp2),
        Some(Some(3)) => Some(Protocol::Resp3),
        Some(Some(_)) => return Err(Refusal::said("NOPROTO unsupported protocol version")),
    };
    while let Some(option) = call.args.maybe_word() {
        hello_option(call, option)?;
    }
    if !call.session.authenticated {
        return Err(Refusal::said(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(protocol) = protocol {
        call.session.protocol = protocol;
        call.session.client.set_protocol(protocol);
        call.reply.set_protocol(protocol);
    }

    introduce(call);
    Ok(Outcome::Replied)
}

/// One option, carried out where it stands: what a later one spoils stays done, as in Redis.
fn hello_option(call: &mut Call<'_, '_>, option: &[u8]) -> Result<(), Refusal> {
    if option.eq_ignore_ascii_case(b"AUTH") && call.args.len() >= 2 {
        let (user, password) = (call.args.word()?, call.args.word()?);
        return authenticate(call, user, password);
    }
    if option.eq_ignore_ascii_case(b"SETNAME") && !call.args.is_empty() {
        call.session.client.names.lock().name = client_name(&mut call.args)?;
        return Ok(());
    }
    let option = String::from_utf8_lossy(option);
    Err(Refusal::said(format!("ERR Syntax error in HELLO option '{option}'")))
}

fn introduce(call: &mut Call<'_, '_>) {
    let protocol = if call.session.protocol == Protocol::Resp3 { 3 } else { 2 };
    let reply = &mut call.reply;
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(protocol);
    reply.bulk(b"id");
    reply.integer(call.session.client.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}

/// A name that a client gives itself: printable, without spaces, so that CLIENT LIST stays readable.
///
/// # Errors
/// Redis' words for a name that is not.
pub(super) fn client_name(args: &mut Args<'_>) -> Result<String, Refusal> {
    printable(args.word()?).ok_or(Refusal::Said(Cow::Borrowed(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    )))
}

/// The text of printable ASCII characters without spaces; `None` if there is anything else in it.
pub(super) fn printable(bytes: &[u8]) -> Option<String> {
    let fits = bytes.iter().all(u8::is_ascii_graphic);
    fits.then(|| bytes.iter().map(|byte| char::from(*byte)).collect())
}
