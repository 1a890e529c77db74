//! ACL: users and their permissions.
//!
//! Rule    a request applies all its rules or none, and to all sessions of the user at once. Sessions that lose their
//!         user, or a channel that they are subscribed to, are ended.
//! Source  Redis 7.0 `acl.c`; rules for commands are shown as Redis 7.2 and Valkey show them.

use redlatch_proto::error::Refusal;

use crate::commands::admin::acl_categories;
use crate::commands::admin::acl_check;
use crate::commands::admin::acl_file;
use crate::commands::admin::acl_log;
use crate::commands::admin::acl_sessions::{end_listeners, end_sessions};
use crate::commands::admin::command::is_known;
use crate::commands::help;
use crate::commands::row::{Flags, Group, Row, integer, one_of, text, token};
use crate::commands::{Call, Outcome};
use crate::state::acl::selector::Selector;
use crate::state::acl::{DEFAULT, Denied, SetError};

pub(in crate::commands) const ROWS: &[Row] = &[Row::container(Group::Server, "ACL", "6.0.0", SUBCOMMANDS)
    .summary("A container for commands about users and what they may do.")];

const SUBCOMMANDS: &[Row] = &[
    Row::new(Group::Server, "CAT", "6.0.0", cat)
        .summary("Lists the categories of commands, or the commands of one.")
        .flags(OPEN)
        .args(&[text("category").maybe()]),
    Row::new(Group::Server, "DELUSER", "6.0.0", deluser)
        .summary("Removes users and ends their connections; returns the number of users.")
        .flags(ADMIN)
        .args(&[text("username").many()]),
    Row::new(Group::Server, "DRYRUN", "7.0.0", dryrun)
        .summary("Returns whether a user may send a command, without executing it.")
        .flags(ADMIN)
        .args(&[text("username"), text("command"), text("arg").maybe().many()]),
    Row::new(Group::Server, "GENPASS", "6.0.0", acl_log::genpass)
        .summary("Returns a random password of so many bits.")
        .flags(OPEN)
        .args(&[integer("bits").maybe()]),
    Row::new(Group::Server, "GETUSER", "6.0.0", getuser)
        .summary("Returns the permissions of a user.")
        .flags(ADMIN)
        .args(&[text("username")]),
    help::row(Group::Server).since("6.0.0"),
    Row::new(Group::Server, "LIST", "6.0.0", list)
        .summary("Returns all users as lines of an ACL file.")
        .flags(ADMIN),
    Row::new(Group::Server, "LOAD", "6.0.0", acl_file::load)
        .summary("Replaces all users by those of the ACL file, or changes nothing if a line is wrong.")
        .flags(ADMIN.with(Flags::OFFLOAD)),
    Row::new(Group::Server, "LOG", "6.0.0", acl_log::log)
        .summary("Returns the latest denials, or clears them.")
        .flags(ADMIN)
        .args(&[one_of("operation", &[integer("count"), token("reset", "RESET")]).maybe()]),
    Row::new(Group::Server, "SAVE", "6.0.0", acl_file::save)
        .summary("Writes all users to the ACL file.")
        .flags(ADMIN.with(Flags::OFFLOAD)),
    Row::new(Group::Server, "SETUSER", "6.0.0", setuser)
        .summary("Creates or changes a user; applies all rules or none.")
        .flags(ADMIN)
        .args(&[text("username"), text("rule").maybe().many()]),
    Row::new(Group::Server, "USERS", "6.0.0", users).summary("Returns the names of all users.").flags(ADMIN),
    Row::new(Group::Server, "WHOAMI", "6.0.0", whoami)
        .summary("Returns the name of the connection's user.")
        .flags(OPEN),
];

const ADMIN: Flags = OPEN.with(Flags::ADMIN);

const OPEN: Flags = Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE);

fn whoami(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.bulk(call.session.account.name());
    Ok(Outcome::Replied)
}

fn users(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let names: Vec<_> = call.shared.access.acl.all().iter().map(|account| account.name().clone()).collect();
    call.reply.bulks(&names);
    Ok(Outcome::Replied)
}

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.bulks(&crate::state::acl::file::lines(&call.shared.access.acl));
    Ok(Outcome::Replied)
}

fn cat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let category = call.args.maybe_word();
    if !call.args.is_empty() {
        return Err(Refusal::subcommand_syntax("ACL", call.args.request().word(1)));
    }
    let Some(category) = category else {
        call.reply.bulks(&acl_categories::NAMES);
        return Ok(Outcome::Replied);
    };
    let known = acl_categories::NAMES.into_iter().find(|name| category.eq_ignore_ascii_case(name.as_bytes()));
    let known = known.ok_or_else(|| Refusal::quoting("ERR Unknown category '", category, "'"))?;

    let is_known = is_known(call);
    let members = call.shared.commands.all().filter(|command| is_known(command));
    let members = members.filter(|command| acl_categories::is_in(command, known));
    // A container is not a command of its own.
    let members =
        members.filter(|command| command.subcommands.is_empty() || command.row.flags != Flags::NONE);
    call.reply.bulks(&members.map(|command| command.name.as_str()).collect::<Vec<_>>());
    Ok(Outcome::Replied)
}

