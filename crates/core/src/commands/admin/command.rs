//! COMMAND: the command table for clients.
//!
//! Rule    every reply is derived from rows and from `key_specs`.
//! Source  Redis 7.0 `server.c`: shapes of the replies, names and order of flags and categories.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "numbers come from our own rows, and from positions in a bounded request"
)]

use std::sync::Arc;

use redlatch_proto::error::Refusal;
use redlatch_proto::resp::{Reply, Request};

use crate::commands::admin::acl_categories::categories;
use crate::commands::admin::acl_check;
use crate::commands::help;
use crate::commands::key_specs::{self, Specification, specifications};
use crate::commands::row::{Arg, Flags, Group, Kind, Row, one_of, pattern, text};
use crate::commands::{Call, Command, EXEC, Keys, Outcome};
use crate::types::glob;

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Server, "COMMAND", "2.8.13", all)
    .summary("Returns details about all commands.")
    .flags(FLAGS)
    .subcommands(&[
        Row::new(Group::Server, "COUNT", "2.8.13", count)
            .summary("Returns how many commands there are.")
            .flags(FLAGS),
        Row::new(Group::Server, "DOCS", "7.0.0", docs)
            .summary("Returns the documents of some or all commands.")
            .flags(FLAGS)
            .args(&[text("command-name").maybe().many()]),
        Row::new(Group::Server, "GETKEYS", "2.8.13", get_keys)
            .summary("Returns the keys of a whole command.")
            .flags(FLAGS)
            .args(GETKEYS),
        Row::new(Group::Server, "GETKEYSANDFLAGS", "7.0.0", get_keys_and_flags)
            .summary("Returns the keys of a whole command, and how it uses them.")
            .flags(FLAGS)
            .args(GETKEYS),
        Row::new(Group::Server, "INFO", "2.8.13", info)
            .summary("Returns details about some or all commands.")
            .flags(FLAGS)
            .args(&[text("command-name").maybe().many()]),
        Row::new(Group::Server, "LIST", "7.0.0", list)
            .summary("Returns the names of all commands, or of those that match a filter.")
            .flags(FLAGS)
            .args(&[FILTER.maybe()]),
        help::row(Group::Server),
    ])];

const FLAGS: Flags = Flags::LOADING.with(Flags::STALE).with(Flags::LINEAR);

/// No command with keys is shorter than two words.
const GETKEYS: &[Arg] = &[text("command"), text("arg").many()];

const FILTER: Arg = one_of(
    "filterby",
    &[
        text("module-name").after("MODULE"),
        text("category").after("ACLCAT"),
        pattern("pattern").after("PATTERN"),
    ],
)
.after("FILTERBY");

fn all(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let known: Vec<_> = known(call);
    call.reply.array(known.len());
    for command in known {
        describe(&mut call.reply, command);
    }
    Ok(Outcome::Replied)
}

/// The commands that this client may know.
fn known(call: &Call<'_, '_>) -> Vec<&'static Command> {
    let is_known = is_known(call);
    call.shared.commands.commands().iter().filter(|command| is_known(command)).collect()
}

/// Whether a client may know a command.
pub(super) fn is_known<'k>(call: &Call<'_, 'k>) -> impl Fn(&Command) -> bool + use<'k> {
    let (shared, client) = (call.shared, Arc::clone(&call.session.client));
    move |command| shared.offers(command.row.group, &client)
}

fn count(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let count = known(call).len();
    call.reply.count(count);
    Ok(Outcome::Replied)
}

fn info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if call.args.is_empty() {
        return all(call);
    }

    let is_known = is_known(call);
    call.reply.array(call.args.len());
    for name in call.args.rest() {
        match call.shared.commands.find_whole(name).filter(|command| is_known(command)) {
            Some(command) => describe(&mut call.reply, command),
            None => call.reply.null(),
        }
    }
    Ok(Outcome::Replied)
}

