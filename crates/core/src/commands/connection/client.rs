//! CLIENT: facts about connections, and how to name, pause and end them.
//!
//! Source  Redis 7.0 `networking.c`; SETINFO and NO-TOUCH of Redis 7.2, which clients send at the start.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;
use redlatch_proto::number;

use crate::commands::connection::client_list;
use crate::commands::connection::filter::{FILTERS, Filter, Form};
use crate::commands::connection::tracking;
use crate::commands::help;
use crate::commands::row::{Arg, Flags, Group, Row, integer, one_of, text, token};
use crate::commands::{Call, Outcome};
use crate::state::clients::{Client, ClientId};
use crate::state::session::{Replies, Session};

pub(in crate::commands) const ROWS: &[Row] =
    &[Row::container(Group::Connection, "CLIENT", "2.4.0", SUBCOMMANDS)
        .summary("A container for commands about connections.")];

const SUBCOMMANDS: &[Row] = &[
    Row::new(Group::Connection, "CACHING", "6.0.0", tracking::caching)
        .summary("Sets whether the keys of the next command are tracked.")
        .flags(FLAGS)
        .args(&[one_of("mode", &[token("yes", "YES"), token("no", "NO")])]),
    Row::new(Group::Connection, "GETNAME", "2.6.9", get_name)
        .summary("Returns the name of the connection.")
        .flags(FLAGS),
    Row::new(Group::Connection, "GETREDIR", "6.0.0", tracking::get_redirect)
        .summary("Returns the id of the client that gets the invalidations of this one.")
        .flags(FLAGS),
    help::row(Group::Connection),
    Row::new(Group::Connection, "ID", "5.0.0", id).summary("Returns the id of the connection.").flags(FLAGS),
    Row::new(Group::Connection, "INFO", "6.2.0", client_list::info)
        .summary("Describes the connection.")
        .flags(FLAGS),
    Row::new(Group::Connection, "KILL", "2.4.0", kill)
        .summary("Ends the connections that match the filters.")
        .flags(ADMIN)
        .args(&[KILL]),
    Row::new(Group::Connection, "LIST", "2.4.0", client_list::list)
        .summary("Describes all or some connections.")
        .flags(ADMIN)
        .args(FILTERS),
    Row::new(Group::Connection, "NO-EVICT", "7.0.0", no_evict)
        .summary(
            "Sets whether the connection is protected from eviction. Connections are never evicted here.",
        )
        .flags(ADMIN)
        .args(&[SWITCH]),
    Row::new(Group::Connection, "NO-TOUCH", "7.2.0", no_touch)
        .summary("Sets whether commands of the connection mark their keys as used.")
        .flags(FLAGS.with(Flags::BUSY))
        .args(&[SWITCH]),
    Row::new(Group::Connection, "PAUSE", "2.9.50", pause)
        .summary("Delays all commands, or those that may write, for so many milliseconds.")
        .flags(ADMIN)
        .args(&[integer("timeout"), one_of("mode", &[token("write", "WRITE"), token("all", "ALL")]).maybe()]),
    Row::new(Group::Connection, "REPLY", "3.2.0", reply)
        .summary("Sets whether the connection gets replies.")
        .flags(FLAGS)
        .args(&[one_of("on-off-skip", &[token("on", "ON"), token("off", "OFF"), token("skip", "SKIP")])]),
    Row::new(Group::Connection, "SETINFO", "7.2.0", set_info)
        .summary("Names the library behind the connection.")
        .flags(FLAGS.with(Flags::BUSY))
        .args(&[one_of("attr", &[text("libname").after("LIB-NAME"), text("libver").after("LIB-VER")])]),
    Row::new(Group::Connection, "SETNAME", "2.6.9", set_name)
        .summary("Names the connection.")
        .flags(FLAGS)
        .args(&[text("connection-name")]),
    Row::new(Group::Connection, "TRACKING", "6.0.0", tracking::tracking)
        .summary("Turns invalidations for the values that the connection reads on or off.")
        .flags(FLAGS)
        .args(tracking::TRACKING),
    Row::new(Group::Connection, "TRACKINGINFO", "6.2.0", tracking::tracking_info)
        .summary("Returns how the connection tracks its reads.")
        .flags(FLAGS),
    Row::new(Group::Connection, "UNBLOCK", "5.0.0", unblock)
        .summary("Ends the wait of a call of another connection.")
        .flags(ADMIN)
        .args(&[
            integer("client-id"),
            one_of("timeout-error", &[token("timeout", "TIMEOUT"), token("error", "ERROR")]).maybe(),
        ]),
    Row::new(Group::Connection, "UNPAUSE", "6.2.0", unpause)
        .summary("Ends CLIENT PAUSE.")
        .flags(ADMIN.with(Flags::UNPAUSED)),
];

const FLAGS: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);

const ADMIN: Flags =
    Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::DANGEROUS);

const SWITCH: Arg = one_of("enabled", &[token("on", "ON"), token("off", "OFF")]);
const KILL: Arg = one_of("filter", &[text("ip:port"), one_of("new-format", FILTERS).many()]);

fn id(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.integer(i64::try_from(call.session.client.id).unwrap_or(i64::MAX));
    Ok(Outcome::Replied)
}

fn get_name(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let names = call.session.client.names.lock();
    match names.name.as_str() {
        "" => call.reply.null(),
        name => call.reply.bulk(name.as_bytes()),
    }
    Ok(Outcome::Replied)
}

