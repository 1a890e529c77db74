//! The permissions that a request needs, and the refusals of requests without them.
//!
//! Owns    the command table as the ACL sees it, and the text of every refusal.
//! Rule    called only for users whose permissions are limited; it may allocate.
//! Source  Redis 7.0 `acl.c`, `script.c`, `multi.c`.

#![allow(clippy::arithmetic_side_effects, reason = "of rows, which are our own, and places in a request")]

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Request;

use crate::commands::admin::acl_categories;
use crate::commands::connection::client_list;
use crate::commands::key_specs::{self, specifications};
use crate::commands::row::Kind;
use crate::commands::table::{Table, table};
use crate::commands::{Command, Shared};
use crate::state::acl::User;
use crate::state::acl::log::{Context, Entry, Reason, kept};
use crate::state::acl::{Access, Asked, Catalog, Denied};
use crate::state::session::Session;
use crate::state::settings;

impl Catalog for Table {
    fn total(&self) -> u16 {
        u16::try_from(Table::total(self)).unwrap_or(u16::MAX)
    }

    fn command(&self, name: &[u8]) -> Option<Range<u16>> {
        self.find_whole(name).map(numbers)
    }

    fn category(&self, name: &[u8]) -> Option<Vec<u16>> {
        let name =
            acl_categories::NAMES.into_iter().find(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
        let members = self.all().filter(|command| acl_categories::is_in(command, name));
        Some(members.flat_map(numbers).collect())
    }
}

/// Its own number and those of its subcommands.
fn numbers(command: &Command) -> Range<u16> {
    command.index..command.index + 1 + command.subcommands.len() as u16
}

/// What the ACL checks of `request`: its command, keys and channels.
pub(in crate::commands) fn asked<'r>(command: &Command, request: Request<'r>) -> Asked<'r> {
    let keys = command.positions(request).enumerate();
    let keys = keys.map(|(index, at)| {
        let uses = uses(command, index, request);
        let writes = uses.iter().any(|word| ["insert", "update", "delete"].contains(word));
        (at, request.word(at), Access { reads: uses.contains(&"access"), writes })
    });
    let channels =
        channels(command).into_iter().flat_map(|(range, _)| range.start..range.end.min(request.len()));
    Asked {
        command: command.index,
        is_free: command.row.flags.has(crate::commands::row::Flags::NO_AUTH),
        first: request.get(1),
        keys: keys.collect(),
        channels: channels.map(|at| (at, request.word(at))).collect(),
        is_pattern: channels_are_patterns(command),
    }
}

/// True if a user may send a request of these words, if there is such a command.
pub(in crate::commands) fn may_send(user: &User, words: &[&[u8]]) -> bool {
    let Some(mut command) = words.first().and_then(|name| table().find(name)) else { return false };
    if let Some(subcommand) = words.get(1).and_then(|name| command.subcommand(name)) {
        command = subcommand;
    }
    user.check(&asked(command, Request::listed(words))).is_ok()
}

/// The flags of COMMAND GETKEYSANDFLAGS for the `index`-th key of `request`.
pub(in crate::commands) fn uses(
    command: &Command,
    index: usize,
    request: Request<'_>,
) -> &'static [&'static str] {
    let last = specifications(command.keys).len().saturating_sub(1);
    match key_specs::access(command, index.min(last)) {
        uses if !uses.contains(&"variable_flags") => uses,
        _ if request.words().skip(3).any(|word| word.eq_ignore_ascii_case(b"GET")) => {
            &["RW", "access", "update"]
        }
        _ => &["OW", "update"],
    }
}

/// The places of the channels that the ACL checks. Unsubscribing needs no permission.
fn channels(command: &Command) -> Option<(Range<usize>, bool)> {
    let first = command.row.args.first()?;
    match first.kind {
        Kind::Channel { is_pattern } => Some((1..if first.is_multiple { usize::MAX } else { 2 }, is_pattern)),
        _ => None,
    }
}