fn docs(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let asked: Vec<&Command> = if call.args.is_empty() {
        known(call)
    } else {
        let is_known = is_known(call);
        let named = |name| call.shared.commands.find_whole(name);
        call.args.rest().filter_map(named).filter(|command| is_known(command)).collect()
    };

    call.reply.map(asked.len());
    for command in asked {
        document(&mut call.reply, command);
    }
    Ok(Outcome::Replied)
}

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let filter = if call.args.is_empty() {
        Filter::All
    } else if call.args.take("FILTERBY") {
        filter(call)?
    } else {
        return Err(Refusal::Syntax);
    };
    call.args.finish()?;

    let is_known = is_known(call);
    let names: Vec<&str> = call
        .shared
        .commands
        .all()
        .filter(|command| is_known(command) && filter.lets_through(command))
        .map(|command| command.name.as_str())
        .collect();
    call.reply.bulks(&names);
    Ok(Outcome::Replied)
}

/// The filter of COMMAND LIST.
enum Filter<'a> {
    All,
    Category(&'a [u8]),
    /// Commands of a module; there are none.
    Nothing,
    Pattern(&'a [u8]),
}

fn filter<'a>(call: &mut Call<'a, '_>) -> Result<Filter<'a>, Refusal> {
    if call.args.take("PATTERN") {
        Ok(Filter::Pattern(call.args.word()?))
    } else if call.args.take("ACLCAT") {
        Ok(Filter::Category(call.args.word()?))
    } else if call.args.take("MODULE") {
        call.args.word()?;
        Ok(Filter::Nothing)
    } else {
        Err(Refusal::Syntax)
    }
}

impl Filter<'_> {
    fn lets_through(&self, command: &Command) -> bool {
        match self {
            Self::All => true,
            Self::Category(wanted) => {
                categories(command).iter().any(|category| wanted.eq_ignore_ascii_case(category.as_bytes()))
            }
            Self::Nothing => false,
            Self::Pattern(pattern) => glob::matches_ignoring_case(pattern, command.name.as_bytes()),
        }
    }
}

fn get_keys(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (command, words) = whole_command(call)?;

    let keys: Vec<&[u8]> = key_positions(command, &words)?.into_iter().map(|at| words[at]).collect();
    call.reply.bulks(&keys);
    Ok(Outcome::Replied)
}

fn get_keys_and_flags(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (command, words) = whole_command(call)?;

    let keys = key_positions(command, &words)?;
    call.reply.array(keys.len());
    for (index, at) in keys.into_iter().enumerate() {
        call.reply.array(2);
        call.reply.bulk(words[at]);
        statuses(&mut call.reply, acl_check::uses(command, index, Request::listed(&words)));
    }
    Ok(Outcome::Replied)
}

/// The command that the arguments name, and its words.
///
/// # Errors
/// There is no such command, it has no keys, or there are too few or too many words.
fn whole_command<'a>(call: &mut Call<'a, '_>) -> Result<(&'static Command, Vec<&'a [u8]>), Refusal> {
    let words: Vec<&[u8]> = call.args.rest().collect();
    let found = words.first().and_then(|name| call.shared.commands.find(name));
    let found = match found {
        Some(container) if !container.subcommands.is_empty() => {
            words.get(1).and_then(|name| container.subcommand(name))
        }
        other => other,
    };
    let command = found.ok_or_else(|| Refusal::said("ERR Invalid command specified"))?;
    if command.keys == Keys::Nowhere {
        return Err(Refusal::said("ERR The command has no key arguments"));
    }
    if !command.fits(words.len()) {
        return Err(Refusal::said("ERR Invalid number of arguments specified for command"));
    }
    Ok((command, words))
}

/// The places of the keys. Only a script may have none.
fn key_positions(command: &Command, words: &[&[u8]]) -> Result<Vec<usize>, Refusal> {
    let found: Vec<_> = command.keys.positions_among(words.len(), |at| words.get(at).copied()).collect();
    if found.is_empty() && command.row.group != Group::Scripting {
        return Err(Refusal::said("ERR Invalid arguments specified for command"));
    }
    Ok(found)
}