fn set_name(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    rename(call.session, name)?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// CLIENT SETNAME and HELLO SETNAME.
///
/// # Errors
/// `name` is too long or has characters other than printable ASCII.
pub(in crate::commands) fn rename(session: &Session, name: &[u8]) -> Result<(), Refusal> {
    let name = printable(short(name)?)
        .ok_or(Refusal::said("ERR Client names cannot contain spaces, newlines or special characters."))?;
    session.client.names.lock().name = name;
    Ok(())
}

/// Bytes of a name, which logs and histories copy. Redis has no such bound.
const NAME_BYTES_MAX: usize = 1024;

/// The word, if it is short enough for a name.
fn short(word: &[u8]) -> Result<&[u8], Refusal> {
    let long = || Refusal::said(format!("ERR a client's name has at most {NAME_BYTES_MAX} bytes"));
    (word.len() <= NAME_BYTES_MAX).then_some(word).ok_or_else(long)
}

/// The word as text, if it is printable ASCII without spaces, which separate the fields of CLIENT LIST.
fn printable(word: &[u8]) -> Option<String> {
    word.iter().all(u8::is_ascii_graphic).then(|| word.iter().copied().map(char::from).collect())
}

fn set_info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let attribute = call.args.word()?;
    let value = call.args.word()?;
    let is_name = attribute.eq_ignore_ascii_case(b"LIB-NAME");
    if !is_name && !attribute.eq_ignore_ascii_case(b"LIB-VER") {
        return Err(Refusal::quoting("ERR Unrecognized option '", attribute, "'"));
    }
    let value = printable(short(value)?).ok_or_else(|| {
        Refusal::quoting("ERR ", attribute, " cannot contain spaces, newlines or special characters.")
    })?;

    let mut names = call.session.client.names.lock();
    *(if is_name { &mut names.library } else { &mut names.library_version }) = value;

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn kill(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let is_old_form = call.args.len() == 1;
    let filter = match is_old_form {
        true => Filter::of_peer(call.args.word()?),
        false => Filter::parse(call, Form::Kill)?,
    };

    let found = filter.find(call);
    let own = call.session.client.id;
    let mut outcome = Outcome::Replied;
    for client in &found {
        if client.id == own {
            outcome = Outcome::Close;
        } else {
            client.cut("CLIENT KILL");
        }
    }

    match (is_old_form, found.len()) {
        (true, 0) => return Err(Refusal::said("ERR No such client")),
        (true, _) => call.reply.ok(),
        (false, killed) => call.reply.count(killed),
    }
    Ok(outcome)
}

fn no_evict(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    switch(call, |client| &client.options.no_evict)
}

fn no_touch(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    switch(call, |client| &client.options.no_touch)
}

fn switch(call: &mut Call<'_, '_>, flag: fn(&Client) -> &AtomicBool) -> Result<Outcome, Refusal> {
    let is_on = call.args.take("ON");
    if !is_on && !call.args.take("OFF") {
        return Err(Refusal::Syntax);
    }
    call.args.finish()?;

    flag(&call.session.client).store(is_on, Relaxed);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn reply(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let word = call.args.word()?;

    match word.to_ascii_lowercase().as_slice() {
        b"on" => {
            call.session.replies = Replies::On;
            call.reply.ok();
        }
        b"off" => call.session.replies = Replies::Off,
        b"skip" if call.session.replies == Replies::Off => {}
        b"skip" => call.session.replies = Replies::SkipNext,
        _ => return Err(Refusal::Syntax),
    }
    Ok(Outcome::Replied)
}

fn pause(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let timeout = call.args.word()?;
    let mode = call.args.maybe_word();
    if !call.args.is_empty() {
        return Err(Refusal::subcommand_syntax("CLIENT", call.args.request().word(1)));
    }
    let writes_only = match mode {
        Some(mode) if mode.eq_ignore_ascii_case(b"WRITE") => true,
        Some(mode) if !mode.eq_ignore_ascii_case(b"ALL") => {
            return Err(Refusal::said("ERR CLIENT PAUSE mode must be WRITE or ALL"));
        }
        _ => false,
    };
    let millis = number::integer(timeout)
        .ok_or(Refusal::said("ERR timeout is not an integer or out of range"))
        .and_then(|millis| u64::try_from(millis).map_err(|_| Refusal::said("ERR timeout is negative")))?;

    let now = call.now.lock;
    let until = LockTime::from_millis(now.as_millis().saturating_add(millis));
    call.shared.pause.begin(until, writes_only, now);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn unblock(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let id = call.args.word()?;
    let error = match call.args.maybe_word() {
        None => None,
        Some(_) if !call.args.is_empty() => {
            return Err(Refusal::subcommand_syntax("CLIENT", call.args.request().word(1)));
        }
        Some(reason) if reason.eq_ignore_ascii_case(b"TIMEOUT") => None,
        Some(reason) if reason.eq_ignore_ascii_case(b"ERROR") => {
            Some("UNBLOCKED client unblocked via CLIENT UNBLOCK")
        }
        Some(_) => return Err(Refusal::said("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = number::integer(id).ok_or(Refusal::NotAnInteger)?;

    let target = ClientId::try_from(id).ok().and_then(|id| call.shared.registries.clients.get(id));
    let is_unblocked = target.is_some_and(|client| client.unblock(error));

    call.reply.integer(i64::from(is_unblocked));
    Ok(Outcome::Replied)
}

fn unpause(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.shared.pause.end();
    for client in call.shared.registries.clients.all() {
        client.wake();
    }

    call.reply.ok();
    Ok(Outcome::Replied)
}