fn channels_are_patterns(command: &Command) -> bool {
    channels(command).is_some_and(|(_, is_pattern)| is_pattern)
}

/// Checks whether the session's user may send this request.
///
/// # Errors
/// NOPERM, with Redis' text.
#[cold]
pub(crate) fn check(
    session: &Session,
    shared: &Shared,
    command: &'static Command,
    request: Request<'_>,
) -> Result<(), Refusal> {
    session.client.activity.last_command.store(command.index, Relaxed);
    let context = if session.transaction.is_some() { Context::Transaction } else { Context::Request };
    check_and_log(session, shared, command, request, context).map_err(|denied| {
        Refusal::said(match denied {
            Denied::Command => {
                let name = &command.name;
                return Refusal::said(format!(
                    "NOPERM this user has no permissions to run the '{name}' command"
                ));
            }
            Denied::Key(_) => {
                "NOPERM this user has no permissions to access one of the keys used as arguments"
            }
            Denied::Channel(_) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments"
            }
        })
    })
}

/// Checks again, inside EXEC, whether the session's user may execute this request.
///
/// # Errors
/// NOPERM, with Redis' text.
#[cold]
pub(crate) fn check_in_exec(
    session: &Session,
    shared: &Shared,
    command: &'static Command,
    request: Request<'_>,
) -> Result<(), Refusal> {
    check_and_log(session, shared, command, request, Context::Transaction).map_err(|denied| {
        let reason = match denied {
            Denied::Command => "no permission to execute the command or subcommand",
            Denied::Key(_) => "no permission to touch the specified keys",
            Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        Refusal::said(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
             command is no longer allowed for the following reason: {reason}"
        ))
    })
}

/// Checks whether a script of the session's user may call this command.
///
/// # Errors
/// The error of `redis.call`.
#[cold]
pub(in crate::commands) fn check_in_script(
    session: &Session,
    shared: &Shared,
    command: &'static Command,
    request: Request<'_>,
) -> Result<(), Refusal> {
    check_and_log(session, shared, command, request, Context::Script).map_err(|denied| {
        Refusal::said(match denied {
            Denied::Command => "ERR The user executing the script can't run this command or subcommand",
            Denied::Key(_) => {
                "ERR The user executing the script can't access at least one of the keys mentioned in the command \
                 arguments"
            }
            Denied::Channel(_) => {
                "ERR The user executing the script can't publish to the channel mentioned in the command"
            }
        })
    })
}

fn check_and_log(
    session: &Session,
    shared: &Shared,
    command: &'static Command,
    request: Request<'_>,
    context: Context,
) -> Result<(), Denied> {
    let result = session.account.user().check(&asked(command, request));
    if let Err(denied) = result {
        let metrics = &shared.stats.metrics;
        let (reason, object, counter) = match denied {
            Denied::Command => (Reason::Command, command.name.as_bytes(), &metrics.denied_command),
            Denied::Key(at) => (Reason::Key, request.word(at), &metrics.denied_key),
            Denied::Channel(at) => (Reason::Channel, request.word(at), &metrics.denied_channel),
        };
        counter.add(1);
        note(session, shared, (reason, context), object, session.account.name());
    }
    result
}

/// Adds a refusal to ACL LOG.
pub(in crate::commands) fn note(
    session: &Session,
    shared: &Shared,
    (reason, context): (Reason, Context),
    object: &[u8],
    username: &[u8],
) {
    let now = shared.clock.now().lock;
    let unix_ms = shared.clock.wall_micros() / 1000;
    let client = client_list::about(&session.client, shared, now, (0, None));
    let entry = Entry {
        id: 0,
        count: 1,
        reason,
        context,
        object: kept(object),
        username: kept(username),
        client: client.trim_end().to_owned(),
        created_unix_ms: unix_ms,
        updated_unix_ms: unix_ms,
        updated: now,
    };
    shared.access.acl.log.push(entry, shared.settings.get(settings::ACLLOG_MAX_LEN));
}