/// One command as COMMAND INFO has it.
fn describe(reply: &mut Reply<'_>, command: &Command) {
    let (first, last, step) = match command.routed_by {
        Keys::Range { first, last, step } => (first, last, step),
        Keys::Counted { destination: Some(at), .. } => (at, at as i32, 1),
        Keys::Nowhere | Keys::Counted { destination: None, .. } => (0, 0, 0),
    };
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    statuses(reply, &flags(command));
    reply.count(first);
    reply.integer(i64::from(last));
    reply.count(step);
    let categories: Vec<String> = categories(command).iter().map(|name| format!("@{name}")).collect();
    statuses(reply, &categories);
    let tips = key_specs::tips(command);
    reply.set(tips.len());
    tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    let specifications = specifications(command.routed_by);
    reply.set(specifications.len());
    for (index, specification) in specifications.iter().enumerate() {
        describe_keys(*specification, reply, command, index);
    }
    reply.set(command.subcommands.len());
    command.subcommands.iter().for_each(|subcommand| describe(reply, subcommand));
}

fn statuses(reply: &mut Reply<'_>, names: &[impl AsRef<str>]) {
    reply.set(names.len());
    names.iter().for_each(|name| reply.status_bytes(name.as_ref().as_bytes()));
}

/// Flags in the order in which Redis lists them.
fn flags(command: &Command) -> Vec<&'static str> {
    let row = command.row;
    let is_counted = matches!(command.keys, Keys::Counted { .. });
    let is_script = row.flags.has(Flags::SCRIPT) || (is_counted && row.group.name() == "scripting");
    let all = [
        (row.flags.has(Flags::WRITE), "write"),
        (row.flags.has(Flags::READONLY), "readonly"),
        (row.flags.has(Flags::DENYOOM), "denyoom"),
        (row.flags.has(Flags::ADMIN), "admin"),
        (row.flags.has(Flags::PUBSUB), "pubsub"),
        (row.flags.has(Flags::NOSCRIPT), "noscript"),
        (row.flags.has(Flags::BLOCKING), "blocking"),
        (row.flags.has(Flags::LOADING), "loading"),
        (row.flags.has(Flags::STALE), "stale"),
        (is_script, "skip_monitor"),
        (row.name == EXEC, "skip_slowlog"),
        (row.flags.has(Flags::FAST), "fast"),
        (row.flags.has(Flags::NO_AUTH), "no_auth"),
        (is_counted && is_script, "no_mandatory_keys"),
        (row.flags.has(Flags::NO_ASYNC_LOADING), "no_async_loading"),
        (row.flags.has(Flags::NO_MULTI), "no_multi"),
        (is_counted, "movablekeys"),
        (row.flags.has(Flags::BUSY), "allow_busy"),
    ];
    all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect()
}

/// One key specification as COMMAND INFO has it.
fn describe_keys(specification: Specification, reply: &mut Reply<'_>, command: &Command, index: usize) {
    let notes = key_specs::notes(command);
    reply.map(3 + usize::from(notes.is_some()));
    if let Some(notes) = notes {
        reply.bulk(b"notes");
        reply.bulk(notes.as_bytes());
    }
    reply.bulk(b"flags");
    statuses(reply, key_specs::access(command, index));
    let (begin, kind, finds) = match specification {
        Specification::Range { begin, last, step } => {
            (begin, "range", [("lastkey", i64::from(last)), ("keystep", step as i64), ("limit", 0)])
        }
        Specification::Counted { begin, step } => {
            (begin, "keynum", [("keynumidx", 0), ("firstkey", 1), ("keystep", step as i64)])
        }
    };
    search(reply, "begin_search", "index", &[("index", begin as i64)]);
    search(reply, "find_keys", kind, &finds);
}