fn setuser(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let rules: Vec<&[u8]> = call.args.rest().collect();

    let changed = call.shared.access.acl.set(name, rules.iter().copied(), call.shared.acl_terms());
    let account = changed.map_err(|error| refused(&error))?;
    call.audit("acl-setuser", |line| {
        line.text("name", name);
        line.list("rules", rules.into_iter().map(without_password));
    });
    let is_own = end_listeners(call.shared, &account, call.session.client.id);

    call.reply.ok();
    Ok(if is_own { Outcome::Close } else { Outcome::Replied })
}

/// A rule as a log shows it: of a password, or its hash, the sign before it.
fn without_password(rule: &[u8]) -> Vec<u8> {
    match rule.first() {
        Some(sign @ (b'>' | b'<' | b'#' | b'!')) => [&[*sign][..], b"(hidden)"].concat(),
        _ => rule.to_vec(),
    }
}

fn refused(error: &SetError) -> Refusal {
    match error {
        SetError::Name => Refusal::said("ERR Usernames can't contain spaces or null characters"),
        SetError::Users => Refusal::said("ERR There are too many users"),
        SetError::Parenthesis(word) => {
            Refusal::quoting("ERR Unmatched parenthesis in acl selector starting at '", word, "'.")
        }
        SetError::Rule(rule, error) => {
            Refusal::quoting("ERR Error in ACL SETUSER modifier '", rule, &format!("': {error}"))
        }
    }
}

fn deluser(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let names: Vec<&[u8]> = call.args.rest().collect();
    if names.contains(&DEFAULT) {
        return Err(Refusal::said("ERR The 'default' user cannot be removed"));
    }

    let gone: Vec<_> = names
        .into_iter()
        .filter_map(|name| call.shared.access.acl.remove(name, call.shared.acl_terms()))
        .collect();
    call.audit("acl-deluser", |line| line.list("names", gone.iter().map(|account| account.name())));
    let is_own = end_sessions(call.shared, &gone, call.session.client.id);

    call.reply.count(gone.len());
    Ok(if is_own { Outcome::Close } else { Outcome::Replied })
}

fn getuser(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let Some(account) = call.shared.access.acl.find(name) else {
        call.reply.null();
        return Ok(Outcome::Replied);
    };
    let user = account.user();
    let mut selectors = user.selectors();
    let priority_max = user.priority_max();
    call.reply.map(if priority_max.is_some() { 7 } else { 6 });
    call.reply.bulk(b"flags");
    let flags = user.flags();
    call.reply.set(flags.len());
    flags.iter().for_each(|flag| call.reply.bulk(flag.as_bytes()));
    call.reply.bulk(b"passwords");
    call.reply.bulks(&user.passwords().iter().map(|digest| digest.hex()).collect::<Vec<_>>());
    if let Some(own) = selectors.next() {
        show(call, own);
    }
    let more: Vec<_> = selectors.collect();
    call.reply.bulk(b"selectors");
    call.reply.array(more.len());
    for selector in more {
        call.reply.map(3);
        show(call, selector);
    }
    if let Some(most) = priority_max {
        call.reply.bulk(b"lock-priority-max");
        call.reply.integer(most.into());
    }
    Ok(Outcome::Replied)
}

fn show(call: &mut Call<'_, '_>, selector: &Selector) {
    let parts =
        [("commands", selector.commands()), ("keys", selector.keys()), ("channels", selector.channels())];
    for (name, value) in parts {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(&value);
    }
}

fn dryrun(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let account = call.shared.access.acl.find(name);
    let account = account.ok_or_else(|| Refusal::quoting("ERR User '", name, "' not found"))?;
    let words: Vec<&[u8]> = call.args.rest().collect();
    let unknown = || Refusal::quoting("ERR Command '", words[0], "' not found");
    let mut command = call.shared.commands.find(words[0]).ok_or_else(unknown)?;
    if let Some(name) = words.get(1).filter(|_| !command.subcommands.is_empty()) {
        command = command.subcommand(name).ok_or_else(unknown)?;
    }
    if !command.fits(words.len()) {
        return Err(Refusal::Arity(command.name.as_str().into()));
    }

    let request = redlatch_proto::resp::Request::listed(&words);
    let quoted = |kind: &str, at: usize| {
        [b"This user has no permissions to access the '", words[at], b"' ", kind.as_bytes()].concat()
    };
    match account.user().check(&acl_check::asked(command, request)) {
        Ok(()) => call.reply.ok(),
        Err(Denied::Command) => {
            let name = &command.name;
            call.reply.bulk(format!("This user has no permissions to run the '{name}' command").as_bytes());
        }
        Err(Denied::Key(at)) => call.reply.bulk(&quoted("key", at)),
        Err(Denied::Channel(at)) => call.reply.bulk(&quoted("channel", at)),
    }
    Ok(Outcome::Replied)
}