fn search(reply: &mut Reply<'_>, name: &str, kind: &str, parts: &[(&str, i64)]) {
    reply.bulk(name.as_bytes());
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(parts.len());
    for (part, value) in parts {
        reply.bulk(part.as_bytes());
        reply.integer(*value);
    }
}

/// One command as COMMAND DOCS has it: its name, and a map.
fn document(reply: &mut Reply<'_>, command: &Command) {
    let row = command.row;
    reply.bulk(command.name.as_bytes());
    reply.map(3 + usize::from(!row.args.is_empty()) + usize::from(!command.subcommands.is_empty()));
    for (field, value) in [("summary", row.summary), ("since", row.since), ("group", row.group.name())] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if !row.args.is_empty() {
        reply.bulk(b"arguments");
        arguments(reply, row.args, &mut 0);
    }
    if !command.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        command.subcommands.iter().for_each(|subcommand| document(reply, subcommand));
    }
}

/// The grammar of arguments. `keys` counts the key specifications passed so far.
fn arguments(reply: &mut Reply<'_>, args: &[Arg], keys: &mut i64) {
    reply.array(args.len());
    for arg in args {
        let (kind, inner) = kind(arg);
        let is_key = matches!(arg.kind, Kind::Key);
        let flags: Vec<&str> = [(arg.is_optional, "optional"), (arg.is_multiple, "multiple")]
            .into_iter()
            .filter(|(is_set, _)| *is_set)
            .map(|(_, flag)| flag)
            .collect();
        let fields = [is_key, arg.token.is_some(), !flags.is_empty(), inner.is_some()];
        reply.map(2 + fields.into_iter().map(usize::from).sum::<usize>());
        reply.bulk(b"name");
        reply.bulk(arg.name.as_bytes());
        reply.bulk(b"type");
        reply.bulk(kind.as_bytes());
        if is_key {
            reply.bulk(b"key_spec_index");
            reply.integer(*keys);
            *keys += 1;
        }
        if let Some(token) = arg.token {
            reply.bulk(b"token");
            reply.bulk(token.as_bytes());
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            statuses(reply, &flags);
        }
        if let Some(inner) = inner {
            reply.bulk(b"arguments");
            arguments(reply, inner, keys);
        }
    }
}

/// The name of an argument's kind in COMMAND DOCS, and the arguments inside it.
fn kind(arg: &Arg) -> (&'static str, Option<&'static [Arg]>) {
    match arg.kind {
        Kind::Block(inner) => ("block", Some(inner)),
        Kind::OneOf(inner) => ("oneof", Some(inner)),
        Kind::Double => ("double", None),
        Kind::Integer | Kind::KeyCount => ("integer", None),
        Kind::Key => ("key", None),
        Kind::Channel { is_pattern: true } | Kind::Pattern => ("pattern", None),
        Kind::Channel { is_pattern: false } | Kind::Text => ("string", None),
        Kind::Token => ("pure-token", None),
        Kind::UnixTime => ("unix-time", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    #[test]
    fn every_command_is_fast_or_slow_and_has_a_description() {
        for command in table().all() {
            let categories = categories(command);
            assert!(categories.contains(&"fast") != categories.contains(&"slow"), "{}", command.name);
            let mut out = Vec::new();
            describe(&mut Reply::new(&mut out, redlatch_proto::resp::Protocol::Resp3), command);
            assert!(out.starts_with(b"*10\r\n"), "{}", command.name);
            assert!(
                std::ptr::eq(table().find_whole(command.name.as_bytes()).unwrap(), command),
                "{}",
                command.name
            );
        }
    }

    #[test]
    fn a_single_key_has_one_specification() {
        let set = table().find_whole(b"set").unwrap();
        assert_eq!(specifications(set.keys), [Specification::Range { begin: 1, last: 0, step: 1 }]);
        let words: Vec<&[u8]> = vec![b"set", b"k", b"v"];
        assert_eq!(key_positions(set, &words).unwrap(), [1]);
    }
}
